"The page MSCR on CIFAR-10: published numbers, claims, the committed record, a page made from parts without data or PyTorch, and the work of one part."
import json

import numpy as np
import pytest

from robustness_nb.claims import NOT_TESTED, REPRODUCED, claims, judge_all, published
from robustness_nb.datasets import Dataset
from robustness_nb.metrics import mscr
from robustness_nb.records import fingerprint, load, record_key
from robustness_nb.runs import resolve, run

from conftest import ROOT, process

R = 27 / 255
RECORDS = sorted((ROOT / "results").glob("mscr_cifar10-*.json"))


def near(eps): return R if abs(float(eps) - R) < 1e-6 else float(eps)

TABLE = {(row["statistic"], near(row["eps_train"]), near(row["eps_test"])): row["value"] for row in published("mscr_cifar10")}
TRAIN, TEST = (sorted({key[i] for key in TABLE}) for i in (1, 2))


# --- published numbers and claims


def test_published_numbers_are_whole_and_agree_with_each_other():
    rows = published("mscr_cifar10")
    assert len(rows) == len(TABLE) == 3 * 144 + 3 * 8 and (len(TRAIN), len(TEST)) == (8, 18)
    assert all(row["source"] and row["model"] == "WRN-28-10" and row["runs"] == "20" and row["unit"] in ("percent", "pp") for row in rows)
    for eps in TRAIN:
        means = [TABLE["accuracy_mean", eps, test] / 100 for test in (0., R)]
        assert TABLE["mscr", eps, R] == pytest.approx(mscr(*means), abs=.002)
        for test in TEST: assert TABLE["accuracy_margin95", eps, test] == pytest.approx(1.96 * TABLE["accuracy_std", eps, test] / 20**.5, abs=.001)
    assert TABLE["accuracy_mean", 0., 0.] == 91.681 and TABLE["accuracy_mean", .15, .2] == 83.709


def test_published_distances():
    rows = published("cifar10_separation")
    steps, counts = np.array([int(row["distance_in_255ths"]) for row in rows]), np.array([int(row["value"]) for row in rows])
    assert len(rows) == 109 and counts.sum() == 50_000 and (steps[0], counts[0], steps[-1]) == (54, 2, 167) and (np.diff(steps) > 0).all()
    assert np.median(np.repeat(steps, counts)) == 124 and np.repeat(steps, counts).mean() / 255 == pytest.approx(.47948, abs=5e-6)


def test_claims_quote_the_published_numbers():
    stated = {claim.id: claim for claim in claims("mscr_cifar10")}
    quoted = {"baseline": TABLE["mscr", 0., R], "paper-mscr": TABLE["mscr", 0., R], "paper-mscr-eps-min": TABLE["mscr", R, R], "paper-clean": TABLE["accuracy_mean", 0., 0.]}
    for name, value in quoted.items(): assert stated[f"cifar10-{name}"].published == pytest.approx(value, abs=5e-4)
    low, high = TABLE["mscr", .07, R], TABLE["mscr", R, R]
    assert stated["cifar10-sign"].published == pytest.approx(.07 - low / (high - low) * (R - .07), abs=5e-5)
    for claim, spread in (("clean", "accuracy_std"), ("mscr", "mscr_std"), ("mscr-eps-min", "mscr_std")):
        std = TABLE[spread, R if "min" in claim else 0., R if "mscr" in claim else 0.]
        assert stated[f"cifar10-paper-{claim}"].tolerance == pytest.approx(3 * std * (1/20 + 1/20)**.5, abs=.006)
    for sets, steps in (("train-train", 54), ("train-test", 56), ("test-test", 69)): assert stated[f"cifar10-{sets}"].published == steps / 255
    assert all(claim.why for claim in stated.values() if claim.tolerance)


# --- the committed record


@pytest.mark.skipif(not RECORDS, reason="no record is committed")
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_record_is_whole(path):
    record = load(path)
    p, grid = record.parameters, record.metrics["grid"]
    assert record.data == fingerprint("cifar10_train", "cifar10_test") and "changes" not in str(record.metrics["parts_made_by"])
    value = {(row["seed"], row["eps_train"], row["eps_test"]): row["value"] for row in record.rows}
    assert len(value) == len(record.rows) == len(p["seeds"]) * len(p["eps_train"]) * len(grid["eps_test"]) and {row["n"] for row in record.rows} == {10_000}
    accuracy = np.array([[[value[seed, eps, test] for test in grid["eps_test"]] for eps in grid["eps_train"]] for seed in p["seeds"]])
    np.testing.assert_allclose(grid["mean"], 100 * accuracy.mean(0), atol=1e-9)
    clean, robust = accuracy.mean(0)[:, [grid["eps_test"].index(0), grid["eps_test"].index(R)]].T
    np.testing.assert_allclose(grid["mscr"], mscr(clean, robust), atol=1e-9)
    train = record.metrics["separation"]["train-train"]
    assert train["inf"]["r"] == R and sorted(train["inf"]["pair"]) == [33862, 38299] and not record.metrics["claims"]["bins_that_differ"]


@pytest.mark.skipif(not RECORDS, reason="no record is committed")
@pytest.mark.parametrize("preset", ["quick", "laptop"])
def test_both_presets_replay_it_and_the_shape_is_the_papers(preset):
    [record] = [r for r in map(load, RECORDS) if r.parameters == resolve("mscr_cifar10", dict(preset=preset))]
    verdicts = {v.claim.id: v.verdict for v in judge_all("mscr_cifar10", record.metrics)}
    assert {name for name, verdict in verdicts.items() if verdict == NOT_TESTED} == {name for name in verdicts if name.startswith("cifar10-paper-")}
    sure = "rises sign positive baseline best-large train-train train-test test-test bins l1 l2".split()
    assert {verdicts[f"cifar10-{name}"] for name in sure} == {REPRODUCED}


# --- the page, from parts that are made up: no data, no PyTorch


def write_part(folder, study, unit, value):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{study}-{record_key(study, unit)}.json").write_text(json.dumps(dict(unit=unit, value=value, code="made-up")))


def write_parts(folder, train, seeds, **network):
    "Networks that are right as often as the published means say, and separations."
    for seed in seeds:
        for eps in train:
            rows = [dict(model="net", eps_test=test, metric="accuracy", value=a / 100, n=100_000, low=0., high=1.) for test in TEST if (a := TABLE["accuracy_mean", eps, test])]
            part = dict(rows=rows, metrics=dict(mscr=TABLE["mscr", eps, R], mscr_interval=[-1., 1.]), history=[dict(epoch=1, loss=1., accuracy=.5, lr=.1, seconds=2.)])
            write_part(folder, "mscr_cifar10", dict(network, eps_train=eps, seed=seed, eps_test=TEST), part)
    bins = {row["distance_in_255ths"]: int(row["value"]) for row in published("cifar10_separation")}
    for sets, p, distance in [("train-train", "inf", 54/255), ("train-test", "inf", 56/255), ("test-test", "inf", 69/255), ("train-train", "2", 2.7506414616587027), ("train-train", "1", 16796/255)]:
        found = dict(distance=distance, r=distance / 2, pair=[3, 4], classes=[0, 1]) | (dict(histogram=bins) if p == "inf" else {})
        write_part(folder, "mscr_cifar10_separation", dict(separation=sets, p=p), found)


@pytest.fixture
def bare(tmp_path):
    "Runs `robustness-nb run mscr_cifar10` in a process without data and where torch cannot be imported: (outcome, folder for runs)."
    runs = tmp_path / "runs"
    (tmp_path / "hide/torch").mkdir(parents=True)
    (tmp_path / "hide/torch/__init__.py").write_text("raise ImportError('hidden')")
    def call(*options):
        done = process("robustness-nb", "run", "mscr_cifar10", "--json", *options, cwd=tmp_path, PYTHONPATH=tmp_path / "hide", ROBUSTNESS_NB_RUNS=runs,
                       ROBUSTNESS_NB_DATA="", ROBUSTNESS_NB_CACHE=tmp_path / "cache")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return json.loads(done.stdout)
    return call, runs


def text_of(notebook):
    "All that an executed notebook says."
    outputs = [out for cell in json.loads(open(notebook).read())["cells"] for out in cell.get("outputs", [])]
    return "\n".join("".join(out.get("text", out.get("data", {}).get("text/markdown", out.get("data", {}).get("text/plain", "")))) for out in outputs)


def test_the_papers_own_numbers_meet_every_claim_and_are_replayed(bare):
    call, runs = bare
    write_parts(runs / "parts", TRAIN, [0, 1, 2], model="resnet9", width=1, epochs=6)
    first = call("-p", "width=1")
    assert not first["replayed"] and len(first["figures"]) == 6
    verdicts = judge_all("mscr_cifar10", first["metrics"])
    assert {v.verdict for v in verdicts if "paper_network" not in v.claim.metric} == {REPRODUCED}
    assert {v.verdict for v in verdicts if "paper_network" in v.claim.metric} == {NOT_TESTED}
    text = text_of(first["notebook"])
    for words in ["91.68 ± 0.30 | 91.68 ± 0.00 | +0.00", "-35.36 ± 2.03 | -35.36 ± 0.00", "in every bin", "2.3 times as far", "The images are not on this machine"]: assert words in text
    again = call("-p", "width=1")
    assert again["replayed"] and again["metrics"] == first["metrics"]


@pytest.mark.slow
def test_a_part_of_the_grid_with_one_seed(bare):
    call, runs = bare
    write_parts(runs / "parts", [0., .02], [5], model="wide_resnet", width=2, depth=16, epochs=1, recipe="paper")
    options = dict(model="wide_resnet", width=2, depth=16, epochs=1, recipe="paper", eps_train=[.02, 0], seeds=[5])
    done = call(*(word for name, value in options.items() for word in ("-p", f"{name}={value}")))
    assert done["metrics"]["grid"]["mscr_half_width"] == [None, None] and done["metrics"]["claims"] == dict(bins_that_differ=0)
    assert "nan" not in text_of(done["notebook"]).lower()


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS, reason="no record is committed")
def test_the_committed_record_is_replayed_anywhere(bare):
    assert bare[0]()["replayed"]


@pytest.mark.parametrize("given, words", [
    (dict(model="resnet"), ["model", "'resnet'", "resnet9"]),
    (dict(recipe="long"), ["recipe", "'long'", "short"]),
    (dict(width=0), ["width", "0"]),
    (dict(epochs=0), ["epochs", "0"]),
    (dict(epochs=1.5), ["epochs", "int", "1.5"]),
    (dict(eps_train=[]), ["eps_train", "empty"]),
    (dict(eps_train=[-.01]), ["eps_train", "-0.01"]),
    (dict(eps_test=[0, 1.5]), ["eps_test", "1.5"]),
    (dict(eps_test=[0, 0.]), ["eps_test", "twice"]),
    (dict(eps_test=[float("nan")]), ["eps_test", "nan"]),
    (dict(seeds=[-1]), ["seeds", "-1"]),
    (dict(ladder="digits"), ["parameter", "'ladder'"]),
], ids=str)
def test_bad_parameters(given, words, runs_folder):
    with pytest.raises(ValueError) as caught: run("mscr_cifar10", given)
    for word in words: assert word in str(caught.value)
    assert not runs_folder.exists()


# --- the work of one part, on images that are made up


@pytest.fixture
def page(runs_folder, monkeypatch):
    "What the page defines before it obtains its record, with a tiny CIFAR-10."
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    tiny = {part: Dataset(part, rng.integers(60 * y[:, None, None, None], 60 * y[:, None, None, None] + 100, (300, 3, 32, 32), dtype=np.uint8), y, ("a", "b", "c")) for part in ("train", "test")}
    names = {}
    for cell in json.loads((ROOT / "nbs/papers/mscr_cifar10.ipynb").read_text())["cells"]:
        source = "".join(cell["source"])
        if source.startswith("record, replayed = obtain"): return names
        if cell["cell_type"] == "code": exec(source, names)
        if "cifar10" in names: names["cifar10"] = tiny.get


def test_grade_trains_tests_and_cleans_up(page, runs_folder):
    unit = dict(model="resnet9", width=2, epochs=2, eps_train=.1, seed=3, eps_test=[0., .2])
    part = page["grade"](unit)
    assert [row["eps_test"] for row in part["rows"]] == [0., R, .2] and [epoch["epoch"] for epoch in part["history"]] == [1, 2]
    accuracy = [row["value"] for row in part["rows"]]
    assert part["metrics"]["mscr"] == pytest.approx(mscr(*accuracy[:2])) and json.loads(json.dumps(part)) == part
    key = record_key("mscr_cifar10", unit)
    assert (runs_folder / f"weights/mscr_cifar10-{key}.safetensors").exists() and not list((runs_folder / "checkpoints").glob("*"))
    assert page["grade"](unit)["rows"] == part["rows"]


def test_grade_knows_the_papers_recipe(page):
    part = page["grade"](dict(model="wide_resnet", width=1, depth=10, epochs=1, eps_train=0., seed=0, eps_test=[0.], recipe="paper"))
    assert part["history"][0]["lr"] == pytest.approx(.01 / 25)
    norm = page["build"](dict(model="wide_resnet", width=1, depth=10, recipe="paper")).norm
    assert norm.momentum == .9


@pytest.mark.parametrize("sets, p", [("train-train", "inf"), ("train-test", "inf"), ("test-test", "2")])
def test_separate_is_what_brute_force_finds(page, sets, p):
    found = page["separate"](dict(separation=sets, p=p))
    first, second = (page["cifar10"](part) for part in sets.split("-"))
    a, b = (data.floats().reshape(300, -1).astype(float) for data in (second, first))
    distance = np.array([np.linalg.norm(a[i] - b, float(p), axis=1) for i in range(300)])
    distance[second.y[:, None] == first.y] = np.inf
    assert found["distance"] == pytest.approx(distance.min()) and found["r"] == found["distance"] / 2
    if p == "inf":
        steps, counts = np.unique(np.rint(255 * distance.min(1)).astype(int), return_counts=True)
        assert found["histogram"] == dict(zip(map(str, steps), counts))
    assert json.loads(json.dumps(found))["pair"] == list(found["pair"])
