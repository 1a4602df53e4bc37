"""Traffic signs, networks with a head for each task, and the measures of VISAT: contracts, faults, and the published numbers."""
import csv, warnings
from importlib.resources import files
import numpy as np
import pytest
from PIL import Image
from robustness_nb import datasets, signs as module
from robustness_nb.claims import published
from robustness_nb.datasets import Dataset, known_data
from robustness_nb.evaluation import multitask_means, multitask_report
from robustness_nb.signs import (TASKS, gtsrb, gtsrb_attributes, gtsrb_tracks, panels, read_attributes, save_signs, signs, split_tracks, visat,
                                 vocabulary, with_tasks, write_attributes)

DATA = datasets.data_folder()
real = pytest.mark.skipif(not (DATA and (DATA/"gtsrb").exists()), reason="ROBUSTNESS_NB_DATA has no gtsrb")
N = 30283

# --- drawn signs

@pytest.mark.parametrize("size", [16, 32, 65])
def test_a_sign_is_the_same_whatever_its_batch(size):
    whole = signs(150, seed=3, size=size, other=.3)
    for start, n in (0, 1), (63, 3), (64, 86): # a batch has 64 signs of 32 pixels
        part = signs(n, seed=3, size=size, other=.3, start=start)
        assert (part.x == whole.x[start:start + n]).all() and (part.y == whole.y[start:start + n]).all()

def test_seeds_sizes_and_shares():
    a, b = signs(400, seed=0), signs(400, seed=1)
    assert a.fingerprint != b.fingerprint and a.fingerprint == signs(400, seed=0).fingerprint
    assert (signs(400, size=16).y == a.y).all()
    assert set(np.unique(signs(3000).y)) == set(range(43)) and len(signs(5).classes) == 43
    share = (signs(3000, other=.49).y == 43).mean()
    assert abs(share - .49) < 4 * (.49 * .51 / 3000)**.5
    assert (signs(50, other=1).y == 43).all() and len(panels(50).classes) == 32

def test_signs_differ_and_use_the_range():
    data = signs(500)
    assert data.x.dtype == np.uint8 and data.x.min() < 10 and data.x.max() > 245
    same = data.x[data.y == data.y[0]]
    assert len(np.unique(same, axis=0)) == len(same)

def test_every_drawing_has_its_parts():
    drawings = module._drawings()
    for name, row in gtsrb_attributes().items():
        assert row["shape"] in drawings["plates"] and row["shape"] in drawings["places"], name
        assert row["symbol"] in drawings["symbols"] and row["colour"] in drawings["designs"], name
        assert row["text"] == "undefined" or set(row["text"]) <= set(drawings["glyphs"]), name
    pictures = module._pictures(32)[:43].reshape(43, -1)
    assert len(np.unique(pictures.round(3), axis=0)) == 43

@pytest.mark.parametrize("arguments", [dict(n=0), dict(n=2.5), dict(n=5, size=15), dict(n=5, other=-.1), dict(n=5, other=1.1), dict(n=5, seed="a"), dict(n=5, start=-1)])
def test_bad_arguments_of_signs(arguments):
    with pytest.raises(ValueError, match=str(list(arguments)[-1])): signs(**arguments)

# --- attributes

def test_the_table_is_that_of_the_sheet():
    values = vocabulary(gtsrb_attributes())
    assert [len(values[task]) for task in TASKS] == [4, 5, 32, 10]
    with files("robustness_nb").joinpath("data/gtsrb_attributes.csv").open() as lines: rows = list(csv.DictReader(lines))
    assert [int(row["class_id"]) for row in rows] == list(range(43)) and tuple(row["name"] for row in rows) == values["class"]
    assert sum(int(r["train_n"]) for r in rows) == 39209 and sum(int(r["test_n"]) for r in rows) == 12630

@pytest.mark.parametrize("text, words", [
    ("name,colour,shape,symbol\na,b,c,d\n", ["no column 'text'"]), ("", ["no column 'name'"]), ("name,colour,shape,symbol,text\na,b,,d,e\n", ["'a'", "no shape"]),
    ("name,colour,shape,symbol,text\na,b,c,d,e\na,b,c,d,f\n", ["'a' twice"]), ("name,colour,shape,symbol,text\na,b,c,d\n", ["'a'", "no text"])])
def test_bad_tables(tmp_path, text, words):
    (tmp_path/"a.csv").write_text(text)
    with pytest.raises(ValueError) as caught: read_attributes(tmp_path/"a.csv")
    assert all(word in str(caught.value) for word in words)

def test_labels_of_classes_that_do_not_occur_need_no_attributes():
    data = Dataset("d", np.zeros((2, 3, 8, 8), np.uint8), np.array([0, 0]), ("Stop", "never seen"))
    assert with_tasks(data, gtsrb_attributes()).y.shape == (2, 4)

# --- GTSRB

@real
def test_gtsrb_is_what_is_known():
    for part in "train", "test":
        data = gtsrb(part)
        assert data.fingerprint == known_data()[f"gtsrb_{part}"]["sha256"] and len(data) == known_data()[f"gtsrb_{part}"]["n"]
    assert datasets.load("gtsrb_test").fingerprint == data.fingerprint

@real
def test_no_track_is_in_both_parts():
    data, tracks = gtsrb("train"), gtsrb_tracks()
    rest, part = split_tracks(Dataset("numbers", data.x, tracks, tuple(map(str, range(tracks.max() + 1)))), tracks, .2, seed=1)
    assert not set(rest.y) & set(part.y) and len(rest) + len(part) == len(data)
    assert len(np.unique(part.y)) == round(.2 * len(np.unique(tracks)))
    assert all(len(np.unique(data.y[tracks == t])) == 1 for t in range(0, tracks.max(), 50))

def test_torchvision_layout(tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    monkeypatch.setenv("ROBUSTNESS_NB_DATA", str(tmp_path))
    monkeypatch.setenv("ROBUSTNESS_NB_CACHE", str(tmp_path/"cache"))
    x, y = signs(129, size=40).x, np.repeat(np.arange(43), 3)
    for i, (image, label) in enumerate(zip(x, y)): # two frames of one track, one of another
        path = tmp_path/"gtsrb"/"GTSRB"/"Training"/f"{label:05}"/f"{i % 3 // 2:05}_{i % 3:05}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.moveaxis(image, 0, -1)).save(path)
    data = gtsrb("train", 40)
    assert (data.x == x).all() and (data.y == y).all() and data.name == "gtsrb_train_40"
    assert gtsrb("train").x.shape == (129, 3, 32, 32) and gtsrb("train").name == "gtsrb_train_32"
    tracks = gtsrb_tracks(40)
    assert len(np.unique(tracks)) == 86 and (tracks[::3] == tracks[1::3]).all() and (tracks[::3] != tracks[2::3]).all()

def test_nowhere_to_be_had(tmp_path, monkeypatch):
    tv = pytest.importorskip("torchvision.datasets")
    monkeypatch.setenv("ROBUSTNESS_NB_DATA", str(tmp_path))
    monkeypatch.setenv("ROBUSTNESS_NB_CACHE", str(tmp_path/"cache"))
    def offline(*arguments, **options): raise RuntimeError("no network")
    monkeypatch.setattr(tv, "GTSRB", offline)
    with pytest.raises(FileNotFoundError, match="ROBUSTNESS_NB_DATA"): gtsrb("test")

# --- a folder in VISAT's layout

@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBUSTNESS_NB_CACHE", str(tmp_path/"cache"))
    save_signs(signs(30, size=24, other=.5), tmp_path/"visat"/"test")
    write_attributes(gtsrb_attributes(True), tmp_path/"visat"/"attributes.csv")
    return tmp_path/"visat"

def test_the_rest_is_not_lost(folder):
    whole = visat(folder, "test", None)
    first, second, *_ = sorted(folder.glob("test/*/*.png"))
    first.write_bytes(b""), second.write_bytes(second.read_bytes()[:60])
    with pytest.warns(UserWarning) as told: left = visat(folder, "test", None)
    assert len(whole) == 30 and len(left) == 28
    assert first.name in str(told[0].message) and second.name in str(told[0].message)
    assert (left.x == whole.x[2:]).all() and (left.y == whole.y[2:]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert visat(folder, "test", None).fingerprint == left.fingerprint

def test_images_of_mixed_sizes(folder):
    path = sorted(folder.glob("test/*/*.png"))[3]
    Image.new("RGB", (24, 25)).save(path)
    with pytest.raises(ValueError, match="of one size"): visat(folder, "test", None)
    assert visat(folder, "test", 24).x.shape == (30, 3, 24, 24)
    assert not list((folder.parent/"cache").glob("visat_test_*/*.tmp"))

def test_faults_of_a_folder(folder):
    with pytest.raises(FileNotFoundError, match="train"): visat(folder, "train")
    for path in folder.glob("test/*/*.png"): path.write_bytes(b"no")
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="none of 30"): visat(folder, "test", 24)
    (folder/"test"/"unheard of").mkdir()
    (folder/"test"/"unheard of"/"a.png").write_bytes(b"no")
    with pytest.raises(ValueError, match="'unheard of'.*no attributes"): visat(folder, "test", 24)

# --- the published numbers

ROWS = published("visat")
def stated(model, metric, split, target): return {r["task"]: r["value"] for r in ROWS if (r["model"], r["metric"], r["split_attack"], r["target_task"]) == (model, metric, split, target)}
def column(values, sign=1): return np.array([values[task] if sign > 0 else 1 - values[task] for task in TASKS])

def deltas_of(model, source): return {t: column(stated(model, "delta_epsilon", f"pgd/{source}", t)) for t in TASKS}

@pytest.mark.parametrize("model, source", [(m, m) for m in ("RMFT", "VMFT", "RMFTL", "VMFTL")] + [("RMFT", "VMFT"), ("VMFT", "RMFT"), ("RMFTL", "VMFTL"), ("VMFTL", "RMFTL")])
def test_published_measures(model, source):
    "Published deltas have four decimals; every published sum and ratio must lie within what that leaves open."
    clean = column(stated(model, "epsilon", "clean", ""), -1)
    found = multitask_report(list(TASKS), clean, {t: clean - d for t, d in deltas_of(model, source).items()}, n=N).metrics()
    for target, delta in deltas_of(model, source).items():
        t, split = TASKS.index(target), f"pgd/{source}"
        np.testing.assert_allclose(list(found[target]["delta"].values()), delta, atol=1e-12)
        assert abs(found[target]["epsilon_cumulative"] - stated(model, "epsilon_cu", split, target)["all"]) <= 4 * .5e-4 + .5e-4 + 1e-9
        ratio = stated(model, "recorr_ratio_of_means", split, target) or stated(model, "recorr", split, target)
        others = delta.sum() - delta[t]
        low, high = ((others + s * 1.5e-4) / 3 / (delta[t] - s * .5e-4) for s in (-1, 1))
        assert min(low, high) - 5.1e-4 <= ratio["non-targeted"] <= max(low, high) + 5.1e-4
        if delta[t] >= .1 and model == source: assert abs(found[target]["recorr"] - ratio["non-targeted"]) <= .001
        threshold = 3 * (clean[t] * (1 - clean[t]) / N)**.5
        assert found[target]["recorr_reliable"] == (delta[t] >= threshold)

@pytest.mark.parametrize("model, source", [("RMFT", "VMFT"), ("VMFT", "RMFT"), ("RMFTL", "VMFTL"), ("VMFTL", "RMFTL")])
def test_published_deltas_from_published_accuracies(model, source):
    "Accuracies are shares of 30,283 signs, given with four decimals; some count of signs gives accuracy and delta to the last digit."
    clean = np.rint(column(stated(model, "accuracy", "clean", "")) * N) / N
    for target in TASKS:
        accuracy, delta = column(stated(model, "accuracy", f"pgd/{source}", target)), column(stated(model, "delta_epsilon", f"pgd/{source}", target))
        counts = np.rint((clean - delta) * N) + np.arange(-3, 4)[:, None]
        fits = (np.abs(counts / N - accuracy) <= .5e-4 + 1e-9) & (np.abs(clean - counts / N - delta) <= .5e-4 + 1e-9)
        assert fits.any(0).all()
        exact = np.array([counts[fits[:, k], k][0] for k in range(4)]) / N
        found = multitask_report(list(TASKS), clean, {target: exact}, n=N).metrics()[target]
        assert [f"{found['delta'][task]:.4f}" for task in TASKS] == [f"{d:.4f}" for d in delta]
        assert abs(found["epsilon_cumulative"] - stated(model, "epsilon_cu", f"pgd/{source}", target)["all"]) <= 2.5e-4

def test_literal_form_is_a_third_more():
    clean = column(stated("RMFT", "epsilon", "clean", ""), -1)
    attacked = {t: clean - d for t, d in deltas_of("RMFT", "RMFT").items()}
    plain, literal = (multitask_report(list(TASKS), clean, attacked, form=form).metrics() for form in ("non-targeted", "literal"))
    for t in TASKS: assert literal[t]["recorr"] - plain[t]["recorr"] == pytest.approx(1/3)

def test_majority_floors():
    assert {r["task"]: r["value"] / N for r in ROWS if r["metric"] == "n_majority"}["class"] == pytest.approx(.4875, abs=5e-5)

# --- the report

def test_intervals_cover():
    "Of many samples from a known truth, about 95 % of the intervals hold it."
    rng, hits = np.random.default_rng(0), []
    for _ in range(120):
        clean = rng.random((300, 2)) < .9
        hit = clean & (rng.random((300, 1)) < [.5, .7]) # true deltas .45 and .27, RECorr .6
        found = multitask_report(["a", "b"], clean, {"a": hit}, resamples=300).metrics()["a"]
        hits.append([low <= truth <= high for truth, (low, high) in ((.45, found["delta_interval"]["a"]), (.72, found["epsilon_cumulative_interval"]), (.6, found["recorr_interval"]))])
    assert (np.mean(hits, 0) > .88).all()

@pytest.mark.parametrize("change, words", [
    (dict(attacked={}), "at least one split"), (dict(attacked={"clean": np.ones(2)}), "clean"), (dict(attacked={"a": np.ones(3)}), "a must be"), (dict(targets={"a": "c"}), "unknown task 'c'"),
    (dict(form="sum"), "unknown form 'sum'"), (dict(clean=np.array([90., 80.])), "[0, 1]"), (dict(attacked={"a": np.array([np.nan, .5])}), "[0, 1]"), (dict(resamples=0), "resamples"), (dict(clean=np.ones((4, 2))), "")])
def test_bad_reports(change, words):
    arguments = dict(tasks=["a", "b"], clean=np.array([.9, .8]), attacked={"a": np.array([.5, .5])}) | change
    with pytest.raises(ValueError) as caught: multitask_report(**arguments)
    assert words in str(caught.value)

def test_undefined_negative_and_untargeted():
    clean = np.array([.5, .5])
    found = multitask_report(["a", "b"], clean, dict(a=np.array([.5, .4]), b=np.array([.4, .6]), fog=np.array([.4, .4])), n=1000).metrics()
    assert found["a"]["recorr"] is None and found["a"]["recorr_reason"].startswith("undefined")
    assert found["b"]["recorr"] == pytest.approx(-1) and not found["b"]["recorr_reliable"] and "negative" in found["b"]["recorr_reason"]
    assert found["fog"]["recorr"] is None and found["fog"]["target"] is None and found["fog"]["epsilon_cumulative"] == pytest.approx(.2)
    one = multitask_report(["class"], clean[:1], {"class": clean[:1] - .1}).metrics()["class"]
    assert one["recorr"] is None and one["recorr_reason"] == "undefined: there is no other task"

def test_a_mean_of_ratios_is_not_a_ratio_of_means():
    reports = [multitask_report(["a", "b"], np.array([.9, .9]), {"a": np.array(v)}).metrics() for v in ([.8, .4], [.4, .8])]
    found = multitask_means(reports)["a"]
    assert found["recorr"] == pytest.approx((5 + .2) / 2) and found["recorr_of_means"] == pytest.approx(1)
    reports[0]["a"]["recorr"] = None
    assert multitask_means(reports)["a"]["recorr"] is None
    with pytest.raises(ValueError, match="at least one seed"): multitask_means([])

# --- networks with several heads

def test_a_frozen_backbone_stays_in_evaluation_mode_but_for_attacks():
    torch = pytest.importorskip("torch")
    from robustness_nb.attacks import PGD
    from robustness_nb.models import multi_task, one_task, predict_tasks, resnet9
    from robustness_nb.training import initialise
    network = initialise(lambda: multi_task(resnet9(4), dict(colour=4, shape=5), frozen=True), 0).train()
    assert not any(part.training for part in network.backbone.modules()) and network.heads.training
    assert all(part.training for part in one_task(network, "shape").train().modules())
    network.train()
    data, state = signs(24), {key: value.clone() for key, value in network.state_dict().items()}
    x, y = data.floats(), data.y % 5
    moved = {mode: PGD(eps=.1, steps=2, early_stop=False, mode=mode).perturb(one_task(network, "shape"), x, y) for mode in ("eval", "train")}
    assert (moved["eval"] != moved["train"]).any() and abs(moved["train"] - x).max() <= .1 + 1e-6
    assert all((value == state[key]).all() for key, value in network.state_dict().items())
    assert not any(part.training for part in network.backbone.modules())
    assert (predict_tasks(network, x, "bfloat16") == predict_tasks(network, x)).mean() > .7

@pytest.mark.slow
@pytest.mark.parametrize("name, features", [("resnet152", 2048), ("vit_b_32", 768)])
def test_torchvision_backbones(name, features):
    pytest.importorskip("torchvision")
    from robustness_nb.models import imagenet, multi_task, predict_tasks
    network = multi_task(imagenet(name, weights=False), dict(colour=20, shape=13, symbol=216, text=91), frozen=True)
    assert [head.in_features for head in network.heads.values()] == [features] * 4
    assert sum(w.numel() for w in network.parameters() if w.requires_grad) == 340 * (features + 1)
    assert predict_tasks(network, signs(1, size=224).floats()).shape == (1, 4)

@pytest.mark.parametrize("call, words", [
    (lambda m: m.multi_task(m.resnet9(2), {}), "at least one task"), (lambda m: m.multi_task(m.resnet9(2), dict(a=0)), "sizes['a']"),
    (lambda m: m.one_task(m.multi_task(m.resnet9(2), dict(colour=2)), "colr"), "unknown task 'colr'"), (lambda m: m.imagenet("resnet50"), "unknown network 'resnet50'"),
    (lambda m: m.small_vit(width=10, heads=4), "heads must divide width"), (lambda m: m.predict_tasks(m.multi_task(m.resnet9(2), dict(a=2)), np.full((1, 3, 8, 8), 2.)), "[0, 1]")])
def test_bad_networks(call, words):
    pytest.importorskip("torch")
    from robustness_nb import models
    with pytest.raises(ValueError) as caught: call(models)
    assert words in str(caught.value)
