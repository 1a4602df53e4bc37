"What several test files share: digits, fitted models, a folder for runs, and the command line as a process."
import json, os, subprocess, sys
from pathlib import Path

import pytest

from robustness_nb import datasets, models

ROOT = Path(__file__).resolve().parent.parent
SMALL = dict(models=["svc", "majority_class"], corruptions=["blur", "gaussian_noise"], severities=[1, 5], seeds=[0, 1])


@pytest.fixture(scope="session")
def digits_split():
    "The split of the paper's notebook: (train, test)."
    return datasets.split(datasets.digits(), test_size=500, seed=7)


@pytest.fixture(scope="session")
def fitted(digits_split):
    "Three models, fitted on the training digits."
    return {name: models.fit(name, digits_split[0]) for name in ("svc", "knn", "majority_class")}


@pytest.fixture
def runs_folder(tmp_path, monkeypatch):
    "An empty folder that runs and records write to."
    folder = tmp_path / "runs"
    monkeypatch.setenv("ROBUSTNESS_NB_RUNS", str(folder))
    return folder


def files_in(folder):
    "Every file below a folder, hidden ones included."
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def process(*command, cwd=None, **environment):
    "A command of this Python's environment, run to its end."
    program = [str(Path(sys.executable).parent / command[0]), *map(str, command[1:])]
    return subprocess.run(program, cwd=cwd, env={**os.environ, **{k: str(v) for k, v in environment.items()}}, capture_output=True, text=True)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    "`robustness-nb run digits_gap --json` on SMALL; its seeds overrule those of a parameter file: (the finished process, its output folder)."
    folder = tmp_path_factory.mktemp("small_run")
    (folder / "small.yaml").write_text(json.dumps({**SMALL, "seeds": [5, 6, 7]}))
    command = ["run", "digits_gap", "-f", "small.yaml", "-p", f"seeds={SMALL['seeds']}", "--output", "out", "--json"]
    return process("robustness-nb", *command, cwd=folder), folder / "out"
