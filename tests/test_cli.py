"""The command line as a process: with --json exactly one JSON object on stdout, whatever happens; exit 0 success, 1 failure, 2 usage."""
import json
from pathlib import Path

import papermill, pytest

import robustness_nb
from robustness_nb import attacks, claims, cli, corruptions, runs
from robustness_nb.metrics import relative_robustness, robustness_gap

from conftest import SMALL, files_in, process


def parsed(text):
    "The one JSON object that `text` is. NaN and Infinity are no JSON."
    def refuse(constant): raise ValueError(f"{constant} is not JSON")
    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict) and text.count("\n") == 1
    return found


@pytest.fixture
def folder(tmp_path, runs_folder):
    "A working folder with files for -f."
    (tmp_path / "seed.yaml").write_text("seed: [1]\n")
    (tmp_path / "severities.yaml").write_text("severities: [0]\n")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    (tmp_path / "damaged.yaml").write_text("seeds: [0, 1\nmodels: {\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01seeds")
    return tmp_path


FAILURES = [ # command, exit code, words of the error
    ("run digit_gap", 1, ["experiment", "'digit_gap'", "digits_gap"]),
    ("run nothing_like_it", 1, ["experiment", "'nothing_like_it'", "digits_gap"]),
    ("run digits_gap --preset fast", 1, ["preset", "'fast'", "laptop", "paper", "quick"]),
    ("run digits_gap -p preset=fast", 1, ["preset", "'fast'", "quick"]),
    ("run digits_gap -p seed=[1]", 1, ["parameter", "'seed'", "seeds"]),
    ("run digits_gap -p models=[svm]", 1, ["model", "'svm'", "svc"]),
    ("run digits_gap -p corruptions=[blurr]", 1, ["corruption", "'blurr'", "blur"]),
    ("run digits_gap -p severities=[0]", 1, ["1 to 5", "0"]),
    ("run digits_gap -p severities=[6]", 1, ["1 to 5", "6"]),
    ("run digits_gap -p severities=[2.5]", 1, ["severities", "list[int]", "2.5"]),
    ("run digits_gap -p rerun=maybe", 1, ["rerun", "bool", "'maybe'"]),
    ("run digits_gap -p seeds=[0,", 1, ["seeds=[0,", "YAML"]),
    ("run digits_gap -f missing.yaml", 1, ["missing.yaml"]),
    ("run digits_gap -f .", 1, ["'.'"]),
    ("run digits_gap -f damaged.yaml", 1, ["damaged.yaml", "YAML"]),
    ("run digits_gap -f binary.yaml", 1, ["binary.yaml"]),
    ("run digits_gap -f list.yaml", 1, ["list.yaml", "name: value"]),
    ("run digits_gap -f seed.yaml", 1, ["parameter", "'seed'", "seeds"]),
    ("run digits_gap -f severities.yaml", 1, ["1 to 5", "0"]),
    ("run digits_gap -f severities.yaml -p severities=[6]", 1, ["1 to 5", "6"]),
    ("run digits_gap --output seed.yaml", 1, ["cannot write", "seed.yaml"]),
    ("run digits_gap --output seed.yaml/deeper", 1, ["cannot write", "seed.yaml/deeper"]),
    ("reproduce --preset fast", 1, ["preset", "'fast'", "quick"]),
    ("reproduce --output seed.yaml", 1, ["cannot write", "seed.yaml"]),
    ("scorecard --preset fast", 1, ["preset", "'fast'", "quick"]),
    ("corruptions --ladder digit", 1, ["ladder", "'digit'", "digits"]),
    ("run", 2, ["experiment"]),
    ("run digits_gap -p seeds", 2, ["name=value", "'seeds'"]),
    ("run digits_gap --colour red", 2, ["--colour"]),
    ("run digits_gap -p", 2, ["-p"]),
    ("run digits_gap quick", 2, ["quick"]),
    ("version now", 2, ["now"]),
    ("rum digits_gap", 2, ["rum"]),
    ("--colour", 2, ["--colour"]),
]
PROCESSES = "run digit_gap", "run digits_gap -f missing.yaml", "run", "run digits_gap --colour red"

def each(failures): return pytest.mark.parametrize("command, code, words", [pytest.param(*failure, id=failure[0]) for failure in failures])

def json_of(command):
    "The words of a command with --json after the first."
    first, *others = command.split()
    return [first, "--json", *others]


def called(words, capfd):
    "A command in this process: (exit code, stdout, stderr)."
    capfd.readouterr()
    with pytest.raises(SystemExit) as end: cli.main(words.split() if isinstance(words, str) else words)
    return end.value.code, *capfd.readouterr()


# --- failures


@each(FAILURES)
def test_failures_are_one_json_object(command, code, words, folder, capfd, monkeypatch):
    monkeypatch.chdir(folder)
    before = files_in(folder)
    found, out, err = called(json_of(command), capfd)
    payload = parsed(out)
    assert (found, payload["ok"]) == (code, False) and "Traceback" not in err and files_in(folder) == before
    for word in words: assert word in payload["error"]


@each(FAILURES)
def test_failures_are_a_line_on_stderr(command, code, words, folder, capfd, monkeypatch):
    monkeypatch.chdir(folder)
    before = files_in(folder)
    found, out, err = called(command, capfd)
    assert (found, out) == (code, "") and "Traceback" not in err and files_in(folder) == before
    for word in words: assert word in err


@each(failure for failure in FAILURES if failure[0] in PROCESSES)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_a_process_fails_alike(command, code, words, as_json, folder):
    done = process("robustness-nb", *(json_of(command) if as_json else command.split()), cwd=folder)
    assert done.returncode == code and "Traceback" not in done.stderr
    if not as_json: assert done.stdout == ""
    for word in words: assert word in (parsed(done.stdout)["error"] if as_json else done.stderr)


@pytest.mark.parametrize("variable, value, command, word", [
    ("ROBUSTNESS_NB_ROOT", "missing", "run digits_gap", "notebooks"),
    ("ROBUSTNESS_NB_ROOT", "missing", "doctor", "notebooks"),
    ("ROBUSTNESS_NB_RUNS", "seed.yaml", "doctor", "cannot write"),
    ("ROBUSTNESS_NB_RUNS", "seed.yaml", "run digits_gap", "cannot write"),
])
def test_a_setting_that_cannot_work(variable, value, command, word, folder, capfd, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv(variable, str(folder / value))
    code, out, _ = called(f"{command} --json", capfd)
    payload = parsed(out)
    assert (code, payload["ok"]) == (1, False) and word in payload["error"] and value in payload["error"]
    code, out, err = called(command, capfd)
    assert (code, out) == (1, "") and word in err


@pytest.mark.parametrize("error, message", [(KeyError("a bug"), "a bug"), (ZeroDivisionError("another"), "another"), (KeyboardInterrupt(), "interrupted")], ids=repr)
def test_even_a_bug_is_one_json_object(error, message, capfd, monkeypatch):
    def fails(*arguments, **options): raise error
    monkeypatch.setattr(runs, "run", fails)
    code, out, _ = called("run digits_gap --json", capfd)
    assert code == 1 and message in parsed(out)["error"]


def test_reproduce_reports_what_worked_and_what_failed(capfd, monkeypatch, tmp_path):
    made = runs.Reproduction({}, dict(digits_gap="digits_gap.ipynb, cell 3: ValueError: no digits"), runs.scorecard(), tmp_path / "scorecard.ipynb")
    monkeypatch.setattr(runs, "reproduce", lambda *arguments, **options: made)
    code, out, _ = called("reproduce --json", capfd)
    payload = parsed(out)
    assert (code, payload["ok"]) == (1, False) and "cell 3: ValueError: no digits" in payload["error"] and payload["claims"]
    code, out, err = called("reproduce", capfd)
    assert (code, out) == (1, "") and "cell 3: ValueError: no digits" in err


# --- successes


@pytest.mark.parametrize("command", ["version", "corruptions --ladder digits_mild", "scorecard --preset paper", "doctor"])
def test_a_process_succeeds(command, folder):
    with_json, text = (process("robustness-nb", *command.split(), *options, cwd=folder) for options in (["--json"], []))
    payload = parsed(with_json.stdout)
    assert with_json.returncode == text.returncode == 0 and payload["ok"] is True and with_json.stderr == text.stderr == ""
    assert text.stdout.strip() and not text.stdout.startswith("{")


def test_version(capfd):
    _, out, _ = called("version --json", capfd)
    assert parsed(out) == dict(ok=True, version=robustness_nb.__version__)
    assert called("version", capfd)[1].strip() == robustness_nb.__version__
    assert process("python", "-m", "robustness_nb.cli", "version").stdout.strip() == robustness_nb.__version__


def test_version_is_light():
    code = """import sys
from robustness_nb.cli import main
try: main(["version"])
except SystemExit: print(*{"numpy", "torch", "matplotlib", "pandas", "sklearn", "scipy", "papermill"} & sys.modules.keys(), file=sys.stderr)"""
    done = process("python", "-c", code)
    assert done.stdout.strip() == robustness_nb.__version__ and done.stderr.strip() == ""


def test_help_names_every_command_and_option(capfd):
    code, out, _ = called("--help", capfd)
    assert code == 0 and all(name in out for name in ["reproduce", "run", "scorecard", "corruptions", "attacks", "doctor", "version"])
    code, out, _ = called("run --help", capfd)
    assert code == 0 and all(name in out for name in ["experiment", "-p", "-f", "--preset", "--rerun", "--output", "--json"])


def test_attacks_are_listed(capfd):
    assert parsed(called("attacks --json", capfd)[1])["attacks"] == attacks.table()
    text = called("attacks", capfd)[1]
    assert all(name in text for name in ["FGSM", "PGD", "SimBA", "step_size", "max_iter", "gradient"])

def test_corruptions_are_listed(capfd):
    payload = parsed(called("corruptions --ladder digits_strong --json", capfd)[1])
    assert payload["corruptions"] == corruptions.table("digits_strong") and payload["ladder"] == "digits_strong" and payload["ladders"] == corruptions.ladders()
    text = called("corruptions", capfd)[1]
    assert all(name in text for name in corruptions.names())


def test_scorecard_lists_every_claim(runs_folder, capfd):
    payload = parsed(called("scorecard --json", capfd)[1])
    known = {claim.id: claim for name in runs.experiments() for claim in claims.claims(name)}
    assert {row["id"] for row in payload["claims"]} == known.keys()
    assert all({"experiment", "claim", "published", "ours", "verdict"} <= row.keys() for row in payload["claims"])
    text = called("scorecard", capfd)[1]
    assert text.count(claims.NOT_TESTED.split()[0]) + text.count("reproduced") >= len(known)


def test_doctor_checks_what_commands_need(runs_folder, capfd):
    found = {row["check"]: row for row in parsed(called("doctor --json", capfd)[1])["checks"]}
    assert all(row["ok"] for row in found.values() if row["needed"])
    assert str(runs_folder) in [row["found"] for row in found.values()]


# --- run


@pytest.fixture(scope="module")
def payload(small_run):
    assert small_run[0].returncode == 0, small_run[0].stderr
    return parsed(small_run[0].stdout)


def test_run_reports_every_measure_for_each_model(payload):
    assert payload["ok"] is True and payload["experiment"] == "digits_gap" and SMALL.items() <= payload["parameters"].items()
    assert payload["metrics"].keys() == set(SMALL["models"])
    for metrics in payload["metrics"].values():
        matrix = [value for name in SMALL["corruptions"] for value in metrics["matrix"][name]]
        assert [len(row) for row in metrics["matrix"].values()] == [len(SMALL["severities"])] * len(SMALL["corruptions"])
        assert metrics["per_corruption"] == pytest.approx({name: sum(row) / len(row) for name, row in metrics["matrix"].items()})
        assert metrics["mean_corrupted_accuracy"] == pytest.approx(sum(matrix) / len(matrix))
        assert metrics["robustness_gap"] == pytest.approx(robustness_gap(metrics["clean_accuracy"], metrics["mean_corrupted_accuracy"]))
        assert metrics["relative_robustness"] == pytest.approx(relative_robustness(metrics["clean_accuracy"], metrics["mean_corrupted_accuracy"]))
    assert payload["metrics"]["svc"]["clean_accuracy"] == .988


def test_run_writes_where_it_says(payload, small_run):
    folder = small_run[1]
    paths = [Path(path) for path in (payload["record"], payload["notebook"], *payload["figures"])]
    assert all(path.is_file() and folder in path.parents for path in paths) and len(payload["figures"]) >= 3
    assert not [name for name in files_in(folder) if Path(name).name.startswith(".")]
    assert {row["seed"] for row in json.loads(paths[0].read_text())["rows"]} == {None, *SMALL["seeds"]}


@pytest.mark.parametrize("options, preset, rerun", [
    ("", "quick", False), ("--preset laptop --rerun", "laptop", True), ("-p preset=paper -p rerun=true", "paper", True),
    ("--preset laptop -p preset=paper", "laptop", False), ("-f preset.yaml", "paper", False), ("-f preset.yaml -p preset=laptop", "laptop", False)])
def test_preset_and_rerun_as_options_or_parameters(options, preset, rerun, folder, capfd, monkeypatch):
    (folder / "preset.yaml").write_text("preset: paper\n")
    asked = []
    def execute(source, target, parameters, *arguments, **options):
        asked.append((parameters["preset"], parameters["rerun"]))
        raise RuntimeError("asked enough")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(papermill, "execute_notebook", execute)
    assert "asked enough" in parsed(called(f"run digits_gap {options} --json", capfd)[1])["error"] and asked == [(preset, rerun)]


@pytest.mark.slow
def test_reproduce_from_nothing(tmp_path):
    "Two processes: the first measures, the second replays and prints for people."
    first = process("robustness-nb", "reproduce", "--output", tmp_path / "out", "--json", cwd=tmp_path)
    payload = parsed(first.stdout)
    assert first.returncode == 0 and payload["ok"] and payload["runs"].keys() == runs.experiments().keys()
    untested = {row["experiment"] for row in payload["claims"] if row["verdict"] == claims.NOT_TESTED}
    assert payload["claims"] and "digits_gap" not in untested
    made = [Path(path) for done in payload["runs"].values() for path in (done["notebook"], done["record"], *done["figures"])]
    assert all(path.is_file() and {tmp_path / "out", runs.root() / "results"} & {*path.parents} for path in [Path(payload["scorecard"]), *made])
    second = process("robustness-nb", "reproduce", "--output", tmp_path / "out", cwd=tmp_path)
    assert second.returncode == 0 and second.stdout.count("replayed") == len(payload["runs"])
    assert all(str(path.parent) in second.stdout for path in made) and payload["scorecard"] in second.stdout
