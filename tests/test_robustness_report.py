"""evaluate_robustness and evaluation_curve: the numbers against counts by hand, failures, files, and what a curve promises."""
import json, warnings
from dataclasses import fields
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from robustness_nb.attacks import FGSM, PGD, SimBA, adapt_attack
from robustness_nb.datasets import Dataset, digits, split
from robustness_nb.evaluation import RobustnessReport, calculate_metrics, evaluate_robustness, evaluation_curve, sanity_warnings
from robustness_nb.metrics import lp_norm
from robustness_nb.models import adapt

torch = pytest.importorskip("torch")
FIFTEEN = """num_samples num_clean_correct clean_accuracy adv_accuracy attack_success_rate robustness_score num_successful_attacks linf_norm_max linf_norm_mean
l2_norm_max l2_norm_mean l1_norm_max l1_norm_mean mean_queries_all mean_queries_success""".split()
TRAIN, TEST = split(digits(), 500, seed=7)
SMALL = TEST[:80]

@pytest.fixture(scope="module")
def net():
    from robustness_nb.training import initialise, train
    nn = torch.nn
    module = initialise(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)), seed=0)
    train(module, TRAIN, epochs=5, seed=0, batch_size=32, lr=.1, crop=0, flip=False, precision="float32", progress=False)
    return module

def by_columns(x): return x # a model of points (n, k): the largest value is the class

def points(values, labels): return Dataset("points", np.asarray(values, float), np.asarray(labels), tuple("abc"))

def becoming(new): return adapt_attack(lambda model, x, y: new[: len(x)], bounds=None)

# --- the numbers

def test_the_fifteen_fields_come_first(net):
    report = evaluate_robustness(net, FGSM(), SMALL)
    assert [f.name for f in fields(report)][:15] == FIFTEEN == list(calculate_metrics(1, 1, 1, 0, {}))

@pytest.mark.parametrize("given,expected", [
    ((10, 0, 5, 5, {}), dict(clean_accuracy=0, adv_accuracy=0, attack_success_rate=0, robustness_score=1, linf_norm_max=0, l1_norm_mean=0, mean_queries_all=None, mean_queries_success=None)),
    ((10, 5, 5, 5, dict(linf=[.5], l2=[.5], l1=[.5]), [10, 20, 15, 5, 8], [10, 20, 15]),
     dict(clean_accuracy=.5, adv_accuracy=1, attack_success_rate=1, robustness_score=0, l2_norm_mean=.5, mean_queries_all=11.6, mean_queries_success=15)),
    ((4, 3, 1, 1, dict(l1=[1, 2]), (), (), 1), dict(clean_accuracy=.75, adv_accuracy=.5, attack_success_rate=.5, l1_norm_max=2, l1_norm_mean=1.5))])
def test_calculate_metrics(given, expected):
    found = calculate_metrics(*given)
    assert {key: found[key] for key in expected} == pytest.approx(expected)

def test_the_norms_of_the_julia_package():
    for new, norms in ([2, 4, 6], (3, 14**.5, 6)), ([1.5, 2.5, 3.5], (.5, .75**.5, 1.5)):
        report = evaluate_robustness(by_columns, becoming(np.array([new], float)), points([[1, 2, 3]], [2]))
        assert (report.linf_norm_max, report.l2_norm_max, report.l1_norm_max) == pytest.approx(norms, abs=1e-7)
    constant = lambda x: np.tile([0, 1.], (len(x), 1))
    report = evaluate_robustness(constant, adapt_attack(lambda model, x, y: x + [.1, .5, .2, .3], bounds=None), points([[1, 2, 3, 4]], [1]))
    assert (report.linf_norm_max, report.linf_norm_mean, report.l2_norm_mean, report.l1_norm_mean) == pytest.approx((.5, .5, .39**.5, 1.1))

labels = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)

@settings(max_examples=60, deadline=None)
@given(labels, st.booleans())
def test_against_counting(rows, everywhere):
    y, before, after = map(np.array, zip(*rows))
    eye = np.eye(3)
    def attack(model, x, labels): return np.column_stack([eye[x[:, 3].astype(int)], x[:, 3:]])
    data = points(np.column_stack([eye[before], after]), y)
    report = evaluate_robustness(lambda x: x[:, :3], adapt_attack(attack, bounds=None), data, attack_misclassified=everywhere)
    right, n = before == y, len(y)
    turned, changed = right & (after != y), before != after
    assert (report.num_samples, report.num_clean_correct, report.num_successful_attacks) == (n, right.sum(), turned.sum())
    assert report.robust_accuracy == pytest.approx((right & (after == y)).mean())
    assert report.attack_success_rate == pytest.approx(turned.sum() / right.sum() if right.any() else 0)
    assert report.success.of_all == pytest.approx(turned.mean())
    assert report.success.prediction_changed == pytest.approx((changed if everywhere else changed & right).mean())
    sizes = np.where(changed, 2**.5, 0)
    assert report.l2_norm_mean == pytest.approx(sizes[right].mean() if right.any() else 0)
    if turned.any(): assert report.successful["l2"]["median"] == pytest.approx(2**.5) and report.successful["l1"]["max"] == pytest.approx(2)
    low, high = report.intervals["robust_accuracy"]
    assert low - 1e-12 <= report.robust_accuracy <= high + 1e-12

def test_against_the_attack_itself(net):
    attack = SimBA(.3, max_iter=100)
    report = evaluate_robustness(net, attack, SMALL, seed=3, keep_adversarial=True)
    right = adapt(net).predict(SMALL.x) == SMALL.y
    result = attack.run(net, SMALL.x, SMALL.y, seed=3)
    np.testing.assert_array_equal(report.adversarial[right], result.adversarial[right])
    np.testing.assert_array_equal(report.adversarial[~right], SMALL.x[~right])
    np.testing.assert_array_equal(report.samples.queries[right].to_numpy(int), result.queries[right])
    assert report.mean_queries_success == result.queries[right & result.success].mean()
    np.testing.assert_allclose(report.samples.l1[right], lp_norm(result.adversarial.astype(float) - SMALL.x, 1)[right])
    assert report.samples[~right][["adversarial_prediction", "queries", "l2"]].isna().all(axis=None)

def test_targeted(net):
    targets = (TEST.y + 1) % 10
    report = evaluate_robustness(net, PGD(.3, targeted=True), TEST, 80, targets=targets)
    aimed = report.samples.adversarial_prediction == report.samples.target
    assert (report.samples.success == aimed.fillna(False)).all() and report.attack_success_rate > .9
    assert report.success.prediction_changed >= report.success.of_all and report.adv_accuracy <= 1 - report.attack_success_rate

def test_num_samples_takes_the_first(net):
    part, whole = evaluate_robustness(net, FGSM(), SMALL, 30), evaluate_robustness(net, FGSM(), SMALL[:30])
    assert part.samples.equals(whole.samples) and part.num_samples == 30
    assert evaluate_robustness(net, FGSM(), SMALL, 10_000).num_samples == 80

@pytest.mark.parametrize("attack", [FGSM(.1), PGD(.1, random_start=True), SimBA(.3)], ids=repr)
def test_batch_size_changes_nothing(net, attack):
    whole = evaluate_robustness(net, attack, SMALL, seed=2)
    for size in 1, 7:
        samples = evaluate_robustness(net, attack, SMALL, seed=2, batch_size=size).samples
        for name in samples: np.testing.assert_allclose(*(t[name].fillna(-1).to_numpy(float) if name != "failure" else [0] for t in (samples, whole.samples)), atol=1e-6)

def test_ten_thousand_bytes_images_come_in_batches(net, tmp_path):
    x = np.lib.format.open_memmap(tmp_path/"x.npy", "w+", np.uint8, (10_000, 1, 8, 8))
    x[:] = np.resize(np.round(255 * TEST.x).astype(np.uint8), x.shape)
    seen = []
    data = Dataset("many", np.load(tmp_path/"x.npy", mmap_mode="r"), np.resize(TEST.y, 10_000), TEST.classes)
    handle = net.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    try: report = evaluate_robustness(net, FGSM(.1), data)
    finally: handle.remove()
    assert max(seen) == 256 and report.num_samples == 10_000
    assert report.robust_accuracy == pytest.approx(evaluate_robustness(net, FGSM(.1), data, 500).robust_accuracy)

# --- failures

def failing(bad):
    def attack(model, x, y):
        if np.isin(y, bad).any(): raise RuntimeError("out of patience")
        return 1 - x
    return attack

def test_failures_are_listed_and_bias_nothing(net):
    with pytest.warns(UserWarning, match="failed attacks: .*out of patience"): report = evaluate_robustness(net, failing([3, 5]), TEST)
    spared = evaluate_robustness(net, failing([]), TEST[~np.isin(TEST.y, [3, 5])])
    assert report.attack_success_rate == spared.attack_success_rate and report.l2_norm_mean == pytest.approx(spared.l2_norm_mean)
    right = adapt(net).predict(TEST.x) == TEST.y
    lost = right & np.isin(TEST.y, [3, 5])
    assert report.clean_accuracy == right.mean() and report.num_failed == lost.sum()
    np.testing.assert_array_equal(np.flatnonzero(report.samples.failure != ""), np.flatnonzero(lost))
    assert set(report.samples.failure[lost]) == {"RuntimeError: out of patience"}
    low, high = report.intervals["robust_accuracy"]
    assert low <= report.robust_accuracy <= high and high - low > lost.mean()

def test_an_attack_that_always_fails_is_an_error(net):
    with pytest.raises(RuntimeError, match="out of patience"): evaluate_robustness(net, failing(range(10)), SMALL)

def test_nan_under_attack_is_a_failure_and_nan_before_it_an_error():
    def model(x): return np.where(x[:, :1] > 5, np.nan, x)
    data = points([[3, 1, 0], [2, 1, 0], [1, 2, 0]], [0, 0, 1])
    with pytest.warns(UserWarning, match="failed attacks: 1.*sample 0: ValueError: images 0 to 0: the model returned scores that are NaN"):
        report = evaluate_robustness(model, adapt_attack(lambda model, x, y: 2 * x, bounds=None), data)
    assert report.num_failed == 1 and report.robust_accuracy == 1 and report.intervals["robust_accuracy"][0] < 2/3
    with pytest.raises(ValueError, match="images 2 to 2: the model returned scores that are NaN"):
        evaluate_robustness(model, SimBA(bounds=None), points([[3, 1, 0], [2, 1, 0], [9, 2, 0]], [0, 0, 1]), batch_size=2)

def test_misuse_is_an_error_at_once(net):
    calls = []
    def model(x): calls.append(len(x)); return x.reshape(len(x), -1)[:, :10]
    with pytest.raises(TypeError, match="SimBA does without"): evaluate_robustness(model, PGD(), SMALL)
    assert calls == [80]

@pytest.mark.parametrize("change,message", [(dict(num_samples=0), "num_samples must be"), (dict(num_samples=-1), "num_samples must be"), (dict(batch_size=0), "batch_size must be"),
    (dict(attack=FGSM(targeted=True)), "needs targets"), (dict(targets=np.arange(3)), "targets must hold"), (dict(targets=SMALL.y), "targeted=True"), (dict(seed=.5), "seed must be")])
def test_bad_input(net, change, message):
    given = dict(attack=FGSM()) | change
    with pytest.raises(ValueError, match=message): evaluate_robustness(net, given.pop("attack"), SMALL, **given)

# --- reading and keeping

def test_a_report_can_be_read(net):
    report = evaluate_robustness(net, FGSM(.1), SMALL)
    text, html = repr(report), report._repr_html_()
    for part in "FGSM(eps=0.1)", f"{100 * report.robust_accuracy:.2f} %", f"{report.num_clean_correct} of them right", "attack success rate": assert part in text and part in html
    strange = Dataset("<b>&", SMALL.x, SMALL.y, SMALL.classes)
    assert "&lt;b&gt;&amp;" in evaluate_robustness(net, FGSM(.1), strange)._repr_html_()

def test_nothing_is_printed(net, capfd):
    evaluate_robustness(net, FGSM(.1), SMALL)
    assert capfd.readouterr() == ("", "")
    evaluate_robustness(net, FGSM(.1), SMALL, progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "attacked" in err

def test_rows_are_tidy_and_plain(net):
    rows = evaluate_robustness(net, SimBA(.3), SMALL).rows()
    json.dumps(rows, allow_nan=False)
    assert {row["metric"] for row in rows} >= {"clean_accuracy", "robust_accuracy", "attack_success_rate", "mean_queries_all", "l2_norm_mean"}
    for row in rows: assert row.keys() == dict(metric=0, value=0, n=0, low=0, high=0).keys() and (row["low"] is None or row["low"] <= row["value"] <= row["high"])

@pytest.mark.parametrize("ending", ["json", "parquet"])
@pytest.mark.parametrize("kind", ["plain", "targeted", "failing", "uncounted"])
def test_round_trip(net, tmp_path, ending, kind):
    if ending == "parquet": pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    attack = dict(plain=SimBA(.3, order=[3, 2, 1], bounds=(np.zeros((1, 8, 8)), np.ones((1, 8, 8)))), targeted=PGD(.1, targeted=True), failing=failing([3]), uncounted=lambda model, x, y: 1 - x)[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = evaluate_robustness(net, attack, SMALL, targets=(SMALL.y + 1) % 10 if kind == "targeted" else None)
    path = tmp_path/f"report.{ending}"
    report.save(path)
    again = RobustnessReport.load(path)
    assert again.metrics() == report.metrics() and again.samples.equals(report.samples) and repr(again) == repr(report)
    assert (again.samples.dtypes == report.samples.dtypes).all()

def test_damaged_files(net, tmp_path):
    path = tmp_path/"report.json"
    evaluate_robustness(net, FGSM(), SMALL).save(path)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match="is damaged"): RobustnessReport.load(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match="no robustness report"): RobustnessReport.load(path)
    with pytest.raises(FileNotFoundError): RobustnessReport.load(tmp_path/"none.json")
    with pytest.raises(ValueError, match="unknown ending '.csv'"): RobustnessReport.load(tmp_path/"report.csv")

# --- curves

EPSILONS = [0, .02, .05, .1, .2]

@pytest.mark.parametrize("kind,more", [(FGSM, {}), (FGSM, dict(p=2)), (PGD, dict(steps=5, random_start=True)), (SimBA, dict(max_iter=20)), (lambda eps: adapt_attack(FGSM(eps)), {})])
def test_a_curve_is_its_points(net, kind, more):
    curve = evaluation_curve(net, kind, EPSILONS, SMALL, seed=4, **more)
    for eps, report in zip(EPSILONS, curve.reports): assert report.samples.equals(evaluate_robustness(net, kind(eps=eps, **more), SMALL, seed=4).samples)
    assert curve.epsilons == EPSILONS and curve.robust_accuracy[0] == curve.reports[0].clean_accuracy
    json.dumps(curve.rows(), allow_nan=False)
    assert {row["eps"] for row in curve.rows()} == set(EPSILONS)

def test_the_clean_pass_is_made_once_and_fgsm_takes_one_gradient(net):
    forward, backward, right = [], [], int((adapt(net).predict(SMALL.x) == SMALL.y).sum())
    handles = [net.register_forward_hook(lambda m, i, o: forward.append(len(i[0]))), net[0].register_full_backward_hook(lambda *_: backward.append(1))]
    try: evaluation_curve(net, FGSM, np.linspace(.01, .2, 20), SMALL)
    finally:
        for handle in handles: handle.remove()
    assert forward == [80] + [right] * 21 and len(backward) == 1

def test_area_and_smallest_eps_by_hand():
    data = points([[1, 0, 0], [.5, .45, 0], [.4, .2, 0], [0, 1, 0]], [0, 0, 0, 0])
    def toward(eps): return adapt_attack(lambda model, x, y: x + eps * np.array([-.5, .5, 0]), bounds=None)
    curve = evaluation_curve(by_columns, toward, [.4, .1, .2], data)
    np.testing.assert_allclose(curve.robust_accuracy, [.5, .5, .25])
    np.testing.assert_array_equal(curve.smallest_eps(), [np.inf, .1, .4, 0])
    assert curve.area == pytest.approx((.1 * (.75 + .5) / 2 + .1 * .5 + .2 * (.5 + .25) / 2) / .4)
    low, high = curve.area_interval()
    assert low <= curve.area <= high
    assert evaluation_curve(by_columns, toward, [0], data).area == .75

def test_failures_leave_the_whole_curve(net):
    def attack(eps): return adapt_attack(failing([3]) if eps == .2 else lambda model, x, y: np.clip(x + eps, 0, 1))
    with pytest.warns(UserWarning, match="failed attacks"): curve = evaluation_curve(net, attack, [.1, .2], SMALL)
    assert curve.reports[0].num_failed == curve.reports[1].num_failed > 0
    assert np.isnan(curve.smallest_eps()).sum() == curve.reports[0].num_failed

class Masked(torch.nn.Module):
    "The same answers, since digits have 16 grey levels, but rounding has no gradient."
    def __init__(self, net): super().__init__(); self.net = net
    def forward(self, x): return self.net((16 * x).round() / 16)

def test_masked_gradients_are_warned_of(net):
    with pytest.warns(UserWarning, match="not moved at all"): curve = evaluation_curve(Masked(net), PGD, [.1, .6], TEST)
    assert any("every image can be turned into the same grey" in text for text in curve.warnings())

def test_a_sound_evaluation_has_no_warnings(net):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curves = [evaluation_curve(net, kind, [.05, .1, .2, .5], TEST) for kind in (FGSM, PGD)]
    assert sanity_warnings(*curves) == []

def test_weak_pgd_and_rising_accuracy_are_warned_of(net):
    single, weak = evaluation_curve(net, FGSM, [.1, .2], TEST), evaluation_curve(net, PGD, [.1, .2], TEST, step_size=1e-4)
    assert any("but under FGSM" in text for text in sanity_warnings(single, weak)) and sanity_warnings(weak, evaluation_curve(net, PGD, [.1, .2], TEST)) == []
    def weaker(eps): return PGD(.3 - eps)
    with pytest.warns(UserWarning, match="robust accuracy rises from"): evaluation_curve(net, weaker, [.1, .25], TEST)

def test_bad_curves(net):
    with pytest.raises(ValueError, match="at least one size"): evaluation_curve(net, FGSM, [], SMALL)
    with pytest.raises(ValueError, match="eps must be at least 0"): evaluation_curve(net, FGSM, [-.1], SMALL)
    with pytest.raises(TypeError, match="unexpected keyword"): evaluation_curve(net, FGSM, [.1], SMALL, steps=3)
