"""What a sweep costs over the pages' own time, and what two processors gain. --quick does a tenth of the runs.

Wall time includes waiting for a busy processor; processor time is what a run costs on an idle one. A page's own time is that of its cells, which papermill has noted in the executed notebook."""
import argparse, json, os, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import psutil
from pages import make_root


def processor_seconds():
    "Of this process and all that it has started, those that have ended included."
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in family)


def own_seconds(folder, names):
    "Of the cells of executed notebooks."
    notebooks = [json.loads((folder / f"notebooks/{name}.ipynb").read_text()) for name in names]
    return sum(cell["metadata"]["papermill"]["duration"] for nb in notebooks for cell in nb["cells"])


def timed(label, number, work):
    "Do it, print what it took, and return its result and its wall time."
    wall, processor = time.perf_counter(), processor_seconds()
    result = work()
    wall, processor = time.perf_counter() - wall, processor_seconds() - processor
    print(f"{label:<44}{wall:8.2f} s wall, {processor:8.2f} s processor; a run {wall / number:.3f} s wall, {processor / number:.3f} s processor", flush=True)
    return result, wall


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(make_root(folder), OMP_NUM_THREADS="1")
        from robustness_nb import runs, stores
        from robustness_nb.runs import list_runs, run, runs_folder, sweep

        def many(number, start, **options):
            return lambda: sweep("sums", dict(seeds=list(range(start, start + number)), models=["svc"]), progress=False, **options)

        def overhead(label, number, work):
            result, wall = timed(label, number, work)
            own = own_seconds(runs_folder(), [entry["run"] for entry in result.runs])
            print(f"{'':<44}{(wall - own) / number:8.3f} s a run over the page's own {own / number:.3f} s")

        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        run("sums", dict(seeds=[0]), in_process=True, progress=False)
        run("sums", dict(seeds=[1]), progress=False)
        kernels, forks, loop = (5, 50, "1e8") if quick else (20, 1000, "3e8")
        overhead(f"{kernels} trivial runs in kernels", kernels, many(kernels, 1000))
        overhead(f"{forks} trivial runs in process", forks, many(forks, 2000, in_process=True))
        timed(f"{forks} runs replayed", forks, many(forks, 2000, in_process=True))

        os.environ["SUMS_LOOP"] = loop
        runs._warm.cache_clear() # both start cold
        _, one = timed("8 runs that compute, serial", 8, many(8, 4000, in_process=True))
        _, two = timed("8 runs that compute, two processes", 8, many(8, 5000, in_process=True, engine="processes", workers=2))
        print(f"two processes are {one / two:.2f} times as fast as one (their processor time ends with them, uncounted)")

        store = stores.Folder(Path(folder) / "large")
        note = json.loads((runs_folder() / "runs" / f"{list_runs()[0]['run']}.json").read_text())
        (store.path / "runs").mkdir(parents=True)
        for index in range(10_000): (store.path / f"runs/sums-{index:012x}.json").write_text(json.dumps(dict(note, run=f"sums-{index:012x}")))
        for label in "a list of 10,000 runs", "once more": timed(label, 1, lambda: list_runs(store))


if __name__ == "__main__": main()
