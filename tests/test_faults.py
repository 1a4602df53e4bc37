"""Faults: drivers, helpers and kernels are killed at random moments, and what is in the end is what would have been anyway. Slow."""
import json, os, random, signal, subprocess, sys, threading, time
from pathlib import Path

import psutil, pytest

from robustness_nb import engines, stores
from robustness_nb.records import load
from robustness_nb.runs import sweep
from robustness_nb.stores import open_store

from pages import make_root

pytestmark = pytest.mark.slow
GRID = dict(models=["svc", "knn", "random_forest"], seeds=list(range(8)))
KILLS = int(os.environ.get("FAULTS", 50))


@pytest.fixture
def sums(tmp_path, monkeypatch):
    for name, value in dict(make_root(tmp_path), SUMS_SECONDS=".2").items(): monkeypatch.setenv(name, value)
    return tmp_path


def contents(folder):
    "What its records say, by name; every one is whole."
    found = {path.name: load(path) for path in Path(folder, "records").glob("*.json")}
    return {name: (r.parameters, r.rows, r.metrics, r.data) for name, r in found.items()}


def driver(folder, in_process):
    code = f"from robustness_nb.runs import sweep; sweep('sums', {GRID!r}, engine='processes', workers=2, in_process={in_process}, store={str(folder)!r}, max_retries=100, progress=False)"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.parametrize("in_process", [True, False])
def test_random_kills_then_resume(in_process, sums):
    draw, disturbed, kills, process = random.Random(0), sums / "disturbed", 0, None
    kills_wanted = KILLS if in_process else max(1, KILLS // 10)
    while kills < kills_wanted:
        if not process or process.poll() is not None:
            if process and process.returncode == 0: # all is done: throw some away, so that there is something to disturb
                for path in draw.sample(sorted((disturbed / "records").iterdir()), 8): path.unlink()
            process = driver(disturbed, in_process)
        time.sleep(draw.uniform(.1, 4))
        try: family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        except psutil.NoSuchProcess: continue
        try: draw.choice(family).send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess: continue
        kills += 1
    if process.poll() is None: process.kill()
    process.wait()
    left = sweep("sums", GRID, engine="processes", workers=2, in_process=in_process, store=disturbed, progress=False)
    assert left.counts["failed"] == left.counts["left"] == 0
    undisturbed = sweep("sums", GRID, in_process=True, store=sums / "undisturbed", progress=False)
    assert contents(disturbed) == contents(sums / "undisturbed") and len(undisturbed.runs) == 24
    assert not [name for name in open_store(disturbed).names("claims") if stores._alive(json.loads(open_store(disturbed).read(f"claims/{name}")))]


# --- Ray


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    "A cluster of two nodes with a processor each, two make-believe GPUs on the first, and a page to run: (cluster, second node, folder)."
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster
    folder = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(make_root(folder), SUMS_SECONDS=".2").items(): patch.setenv(name, value)
        watch = dict(health_check_initial_delay_ms=0, health_check_period_ms=1000, health_check_failure_threshold=5, worker_niceness=0)
        made = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, num_gpus=2, include_dashboard=False, _system_config=watch))
        second = made.add_node(num_cpus=1, num_gpus=0)
        made.wait_for_nodes()
        yield made, second, folder
        ray.shutdown()
        made.shutdown()


def measured(folder):
    log = folder / "log/measured"
    return log.read_text().splitlines() if log.exists() else []


def test_ray_gives_each_run_its_gpus(cluster):
    made, _, folder = cluster
    ended = sweep("sums", dict(seeds=[101, 102, 103]), engine="ray", gpus_per_run=.5, in_process=True, address=made.address, progress=False)
    assert ended.counts["done"] == 3
    assert {line.split()[-1] for line in measured(folder)} <= {"0", "1"}
    with pytest.raises(ValueError, match="gpus_per_run must be at most 2"): engines.engine("ray", gpus_per_run=3, address=made.address)


def test_a_node_is_lost_and_its_runs_are_not(cluster):
    made, second, folder = cluster
    before = len(measured(folder))
    def lose():
        while len(measured(folder)) < before + 8: time.sleep(.1)
        made.remove_node(second, allow_graceful=False)
    killer = threading.Thread(target=lose)
    killer.start()
    grid = dict(models=["svc", "knn"], seeds=list(range(32)))
    ended = sweep("sums", grid, engine="ray", in_process=True, address=made.address, store=folder / "store", progress=False)
    killer.join()
    counts, names = ended.counts, {path.stem for path in (folder / "store/records").glob("*.json")}
    assert counts["failed"] == counts["left"] == 0 and len(ended.runs) == 64
    assert names == {entry["run"] for entry in ended.runs} and len(names) == 64
    assert 64 <= len(measured(folder)) - before <= 66 # what was at work on the node began again
