"""Run records: whole or not at all, found again under the same key, never replayed for other data, never misread."""
import json, os, subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from robustness_nb import records
from robustness_nb.evaluation import corruption_report
from robustness_nb.datasets import whole_file
from robustness_nb.records import Record, find, load, obtain, publish, record_key, save

from conftest import files_in

ASKED = dict(models=["svc"], seeds=[0, 1], test_size=500)
RECORD = Record("trial", ASKED, rows=[dict(model="svc", value=.1 + .2, seed=None), dict(model="knn", value=1e-300, seed=1)],
                metrics=dict(svc=dict(clean_accuracy=.988, note="5 % more – größer")), data=[dict(name="digits", n=4, sha256="0" * 64)],
                times=dict(started="2026-01-01T00:00:00+00:00", finished="2026-01-01T00:00:01+00:00", seconds=1.))


@pytest.fixture
def in_the_way(tmp_path):
    "A path whose parent folder cannot exist, because a file has its name."
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file"


# --- whole files


@pytest.mark.parametrize("mode, content", [("w", "Gruß\n"), ("wb", b"\x00\xff")])
def test_a_whole_file_replaces_the_old_one(tmp_path, mode, content):
    path = tmp_path / "new" / "folder" / "file.txt"
    for _ in range(2):
        with whole_file(path, mode) as file:
            file.write(content)
            assert files_in(path.parent) != ["file.txt"] or path.stat().st_size > 0
    assert path.read_bytes() == (content if mode == "wb" else content.encode()) and files_in(tmp_path) == ["new/folder/file.txt"]


def crash_while_writing(path, monkeypatch):
    with whole_file(path) as file:
        file.write("half a rec")
        raise RuntimeError("power cut")

def interrupt_while_writing(path, monkeypatch):
    with whole_file(path) as file:
        file.write("half a rec")
        raise KeyboardInterrupt

def fail_to_rename(path, monkeypatch):
    def fail(*arguments): raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", fail)
    with whole_file(path) as file: file.write("a whole record")

@pytest.mark.parametrize("write, error", [(crash_while_writing, RuntimeError), (interrupt_while_writing, KeyboardInterrupt), (fail_to_rename, OSError)])
@pytest.mark.parametrize("old", ["the old content", None])
def test_a_crash_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, write, error, old):
    path = tmp_path / "record.json"
    if old: path.write_text(old)
    with pytest.raises(error): write(path, monkeypatch)
    assert files_in(tmp_path) == (["record.json"] if old else [])
    assert not old or path.read_text() == old


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_folder_that_cannot_be_written(in_the_way, below):
    folder = in_the_way / below
    with pytest.raises(OSError) as caught: save(RECORD, folder)
    for word in ["cannot write", str(folder)]: assert word in str(caught.value)
    assert in_the_way.read_text() == "not a folder"


def test_a_record_with_nan_is_not_written(tmp_path):
    for bad in dict(metrics=dict(svc=float("nan"))), dict(rows=[dict(value=float("inf"))]), dict(parameters=dict(eps=float("nan"))):
        with pytest.raises(ValueError): save(replace(RECORD, **bad), tmp_path)
    assert files_in(tmp_path) == []


# --- saved and loaded


def test_a_record_survives_saving(tmp_path):
    path = save(RECORD, tmp_path)
    assert path == tmp_path / f"trial-{RECORD.key}.json" and load(path) == RECORD
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == records.SCHEMA


def test_a_record_without_rows_survives_saving(tmp_path):
    empty = replace(RECORD, rows=[], metrics={})
    assert load(save(empty, tmp_path)) == empty


json_values = st.recursive(st.none() | st.booleans() | st.integers(-2**60, 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                           lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8)

@given(metrics=st.dictionaries(st.text(max_size=5), json_values, max_size=4), rows=st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=4), max_size=3))
@settings(deadline=None, max_examples=50)
def test_any_record_survives_saving(metrics, rows, tmp_path_factory):
    record = replace(RECORD, metrics=metrics, rows=rows)
    assert load(save(record, tmp_path_factory.mktemp("record"))) == record


def whole(): return json.dumps(dict(experiment="trial", parameters={}, rows=[], metrics={}, data=[], schema=records.SCHEMA))

DAMAGED = {
    "truncated": whole()[:-20],
    "empty": "",
    "not JSON": "experiment: trial",
    "not text": b"\xff\xfe\x00",
    "a list": "[1, 2]",
    "a number": "3",
    "foreign": '{"nbformat": 4}',
    "an older schema": whole().replace(f'"schema": {records.SCHEMA}', '"schema": 0'),
    "incomplete": json.dumps(dict(schema=records.SCHEMA, experiment="trial")),
    "a field too many": whole().replace('"rows"', '"colour": 1, "rows"'),
    "rows that are none": whole().replace('"rows": []', '"rows": 3'),
    "metrics that are none": whole().replace('"metrics": {}', '"metrics": null'),
}

@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_and_foreign_records_are_named(content, runs_folder):
    path = runs_folder / "records" / f"trial-{record_key('trial', {})}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (lambda: load(path)), (lambda: find("trial", {})):
        with pytest.raises(ValueError) as caught: read()
        for word in ["record", str(path)]: assert word in str(caught.value)


# --- keys


@given(st.dictionaries(st.text(max_size=6), json_values, max_size=6), st.randoms())
@settings(deadline=None)
def test_the_key_does_not_depend_on_the_order(parameters, random):
    def shuffled(value):
        if isinstance(value, list): return [shuffled(entry) for entry in value]
        if not isinstance(value, dict): return value
        items = list(value.items())
        random.shuffle(items)
        return {key: shuffled(entry) for key, entry in items}
    assert record_key("trial", shuffled(parameters)) == record_key("trial", parameters)


def test_the_key_depends_on_all_the_rest():
    others = [dict(ASKED, seeds=[1, 0]), dict(ASKED, seeds=[0]), dict(ASKED, test_size=501), dict(ASKED, extra=None), {}]
    keys = [record_key("trial", ASKED), record_key("trial2", ASKED), *(record_key("trial", other) for other in others)]
    assert len(set(keys)) == len(keys) and all(len(key) == 12 and int(key, 16) >= 0 for key in keys)


# --- found and replayed


def measured(): return [dict(model="svc", value=.5)], dict(svc=.5)

@pytest.fixture
def kept(digits_split, runs_folder):
    "A record of a measurement on the test digits, in the folder for runs."
    record, replayed = obtain("trial", ASKED, [digits_split[1]], measured)
    assert not replayed
    publish(record, replayed)
    return record


def never(): raise AssertionError("measured again")

def test_a_record_is_replayed(kept, digits_split):
    assert obtain("trial", dict(reversed(ASKED.items())), [digits_split[1]], never) == (kept, True)


def test_rerun_measures_again(kept, digits_split):
    assert obtain("trial", ASKED, [digits_split[1]], lambda: ([], dict(svc=.75)), rerun=True)[0].metrics == dict(svc=.75)


def test_a_record_on_other_data_is_not_replayed(kept, digits_split):
    train, test = digits_split
    label = test.y.copy()
    label[0] = (label[0] + 1) % 10
    for data in [train], [test[:499]], [replace(test, y=label)], [train, test]:
        assert obtain("trial", ASKED, data, measured)[1] is False


def test_replaying_writes_nothing(kept, runs_folder):
    path = runs_folder / "records" / kept.file_name
    before = path.read_bytes(), path.stat().st_mtime_ns
    shown = publish(kept, True)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before and shown["replayed"] and shown["record"] == kept.file_name


def test_results_hold_records_too(kept, runs_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTNESS_NB_ROOT", str(tmp_path))
    (tmp_path / "nbs").mkdir()
    (runs_folder / "records").rename(tmp_path / "results")
    assert find("trial", ASKED) == kept


def test_a_measurement_that_fails_leaves_no_record(digits_split, runs_folder):
    def fails(): raise MemoryError("too many digits")
    with pytest.raises(MemoryError): obtain("trial", ASKED, [digits_split[1]], fails)
    assert not runs_folder.exists() and find("trial", ASKED) is None


def test_one_seed_gives_the_same_bytes(fitted, digits_split, tmp_path):
    test = digits_split[1][:50]
    def measure():
        report = corruption_report({"svc": fitted["svc"]}, test, corruptions=["shot_noise", "rotate"], seeds=[3])
        return report.rows(), report.metrics()
    paths = [save(obtain("trial", ASKED, [test], measure, rerun=True)[0], tmp_path / name) for name in "ab"]
    first, second = (path.read_text().split(' "data":')[0] for path in paths)
    assert first == second and '"rows"' in first and '"metrics"' in first


# --- provenance


def test_a_record_says_what_made_it(kept, digits_split):
    assert kept.data == [dict(name="digits[500]", n=500, sha256=digits_split[1].fingerprint)]
    assert kept.environment["packages"]["numpy"] == np.__version__ and kept.code["version"]
    assert kept.times["started"] <= kept.times["finished"] and kept.times["started"].endswith("+00:00") and kept.times["seconds"] >= 0


def test_code_version_outside_a_clone(tmp_path, monkeypatch):
    (tmp_path / "nbs").mkdir()
    monkeypatch.setenv("ROBUSTNESS_NB_ROOT", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    version = records.code_version()
    assert (version["commit"], version["dirty"]) == (None, None)


def test_code_version_tells_changed_code(tmp_path, monkeypatch):
    (tmp_path / "nbs").mkdir()
    (tmp_path / "robustness_nb").mkdir()
    source, notebook = tmp_path / "robustness_nb/code.py", tmp_path / "nbs/page.ipynb"
    source.write_text("a = 1"), notebook.write_text("{}")
    def git(*arguments): subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True, capture_output=True)
    git("init"), git("add", "."), git("commit", "-m", "first")
    monkeypatch.setenv("ROBUSTNESS_NB_ROOT", str(tmp_path))
    notebook.write_text('{"outputs": 1}')
    clean = records.code_version()
    source.write_text("a = 2")
    assert len(clean["commit"]) == 40 and clean["dirty"] is False and records.code_version()["dirty"] is True


@pytest.mark.parametrize("root", ["", "missing"])
def test_a_root_without_notebooks(tmp_path, monkeypatch, root):
    monkeypatch.setenv("ROBUSTNESS_NB_ROOT", str(tmp_path / root))
    with pytest.raises(FileNotFoundError) as caught: records.root()
    for word in ["notebooks", str(tmp_path / root), "ROBUSTNESS_NB_ROOT"]: assert word in str(caught.value)


def test_the_runs_folder_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBUSTNESS_NB_RUNS", "here")
    assert records.runs_folder() == Path(tmp_path).resolve() / "here"
