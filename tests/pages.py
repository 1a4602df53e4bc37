"A page that is quick to run, for tests of sweeps: `sums`, an experiment with a root and a file of experiments of its own."
import json, os, sys, tempfile, time
from pathlib import Path

import nbformat, yaml

PARAMETERS = '''from typing import Optional
models: list[str] = ["svc", "knn"]  # names
seeds: Optional[list[int]] = None  # whole numbers; None: as the preset says
size: int = 3  # how many
preset: str = "quick"  # quick or long
rerun: bool = False  # measure even if there is a record'''
SETUP = '''import os, signal, time
from pathlib import Path
from robustness_nb.datasets import Dataset
from robustness_nb.records import obtain, publish
import numpy as np'''
MEASURE = '''parameters = dict(models=models, seeds=seeds or [7], size=size)
log = Path(os.environ["SUMS_LOG"])
def trap(name): return (log / name).exists() and str(parameters["seeds"][0]) in (log / name).read_text().split()
def measure():
    with open(log / "measured", "a") as lines: lines.write(f"{models} {seeds} {size} {os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")
    time.sleep(float(os.environ.get("SUMS_SECONDS", 0)))
    sum(range(int(float(os.environ.get("SUMS_LOOP", 0)))))
    if trap("raises"): raise ZeroDivisionError("no luck today")
    if trap("dies"): os.kill(os.getpid(), signal.SIGKILL)
    if trap("hangs"): time.sleep(600)
    rows = [dict(model=model, seed=seed, metric="sum", value=float(sum(map(ord, model)) * 1000 + seed * size)) for model in models for seed in parameters["seeds"]]
    return rows, {model: dict(total=sum(row["value"] for row in rows if row["model"] == model)) for model in models}
data = Dataset("points", np.zeros((2, 2)), np.array([0, 1]), ("0", "1"))
record, replayed = obtain("sums", parameters, [data], measure, rerun=rerun)'''


def write_page(path, *cells):
    "A notebook of code cells; the first is its parameter cell."
    nb = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    nb.cells[0].metadata["tags"] = ["parameters"]
    nb.metadata["kernelspec"] = dict(name="python3", display_name="python3", language="python")
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)


def make_root(folder):
    "Write root, page and experiments; the environment that makes them current."
    root = Path(folder) / "root"
    write_page(root / "nbs/papers/sums.ipynb", PARAMETERS, SETUP, MEASURE, "publish(record, replayed)")
    presets = dict(quick=dict(seeds=[7]), long=dict(seeds=[7, 8]))
    (root / "experiments.yaml").write_text(yaml.safe_dump(dict(sums=dict(notebook="nbs/papers/sums.ipynb", presets=presets, limits=dict(size=[1, 1000])))))
    log = Path(folder) / "log"
    log.mkdir()
    return dict(ROBUSTNESS_NB_ROOT=str(root), ROBUSTNESS_NB_EXPERIMENTS=str(root / "experiments.yaml"), ROBUSTNESS_NB_RUNS=str(Path(folder) / "runs"), SUMS_LOG=str(log))
