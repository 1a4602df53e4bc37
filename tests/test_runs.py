"""Runs of notebooks: what is refused before anything runs, what a failure leaves behind, and the ways to run a page without this package's help."""
import base64, json, os, re
from pathlib import Path

import nbformat, papermill, pytest, yaml

from robustness_nb import claims, records, runs
from robustness_nb.records import load
from robustness_nb.runs import RunError, experiments, notebook_path, read_parameters, reproduce, resolve, run

from conftest import ROOT, SMALL, files_in, process

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PARAMETERS = '''from typing import Optional
seeds: Optional[list[int]] = None  # what to draw with; None: as the preset says
size: int = 3  # how many
preset: str = "quick"  # quick or long
rerun: bool = False  # measure even if there is a record'''
SETUP = '''import os
from robustness_nb.datasets import digits
from robustness_nb.records import Record, obtain, publish
record, replayed = obtain("tiny", dict(seeds=seeds or [7], size=size), [digits()], lambda: ([dict(value=size)], dict(size=size)), rerun=rerun)'''
FIGURE = f'''#| label: fig-dot
from IPython.display import Image
Image(data={DOT!r}, format="png")'''
TRAP = '''if os.environ.get("TRAP") == "exception": raise ZeroDivisionError("no luck today")
if os.environ.get("TRAP") == "kernel": os._exit(1)'''


def write_notebook(path, *cells):
    "A notebook of a heading and code cells; the first is its parameter cell."
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A page"), *map(nbformat.v4.new_code_cell, cells)])
    nb.cells[1].metadata["tags"] = ["parameters"]
    nb.metadata["kernelspec"] = dict(name="python3", display_name="python3", language="python")
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)


@pytest.fixture
def project(tmp_path, monkeypatch, runs_folder):
    "A root of its own with the experiments `broken`, which always fails, and `tiny`, which fails when the variable TRAP says so."
    pages = tmp_path / "root" / "nbs" / "papers"
    write_notebook(pages / "tiny.ipynb", PARAMETERS, SETUP, FIGURE, "Image(data=b'not labelled', format='png')", TRAP, "publish(record, replayed)")
    write_notebook(pages / "broken.ipynb", PARAMETERS, "1 / 0")
    write_notebook(pages / "scorecard.ipynb", 'preset: str = "quick"  # whose records to judge', "preset")
    presets = dict(quick=dict(seeds=[7]), long=dict(seeds=[7, 8], size=100))
    known = {name: dict(notebook=f"nbs/papers/{name}.ipynb", presets=presets) for name in ("broken", "tiny")}
    (tmp_path / "root/experiments.yaml").write_text(yaml.safe_dump(known))
    monkeypatch.setenv("ROBUSTNESS_NB_EXPERIMENTS", str(tmp_path / "root/experiments.yaml"))
    monkeypatch.setenv("ROBUSTNESS_NB_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def no_kernel(monkeypatch):
    "Fails the test if a notebook is executed."
    monkeypatch.setattr(papermill, "execute_notebook", lambda *arguments, **options: pytest.fail("a notebook was executed"))


# --- refused before anything runs


@pytest.mark.parametrize("given, words", [
    (dict(seed=[1]), ["parameter", "'seed'", "seeds"]),
    (dict(colour="red"), ["parameter", "'colour'", "models", "test_size"]),
    (dict(models=["svm"]), ["model", "'svm'", "svc"]),
    (dict(models="svc"), ["models", "list[str]", "'svc'"]),
    (dict(models=[]), ["models", "empty"]),
    (dict(models=None), ["models", "list[str]", "None"]),
    (dict(corruptions=["blurr"]), ["corruption", "'blurr'", "blur"]),
    (dict(severities=[1, 0]), ["severit", "1 to 5", "0"]),
    (dict(severities=[6]), ["severit", "1 to 5", "6"]),
    (dict(severities=[2.5]), ["severities", "list[int]", "2.5"]),
    (dict(severities=[True]), ["severities", "list[int]", "True"]),
    (dict(severities=3), ["severities", "list[int]", "3"]),
    (dict(seeds=[]), ["seeds", "empty"]),
    (dict(seeds=[0, -1]), ["seeds", "at least 0", "-1"]),
    (dict(seeds=["0"]), ["seeds", "list[int]", "'0'"]),
    (dict(seeds=[0, 0]), ["seeds", "twice", "[0, 0]"]),
    (dict(ladder="digit"), ["ladder", "'digit'", "digits"]),
    (dict(ladder=5), ["ladder", "str", "5"]),
    (dict(test_size=-5), ["test_size", "-5"]),
    (dict(test_size=0), ["test_size", "0"]),
    (dict(test_size=1797), ["test_size", "1797", "1796"]),
    (dict(test_size=500.), ["test_size", "int", "500.0"]),
    (dict(test_size=True), ["test_size", "int", "True"]),
    (dict(split_seed=-1), ["split_seed", "from 0", "-1"]),
    (dict(split_seed=2**32), ["split_seed", str(2**32)]),
    (dict(rerun="yes"), ["rerun", "bool", "'yes'"]),
    (dict(preset="fast"), ["preset", "'fast'", "quick"]),
], ids=str)
def test_bad_parameters(given, words, runs_folder, no_kernel):
    with pytest.raises(ValueError) as caught: run("digits_gap", given)
    for word in words: assert word in str(caught.value)
    assert files_in(runs_folder.parent) == []


@pytest.mark.parametrize("call, words", [
    (lambda: run("digit_gap"), ["experiment", "'digit_gap'", "digits_gap"]),
    (lambda: run("digits_gap", preset="fast"), ["preset", "'fast'", "quick", "laptop", "paper"]),
    (lambda: run("digits_gap", rerun="yes"), ["rerun", "bool", "'yes'"]),
    (lambda: runs.scorecard("fast"), ["preset", "'fast'", "quick"]),
    (lambda: reproduce("fast"), ["preset", "'fast'", "quick"]),
])
def test_unknown_names(call, words, runs_folder, no_kernel):
    with pytest.raises(ValueError) as caught: call()
    for word in words: assert word in str(caught.value)
    assert files_in(runs_folder.parent) == []


@pytest.mark.parametrize("folder", ["", "notebooks", "records", "figures"])
def test_an_output_folder_that_cannot_be_written(folder, project, tmp_path, no_kernel):
    output = tmp_path / "output"
    output.mkdir()
    in_the_way = output / (folder or "file")
    in_the_way.write_text("not a folder")
    with pytest.raises(OSError) as caught: run("tiny", output=output if folder else in_the_way)
    for word in ["cannot write", str(in_the_way)]: assert word in str(caught.value)
    assert files_in(output) == [in_the_way.name]


# --- parameters and presets


@pytest.mark.parametrize("name", experiments())
@pytest.mark.parametrize("preset", ["quick", "laptop", "paper"])
def test_every_preset_resolves(name, preset):
    resolved, given, known = resolve(name, dict(preset=preset)), experiments()[name]["presets"][preset], read_parameters(name)
    def spelled(value): return list(range(*map(int, value.split(":")))) if re.fullmatch(r"\d+:\d+", str(value)) else value
    assert {key: spelled(value) for key, value in given.items()}.items() <= resolved.items()
    assert all(value is not None or known[key].kind.startswith("Optional[") and key not in given for key, value in resolved.items())
    assert resolved.keys() == known.keys() - {"preset", "rerun"}


@pytest.mark.parametrize("given, expected", [
    (dict(), dict(seeds=[7], size=3)),
    (dict(preset="long"), dict(seeds=[7, 8], size=3)),
    (dict(preset="long", seeds=None), dict(seeds=[7, 8], size=3)),
    (dict(preset="long", size=None), dict(seeds=[7, 8], size=100)),
    (dict(preset="long", seeds=[1], size=4, unrelated=5), dict(seeds=[1], size=4)),
], ids=str)
def test_explicit_wins_and_none_takes_the_presets_value(given, expected, project):
    assert resolve("tiny", given) == expected


def test_every_line_of_a_parameter_cell_is_read_by_papermill_too():
    for path in map(notebook_path, experiments()):
        known = papermill.inspect_notebook(path)
        expected = read_parameters(next(name for name in experiments() if notebook_path(name) == path))
        assert known.keys() == expected.keys()
        assert all(line["help"] and line["inferred_type_name"] != "None" for line in known.values())


def test_a_notebook_without_parameters(project):
    nb = nbformat.read(project / "nbs/papers/tiny.ipynb", 4)
    del nb.cells[1]
    nbformat.write(nb, project / "nbs/papers/tiny.ipynb")
    with pytest.raises(ValueError) as caught: run("tiny")
    for word in ["tiny.ipynb", "parameters"]: assert word in str(caught.value)


# --- a run


@pytest.fixture
def good(project):
    "A good run of `tiny` in the folder for runs."
    return run("tiny", progress=False)


def trapped(cell): return "TRAP" in "".join(cell["source"])

def test_a_failure_half_way(good, runs_folder, project, monkeypatch):
    before = {name: (runs_folder / name).read_bytes() for name in files_in(runs_folder)}
    assert before.keys() == {f"{folder}/{good.notebook.stem}{end}" for folder, end in [("notebooks", ".ipynb"), ("records", ".json"), ("figures", "/fig-dot.png")]}
    monkeypatch.setenv("TRAP", "exception")
    with pytest.raises(RunError) as caught: run("tiny", rerun=True, progress=False)
    kept = good.notebook.with_name(f"{good.notebook.stem}.error.ipynb")
    for word in ["tiny.ipynb", "ZeroDivisionError", "no luck today", str(kept)]: assert word in str(caught.value)

    cells = json.loads(kept.read_text())["cells"]
    [failed] = [i for i, cell in enumerate(cells, 1) if any(o["output_type"] == "error" for o in cell.get("outputs", []))]
    [source] = [i for i, cell in enumerate(json.loads((project / "nbs/papers/tiny.ipynb").read_text())["cells"], 1) if trapped(cell)]
    assert trapped(cells[failed - 1]) and int(re.search(r"cell (\d+)", str(caught.value))[1]) in (source, failed)
    assert {name: (runs_folder / name).read_bytes() for name in files_in(runs_folder) if name != f"notebooks/{kept.name}"} == before

    monkeypatch.delenv("TRAP")
    assert run("tiny", progress=False).replayed and files_in(runs_folder) == sorted(before)


def test_a_kernel_that_dies(project, runs_folder, monkeypatch):
    monkeypatch.setenv("TRAP", "kernel")
    with pytest.raises(RunError) as caught: run("tiny", progress=False)
    assert "tiny.ipynb" in str(caught.value) and "ernel" in str(caught.value)
    assert [Path(name).suffixes[-2:] for name in files_in(runs_folder)] == [[".error", ".ipynb"]]


def test_an_interrupted_run_leaves_nothing(project, runs_folder, monkeypatch):
    def interrupted(source, target, *arguments, **options):
        Path(target).write_text("half a notebook")
        raise KeyboardInterrupt
    monkeypatch.setattr(papermill, "execute_notebook", interrupted)
    with pytest.raises(KeyboardInterrupt): run("tiny")
    assert files_in(runs_folder) == [] and os.environ["ROBUSTNESS_NB_RUNS"] == str(runs_folder)


def test_what_a_run_hands_back(project, tmp_path, runs_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("tiny", dict(size=5), preset="long", output="elsewhere", progress=False)
    output, stem = tmp_path / "elsewhere", f"tiny-{records.record_key('tiny', dict(seeds=[7, 8], size=5))}"
    assert (done.notebook, done.figures) == (output / "notebooks" / f"{stem}.ipynb", [output / "figures" / stem / "fig-dot.png"])
    assert done.figures[0].read_bytes() == DOT and not done.replayed
    assert load(done.record_path) == done.record and done.record_path.parent == output / "records" and done.record.metrics == dict(size=5)
    assert not runs_folder.exists() and os.environ["ROBUSTNESS_NB_RUNS"] == str(runs_folder)


def test_reproduce_goes_on_past_a_failure(project, runs_folder):
    made = reproduce(progress=False)
    assert made.failures.keys() == {"broken"} and made.runs.keys() == {"tiny"} and made.verdicts == dict(broken=[], tiny=[])
    for word in ["broken.ipynb", "ZeroDivisionError", ".error.ipynb"]: assert word in made.failures["broken"]
    assert made.scorecard == runs_folder / "notebooks" / "scorecard.ipynb" and made.scorecard.exists()
    assert not [name for name in files_in(runs_folder) if Path(name).name.startswith(".")]


# --- the paper's notebook as others run it


def sections(folder):
    "Rows and metrics of the one record in a folder for runs, as text."
    [path] = Path(folder).glob("records/*.json")
    return path.name, path.read_text().split(' "data":')[0]


def test_papermill_runs_the_page_from_anywhere(tmp_path, small_run):
    "As a process in another folder, with lists as papermill takes them; the record is that of `robustness-nb run`, to the byte."
    options = [word for name, value in SMALL.items() for word in ("-p", name, json.dumps(value))]
    done = process("papermill", ROOT / "nbs/papers/digits_gap.ipynb", "out.ipynb", *options, cwd=tmp_path, ROBUSTNESS_NB_RUNS=tmp_path / "runs")
    assert done.returncode == 0, done.stderr[-2000:]
    assert files_in(tmp_path)[0] == "out.ipynb" and sections(tmp_path / "runs") == sections(small_run[1])


@pytest.mark.slow
def test_papermill_with_a_bad_parameter(tmp_path):
    done = process("papermill", ROOT / "nbs/papers/digits_gap.ipynb", "out.ipynb", "-p", "severities", "[1, 6]", cwd=tmp_path, ROBUSTNESS_NB_RUNS=tmp_path / "runs")
    assert done.returncode != 0 and not (tmp_path / "runs").exists()
    for word in ["ValueError: severity", "1 to 5", "6"]: assert word in done.stderr


@pytest.mark.slow
def test_run_all_equals_a_run(tmp_path, monkeypatch):
    "JupyterLab's Run all: the untouched page, every cell, in the page's own folder."
    from nbclient import NotebookClient
    page = notebook_path("digits_gap")
    before = page.read_bytes()
    monkeypatch.setenv("ROBUSTNESS_NB_RUNS", str(tmp_path / "all"))
    nb = nbformat.reads(before.decode(), 4)
    NotebookClient(nb, kernel_name="python3", resources=dict(metadata=dict(path=str(page.parent)))).execute()
    done = run("digits_gap", output=tmp_path / "run", progress=False)
    assert sections(tmp_path / "all") == sections(tmp_path / "run") and not done.replayed
    assert page.read_bytes() == before


# --- the scorecard


def test_without_a_record_no_claim_is_tested(runs_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "root", lambda: tmp_path)
    for name, verdicts in runs.scorecard().items():
        assert len(verdicts) == len(claims.claims(name)) and {v.verdict for v in verdicts} <= {claims.NOT_TESTED}


def test_presets_are_one_file_that_a_person_can_edit():
    text = (ROOT / "robustness_nb/data/experiments.yaml").read_text()
    assert yaml.safe_load(text) == experiments() and all((ROOT / e["notebook"]).is_file() for e in experiments().values())
