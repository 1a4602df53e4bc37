"""What a sweep costs over the pages' own time, and what two processors gain. Prints wall and processor seconds; --quick for a tenth of the runs.

The page is trivial, so that a run is all overhead. Processor time is what a run costs on an idle processor; wall time includes waiting for a busy one."""
import argparse, json, os, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import psutil
from pages import make_root


def processor_seconds():
    "Of this process and all that it started, those that have ended included."
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in family)


def timed(label, runs, work):
    wall, processor = time.perf_counter(), processor_seconds()
    result = work()
    wall, processor = time.perf_counter() - wall, processor_seconds() - processor
    print(f"{label:<58}{wall:8.2f} s wall {wall / runs:8.3f} a run {processor / runs:8.3f} s processor a run", flush=True)
    return result, wall


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(make_root(folder), OMP_NUM_THREADS="1")
        from robustness_nb import runs, stores
        from robustness_nb.runs import list_runs, run, sweep
        run("sums", dict(seeds=[0]), in_process=True, progress=False), run("sums", dict(seeds=[1]), progress=False)
        def many(number, start, **options): return lambda: sweep("sums", dict(seeds=list(range(start, start + number)), models=["svc"]), progress=False, **options)
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        number = 5 if quick else 20
        timed(f"{number} trivial runs in kernels", number, many(number, 1000))
        number = 20 if quick else 1000
        timed(f"{number} trivial runs in process", number, many(number, 2000, in_process=True))
        timed(f"{number} runs replayed", number, many(number, 2000, in_process=True))
        os.environ["SUMS_LOOP"] = "2e7" if quick else "1e8"
        _, one = timed("8 runs that compute, serial", 8, many(8, 4000, in_process=True))
        _, two = timed("8 runs that compute, two processes", 8, many(8, 5000, in_process=True, engine="processes", workers=2))
        print(f"two processes are {one / two:.2f} times as fast as one")
        store = stores.open_store(Path(folder) / "large")
        note = json.loads(stores.open_store().read(f"runs/{list_runs()[0]['run']}.json"))
        (store.path / "runs").mkdir(parents=True)
        for index in range(10_000): (store.path / f"runs/sums-{index:012x}.json").write_text(json.dumps(dict(note, run=f"sums-{index:012x}")))
        timed("a list of 10,000 runs", 1, lambda: list_runs(store))
        timed("once more", 1, lambda: list_runs(store))


if __name__ == "__main__": main()
