"""A sweep on a machine with a GPU and no network, for as long as the machine is ours. Call it again to go on: exit code 75 says that something is left.

Needs the clone, an environment with the extra torch, and a folder with the data. Nothing is downloaded."""
import argparse, os, shutil, signal, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("-g", "--grid", action="append", default=[], metavar="NAME=VALUES", help="as robustness-nb sweep takes it")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="as robustness-nb sweep takes it")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--minutes", type=float, help="stop in good time; default: no limit")
    parser.add_argument("--store", default=str(ROOT / "_runs"), help="a folder; bring it back for the next call")
    parser.add_argument("--data", help="a folder with the data sets")
    parser.add_argument("--gpus-per-run", type=float, default=1)
    parser.add_argument("--cpus-per-run", type=float, default=1)
    parser.add_argument("--results", help="copy the records there once all runs are done, e.g. results")
    given = parser.parse_args()

    os.environ.setdefault("ROBUSTNESS_NB_ROOT", str(ROOT))
    os.environ.update(ROBUSTNESS_NB_RUNS=given.store, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep))
    if given.data: os.environ["ROBUSTNESS_NB_DATA"] = given.data
    from robustness_nb.cli import _grid, _parameters
    from robustness_nb.runs import sweep
    if shutil.which("nvidia-smi"): subprocess.run(["nvidia-smi"], check=False)

    def stop(number, frame): raise KeyboardInterrupt
    for number in signal.SIGALRM, signal.SIGTERM: signal.signal(number, stop)
    if given.minutes: signal.setitimer(signal.ITIMER_REAL, 60 * given.minutes)
    options = dict(preset=given.preset, engine="processes", gpus_per_run=given.gpus_per_run, cpus_per_run=given.cpus_per_run, store=given.store)
    arguments = given.experiment, _grid(given.grid), _parameters(given.parameter, "")
    try: done = sweep(*arguments, **options)
    except KeyboardInterrupt: done = sweep(*arguments, **options, dry_run=True)
    print(done, *(run["message"] for run in done.runs if run["status"] == "failed"), sep="\n")
    if done.counts["failed"]: return 1
    if done.counts["left"]: return 75
    if given.results:
        for run in done.runs: shutil.copy(Path(given.store) / "records" / f"{run['run']}.json", given.results)
    return 0


if __name__ == "__main__": sys.exit(main())
