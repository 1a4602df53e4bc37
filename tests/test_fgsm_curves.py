"The page of robustness curves: published numbers, claims, the committed records, and a small run of every study."
import json

import numpy as np
import pytest

from robustness_nb.claims import NOT_TESTED, REPRODUCED, claims, judge_all, published
from robustness_nb.evaluation import calculate_metrics
from robustness_nb.records import load
from robustness_nb.runs import resolve

from conftest import ROOT, process

RECORDS = sorted((ROOT / "results").glob("fgsm_curves-*.json"))
TABLE = {(row["data"], row["model"], row["attack"], row["eps"], row["quantity"]): row["value"] for row in published("attacks")}


def test_published_numbers_are_whole():
    assert len(TABLE) == len(published("attacks")) and all(row["source"] and row["value"] is not None for row in published("attacks"))
    assert [TABLE["iris", "decision_tree", "SimBA", eps, "flips"] for eps in ("0.1", "0.3", "0.5", "1.0")] == [7, 41, 78, 146]


def test_the_printed_report_of_the_package_follows_from_its_counts():
    found = calculate_metrics(10, 6, 1, 5, dict(linf=[.5] * 6, l2=[1.] * 6, l1=[2.] * 6))
    assert (found["clean_accuracy"], round(found["attack_success_rate"], 4), round(found["adv_accuracy"], 4), round(found["robustness_score"], 4)) == (.6, .8333, .1667, .1667)


def test_claims_quote_the_published_numbers():
    stated = {claim.id: claim for claim in claims("fgsm_curves")}
    for name, eps in ((10, "0.1"), (30, "0.3"), (50, "0.5"), (100, "1.0")): assert stated[f"attacks-iris-{name}"].published == TABLE["iris", "decision_tree", "SimBA", eps, "flips"]
    assert stated["attacks-iris-petal"].published == TABLE["iris", "decision_tree", "SimBA", "0.3", "petal_length_after"]
    assert stated["attacks-cifar-fgsm"].published == TABLE["cifar10", "cnn", "FGSM", "0.1", "attack_success_rate"]
    assert stated["attacks-cifar-knn"].published == TABLE["cifar10", "knn", "SimBA", "0.3", "attack_success_rate"]
    assert stated["attacks-mnist-knn"].published == TABLE["mnist", "knn", "SimBA", "0.3", "attack_success_rate"]
    assert stated["attacks-spirals-5"].published == TABLE["spirals", "mlp", "SimBA", "0.05", "success_rate"]
    for depth in (20, 32, 44, 56): assert stated[f"attacks-resnet{depth}"].published == TABLE["cifar10", f"resnet{depth}", "", "", "accuracy"]
    assert stated["attacks-resnet20-fgsm"].published == TABLE["cifar10", "resnet20", "FGSM", "8/255", "robust_accuracy_of_512"]
    assert all(claim.why for claim in stated.values() if claim.tolerance)


@pytest.mark.skipif(not RECORDS, reason="no record is committed")
@pytest.mark.parametrize("preset", ["quick", "laptop"])
def test_the_records_hold_every_curve_and_what_must_hold_of_it(preset):
    [record] = [r for r in map(load, RECORDS) if r.parameters == resolve("fgsm_curves", dict(preset=preset))]
    m, p = record.metrics, record.parameters
    assert not any("changes" in commit for commit in m["parts_made_by"]["studies"])
    rows = {(row["data"], row["model"], row["attack"], row["eps"]): row["value"] for row in record.rows if row["metric"] == "robust_accuracy"}
    for victim in p["victims"]:
        data, model = victim.split("_", 1)
        assert m[victim]["simba"]["num_samples"] == p["simba_samples"]
        if "resnet" not in victim: continue
        fgsm, pgd = m[victim]["fgsm"], m[victim]["pgd"]
        assert (fgsm["num_samples"], pgd["num_samples"]) == tuple(min(p[key], 500 if data == "digits" else 10_000) for key in ("fgsm_samples", "pgd_samples"))
        for curve, name in ((fgsm, "FGSM"), (pgd, "PGD")):
            assert curve["robust_accuracy"] == [rows[data, model, name, eps] for eps in p["epsilons"]]
            assert curve["area"] == pytest.approx(np.trapezoid([curve["clean_accuracy"], *curve["robust_accuracy"]], [0, *p["epsilons"]]) / p["epsilons"][-1])
            assert sum(curve["broken_first_at"]) <= curve["clean_accuracy"] * curve["num_samples"] + 1e-6
        assert pgd["robust_accuracy"][-1] == 0 and (np.diff(pgd["robust_accuracy"]) <= .02).all()
    verdicts = {v.claim.id: v.verdict for v in judge_all("fgsm_curves", m)}
    sure = [f"attacks-iris-{name}" for name in ("petal", "10", "30", "50", "100")] + ["attacks-spirals-rise"]
    if preset == "laptop": sure += [f"attacks-resnet{name}" for name in ("20", "32", "44", "56", "20-fgsm")]
    assert {verdicts[name] for name in sure} == {REPRODUCED}
    assert NOT_TESTED not in verdicts.values() or preset == "quick"


@pytest.mark.slow
def test_a_small_run_is_the_same_twice_and_its_artefacts_are_seen(tmp_path):
    def call(runs):
        options = "-p victims=[digits_resnet9,digits_decision_tree] -p fgsm_samples=60 -p pgd_samples=40 -p simba_samples=20 -p pgd_steps=5 -p long_iterations=16 --preset quick".split()
        done = process("robustness-nb", "run", "fgsm_curves", "--json", *options, cwd=tmp_path, ROBUSTNESS_NB_RUNS=tmp_path / runs, ROBUSTNESS_NB_DATA="")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return json.loads(done.stdout)
    first, second = call("one"), call("two")
    assert first["metrics"].keys() == second["metrics"].keys()
    for name in first["metrics"]: assert name == "parts_made_by" or first["metrics"][name] == second["metrics"][name]
    m = first["metrics"]
    assert m["artefacts"]["flag"]["says"] == 1 > m["artefacts"]["flag"]["true"] and all(flawed > sound for flawed, sound in m["artefacts"]["twice"].values())
    assert m["unclipped"]["eps_10"]["loose"] >= m["unclipped"]["eps_10"]["strict"] and m["unclipped"]["eps_10"]["outside"] > 0
    assert len(first["figures"]) >= 4
