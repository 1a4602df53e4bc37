"The house is in order: settings agree, notebooks follow the rules of the house, generated files are what their sources say."
import ast, configparser, json, re, shutil, subprocess, sys, tomllib
from pathlib import Path
import pytest, yaml
from nbdev.config import get_config

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT/"pyproject.toml").read_text())
PROJECT, EXTRAS = PYPROJECT["project"], PYPROJECT["project"]["optional-dependencies"]
WORKFLOWS = {p.stem: yaml.safe_load(p.read_text()) for p in (ROOT/".github/workflows").glob("*.yaml")}

def notebooks(pattern="**/*.ipynb"): # their paths from the root
    paths = (p.relative_to(ROOT) for p in (ROOT/"nbs").glob(pattern))
    return sorted(str(p) for p in paths if not any(part[0] in "._" for part in p.parts))

def source(cell): return "".join(cell["source"])

def code_cells(path): # of a notebook, without %%magic cells
    cells = json.loads((ROOT/path).read_text())["cells"]
    return [c for c in cells if c["cell_type"] == "code" and not source(c).startswith("%%")]

def options(cell): # {directive: value} of its #| lines
    return dict(re.findall(r"^#\| *([\w-]+):? *(.*)$", source(cell), re.M))

def tree(cell): # syntax tree of its Python, line magics left out
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source(cell), flags=re.M))

# --- settings.ini, pyproject.toml, environment.yml, CITATION.cff

def classic(value): # how settings.ini writes a value of nbdev 3
    if isinstance(value, Path): return value.relative_to(ROOT).as_posix()
    if isinstance(value, list): return " ".join(v.replace(" ", "-") for v in value)
    return str(value)

def test_settings_ini_equals_pyproject():
    parser = configparser.ConfigParser()
    parser.read(ROOT/"settings.ini")
    settings, config = dict(parser["DEFAULT"]), get_config(ROOT)
    assert settings.pop("license") == "apache2" and PROJECT["license"] == "Apache-2.0"
    assert settings.pop("requirements").split() == PROJECT["dependencies"]
    assert settings.pop("dev_requirements").split() == EXTRAS["dev"]
    assert settings.pop("console_scripts").split() == [f"{k}={v}" for k, v in PROJECT["scripts"].items()]
    assert settings == {key: classic(getattr(config, key)) for key in settings}
    needed = "lib_name version description min_python user repo git_url doc_host doc_baseurl nbs_path lib_path doc_path tst_flags"
    assert set(needed.split()) | {"allowed_cell_metadata_keys", *PYPROJECT["tool"]["nbdev"]} - {"exec_profile"} <= settings.keys()

def test_environment_yml_equals_pyproject():
    environment = yaml.safe_load((ROOT/"environment.yml").read_text())
    *conda, last = environment["dependencies"]
    nbdev, *rest = EXTRAS["dev"]
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert last == {"pip": [nbdev, "-e ."]}
    lab = "jupyterlab nbdime jupyterlab-git jupyterlab-execute-time jupyter-resource-usage ipywidgets".split()
    extensions = [c for c in conda if re.match(r"[\w-]+", c)[0] in lab[1:]]
    assert [re.match(r"[\w-]+", c)[0] for c in extensions] == lab[1:]
    python = f"python{PROJECT['requires-python']}"
    assert sorted(set(conda) - set(extensions)) == sorted([python, "pip", "quarto", *PROJECT["dependencies"], *rest])

def test_citation_has_our_version_and_cites_the_four_works():
    citation = yaml.safe_load((ROOT/"CITATION.cff").read_text())
    assert citation["version"] == get_config(ROOT).version and citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"] and citation["url"] == PROJECT["urls"]["Documentation"]
    assert len(citation["references"]) == 4

def test_licence_is_apache():
    text = (ROOT/"LICENSE").read_text()
    assert "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text

def test_every_citation_is_in_the_bibliography():
    keys = re.findall(r"^@\w+\{([^,]+),", (ROOT/"refs.bib").read_text(), re.M)
    assert len(keys) == len(set(keys))
    for path in notebooks():
        prose = "\n".join(source(c) for c in json.loads((ROOT/path).read_text())["cells"] if c["cell_type"] == "markdown")
        cited = {key for group in re.findall(r"\[[^\]]*@[^\]]*\]", prose) for key in re.findall(r"(?<![\w.])@([\w:.-]*\w)", group)}
        cited = {key for key in cited if not re.match("(fig|tbl|eq|sec|lst)-", key)}
        assert cited <= set(keys), f"{path} cites {cited - set(keys)}"

# --- notebooks

def test_there_are_notebooks(): assert notebooks("lib/*.ipynb") and notebooks("papers/*.ipynb") and notebooks("index.ipynb")

@pytest.mark.parametrize("path", notebooks("papers/*.ipynb"))
def test_papers_keep_their_parameters_tag(path):
    tags = [tag for cell in code_cells(path) for tag in cell["metadata"].get("tags", [])]
    assert tags.count("parameters") == 1 or path.endswith("scorecard.ipynb") and not tags.count("parameters")

@pytest.mark.parametrize("path", notebooks())
def test_imports_stand_alone(path):
    "The site's build runs every cell with an import. An exported function may import what is heavy."
    for cell in code_cells(path):
        body, imports = tree(cell).body, (ast.Import, ast.ImportFrom)
        lazy = any(isinstance(node, imports) for top in body for node in ast.walk(top) if not isinstance(top, imports))
        alone = all(isinstance(top, (*imports, ast.Pass)) for top in body)
        assert alone or not any(isinstance(top, imports) for top in body), f"imports beside code:\n{source(cell)}"
        assert not lazy or {"export", "exports", "exporti"} & options(cell).keys(), f"import inside code that is not exported:\n{source(cell)}"

@pytest.mark.parametrize("path", notebooks())
def test_outputs_are_saved(path):
    cells = code_cells(path)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs or not cells, "no outputs: run nbdev-test --path ... --save"
    assert not any(output["output_type"] == "error" for output in outputs)

@pytest.mark.parametrize("path", notebooks())
def test_figures_have_caption_alt_text_and_picture(path):
    for cell in code_cells(path):
        asked = options(cell)
        if not asked.get("label", "").startswith("fig-"): continue
        assert len(asked.get("fig-cap", "")) > 10 and len(asked.get("fig-alt", "")) > 10, source(cell)
        assert any(kind.startswith("image/") for out in cell["outputs"] for kind in out.get("data", {})), f"no picture saved:\n{source(cell)}"

def siblings(node): # modules of this package that an import names
    if isinstance(node, ast.Import): names = [a.name for a in node.names if a.name.startswith("robustness_nb.")]
    elif isinstance(node, ast.ImportFrom):
        base = f"robustness_nb.{node.module or ''}".rstrip(".") if node.level else node.module
        names = [f"{base}.{a.name}" for a in node.names] if base == "robustness_nb" else [base] if base.startswith("robustness_nb.") else []
    else: names = []
    return {name.split(".")[1] for name in names}

def test_library_imports_only_smaller_numbers():
    number = {}
    for path in notebooks("lib/*.ipynb"):
        n, name = re.fullmatch(r"nbs/lib/(\d\d)_(\w+)\.ipynb", path).groups()
        assert [c for c in code_cells(path) if options(c).get("default_exp") == name], f"{path} should have `#| default_exp {name}`"
        number[name] = int(n)
    assert len(set(number.values())) == len(number)
    for path in notebooks("lib/*.ipynb"):
        used = {name for cell in code_cells(path) for node in ast.walk(tree(cell)) for name in siblings(node)}
        larger = {name for name in used & number.keys() if number[name] >= int(Path(path).name[:2])}
        assert not larger, f"{path} imports {larger}"

# --- generated files

def test_modules_are_generated():
    made = {Path(path).stem[3:] for path in notebooks("lib/*.ipynb")}
    assert {p.stem for p in (ROOT/"robustness_nb").glob("*.py")} == made | {"__init__", "_modidx"}
    for name in made:
        text = (ROOT/f"robustness_nb/{name}.py").read_text()
        assert re.search(rf"# AUTOGENERATED! DO NOT EDIT! File to edit: \.\./nbs/lib/\d\d_{name}\.ipynb", text)

def test_readme_equals_index():
    done = subprocess.run([sys.executable, ROOT/"tools/readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

def test_readme_links_lead_somewhere():
    text = re.sub(r"^```.*?^```", "", (ROOT/"README.md").read_text(), flags=re.S | re.M)
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text)
    assert links and not [link for link in links if not (ROOT/link).exists()]

NOTEBOOK = dict(nbformat=4, nbformat_minor=5, metadata={}, cells=[
    dict(cell_type="code", id="a", metadata={}, execution_count=None, outputs=[], source="#| default_exp a"),
    dict(cell_type="code", id="b", metadata=dict(tags=["parameters"], noise=1), execution_count=3, outputs=[], source="#| export\nx = 1")])

def test_check_clean_names_what_changed_and_keeps_tags(tmp_path):
    for name in "pyproject.toml", "tools/check_clean.py", "robustness_nb/__init__.py":
        (tmp_path/name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT/name, tmp_path/name)
    notebook = tmp_path/"nbs/00_a.ipynb"
    notebook.parent.mkdir()
    notebook.write_text(json.dumps(NOTEBOOK))
    check = [sys.executable, tmp_path/"tools/check_clean.py"]
    first = subprocess.run(check, capture_output=True, text=True)
    assert first.returncode == 1 and "nbs/00_a.ipynb" in first.stdout and "robustness_nb/a.py" in first.stdout, first
    assert json.loads(notebook.read_text())["cells"][1]["metadata"] == {"tags": ["parameters"]}
    assert subprocess.run(check).returncode == 0

def test_importing_the_package_is_light():
    code = "import robustness_nb, sys; print({'torch', 'matplotlib', 'pandas', 'sklearn'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip() == "set()"

# --- commands

TARGETS = "help reproduce test docs lab bench clean".split()

def make(folder, *arguments): return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True)

def test_make_lists_its_targets():
    listed = re.findall(r"^make (\w+) ", make(ROOT).stdout, re.M)
    assert listed == TARGETS

@pytest.mark.parametrize("target, stamp", [("reproduce", ".core"), ("test", ".dev"), ("lab", ".dev"), ("docs", ".dev"), ("bench", ".bench")])
def test_make_installs_once(tmp_path, target, stamp):
    for name in "Makefile", "pyproject.toml": shutil.copy(ROOT/name, tmp_path/name)
    assert "-m venv .venv" in make(tmp_path, "-n", target).stdout
    (tmp_path/".venv/bin").mkdir(parents=True)
    (tmp_path/".venv/bin/pip").touch()
    assert "pip install" in make(tmp_path, "-n", target).stdout
    (tmp_path/".venv"/stamp).touch()
    again = make(tmp_path, "-n", target)
    assert again.returncode == 0 and "pip install" not in again.stdout
    assert "pip install" in make(tmp_path, "-n", "-W", "pyproject.toml", target).stdout

def test_ci_runs_make_test():
    script = ROOT/".ci/run"
    assert script.stat().st_mode & 0o111 and script.read_text().strip().endswith("make test </dev/null")
    subprocess.run(["bash", "-n", script], check=True)

# --- workflows

def steps(workflow): return [step for job in workflow["jobs"].values() for step in job["steps"]]

def triggers(name): return set(WORKFLOWS[name][True]) # YAML 1.1 reads `on` as True

def test_workflow_triggers():
    assert WORKFLOWS.keys() == {"test", "docs", "gpu"}
    assert triggers("test") == {"push", "pull_request"}
    assert triggers("docs") == {"push", "workflow_dispatch"}
    assert triggers("gpu") == {"workflow_dispatch", "schedule"}, "the GPU machine never runs on push or pull_request"

@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_are_pinned_and_have_the_least_permissions(name):
    workflow = WORKFLOWS[name]
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used and all(re.fullmatch(r"[\w./-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", u) for u in used)
    writes = {key for key, value in workflow["permissions"].items() if value == "write"}
    assert writes == dict(test=set(), docs={"contents"}, gpu={"contents", "pull-requests"})[name]
    assert all("permissions" not in job and job["timeout-minutes"] for job in workflow["jobs"].values())
    assert not any("${{" in step.get("run", "") for step in steps(workflow)), "give a script its inputs through env"

def test_test_workflow_runs_ci_on_every_python():
    job = WORKFLOWS["test"]["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert PROJECT["requires-python"] == f">={job['strategy']['matrix']['python'][0]}"

def test_docs_workflow_publishes_with_a_pinned_quarto():
    by_action = {step["uses"].split("@")[0]: step.get("with", {}) for step in steps(WORKFLOWS["docs"]) if "uses" in step}
    assert re.fullmatch(r"\d+\.\d+\.\d+", by_action["quarto-dev/quarto-actions/setup"]["version"])
    assert by_action["quarto-dev/quarto-actions/publish"] == dict(target="gh-pages", path="_proc", render=True)

def test_gpu_workflow_runs_a_preset_on_our_own_machine():
    workflow, (job,) = WORKFLOWS["gpu"], WORKFLOWS["gpu"]["jobs"].values()
    inputs = workflow[True]["workflow_dispatch"]["inputs"]
    experiments = yaml.safe_load((ROOT/"robustness_nb/data/experiments.yaml").read_text())
    assert inputs.keys() == {"experiment", "preset"}
    assert inputs["preset"]["options"] == list(dict.fromkeys(p for e in experiments.values() for p in e["presets"]))
    assert "self-hosted" in job["runs-on"] and job["if"] == "github.repository == 'robustness-nb/robustness_nb'"
    assert any("robustness-nb reproduce --preset" in step.get("run", "") for step in job["steps"])
    (upload,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()" and upload["with"]["path"] == "_runs/"
    assert any("create-pull-request" in step.get("uses", "") for step in job["steps"])
