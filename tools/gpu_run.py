"""A sweep on a machine with a GPU and no network, for as long as the machine is ours. Called again, it goes on. Exit code 0: all runs are done; 75: some are left; 1: some failed.

Needs the clone, an environment with the extra torch, and a folder with the data. Nothing is downloaded. What is not listed here is handed to `robustness-nb sweep`, such as -g and --gpus-per-run;
without a word from you, that is --preset paper --engine processes --gpus-per-run 1."""
import argparse, json, os, shutil, signal, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SWEEP = [sys.executable, "-m", "robustness_nb.cli", "sweep", "--json"]
LEFT = 75 # EX_TEMPFAIL: call again


def sweep(arguments, minutes=None):
    "What `robustness-nb sweep --json` says; None if it was stopped because the time was up."
    process = subprocess.Popen([*SWEEP, *arguments], stdout=subprocess.PIPE, text=True)
    def stop(*_): process.send_signal(signal.SIGINT)
    signal.signal(signal.SIGTERM, stop)
    try: said = process.communicate(timeout=minutes and 60 * minutes)[0]
    except subprocess.TimeoutExpired:
        stop()
        said = process.communicate()[0]
    found = json.loads(said)
    return None if found.get("error") == "interrupted" else found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("--minutes", type=float, help="stop after so many; default: no limit")
    parser.add_argument("--store", default=str(ROOT / "_runs"), help="a folder; bring it back for the next call")
    parser.add_argument("--data", help="a folder with the data sets")
    parser.add_argument("--results", help="copy the records there once all runs are done, e.g. results")
    given, rest = parser.parse_known_args()
    os.environ.setdefault("ROBUSTNESS_NB_ROOT", str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    if given.data: os.environ["ROBUSTNESS_NB_DATA"] = given.data
    if shutil.which("nvidia-smi"): subprocess.run(["nvidia-smi"])

    usual = ["--preset", "paper", "--engine", "processes", "--gpus-per-run", "1"]
    arguments = [given.experiment, *usual, "--store", given.store, *rest]
    done = sweep(arguments, given.minutes) or sweep([*arguments, "--dry-run"])
    if "runs" not in done: sys.exit(f"error: {done['error']}")
    print(*(f"{run['run']}: {run['status']} {run['message']}" for run in done["runs"]), sep="\n")
    print(", ".join(f"{done[state]} {state}" for state in ("done", "replayed", "failed", "left")))
    if done["failed"]: return 1
    if done["left"]: return LEFT
    for run in done["runs"] if given.results else []: shutil.copy(Path(given.store) / "records" / f"{run['run']}.json", given.results)
    return 0


if __name__ == "__main__": sys.exit(main())
