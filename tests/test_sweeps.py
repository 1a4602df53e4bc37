"""Sweeps: rows that add up, resuming, claims, failures, stores, engines. The page is `sums` of pages.py, quick to run."""
import errno, json, os, subprocess, sys, threading, time
from collections import Counter
from pathlib import Path

import psutil, pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from robustness_nb import cli, engines, records, runs, stores
from robustness_nb.runs import RunError, collect, diff_runs, list_runs, prune, run, show_run, split, sweep

from pages import make_root

GRID = dict(models=["svc", "knn"], seeds=[1, 2])


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    "A root with the experiment `sums`: the environment that makes it current."
    return make_root(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def sums(pages, tmp_path, monkeypatch):
    "`sums` is the one experiment; the log of its measurements is empty; runs go to a folder of their own."
    log = tmp_path / "log"
    log.mkdir()
    for name, value in dict(pages, ROBUSTNESS_NB_RUNS=str(tmp_path / "runs"), SUMS_LOG=str(log)).items(): monkeypatch.setenv(name, value)
    return log


def fast(grid, *arguments, **options): return sweep("sums", grid, *arguments, **dict(in_process=True, progress=False) | options)

def measured(log): return sorted((log / "measured").read_text().splitlines()) if (log / "measured").exists() else []

def key(row): return json.dumps(row, sort_keys=True)

def called(words, capfd):
    capfd.readouterr()
    with pytest.raises(SystemExit) as end: cli.main(words)
    out, err = capfd.readouterr()
    return end.value.code, out, err


# --- the grid


@given(models=st.lists(st.sampled_from(["svc", "knn", "random_forest"]), min_size=1, max_size=2, unique=True),
       seeds=st.lists(st.integers(0, 50), min_size=1, max_size=3, unique=True), size=st.integers(1, 9))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_of_a_sweep_are_those_of_one_big_run(models, seeds, size, sums):
    together = fast(dict(models=models, seeds=seeds), dict(size=size))
    whole = run("sums", dict(models=models, seeds=seeds, size=size), in_process=True, progress=False)
    rows = [row for record in together.records() for row in record.rows]
    assert sorted(map(key, rows)) == sorted(map(key, whole.record.rows)) and len(together.frame()) == len(rows)
    assert together.counts["failed"] == together.counts["left"] == 0


@pytest.mark.slow
def test_rows_of_a_paper_are_those_of_one_big_run(tmp_path):
    grid, alike = dict(models=["svc", "majority_class"], seeds=[0, 1]), dict(corruptions=["blur"], severities=[1, 5])
    together = sweep("digits_gap", grid, alike, store=tmp_path / "store", in_process=True, progress=False)
    whole = run("digits_gap", grid | alike, output=tmp_path / "whole", in_process=True, progress=False)
    assert sorted({key(row) for record in together.records() for row in record.rows}) == sorted(map(key, whole.record.rows))


def test_a_list_within_a_grid_stays_together():
    points = split("digits_gap", dict(models=[["svc", "knn"], "random_forest"], seeds="0:2"))
    assert [point["given"]["models"] for point in points] == [["svc", "knn"]] * 2 + [["random_forest"]] * 2
    assert len({point["run"] for point in points}) == 4


BAD = [ # arguments of the command line, words of the error
    (["-g", "seed=1"], ["parameter", "'seed'", "seeds"]),
    ([], ["grid is empty"]),
    (["-g", "seeds=[]"], ["seeds", "empty"]),
    (["-g", "seeds=3:3"], ["seeds", "empty"]),
    (["-g", "seeds=1,1"], ["seeds", "twice"]),
    (["-g", "seeds=0,-1"], ["seeds", "at least 0", "-1"]),
    (["-g", "seeds=a"], ["seeds", "list[int]", "'a'"]),
    (["-g", "seeds=1", "-g", "seeds=2"], ["seeds", "twice"]),
    (["-g", "seeds=1", "-p", "seeds=[2]"], ["seeds", "both"]),
    (["-g", "preset=quick,long"], ["preset", "grid"]),
    (["-g", "seeds=0:10000000"], ["10,000,000", "--yes"]),
    (["-g", "seeds=1", "--preset", "fast"], ["preset", "'fast'"]),
    (["-g", "seeds=1", "--engine", "rya"], ["engine", "'rya'", "ray"]),
    (["-g", "seeds=1", "--cpus-per-run", "0"], ["cpus_per_run", "above 0"]),
    (["-g", "seeds=1", "--gpus-per-run", "1.5"], ["gpus_per_run", "whole number", "1.5"]),
    (["-g", "seeds=1", "--gpus-per-run", "64"], ["gpus_per_run", "64"]),
    (["-g", "seeds=1", "--engine", "processes", "--cpus-per-run", "9999"], ["cpus_per_run", "9999"]),
    (["-g", "seeds=1", "--engine", "processes", "--workers", "0"], ["workers", "0"]),
    (["-g", "seeds=1", "--address", "auto"], ["address", "ray"]),
    (["-g", "seeds=1", "--timeout", "0"], ["timeout", "0"]),
    (["-g", "seeds=1", "--max-retries", "-1"], ["max_retries", "-1"]),
    (["-g", "seeds=1", "--store", "ftq://nowhere"], ["ftq"]),
]

@pytest.mark.parametrize("words, expected", BAD, ids=lambda value: " ".join(value))
def test_bad_input(words, expected, sums, capfd, tmp_path):
    code, out, _ = called(["sweep", "sums", *words, "--json"], capfd)
    payload = json.loads(out)
    assert (code, payload["ok"]) == (1, False) and not (tmp_path / "runs" / "records").exists() and measured(sums) == []
    for word in expected: assert word in payload["error"]


def test_a_very_large_sweep_asks_first(sums):
    ours, theirs = os.openpty()
    command = [Path(sys.executable).parent / "robustness-nb", "sweep", "sums", "-g", "seeds=0:20000"]
    asked = subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, text=True)
    os.write(ours, b"n\n")
    assert "20,000 runs. Start them?" in asked.communicate(timeout=120)[1] and asked.returncode == 1 and measured(sums) == []


# --- resuming


def test_a_sweep_goes_on_and_repeats_nothing(sums, tmp_path):
    planned = fast(GRID, dry_run=True)
    assert planned.counts["left"] == 4 and planned.estimate is None and not (tmp_path / "runs").exists()
    assert fast(dict(GRID, seeds=[1])).counts["done"] == 2
    planned = fast(GRID, dry_run=True)
    assert (planned.counts["replayed"], planned.counts["left"]) == (2, 2) and planned.estimate > 0
    assert fast(GRID).counts == dict(done=2, replayed=2, failed=0, left=0)
    assert max(Counter(line.rsplit(" ", 2)[0] for line in measured(sums)).values()) == 1 and len(measured(sums)) == 4
    assert fast(GRID, rerun=True).counts["done"] == 4 and len(measured(sums)) == 8


def test_a_run_and_a_sweep_share_the_folder(sums):
    run("sums", dict(models=["svc"], seeds=[1]), in_process=True, progress=False)
    assert fast(GRID).counts == dict(done=3, replayed=1, failed=0, left=0)


def test_two_sweeps_do_no_run_twice(sums, tmp_path):
    code = "from robustness_nb.runs import sweep; print(sweep('sums', dict(models=['svc', 'knn'], seeds=[1, 2, 3]), in_process=True, progress=False).counts)"
    both = [subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ, SUMS_SECONDS=".3"), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [eval(process.communicate()[0]) for process in both]
    assert all(c["failed"] == c["left"] == 0 for c in counts) and sum(c["done"] for c in counts) == 6 == len(measured(sums))
    assert stores.open_store(tmp_path / "runs").names("claims") == []


def test_other_code_measures_again_and_the_old_record_is_kept(sums, tmp_path, monkeypatch):
    fast(dict(seeds=[1]))
    [old] = (tmp_path / "runs/records").iterdir()
    old.write_text(old.read_text().replace(records.source_digest(), "0123456789ab"))
    assert fast(dict(seeds=[1])).counts["done"] == 1
    assert sorted(path.name for path in (tmp_path / "runs/records").iterdir()) == sorted([old.name, f"{old.stem}.0123456789ab.json"])
    assert set(diff_runs(old.stem, f"{old.stem}.0123456789ab")["code"]) == {"source"}
    assert prune(superseded=True) == [f"records/{old.stem}.0123456789ab.json"] and list_runs() and len(list((tmp_path / "runs/records").iterdir())) == 1


@pytest.mark.parametrize("damage", [lambda data: data[:len(data) // 2], lambda data: b"", lambda data: b"\0" * len(data), lambda data: b"[]"])
def test_a_damaged_record_is_moved_aside_and_measured_again(damage, sums, tmp_path):
    first = fast(dict(seeds=[1])).records()
    [path] = (tmp_path / "runs/records").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert path.name in fast(dict(seeds=[1]), dry_run=True).messages[0] and path.exists()
    with pytest.warns(UserWarning, match=path.name): again = fast(dict(seeds=[1]))
    assert again.counts["done"] == 1 and [r.rows for r in again.records()] == [r.rows for r in first]
    assert len(prune(damaged=True)) == 1


# --- failures


def test_failures_are_kept_shown_and_tried_again(sums, tmp_path, capfd):
    (sums / "raises").write_text("2")
    ended = fast(GRID)
    assert [ended.counts[state] for state in ("done", "failed", "left")] == [2, 2, 0]
    name = next(entry["run"] for entry in ended.runs if entry["status"] == "failed")
    shown = show_run(name)
    assert (shown["ename"], shown["evalue"]) == ("ZeroDivisionError", "no luck today") and "obtain" in shown["source"] and Path(shown["notebook"]).exists()
    code, out, _ = called(["runs", "show", name], capfd)
    assert code == 0 and "ZeroDivisionError: no luck today" in out and f"cell {shown['cell']}" in out
    code, out, _ = called(["sweep", "sums", "-g", "seeds=1,2", "--in-process", "--json"], capfd)
    payload = json.loads(out)
    assert (code, payload["ok"], payload["failed"]) == (1, False, 1) and "no luck today" in payload["error"]
    (sums / "raises").unlink()
    assert fast(GRID).counts == dict(done=2, replayed=2, failed=0, left=0) and not Path(shown["notebook"]).exists()


def test_fail_fast_leaves_the_rest(sums):
    (sums / "raises").write_text("1")
    assert fast(dict(seeds=[0, 1, 2, 3]), fail_fast=True).counts == dict(done=1, replayed=0, failed=1, left=2)


@pytest.mark.parametrize("in_process", [True, False])
def test_a_process_that_dies_is_tried_again(in_process, sums):
    (sums / "dies").write_text("1")
    ended = fast(dict(seeds=[1]), in_process=in_process, max_retries=1)
    assert ended.counts["failed"] == 1 and len(measured(sums)) == 2 and ended.runs[0]["message"]


@pytest.mark.parametrize("in_process, timeout", [(True, 4), (False, 10)])
def test_a_page_that_hangs_is_ended(in_process, timeout, sums):
    (sums / "hangs").write_text("1")
    ended = fast(dict(seeds=[1, 2]), in_process=in_process, timeout=timeout, max_retries=0)
    assert [entry["status"] for entry in ended.runs] == ["failed", "done"]
    assert f"timeout of {timeout} s" in ended.runs[0]["message"]


def test_a_full_disk_stops_the_sweep(sums, tmp_path, monkeypatch):
    fast(dict(seeds=[1]))
    before = sorted((tmp_path / "runs/records").iterdir())
    def full(file): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught: fast(dict(seeds=[1, 2]))
    assert str(tmp_path / "runs") in str(caught.value) and sorted((tmp_path / "runs/records").iterdir()) == before
    monkeypatch.undo()


@pytest.fixture
def small_disk(tmp_path):
    "A folder on a disk of 300 kB, and a function to mount it again with other options."
    folder = tmp_path / "small"
    folder.mkdir()
    def mount(*words): return subprocess.run(["mount", *words, str(folder)], capture_output=True).returncode == 0
    if not sys.platform.startswith("linux") or not mount("-t", "tmpfs", "-o", "size=300k", "tmpfs"): pytest.skip("only root can mount a small disk")
    yield folder, lambda options: mount("-o", f"remount,{options}")
    subprocess.run(["umount", str(folder)])


def test_a_disk_that_runs_full_and_one_that_is_read_only(sums, small_disk):
    folder, remount = small_disk
    grid = dict(seeds=list(range(30)))
    with pytest.raises(OSError, match=f"cannot write {folder}.*No space left"): fast(grid, store=folder / "store")
    assert all(records.load(path) for path in (folder / "store/records").glob("*.json"))
    remount("size=3m")
    ended = fast(grid, store=folder / "store")
    assert ended.counts["done"] + ended.counts["replayed"] == 30 and ended.counts["replayed"] > 0
    remount("ro")
    before = measured(sums)
    with pytest.raises(OSError, match=f"cannot write into {folder}/store: Read-only"): fast(dict(seeds=[31]), store=folder / "store")
    assert measured(sums) == before and len(list_runs(folder / "store")) == 30


def test_a_store_that_cannot_be_written(sums, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=f"cannot write into {tmp_path}/file"): fast(dict(seeds=[1]), store=tmp_path / "file")
    assert measured(sums) == []


# --- stores


@pytest.fixture(scope="session")
def bucket():
    "A URL in a bucket of a real S3 server."
    server = pytest.importorskip("moto.server", reason="moto is not installed").ThreadedMotoServer(port=0, verbose=False)
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1", AWS_ENDPOINT_URL=f"http://{host}:{port}").items(): patch.setenv(name, value)
        import s3fs
        s3fs.S3FileSystem().mkdir("sweeps")
        yield "s3://sweeps/runs"
    server.stop()


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def place(request, tmp_path):
    "A store of each kind."
    if request.param in ("memory",): pytest.importorskip("fsspec")
    return dict(folder=lambda: str(tmp_path / "store"), file=lambda: f"file://{tmp_path}/store", memory=lambda: f"memory://{tmp_path}",
                s3=lambda: f"{request.getfixturevalue('bucket')}/{tmp_path.name}")[request.param]()


def test_a_store_is_whole_and_exclusive(place):
    store = stores.open_store(place)
    store.check()
    store.write("records/a.json", b"one")
    store.write("records/a.json", b"two")
    assert store.read("records/a.json") == b"two" and store.names("records") == ["a.json"] and store.names("nothing") == []
    with pytest.raises(FileNotFoundError): store.read("records/b.json")
    won = []
    def race(number): won.append(store.create("claims/x.000000", str(number).encode()))
    threads = [threading.Thread(target=race, args=[n]) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert sorted(won) == [False] * 7 + [True]
    store.remove("claims/x.000000")
    store.remove("claims/x.000000")
    assert store.names("claims") == []


def test_a_sweep_into_every_store(place, sums):
    ended = fast(dict(seeds=[1, 2]), store=place)
    assert ended.counts["done"] == 2 and len(ended.frame()) == 4 and fast(dict(seeds=[1, 2]), store=place).counts["replayed"] == 2
    assert [note["status"] for note in list_runs(place)] == ["done"] * 2 and len(collect("sums", place).rows) == 4
    assert show_run(ended.runs[0]["run"], place)["metrics"] == ended.records()[0].metrics


def test_a_store_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"robustness_nb\[store\]"): stores.open_store("s3://bucket/runs")


def test_a_claim_passes_to_one_heir_when_its_owner_is_gone(tmp_path, monkeypatch):
    store = stores.open_store(tmp_path)
    away = dict(stores._mine(), machine="elsewhere", seen=time.time())
    store.write("claims/r.000000", json.dumps(away).encode())
    assert stores.claim(store, "r") is None
    store.write("claims/r.000000", json.dumps(dict(away, seen=time.time() - stores.LEASE - 1)).encode())
    heirs = []
    threads = [threading.Thread(target=lambda: heirs.append(stores.claim(store, "r"))) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    [heir] = [claim for claim in heirs if claim]
    assert heir.held() and store.names("claims") == ["r.000001"]
    with heir: pass
    assert store.names("claims") == []


def test_a_claim_keeps_itself_alive_and_knows_when_it_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "LEASE", .2)
    store = stores.open_store(tmp_path)
    with stores.claim(store, "r") as mine:
        first = json.loads(store.read("claims/r.000000"))["seen"]
        until = time.time() + 20
        while json.loads(store.read("claims/r.000000"))["seen"] == first and time.time() < until: time.sleep(.05)
        assert json.loads(store.read("claims/r.000000"))["seen"] > first and mine.held()
        store.create("claims/r.000001", b"{}")
        assert not mine.held()
    assert store.names("claims") == ["r.000001"]


# --- lists, differences, collections


def test_looking_into_a_store(sums, tmp_path, capfd):
    fast(GRID)
    assert len(list_runs(where=dict(models="svc"))) == 2 == len(list_runs(where=dict(models=["svc"]))) and len(list_runs(where=dict(models="svc", seeds=1))) == 1
    assert list_runs(status="failed") == [] == list_runs(experiment="others")
    first, second = (note["run"] for note in list_runs(where=dict(models="svc")))
    found = diff_runs(first, second.rpartition("-")[2])
    assert set(found["parameters"]) == {"seeds"} and set(found["metrics"]) == {"svc.total"} and found["code"] == found["environment"] == {}
    for words in ["runs list", "runs list sums -p models=svc", f"runs show {first}", f"runs diff {first} {second}", "runs prune --failed", f"collect sums --table {tmp_path}/t.csv --folder {tmp_path}/one"]:
        code, out, _ = called([*words.split(), "--json"], capfd)
        assert code == 0 and json.loads(out)["ok"]
        assert called(words.split(), capfd)[0] == 0
    [path] = (tmp_path / "one").iterdir()
    assert len(records.load(path).rows) == 4 == len((tmp_path / "t.csv").read_text().splitlines()) - 1
    for words, expected in [("runs show nothing", "no run"), ("runs show sums", "4 runs"), ("runs list --status odd", "odd"), ("collect others", "no records"), ("runs prune", "--failed")]:
        code, out, _ = called([*words.split(), "--json"], capfd)
        assert code and expected in json.loads(out)["error"]


# --- engines


def test_processes_see_their_own_gpus(sums, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    ended = fast(dict(seeds=[1, 2, 3]), engine="processes", gpus_per_run=1, cpus_per_run=.5)
    assert ended.counts["done"] == 3 and {line.split()[-1] for line in measured(sums)} == {"4", "7"}


def test_a_helper_without_its_driver_ends(sums, tmp_path):
    code = "from robustness_nb.runs import sweep; sweep('sums', dict(seeds=[1, 2]), engine='processes', workers=1, in_process=True, progress=False)"
    driver = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ, SUMS_SECONDS="60"))
    until = time.time() + 120
    while not measured(sums) and time.time() < until: time.sleep(.2)
    page = int(measured(sums)[0].split()[-2])
    driver.kill()
    driver.wait()
    until = time.time() + 20
    while _runs(page) and time.time() < until: time.sleep(.2)
    assert not _runs(page)
    assert fast(dict(seeds=[1, 2])).counts["done"] == 2


def _runs(process):
    try: return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess: return False


def test_an_unreachable_ray_cluster(sums):
    pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(ConnectionError, match="127.0.0.1:9"): fast(dict(seeds=[1]), engine="ray", address="127.0.0.1:9")


# --- in JupyterLab, and on a machine without a network


@pytest.mark.slow
@pytest.mark.parametrize("in_process", [True, False])
def test_in_a_notebook_a_sweep_shows_itself_and_can_be_interrupted_and_continued(in_process, sums, monkeypatch):
    from jupyter_client.manager import start_new_kernel
    monkeypatch.setenv("SUMS_SECONDS", "1")
    manager, client = start_new_kernel(kernel_name="python3")
    shown = []
    def look(message):
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"): shown.append(content["data"].get("text/html", ""))
    def cell(code): return client.execute_interactive(code, output_hook=look, timeout=300)["content"]
    try:
        cell("from robustness_nb.runs import sweep")
        def interrupt():
            while len(measured(sums)) < 2: time.sleep(.1)
            manager.interrupt_kernel()
        threading.Thread(target=interrupt).start()
        call = f"done = sweep('sums', dict(seeds=[1, 2, 3, 4], models=['svc']), in_process={in_process})"
        assert cell(call)["ename"] == "KeyboardInterrupt"
        page = int(measured(sums)[1].split()[-2])
        until = time.time() + 10
        while _runs(page) and time.time() < until: time.sleep(.1)
        assert not _runs(page)
        assert '<progress max="4"' in shown[-1] and "left" in shown[-1]
        assert cell(call)["status"] == "ok" and 'value="4"' in shown[-1] and "seeds = 4" in shown[-1]
        assert cell("assert len(done.frame()) == 4 and type(done.frame()).__name__ == 'DataFrame' and done.counts['replayed'] >= 1")["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_the_script_for_a_gpu_machine_goes_on_until_all_is_done(sums, tmp_path):
    script = [sys.executable, Path(__file__).parent.parent / "tools/gpu_run.py", "sums", "-g", "seeds=1,2", "--preset", "quick",
              "--gpus-per-run", "0", "--workers", "1", "--in-process", "--store", tmp_path / "store", "--results", tmp_path]
    def called(*more): return subprocess.run([*map(str, script), *more], capture_output=True, text=True)
    (sums / "hangs").write_text("2")
    first = called("--minutes", ".2")
    assert first.returncode == 75 and "0 failed" in first.stdout and "0 left" not in first.stdout, first
    (sums / "hangs").unlink()
    second = called()
    assert second.returncode == 0 and "0 failed, 0 left" in second.stdout, second
    assert len(list(tmp_path.glob("sums-*.json"))) == 2
    assert called("--timeout", "0").returncode == 1
