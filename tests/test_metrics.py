"""Metrics against numbers published elsewhere (tests/data), scipy, closed formulas and properties that must always hold."""
import csv, math, subprocess, sys, time, tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from scipy import stats

from robustness_nb.metrics import (
    accuracy, attack_success_rates, bootstrap_means, corruption_error, cumulative_error, delta_error, error_rate, lp_norm, mcnemar,
    mean_corruption_error, mscr, paired_bootstrap, recorr, relative_mean_corruption_error, relative_robustness,
    robust_accuracy, robustness_gap, seed_interval, wilson_interval,
)

settings.register_profile("metrics", deadline=None)
settings.load_profile("metrics")
TASKS = ["color", "shape", "symbol", "text"]
rates = st.floats(0, 1)

def published(name):
    with open(Path(__file__).parent / "data" / name) as f: return list(csv.DictReader(f))

visat = published("visat_recorr.csv")
visat_ids = [f"{r['model']} {r['attack']} {r['target']}" for r in visat]
def deltas_of(row): return {t: float(row[f"delta_{t}"]) for t in TASKS}

# ---- published numbers ----

@pytest.mark.parametrize("row", published("mscr.csv"), ids=lambda r: f"{r['dataset']} {float(r['eps_train']):.4f}")
def test_mscr_published(row):
    clean, robust = float(row["clean_percent"]) / 100, float(row["robust_percent"]) / 100
    tolerance = 1e-9 if row["dataset"] == "2d-B" else 2e-3 # the authors round the 2D means before they divide
    assert mscr(clean, robust) == pytest.approx(float(row["mscr_percent"]), abs=tolerance)

@pytest.mark.parametrize("row", visat, ids=visat_ids)
def test_visat_published(row):
    deltas, target, value = deltas_of(row), row["target"], float(row["recorr"])
    assert cumulative_error(deltas) == pytest.approx(float(row["eps_cu"]), abs=5e-4)
    r = recorr(deltas, target, clean_error=float(row["clean_error"]), n=30283)
    rounding = 5e-5 * (1 + value) / abs(deltas[target]) # what four-decimal Deltas leave open
    assert r.value == pytest.approx(value, abs=max(1e-3, rounding + 6e-4))
    assert recorr(deltas, target, form="literal").value == pytest.approx(r.value + 1/3, rel=1e-12)
    assert recorr(deltas, target, form="literal-mean").value == pytest.approx((3*r.value + 1) / 4, rel=1e-12)
    assert recorr(list(deltas.values()), TASKS.index(target)).value == r.value

def test_visat_tolerance_and_reliability():
    "Self-attacks: 14 of 16 within .001; the two with nothing to take are flagged, and only those."
    own = [r for r in visat if r["attack"] == f"pgd/{r['model']}"]
    assert len(own) == 16
    flagged = []
    for row in own:
        r = recorr(deltas_of(row), row["target"], clean_error=float(row["clean_error"]), n=30283)
        if not r.reliable: flagged.append((row["model"], row["target"], r.reason[:4]))
        else: assert r.value == pytest.approx(float(row["recorr"]), abs=1e-3) and r.reason == ""
    assert flagged == [("RMFTL", "symbol", "tiny"), ("RMFTL", "text", "tiny")]

def test_visat_delta_from_accuracies():
    "Seed 42, ResNet on images crafted on the ViT against color: logged accuracies and the published Delta row."
    clean, attacked = [.913945, .917049, .886735, .957567], [.7079, .7164, .7266, .8908]
    np.testing.assert_allclose(delta_error(clean, attacked), [.2061, .2006, .1602, .0668], atol=1e-4)

def test_mce_published():
    rows = published("imagenet_c.csv")
    alexnet = {r["corruption"]: float(r["alexnet_error"]) for r in rows}
    resnet50 = {r["corruption"]: 1 - float(r["resnet50_accuracy_percent"]) / 100 for r in rows}
    for r in rows:
        c = r["corruption"]
        assert corruption_error(resnet50[c], alexnet[c]) == pytest.approx(float(r["resnet50_ce_percent"]), abs=.01)
    assert mean_corruption_error(resnet50, alexnet) == pytest.approx(76.70, abs=.005)
    assert mean_corruption_error(alexnet, alexnet) == pytest.approx(100)

def test_robustness_eval_published():
    assert robustness_gap(.988, .771) == pytest.approx(.217)
    assert relative_robustness(.988, .771) == pytest.approx(.78, abs=.005)
    np.testing.assert_allclose(relative_robustness([.988, .980], [.771, .797]), [.780, .813], atol=5e-4)

def test_majority_floors():
    for majority, floor in [(14764, .4875), (18402, .6077), (25569, .8443)]:
        y = np.repeat([0, 1], [majority, 30283 - majority])
        assert accuracy(y, np.zeros_like(y)) == pytest.approx(floor, abs=5e-5)
        assert error_rate(y, np.zeros_like(y)) == pytest.approx(1 - floor, abs=5e-5)

def test_julia_oracles():
    "Norms and rates that AdversarialAttacks.jl documents or tests."
    d = np.array([[1., 2, 3], [.5, .5, .5]])
    np.testing.assert_allclose(lp_norm(d, math.inf), [3, .5])
    np.testing.assert_allclose(lp_norm(d, 2), [math.sqrt(14), .8660254], rtol=1e-7)
    np.testing.assert_allclose(lp_norm(d, 1), [6, 1.5])
    step = np.array([[.1, .5, .2, .3]])
    np.testing.assert_allclose([lp_norm(step, p)[0] for p in (math.inf, 2, 1)], [.5, .6244998, 1.1], rtol=1e-7)
    y, before, after = np.zeros(10, int), np.repeat([0, 1], [6, 4]), np.repeat([1, 0, 1], [5, 1, 4])
    assert attack_success_rates(y, before, after).of_clean_correct == pytest.approx(5/6)
    assert robust_accuracy(y, after) == pytest.approx(.6 * (1 - 5/6))

def test_digits_of_the_notebook():
    "The disagreements that the notebook quotes for SVC and KNN, from the models themselves."
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=500, random_state=7)
    svc, knn = (m.fit(x, y).predict(x_test) for m in (SVC(), KNeighborsClassifier()))
    assert (accuracy(y_test, svc), accuracy(y_test, knn)) == (.988, .98)
    assert mcnemar(svc == y_test, knn == y_test)[:2] == (8, 4)

# ---- scipy ----

@given(n=st.integers(1, 10**6), share=rates, level=st.floats(.5, .999))
def test_wilson_is_scipys(n, share, level):
    k = round(share * n)
    low, high = wilson_interval(k, n, level)
    ci = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    assert (low, high) == pytest.approx((ci.low, ci.high), abs=1e-12)
    assert 0 <= low <= k/n <= high <= 1

def test_wilson_ends_are_exact():
    n = np.arange(1, 2000)
    for level in (.5, .6827, .8, .9, .95, .99, .999):
        assert (wilson_interval(0 * n, n, level).low == 0).all() and (wilson_interval(n, n, level).high == 1).all()

def test_wilson_is_vectorised():
    low, high = wilson_interval(np.arange(11), 10)
    assert [low.tolist(), high.tolist()] == [list(e) for e in zip(*(wilson_interval(k, 10) for k in range(11)))]

@given(n=st.integers(1, 10**9), data=st.data())
def test_wilson_mirror(n, data):
    k = data.draw(st.integers(0, n))
    assert wilson_interval(k, n).low == pytest.approx(1 - wilson_interval(n - k, n).high, abs=1e-9)

@given(both=st.integers(0, 50), only_a=st.integers(0, 400), only_b=st.integers(0, 400))
def test_mcnemar_is_binomtest(both, only_a, only_b):
    assume(both + only_a + only_b)
    a, b = np.repeat([1, 1, 0], [both, only_a, only_b]), np.repeat([1, 0, 1], [both, only_a, only_b])
    r = mcnemar(a, b)
    assert r[:2] == (only_a, only_b)
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1
    assert r.p_value == pytest.approx(expected, rel=1e-9)
    assert mcnemar(b, a) == (only_b, only_a, r.p_value)

def test_seed_interval_is_scipys():
    values = np.random.default_rng(0).normal(size=(5, 2, 3))
    mean, low, high = seed_interval(values, .9)
    ref = stats.t.interval(.9, 4, values.mean(0), stats.sem(values, axis=0))
    np.testing.assert_allclose([low, high], ref, rtol=1e-10)
    np.testing.assert_allclose(mean, values.mean(0))
    one = seed_interval(values[:1])
    assert one.mean.shape == (2, 3) and np.isnan(one.low).all() and np.isnan(one.high).all()

def test_seed_interval_covers():
    "95 % of intervals hold the true mean; with 1.96 instead of t it would be 88 %."
    _, low, high = seed_interval(np.random.default_rng(1).normal(size=(5, 20_000)))
    assert np.mean((low < 0) & (0 < high)) == pytest.approx(.95, abs=.006)

@pytest.mark.parametrize("n", [30, 500])
def test_bootstrap_is_scipys(n):
    rng = np.random.default_rng(n)
    a, b = rng.random(n), rng.random(n) * .9
    ours = paired_bootstrap(a, b, resamples=20_000)
    ref = stats.bootstrap((a, b), lambda a, b, axis: a.mean(axis) - b.mean(axis), paired=True, vectorized=True, batch=1000,
                          n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)).confidence_interval
    assert ours.difference == pytest.approx(a.mean() - b.mean())
    assert (ours.low, ours.high) == pytest.approx(tuple(ref), abs=.03 * (ref.high - ref.low))

def test_bootstrap_distribution_is_exact_for_one_right_answer():
    "One in four right: four times the resampled mean is Binomial(4, 1/4), whose 2.5 % and 97.5 % quantiles are 0 and 3."
    for right in range(4):
        r = paired_bootstrap(np.eye(4)[right], np.zeros(4))
        assert (r.difference, r.low, r.high) == (.25, stats.binom.ppf(.025, 4, .25) / 4, stats.binom.ppf(.975, 4, .25) / 4)

# ---- properties ----

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)

@given(pairs, st.integers(0, 2**32))
@settings(max_examples=40)
def test_bootstrap_antisymmetric_and_seeded(pairs, seed):
    a, b = np.array(pairs).T
    r, s = (paired_bootstrap(*ab, resamples=200, seed=seed) for ab in ((a, b), (b, a)))
    assert (-s.difference, -s.high, -s.low) == pytest.approx(tuple(r), abs=1e-12)
    assert r.low <= r.high and -1 <= r.low and r.high <= 1
    assert r == paired_bootstrap(a, b, resamples=200, seed=np.random.default_rng(seed))

def test_bootstrap_means_are_joint():
    "Every row is one resample: the same samples for each quantity, and real means of n of them."
    a = np.random.default_rng(0).random(40) < .7
    means = bootstrap_means([a, ~a, np.arange(40)], resamples=3000, seed=3)
    assert means.shape == (3000, 3)
    np.testing.assert_allclose(means[:, 0] + means[:, 1], 1)
    np.testing.assert_allclose(40 * means, np.round(40 * means), atol=1e-9)
    np.testing.assert_allclose(means.mean(0), [a.mean(), (~a).mean(), 19.5], atol=6 * means.std(0).max() / 3000**.5)
    assert means[:, 2].std() == pytest.approx(np.arange(40).std() / 40**.5, rel=.06)
    np.testing.assert_array_equal(bootstrap_means([a], resamples=3000, seed=3)[:, 0], means[:, 0])

def test_bootstrap_seed_matters_and_global_state_does_not():
    a, b = np.random.default_rng(0).random((2, 40))
    np.random.seed(0); first = paired_bootstrap(a, b)
    np.random.seed(1); state = np.random.get_state()[1].copy()
    assert paired_bootstrap(a, b) == first and (np.random.get_state()[1] == state).all()
    assert paired_bootstrap(a, b, seed=1) != first

@given(rates, rates)
def test_signs_and_identities(clean, other):
    assume(clean == 0 or clean > 1e-6)
    gap, relative, m = robustness_gap(clean, other), relative_robustness(clean, other), mscr(clean, other)
    assert gap == delta_error(clean, other) == clean - other
    if clean == 0: assert math.isnan(relative) and math.isnan(m)
    else:
        assert np.sign(m) == np.sign(other - clean) and m >= -100
        assert m == pytest.approx(100 * (relative - 1), abs=1e-6 * max(1, abs(m)))

@given(st.lists(st.floats(-.5, .5), min_size=2, max_size=6), st.floats(.01, 2), st.data())
def test_recorr_scale_and_forms(deltas, scale, data):
    t = data.draw(st.integers(0, len(deltas) - 1))
    assume(abs(deltas[t]) > 1e-3)
    k, r = len(deltas) - 1, recorr(deltas, t)
    assert recorr([scale * d for d in deltas], t).value == pytest.approx(r.value, rel=1e-6, abs=1e-9)
    assert recorr([-d for d in deltas], t).value == pytest.approx(r.value, rel=1e-6, abs=1e-9)
    assert r.value == pytest.approx(sum(d for i, d in enumerate(deltas) if i != t) / k / deltas[t], rel=1e-6, abs=1e-9)
    assert recorr(deltas, t, form="literal").value == pytest.approx(r.value + 1/k, rel=1e-6, abs=1e-9)
    assert recorr(deltas, t, form="literal-mean").value == pytest.approx((k*r.value + 1) / (k + 1), rel=1e-6, abs=1e-9)
    assert r.reliable == (deltas[t] > 0) and bool(r.reason) != r.reliable

labels = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=40)

@given(labels)
def test_attack_rates_count(rows):
    y, before, after = np.array(rows).T
    s = attack_success_rates(y, before, after)
    flipped = sum(b == t != a for t, b, a in rows); right = sum(b == t for t, b, a in rows)
    assert s.of_all == pytest.approx(flipped / len(rows))
    assert s.prediction_changed == pytest.approx(sum(b != a for _, b, a in rows) / len(rows))
    assert math.isnan(s.of_clean_correct) if right == 0 else s.of_clean_correct == pytest.approx(flipped / right)
    assert s.of_all <= s.prediction_changed
    gained = sum(b != t == a for t, b, a in rows) / len(rows)
    assert robust_accuracy(y, after) == pytest.approx(accuracy(y, before) - s.of_all + gained)
    assert accuracy(y, before) + error_rate(y, before) == pytest.approx(1)

def test_multi_task_is_task_by_task():
    y, before, after = np.random.default_rng(0).integers(0, 3, (3, 50, 4))
    tasks = [attack_success_rates(y[:, t], before[:, t], after[:, t]) for t in range(4)]
    for field, values in zip(attack_success_rates(y, before, after), zip(*tasks)): np.testing.assert_allclose(field, values)
    np.testing.assert_allclose(accuracy(y, before), [accuracy(y[:, t], before[:, t]) for t in range(4)])

vectors = st.lists(st.floats(-10, 10), min_size=1, max_size=20)

@given(vectors, st.sampled_from([.5, 1, 1.5, 2, 3, 10, math.inf]), st.floats(-5, 5))
def test_norm_is_numpys_and_scales(v, p, c):
    assume(not any(0 < abs(x) < 1e-6 for x in [c, *v]))
    x = np.array([v])
    assert lp_norm(x, p)[0] == pytest.approx(np.linalg.norm(v, p), rel=1e-9)
    assert lp_norm(c * x, p)[0] == pytest.approx(abs(c) * lp_norm(x, p)[0], rel=1e-9)
    assert lp_norm(x, 0)[0] == np.count_nonzero(v)

@given(vectors)
def test_norm_falls_with_p(v):
    norms = [lp_norm([v], p)[0] for p in (.5, 1, 2, 5, 200, math.inf)]
    assert all(a >= b * (1 - 1e-12) for a, b in zip(norms, norms[1:]))

def test_norm_of_images():
    x = np.random.default_rng(0).random((4, 3, 5, 5), dtype=np.float32)
    np.testing.assert_allclose(lp_norm(x, 2), np.linalg.norm(x.reshape(4, -1).astype(float), axis=1))
    assert lp_norm(np.full((1, 3072), 1e-3), 200)[0] == pytest.approx(1e-3 * 3072**(1/200))
    assert lp_norm(np.full((1, 4), 200, np.uint8), 2)[0] == 400
    assert lp_norm(np.zeros((2, 3)), 2).tolist() == [0, 0] and lp_norm(np.zeros((0, 3)), 2).shape == (0,)

def test_corruption_error_by_hand():
    e, base = [.1, .2, .3], [.2, .4, .9]
    assert corruption_error(e, base) == pytest.approx(100 * .6 / 1.5)
    assert corruption_error(np.mean(e), base) == pytest.approx(100 * .6 / 1.5)
    got = relative_mean_corruption_error({"a": e, "b": [.5]}, .1, {"a": base, "b": [.7], "unused": [.1]}, .2)
    assert got == pytest.approx(100 * ((.0 + .1 + .2) / (.0 + .2 + .7) + .4 / .5) / 2)
    assert mean_corruption_error({"a": e, "b": e}, {"a": base, "b": e}) == pytest.approx(70)

# ---- undefined and refused ----

def test_undefined_is_nan_with_a_reason():
    assert math.isnan(corruption_error([.1], [0]))
    for baseline_loses in (0, -.05):
        assert math.isnan(relative_mean_corruption_error({"a": [.3]}, .1, {"a": [.2 + baseline_loses]}, .2))
    assert math.isnan(attack_success_rates([0], [1], [0]).of_clean_correct)
    np.testing.assert_array_equal(mscr([0, .5], [0, .5]), [np.nan, 0])
    for form in ("non-targeted", "literal", "literal-mean"):
        r = recorr(dict(a=0., b=.2), "a", form=form, clean_error=.1, n=100)
        assert math.isnan(r.value) and not r.reliable and r.reason.startswith("undefined")

@given(st.floats(.01, .99), st.integers(100, 10**6))
def test_reliable_from_three_standard_errors(e, n):
    limit = 3 * math.sqrt(e * (1 - e) / n)
    assert recorr([1.001 * limit, 0], 0, clean_error=e, n=n).reliable
    for tiny in (.999 * limit, -.999 * limit):
        r = recorr([tiny, 0], 0, clean_error=e, n=n)
        assert not r.reliable and "tiny" in r.reason
    assert recorr([.999 * limit, 0], 0).reliable # not judged without clean_error and n

def test_negative_deltas_are_kept():
    assert cumulative_error([.2, -.05, -.01]) == pytest.approx(.14)
    assert recorr([.2, -.05, -.01], 0).value == pytest.approx(-.15) and recorr([.2, -.05, -.01], 0).reliable
    r = recorr([-.001, .1], 0, clean_error=.3, n=100)
    assert r.value == pytest.approx(-100) and "negative" in r.reason and "tiny" in r.reason

def test_cumulative_error_over_seeds():
    table = np.random.default_rng(0).uniform(-.2, 1, (5, 4))
    by_task = dict(zip(TASKS, table.T))
    np.testing.assert_allclose(cumulative_error(table), table.sum(1))
    np.testing.assert_allclose(cumulative_error(by_task), table.sum(1))

@pytest.mark.parametrize("error, words, call", [
    (ValueError, "prediction has shape (2,), but y has (3,)", lambda: accuracy([0, 1, 2], [0, 1])),
    (ValueError, "y is empty", lambda: error_rate([], [])),
    (TypeError, "prediction holds float64", lambda: accuracy([0, 1], [[.1, .9], [.8, .2]])),
    (TypeError, "y holds <U1", lambda: accuracy(["a"], ["b"])),
    (ValueError, "labels are (n,) or (n, tasks)", lambda: accuracy(np.zeros((2, 2, 2), int), np.zeros((2, 2, 2), int))),
    (ValueError, "attacked_prediction has shape", lambda: attack_success_rates([0, 1], [0, 1], [0])),
    (ValueError, "attacked_prediction has shape", lambda: robust_accuracy([0, 1], [0])),
    (ValueError, "clean must lie in [0, 1], got 98.8", lambda: robustness_gap(98.8, 77.1)),
    (ValueError, "corrupted must lie in [0, 1], got nan", lambda: relative_robustness(.9, math.nan)),
    (ValueError, "robust must lie in [0, 1], got -0.1", lambda: mscr(.9, [.5, -.1])),
    (ValueError, "attacked must lie in [0, 1]", lambda: delta_error(.9, 1.01)),
    (ValueError, "deltas must lie in [-1, 1], got 46.4", lambda: cumulative_error([46.4, 1])),
    (ValueError, "deltas must lie in [-1, 1], got nan", lambda: recorr([math.nan, .1], 1)),
    (ValueError, "one value for each task", lambda: cumulative_error({})),
    (ValueError, "two or more tasks", lambda: recorr({"a": .1}, "a")),
    (ValueError, "two or more tasks", lambda: recorr([[.1, .2]], 0)),
    (ValueError, "target 'symbl' is not a task; nearest: symbol", lambda: recorr(dict(symbol=.1, text=.1), "symbl")),
    (ValueError, "target 4 is not a task; allowed: 0, 1", lambda: recorr([.1, .2], 4)),
    (ValueError, "form 'x' is not known; allowed: non-targeted, literal, literal-mean", lambda: recorr([.1, .2], 0, form="x")),
    (ValueError, "clean_error and n together", lambda: recorr([.1, .2], 0, n=10)),
    (ValueError, "n must be at least 1", lambda: recorr([.1, .2], 0, n=0, clean_error=.1)),
    (ValueError, "clean_error must lie in [0, 1]", lambda: recorr([.1, .2], 0, n=10, clean_error=8.9)),
    (ValueError, "errors has 2 severities, baseline_errors 3", lambda: corruption_error([.1, .2], [.1, .2, .3])),
    (ValueError, "errors has 0 severities", lambda: corruption_error([], [.1])),
    (ValueError, "errors['fog'] must lie in [0, 1], got 12", lambda: mean_corruption_error(dict(fog=12), dict(fog=.1))),
    (ValueError, "no corruption 'fogg'; nearest: fog", lambda: mean_corruption_error(dict(fogg=.1), dict(fog=.1, snow=.1))),
    (ValueError, "errors is empty", lambda: relative_mean_corruption_error({}, .1, {}, .1)),
    (ValueError, "baseline_clean_error must lie", lambda: relative_mean_corruption_error(dict(a=.1), .1, dict(a=.1), 43.5)),
    (ValueError, "p must be 0 or more", lambda: lp_norm([[1.]], -1)),
    (ValueError, "p must be 0 or more", lambda: lp_norm([[1.]], math.nan)),
    (ValueError, "give x[None]", lambda: lp_norm([1., 2.], 2)),
    (ValueError, "x must be finite", lambda: lp_norm([[1., math.nan]], 2)),
    (ValueError, "successes must be whole numbers between 0 and n", lambda: wilson_interval(11, 10)),
    (ValueError, "successes must be whole numbers between 0 and n", lambda: wilson_interval(.9, 10)),
    (ValueError, "n must be whole numbers, at least 1", lambda: wilson_interval(0, 0)),
    (ValueError, "level must lie between 0 and 1 (.95 for 95 %), got 95", lambda: wilson_interval(1, 2, level=95)),
    (ValueError, "level must lie", lambda: seed_interval([1, 2], level=1)),
    (ValueError, "at least one seed", lambda: seed_interval([])),
    (ValueError, "a and b must be (n,) and equally long, got (2,) and (3,)", lambda: paired_bootstrap([0, 1], [0, 1, 1])),
    (ValueError, "equally long", lambda: paired_bootstrap([], [])),
    (ValueError, "a and b must be finite", lambda: paired_bootstrap([math.nan], [1])),
    (ValueError, "resamples must be at least 1", lambda: paired_bootstrap([1], [1], resamples=0)),
    (ValueError, "level must lie", lambda: paired_bootstrap([1], [1], level=0)),
    (ValueError, "scores must have shape (k, n), not (2,)", lambda: bootstrap_means([1, 0])),
    (ValueError, "scores must have shape (k, n), not (1, 0)", lambda: bootstrap_means([[]])),
    (ValueError, "scores must be finite", lambda: bootstrap_means([[1, math.inf]])),
    (ValueError, "resamples must be at least 1, got 0", lambda: bootstrap_means([[1]], resamples=0)),
    (ValueError, "correct_a and correct_b must be True or False", lambda: mcnemar([3, 1], [1, 0])),
    (ValueError, "correct_a and correct_b must be (n,)", lambda: mcnemar([True], [True, False])),
])
def test_refuses(error, words, call):
    with pytest.raises(error) as e: call()
    assert words in str(e.value)

# ---- cost ----

def test_import_is_light():
    heavy = {"scipy", "sklearn", "pandas", "matplotlib", "torch", "nbdev", "fastcore"}
    code = f"import sys, robustness_nb.metrics; print(sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"

def test_bootstrap_is_quick():
    a, b = np.random.default_rng(0).random((2, 500)) < .9
    times = []
    for _ in range(3):
        start = time.perf_counter(); paired_bootstrap(a, b); times.append(time.perf_counter() - start)
    assert min(times) < .25

def test_bootstrap_memory_is_bounded():
    a, b = np.random.default_rng(0).random((2, 20_000))
    tracemalloc.start()
    paired_bootstrap(a, b, resamples=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16e6 # all resamples at once would take 80 MB for the indices alone
