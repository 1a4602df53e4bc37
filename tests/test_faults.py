"""Faults: drivers, helpers and kernels are killed at random moments, and what is in the end is what would have been anyway. Slow."""
import os, random, subprocess, sys, threading, time
from pathlib import Path

import psutil, pytest

from robustness_nb import engines, stores
from robustness_nb.records import load
from robustness_nb.runs import sweep

from pages import make_root

pytestmark = pytest.mark.slow
GRID = dict(models=["svc", "knn", "random_forest"], seeds=list(range(8)))
KILLS = int(os.environ.get("KILLS", 50))


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


def family(process):
    "A process with all that it has started."
    try: return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess: return []


def start_over(draw, folder):
    "Where a sweep was quicker than the kills: without a third of its records there is something to disturb again."
    for path in draw.sample(sorted((folder / "records").iterdir()), 8): path.unlink()


@pytest.mark.parametrize("in_process, kills", [(True, KILLS), (False, KILLS // 16)])
def test_random_kills_then_resume(in_process, kills, sums):
    draw, disturbed, process = random.Random(0), sums / "disturbed", None
    while kills:
        if not process or process.poll() is not None:
            if process and process.returncode == 0: start_over(draw, disturbed)
            process = driver(disturbed, in_process)
        time.sleep(draw.uniform(.1, 1.6 if in_process else 2.5))
        try: draw.choice(family(process)).kill()
        except (IndexError, psutil.NoSuchProcess): continue # it has just ended
        kills -= 1
    for left in family(process): left.kill()
    process.wait()
    resumed = sweep("sums", GRID, engine="processes", workers=2, in_process=in_process, store=disturbed, progress=False)
    undisturbed = sweep("sums", GRID, in_process=True, store=sums / "undisturbed", progress=False)
    assert resumed.counts["failed"] == resumed.counts["left"] == 0 and len(undisturbed.runs) == 24
    assert contents(disturbed) == contents(sums / "undisturbed")
    claims = stores.open_store(disturbed)
    assert all(stores._void(claims, name) for name in claims.names("claims"))


# --- Ray


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    "A cluster of two nodes with a processor each, two make-believe GPUs on the first, and a page to run: (cluster, second node, folder)."
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster
    folder = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(make_root(folder), SUMS_SECONDS=".1").items(): patch.setenv(name, value)
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
