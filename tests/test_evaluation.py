"""Corruption reports: what must not matter, definitions recomputed from the tidy rows, edge cases, bad input."""
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from robustness_nb import corruptions, evaluation
from robustness_nb.datasets import Dataset
from robustness_nb.evaluation import CorruptionReport, baselines, corruption_report

GRID = dict(corruptions=["gaussian_noise", "blur", "rotate", "occlusion"], severities=[1, 3, 5], seeds=[0, 1, 2])


@pytest.fixture(scope="module")
def data(digits_split): return digits_split[1][:60]


@pytest.fixture(scope="module")
def graded(fitted, digits_split):
    "The three fitted models and a function from images to scores: nearest mean image."
    train = digits_split[0]
    means = np.array([train.x[train.y == k].mean(0).ravel() for k in range(10)])
    return {**fitted, "nearest_mean": lambda images: 2 * images.reshape(len(images), -1) @ means.T - (means**2).sum(1)}


@pytest.fixture(scope="module")
def report(graded, data): return corruption_report(graded, data, **GRID)


def same(first, second):
    "Whether two reports have the same rows and metrics, to the last digit."
    return json.dumps([first.rows(), first.metrics()]) == json.dumps([second.rows(), second.metrics()])


# --- what must not matter


@pytest.mark.parametrize("batch_size", [1, 7, 256, 10**9])
def test_the_batch_size_changes_nothing(batch_size, graded, data, report):
    assert same(corruption_report(graded, data, **GRID, batch_size=batch_size), report)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(workers, graded, data, report):
    assert same(corruption_report(graded, data, **GRID, batch_size=7, workers=workers), report)


def test_workers_know_corruptions_that_are_defined_here(fitted, data, monkeypatch):
    monkeypatch.setattr(corruptions, "registry", dict(corruptions.registry))
    @corruptions.corruption("digital", by=[.1, .2, .3, .4, 5.])
    def dimmer(images, draws, by):
        if by == 5: raise ValueError("too dark")
        return images * (1 - by)
    here, there = (corruption_report(fitted, data, corruptions=["dimmer"], severities=[1, 2, 3, 4], workers=workers) for workers in (0, 2))
    assert same(here, there)
    with pytest.raises(ValueError, match="too dark"): corruption_report(fitted, data, corruptions=["dimmer"], workers=2)


@pytest.mark.parametrize("grid", ["models", "corruptions", "severities", "seeds"])
def test_reports_of_parts_add_up_to_one_of_all(grid, graded, data, report):
    def rows_of(part):
        if grid == "models": return corruption_report({name: graded[name] for name in part}, data, **GRID).rows()
        return corruption_report(graded, data, **{**GRID, grid: part}).rows()
    whole = list(graded) if grid == "models" else GRID[grid]
    parts = rows_of(whole[:1]) + rows_of(whole[1:])
    assert {tuple(row.items()) for row in parts} == {tuple(row.items()) for row in report.rows()}


def test_nothing_is_printed_unless_asked(graded, data, capfd):
    corruption_report(graded, data, corruptions=["blur"])
    assert capfd.readouterr() == ("", "")
    corruption_report(graded, data, corruptions=["blur"], progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "/60" in err


def test_a_model_cannot_spoil_the_images_of_the_next(fitted, data):
    def spoils(images):
        images *= 0
        return np.zeros((len(images), 10))
    own, alone = replace(data, x=data.x.copy()), corruption_report({"svc": fitted["svc"]}, data, corruptions=["blur"])
    try: both = corruption_report({"spoils": spoils, "svc": fitted["svc"]}, own, corruptions=["blur"])
    except ValueError: both = None
    assert own.fingerprint == data.fingerprint
    assert both is None or both.metrics()["svc"]["matrix"] == alone.metrics()["svc"]["matrix"]


# --- definitions


def test_rows_are_tidy(report, data):
    rows = report.rows()
    assert len(rows) == 4 * (1 + 4 * 3 * 3) and len({(r["model"], r["corruption"], r["severity"], r["seed"]) for r in rows}) == len(rows)
    assert {(r["severity"], r["seed"]) for r in rows if r["corruption"] == "clean"} == {(0, None)}
    for row in rows:
        assert row["n"] == len(data) and row["metric"] == "accuracy" and row["ladder"] == "digits"
        assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1 and row["value"] * len(data) == pytest.approx(round(row["value"] * len(data)))


def test_rows_are_the_models_answers(report, graded, data):
    for row in report.rows()[::7]:
        if row["corruption"] == "clean": continue
        images = corruptions.corrupt(data.x, row["corruption"], row["severity"], seed=row["seed"])
        answers = graded[row["model"]](images).argmax(1) if callable(graded[row["model"]]) else graded[row["model"]].predict(images)
        assert row["value"] == (answers == data.y).mean()


def test_metrics_follow_from_the_rows(report):
    table = pd.DataFrame(report.rows())
    for model, metrics in report.metrics().items():
        clean = table.query("model == @model and corruption == 'clean'").value.item()
        cells = table.query("model == @model and corruption != 'clean'").groupby(["corruption", "severity"]).value.mean()
        approx, by_corruption = pytest.approx, cells.groupby("corruption").mean().sort_values()
        assert metrics["clean_accuracy"] == approx(clean) and metrics["mean_corrupted_accuracy"] == approx(cells.mean())
        assert metrics["robustness_gap"] == approx(clean - cells.mean())
        assert metrics["relative_robustness"] == approx(cells.mean() / clean)
        assert metrics["per_corruption"] == approx(by_corruption.to_dict())
        assert metrics["per_severity"] == approx({str(s): value for s, value in cells.groupby("severity").mean().items()})
        assert {name: approx(list(cells[name])) for name in GRID["corruptions"]} == metrics["matrix"]
        assert [by_corruption[name] for name in metrics["most_fragile"]] == approx(list(by_corruption[:3]))
        assert [by_corruption[name] for name in metrics["most_robust"]] == approx(list(by_corruption[:-4:-1]))
        for quantity in "clean_accuracy", "mean_corrupted_accuracy", "robustness_gap":
            low, high = metrics[f"{quantity}_interval"]
            assert -1 <= low and low - 1e-12 <= metrics[quantity] <= high + 1e-12 and high <= 1
        assert metrics["difference_to"].keys() == report.metrics().keys() - {model}


def test_differences_are_the_same_from_both_sides(report):
    metrics = report.metrics()
    there, back = metrics["svc"]["difference_to"]["knn"], metrics["knn"]["difference_to"]["svc"]
    assert there["difference"] == pytest.approx(metrics["svc"]["mean_corrupted_accuracy"] - metrics["knn"]["mean_corrupted_accuracy"])
    assert there["clean_p_value"] == back["clean_p_value"]
    assert [there["difference"], there["low"], there["high"]] == pytest.approx([-back["difference"], -back["high"], -back["low"]])


def test_the_majority_class_has_no_gap(report):
    majority = report.metrics()["majority_class"]
    assert majority["robustness_gap"] == 0 and majority["relative_robustness"] == 1 and majority["robustness_gap_interval"] == [0, 0]
    assert majority["clean_accuracy"] < .3


def test_select_equals_a_report_of_the_selection(report, graded, data):
    chosen = ["occlusion", "gaussian_noise"]
    assert same(report.select(chosen), corruption_report(graded, data, **{**GRID, "corruptions": chosen}))
    with pytest.raises(ValueError) as caught: report.select(["blurr"])
    for word in ["corruption", "'blurr'", "blur"]: assert word in str(caught.value)


def report_of(clean, accuracies, n=50, severities=(1, 2, 3, 4, 5)):
    "A report of one model and corruption with given accuracies."
    def hits(accuracy): return np.arange(n) < round(accuracy * n)
    return CorruptionReport(["m"], ["c"], list(severities), [0], "digits", hits(clean)[None], np.array([[[[hits(a)] for a in accuracies]]]))

@pytest.mark.parametrize("clean, accuracies, survives", [
    (1, [1, .98, .96, .9, .82], 5),
    (1, [.9, .82, .78, .9, .9], 2),  # a recovery does not count
    (1, [.7, .9, .9, .9, .9], 0),
    (1, [.8, .8, .8, .78, .8], 3),  # exactly 80 % is kept
    (.9, [.72, .72, .7, .72, .72], 2),
    (.7, [.56, .56, .56, .56, .54], 4),
    (.3, [.24, .24, .24, .24, .22], 4),
])
def test_survival_is_at_least_80_percent_of_clean_at_each_severity(clean, accuracies, survives):
    assert report_of(clean, accuracies).metrics()["m"]["survives_to_severity"] == {"c": survives}


@pytest.mark.parametrize("severities, accuracies, survives", [((1, 3, 5), [.9, .9, .5], 3), ((5, 3, 1), [.5, .9, .9], 3), ((3,), [.5], 0), ((2, 4), [.9, .9], 4)])
def test_survival_on_some_severities(severities, accuracies, survives):
    assert report_of(1, accuracies, severities=severities).metrics()["m"]["survives_to_severity"] == {"c": survives}


# --- edge cases


def test_a_model_that_is_always_wrong(digits_split):
    zeros = digits_split[1][digits_split[1].y == 0][:5]
    report = corruption_report({"wrong": lambda images: np.eye(10)[np.ones(len(images), int)]}, zeros, **GRID)
    metrics = json.loads(json.dumps(report.metrics(), allow_nan=False))["wrong"]
    assert metrics["clean_accuracy"] == metrics["mean_corrupted_accuracy"] == metrics["robustness_gap"] == 0
    assert metrics["relative_robustness"] is None
    json.dumps(report.rows(), allow_nan=False)
    assert "wrong" in repr(report)


def test_one_image_one_model_one_cell(fitted, data):
    report = corruption_report({"svc": fitted["svc"]}, data[:1], corruptions=["blur"], severities=[1], seeds=[0])
    assert json.loads(json.dumps(report.metrics(), allow_nan=False))["svc"]["clean_accuracy"] == 1
    assert len(report.rows()) == 2


def test_colour_images_of_another_size():
    x = np.random.default_rng(0).random((6, 3, 17, 33)).astype(np.float32)
    red = Dataset("red or not", x, (x[:, 0].mean((1, 2)) > x[:, 1].mean((1, 2))).astype(np.int64), ("no", "yes"))
    report = corruption_report({"red": lambda images: images.mean((2, 3))[:, [1, 0]]}, red)
    assert report.metrics()["red"]["clean_accuracy"] == 1 and report.corruptions == corruptions.names()


def test_numbers_of_numpy_are_numbers(graded, data):
    plain, numpy = [1, 5], np.array([1, 5])
    first, second = (corruption_report(graded, data, corruptions=["gaussian_noise"], severities=s, seeds=s) for s in (plain, numpy))
    assert same(first, second)


# --- bad input


@pytest.mark.parametrize("changes, words", [
    (dict(models={}), ["models", "at least one"]),
    (dict(corruptions=[]), ["corruptions", "at least one"]),
    (dict(severities=[]), ["severities", "at least one"]),
    (dict(seeds=[]), ["seeds", "at least one"]),
    (dict(corruptions=["blur", "roatte"]), ["corruption", "'roatte'", "rotate"]),
    (dict(ladder="digit"), ["ladder", "'digit'", "digits"]),
    (dict(severities=[1, 0]), ["severity", "1 to 5", "0"]),
    (dict(severities=[6]), ["severity", "1 to 5", "6"]),
    (dict(severities=[2.5]), ["severity", "1 to 5", "2.5"]),
    (dict(batch_size=0), ["batch_size", "at least 1", "0"]),
    (dict(workers=-1), ["workers", "at least 0", "-1"]),
    (dict(models={"short": lambda images: np.zeros((1, 10))}), ["scores", "(1, 10)"]),
    (dict(models={"nan": lambda images: np.full((len(images), 10), np.nan)}), ["scores", "NaN"]),
], ids=lambda value: str(value)[:40])
def test_bad_arguments(changes, words, fitted, data):
    with pytest.raises(ValueError) as caught: corruption_report(**{**dict(models=fitted, data=data, corruptions=["blur"]), **changes})
    for word in words: assert word in str(caught.value)


def test_a_thing_that_is_no_model(data):
    with pytest.raises(TypeError, match="predict.*int"): corruption_report({"three": 3}, data)


@pytest.mark.parametrize("number", [1, 30])
def test_a_corruption_that_breaks_half_way(number, fitted, data, monkeypatch):
    "An error in the middle is passed on as it is."
    calls = iter(range(10**6))
    blur = corruptions.corrupt
    def broken(*arguments, **options):
        if next(calls) == number: raise ValueError("no blur today")
        return blur(*arguments, **options)
    monkeypatch.setattr(corruptions, "corrupt", broken)
    with pytest.raises(ValueError, match="no blur today"): corruption_report(fitted, data, batch_size=10, corruptions=["blur"])


# --- errors, mCE, flips


def test_errors_follow_from_the_answers(report, data):
    errors, correct = report.errors("nearest_mean"), report.correct
    for m, model in enumerate(report.models):
        found, wrong = errors[model], 1 - correct[m]
        assert found["mean_error"] == pytest.approx(wrong.mean()) and found["clean_error"] == pytest.approx(1 - report.clean[m].mean())
        assert found["per_family"] == pytest.approx(dict(noise=wrong[0].mean(), blur=wrong[1].mean(), geometric=wrong[2:].mean()))
        assert found["per_class"] == pytest.approx({str(k): wrong[..., data.y == k].mean() for k in np.unique(data.y)})
        baseline = 1 - correct[report.models.index("nearest_mean")].mean((1, 2, 3))
        assert found["mce"] == pytest.approx(100 * np.mean(wrong.mean((1, 2, 3)) / baseline))
        for name in "mean_error", "mce", "flip_rate": assert found[f"{name}_interval"][0] <= found[name] <= found[f"{name}_interval"][1]
    assert errors["nearest_mean"]["mce"] == pytest.approx(100) and errors["nearest_mean"].get("relative_mce", 100) == pytest.approx(100)
    json.dumps(errors, allow_nan=False)


def test_a_flip_is_another_answer_not_a_wrong_one(graded, data, report):
    answers = graded["svc"].predict(data.x)
    corrupted = graded["svc"].predict(corruptions.corrupt(data.x, "blur", 5))
    m = report.models.index("svc")
    assert np.array_equal(report.flipped[m, 1, 2, 0], corrupted != answers)


def test_alexnet_is_the_baseline_of_imagenet_c():
    names, known = corruptions.names("imagenet-c", extra=False), baselines()["alexnet"]
    n = 10**6
    right = np.array([np.arange(n) >= round(n * known[c]) for c in names])
    report = CorruptionReport(["a"], names, [3], [0], "imagenet-c", np.arange(n)[None] >= round(n * known["clean"]), right[None, :, None, None])
    found = _model_errors_without_bootstrap(report)
    assert found["mce"] == pytest.approx(100, abs=1e-3) and found["relative_mce"] == pytest.approx(100, abs=1e-2)


def _model_errors_without_bootstrap(report):
    return {name: share.mean() for name, share in evaluation._scores(report, 0, evaluation._baseline(report, "alexnet")).items()}


@pytest.mark.parametrize("baseline, words", [("alexnett", ["baseline", "alexnet"]), ("alexnet", ["no error for", "blur"]), (dict(gaussian_noise=.5), ["no error for", "blur"]),
                                             (dict.fromkeys(GRID["corruptions"], 0), ["greater than 0", "gaussian_noise"])])
def test_bad_baselines(baseline, words, report):
    with pytest.raises(ValueError) as caught: report.errors(baseline)
    for word in words: assert word in str(caught.value)


def test_a_report_says_before_it_starts_what_images_lack(fitted, data):
    with pytest.raises(ValueError, match="three channels"): corruption_report(fitted, data, corruptions=["colour_quantise"], ladder="visat-colour")
