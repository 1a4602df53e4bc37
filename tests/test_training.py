"Training: what the network gets to see, the same weights for the same seed, runs that are killed, damaged files, bad input. And networks behind `adapt`."
import json, os, signal, subprocess, sys
from math import inf
from types import SimpleNamespace
import numpy as np
import pytest
from scipy.stats import beta, kstest
from robustness_nb.datasets import Dataset
from robustness_nb.models import adapt, resnet9, wide_resnet

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
nn = torch.nn
from robustness_nb.training import (MSCR_RECIPE, SCHEDULES, batches, crop_and_flip, initialise, learning_rate, load_weights, noisy,  # noqa: E402
                                    save_weights, train)

rng = np.random.default_rng(0)
X, Y = rng.integers(0, 256, (60, 3, 8, 8), np.uint8), rng.integers(0, 4, 60)
DATA = SimpleNamespace(x=X, y=Y)
SHORT = dict(epochs=3, seed=5, batch_size=16, lr=.05, crop=1, noise=.1, progress=False)

def small(classes=4, dropout=.5): # a network with batch normalisation and dropout
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(dropout), nn.Flatten(), nn.Linear(144, classes))

def trained(data=DATA, net=None, **changes): # (network, history)
    net = net or initialise(small, 1)
    return net, train(net, data, **SHORT | changes)

def same(net, other): return all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True))

def generator(seed=0): return torch.Generator().manual_seed(seed)

# ---- noise, crops, batches, schedules ----

def radii(v, p): # p-norms, divided by the largest coordinate first
    top = v.abs().amax(1)
    return (top * ((v / top[:, None]).abs()**p).sum(1)**(1/p)).numpy()

@pytest.mark.parametrize("p", [.3, .5, 1, 1.5, 2, 3, 20])
@pytest.mark.parametrize("d", [1, 3, 200])
def test_noise_fills_the_ball(p, d):
    v = noisy(torch.full((3000, d), .5, dtype=torch.float64), .4, p, generator(d)) - .5
    assert radii(v, p).max() <= .4 * (1 + 1e-6) and kstest((radii(v, p) / .4)**d, "uniform").pvalue > 1e-3
    assert kstest(v[:, 0].numpy() / .4, lambda t: .5 + np.sign(t) / 2 * beta.cdf(np.abs(t)**p, 1/p, (d - 1) / p + 1)).pvalue > 1e-3

@pytest.mark.parametrize("value, eps", [(0, .2), (.1, .2), (.5, .1), (.95, .3), (1, 1)])
def test_box_is_cut_before_it_is_filled(value, eps):
    v = noisy(torch.full((1, 5000), float(value)), eps, inf, generator()).ravel().numpy()
    low, high = max(value - eps, 0), min(value + eps, 1)
    assert kstest(v, "uniform", (low, high - low)).pvalue > 1e-3

@pytest.mark.parametrize("p", [1, 2, 3, inf])
def test_noise_stays_in_range_and_leaves_its_input(p):
    x = torch.rand(7, 3, 8, 8, generator=generator()).contiguous(memory_format=torch.channels_last)
    before = x.clone()
    out = noisy(x, 5., p, generator(1))
    assert 0 <= out.min() and out.max() <= 1 and torch.equal(x, before) and not torch.equal(out, x)
    assert out.is_contiguous(memory_format=torch.channels_last) and out.dtype == torch.float32
    assert torch.equal(out, noisy(x, 5., p, generator(1))) and len(out.flatten(1).unique(dim=0)) == 7

def test_crops_are_those_of_a_plain_loop():
    up, left, flip = torch.randint(-3, 4, (60,), generator=generator()), torch.randint(-3, 4, (60,), generator=generator(1)), torch.arange(60) % 2 == 0
    out = crop_and_flip(torch.from_numpy(X[:, :, :, :6]), up, left, flip, 3).numpy()
    for image, u, s, f, got in zip(X[:, :, :, :6], up, left, flip, out):
        moved = np.pad(image, ((0, 0), (3, 3), (3, 3)))[:, 3 + u:11 + u, 3 + s:9 + s]
        assert np.array_equal(got, moved[:, :, ::-1] if f else moved)

@pytest.mark.parametrize("n, batch_size, sizes", [(60, 60, {60}), (60, 16, {15}), (59, 16, {14, 15}), (60, 1, {1}), (1, 1, {1})])
def test_an_epoch_is_every_image_once(n, batch_size, sizes):
    got = list(batches(torch.from_numpy(X[:n]), torch.arange(n), generator(), generator(), batch_size=batch_size))
    labels = torch.cat([labels for _, labels in got])
    assert {len(labels) for _, labels in got} == sizes and len(got) == -(-n // batch_size)
    assert sorted(labels.tolist()) == list(range(n)) and (n == 1 or labels.tolist() != list(range(n)))
    assert np.array_equal(torch.cat([images for images, _ in got]).numpy(), X[labels.numpy()] / np.float32(255))

def test_moves_and_mirrors_are_spread_evenly():
    x, y = torch.zeros(2000, 1, 9, 9, dtype=torch.uint8), torch.zeros(2000)
    x[:, :, 4, 3] = 255
    images = torch.cat([images for images, _ in batches(x, y, generator(), generator(), batch_size=500, crop=1, flip=True)])
    places, counts = images[:, 0].nonzero()[:, 1:].unique(dim=0, return_counts=True)
    wanted = {(row, column): 2000 / 18 * (1 + (column == 4)) for row in (3, 4, 5) for column in (2, 3, 4, 5, 6)}
    assert {tuple(place) for place in places.tolist()} == wanted.keys()
    for place, count in zip(places.tolist(), counts.tolist()): assert abs(count - wanted[tuple(place)]) < 5 * wanted[tuple(place)]**.5

def test_steps_are_the_rates_of_the_paper():
    rates = [learning_rate((epoch + part) / 30, .01, "steps") for epoch in range(30) for part in (1e-6, .5, 1 - 1e-6)]
    assert np.allclose(rates, [.01] * 60 + [.002] * 15 + [.0004] * 15, rtol=1e-12)
    assert MSCR_RECIPE["epochs"] == 30 and MSCR_RECIPE["lr"] == .01 and MSCR_RECIPE["batch_size"] == 32

@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_schedule_exceeds_its_rate(schedule):
    rates = [learning_rate(t, .3, schedule) for t in np.linspace(0, 1, 1001)]
    assert max(rates) == pytest.approx(.3) and min(rates) >= 0 and rates[-1] < .02

# ---- the loop ----

def test_a_step_is_that_of_pytorch():
    "One batch, float32, no noise: by hand, with the optimiser of PyTorch."
    net, _ = trained(epochs=2, batch_size=60, crop=0, flip=False, noise=0, precision="float32", net=initialise(lambda: small(dropout=0), 1), label_smoothing=.1)
    by_hand = initialise(lambda: small(dropout=0), 1)
    optimiser = torch.optim.SGD(by_hand.parameters(), 1, .9, nesterov=True, weight_decay=5e-4)
    for progress in .25, .75:
        optimiser.param_groups[0]["lr"] = learning_rate(progress, .05, "one_cycle")
        loss = nn.functional.cross_entropy(by_hand(torch.from_numpy(X / np.float32(255))), torch.from_numpy(Y), label_smoothing=.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for a, b in zip(net.parameters(), by_hand.parameters()): torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)

def test_history():
    net, history = trained(data=SimpleNamespace(x=X, y=Y % 2), lr=.1, epochs=8, noise=0, net=initialise(lambda: small(dropout=0), 1))
    assert [entry["epoch"] for entry in history] == list(range(1, 9)) and all(entry["seconds"] > 0 for entry in history)
    assert history[-1]["loss"] < history[0]["loss"] and history[-1]["accuracy"] > history[0]["accuracy"] and history[-1]["lr"] < .01
    assert json.loads(json.dumps(history)) == history

def test_bytes_and_floats_train_alike():
    floats = Dataset("floats", X / np.float32(255), Y, tuple("abcd"))
    assert same(trained()[0], trained(floats)[0])

@pytest.mark.parametrize("changes", [dict(seed=6), dict(noise=.2), dict(p=2), dict(p=1), dict(crop=0), dict(flip=False), dict(precision="float32"), dict(schedule="cosine"),
                                     dict(schedule="steps"), dict(reset_momentum=True), dict(nesterov=False), dict(label_smoothing=0), dict(weight_decay=0), dict(momentum=.5)])
def test_every_argument_tells(changes): assert not same(trained()[0], trained(**changes)[0])

def test_what_runs_before_and_beside_does_not_matter():
    "Dropout draws from the global state; a run within a run draws too."
    alone, history = trained()
    torch.manual_seed(99)
    before = torch.get_rng_state()
    net = initialise(small, 1)
    net.register_forward_pre_hook(lambda *_: trained(seed=8, epochs=1) and None)
    _, busy = trained(net=net)
    assert same(net, alone) and torch.equal(torch.get_rng_state(), before)
    assert [entry["loss"] for entry in busy] == [entry["loss"] for entry in history]

def test_dropout_drops():
    assert not same(trained()[0], trained(net=initialise(lambda: small(dropout=.1), 1))[0])

def test_epochs_differ():
    "With a rate of 0 only the statistics change; they would be the same if each epoch brought the same images."
    losses = [entry["loss"] for entry in trained(lr=0., net=initialise(lambda: small(dropout=0), 1))[1]]
    assert len(set(losses)) == 3

def test_modes_and_data_are_left_alone():
    net = initialise(small, 1).eval()
    net[1].train()
    x, y = X.copy(), Y.copy()
    x.setflags(write=False)
    trained(SimpleNamespace(x=x, y=y), net)
    assert [part.training for part in net.modules()] == [False, False, True, False, False, False, False]
    assert np.array_equal(x, X) and np.array_equal(y, Y)

def test_numbers_of_numpy_are_numbers(tmp_path):
    given = dict(epochs=np.int64(3), seed=np.uint8(5), lr=np.float64(.05), noise=np.float64(.1))
    assert same(trained(**given, checkpoint=tmp_path / "c")[0], trained()[0])

def test_progress_goes_to_stderr(capsys):
    for progress in None, False: trained(progress=progress)
    assert capsys.readouterr() == ("", "")
    trained(progress=True)
    out, err = capsys.readouterr()
    assert out == "" and all(word in err for word in ("epoch 3/3", "60/60", " images/s", "loss=", "accuracy="))

class FailsAfter(nn.Module): # returns NaN from its `step`th call on
    def __init__(self, step):
        super().__init__()
        self.net, self.calls, self.step = small(), 0, step
    def forward(self, x):
        self.calls += 1
        return self.net(x) * (inf if self.calls >= self.step else 1)

def test_nan_ends_the_run_at_once(tmp_path):
    net = initialise(lambda: FailsAfter(7), 1)
    with pytest.raises(FloatingPointError, match=r"epoch 2, by step 3 of 4, at learning rate 0\.0\d+"): trained(net=net, checkpoint=tmp_path / "c")
    assert net.calls == 7 and net.training
    assert len(json.loads(metadata(tmp_path / "c")["history"])) == 1

BAD = [(dict(epochs=0), "epochs"), (dict(epochs=2.5), "epochs"), (dict(seed=-1), "seed"), (dict(batch_size=0), "batch_size"), (dict(batch_size=61), "from 1 to 60"),
       (dict(lr=-1), "lr"), (dict(lr=inf), "lr"), (dict(noise=-.1), "noise"), (dict(noise=float("nan")), "noise"), (dict(weight_decay=-1), "weight_decay"),
       (dict(momentum=1), "momentum"), (dict(momentum=0), "nesterov"), (dict(label_smoothing=1), "label_smoothing"), (dict(p=0), "p must"), (dict(p=-1), "p must"),
       (dict(crop=-1), "crop"), (dict(crop=8), "from 0 to 7"), (dict(schedule="cosin"), "did you mean cosine"), (dict(precision="float16"), "precision")]

@pytest.mark.parametrize("changes, message", BAD)
def test_bad_arguments(changes, message):
    net = initialise(small, 1)
    with pytest.raises(ValueError, match=message): trained(net=net, **changes)
    assert same(net, initialise(small, 1))

@pytest.mark.parametrize("x, y, error, message", [
    (X.astype(float), Y, TypeError, "float64"), (X[0], Y, TypeError, "shape"), (X, Y[:9], ValueError, r"\(60,\)"), (X, Y.astype(np.int32), ValueError, "int32"),
    (X, Y - 1, ValueError, "below 0"), (X[:0], Y[:0], ValueError, "at least one"), (X.astype(np.float32), Y, ValueError, r"\[0, 1\]"),
    (np.full_like(X, np.nan, np.float32), Y, ValueError, "NaN"), (X, Y + 1, ValueError, "labels up to 4")])
def test_bad_data(x, y, error, message):
    with pytest.raises(error, match=message): trained(SimpleNamespace(x=x, y=y))

# ---- checkpoints ----

CHILD = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_training import initialise, small, trained, save_weights
import robustness_nb.training as training
folder, when = sys.argv[1:]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
net = initialise(small, 1)
if when == "step":
    calls = iter([lambda *_: None] * 10)
    net.register_forward_pre_hook(lambda *_: next(calls, die)())
if when == "write":
    calls = iter([os.replace])
    os.replace = lambda *names: next(calls, die)(*names)
trained(net=net, checkpoint=folder + "/c.safetensors")
save_weights(net, folder + "/w.safetensors")
"""

def child(folder, when): # -> return code
    code = CHILD.format(tests=os.path.dirname(__file__))
    return subprocess.run([sys.executable, "-c", code, str(folder), when], capture_output=True).returncode

def metadata(path):
    from safetensors import safe_open
    with safe_open(path, "pt") as file: return file.metadata()

@pytest.mark.parametrize("when, epochs", [("step", 2), ("write", 1)])
def test_a_killed_run_ends_with_the_same_weights(tmp_path, when, epochs):
    "Killed in the middle of epoch 3, or while the second checkpoint is written."
    assert child(tmp_path, when) == -signal.SIGKILL
    assert len(json.loads(metadata(tmp_path / "c.safetensors")["history"])) == epochs and not (tmp_path / "w.safetensors").exists()
    assert child(tmp_path, "never") == 0
    resumed = small()
    load_weights(resumed, tmp_path / "w.safetensors")
    assert same(resumed, trained()[0])

def test_a_finished_run_is_not_run_again(tmp_path):
    net, history = trained(checkpoint=tmp_path / "new" / "c")
    before = (tmp_path / "new" / "c").read_bytes()
    again = initialise(small, 1)
    again.register_forward_pre_hook(lambda *_: pytest.fail("the network was run"))
    assert trained(net=again, checkpoint=tmp_path / "new" / "c")[1] == history and same(net, again)
    assert (tmp_path / "new" / "c").read_bytes() == before and [path.name for path in (tmp_path / "new").iterdir()] == ["c"]

def refused(path, message, **changes): # and the file stays as it is
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message) as error: trained(checkpoint=path, **changes)
    assert str(path) in str(error.value) and len(str(error.value)) < 400 and path.read_bytes() == before

def test_checkpoints_of_other_runs_are_refused(tmp_path):
    trained(checkpoint=(path := tmp_path / "c"))
    for name, value in dict(epochs=4, seed=6, batch_size=8, lr=.1, momentum=.8, nesterov=False, weight_decay=0., label_smoothing=0., schedule="cosine",
                            reset_momentum=True, noise=.2, p=2, crop=0, flip=False, precision="float32").items():
        refused(path, f"made with {name}=.*, not {value!r}", **{name: value})
    refused(path, "another architecture: .*Dropout", net=initialise(lambda: small(dropout=.1), 1))
    refused(path, "another architecture: .*out_features=5", net=initialise(lambda: small(classes=5), 1))
    refused(path, "another architecture", net=initialise(lambda: small().append(nn.Identity()), 1))
    refused(path, "other starting weights", net=initialise(small, 2))
    refused(path, "other images or labels", data=SimpleNamespace(x=X, y=Y[::-1].copy()))

@pytest.mark.parametrize("left", [0, 4, 100, .5, .999])
def test_cut_files_are_refused(tmp_path, left):
    trained(checkpoint=(path := tmp_path / "c"), epochs=1)
    whole = path.read_bytes()
    path.write_bytes(whole[:int(left * len(whole)) if isinstance(left, float) else left])
    refused(path, "is damaged", epochs=1)

def test_changed_and_foreign_files_are_refused(tmp_path):
    trained(checkpoint=(path := tmp_path / "c"), epochs=1)
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1
    path.write_bytes(whole)
    refused(path, "is damaged: its tensors have changed", epochs=1)
    torch.save(small().state_dict(), path)
    refused(path, "not a safetensors file", epochs=1)
    save_weights(small(), path)
    refused(path, "is not a checkpoint", epochs=1)

def test_a_place_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / "file").touch()
    net = initialise(small, 1)
    with pytest.raises(OSError, match="file"): trained(net=net, checkpoint=tmp_path / "file" / "c")
    assert same(net, initialise(small, 1))

# ---- weights ----

def test_weights_come_back(tmp_path):
    net = initialise(small, 1).to(torch.bfloat16, memory_format=torch.channels_last)
    save_weights(net, tmp_path / "w")
    other = initialise(small, 2).to(torch.bfloat16)
    load_weights(other, tmp_path / "w")
    assert same(net, other) and [path.name for path in tmp_path.iterdir()] == ["w"]

def test_tied_weights_and_same_scores(tmp_path):
    net = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9))
    net[2].weight = net[0].weight
    save_weights(net, tmp_path / "w")
    load_weights(net, tmp_path / "w")
    net, _ = trained()
    save_weights(net, tmp_path / "w")
    load_weights(other := small(), tmp_path / "w")
    assert np.array_equal(adapt(other).scores(X / np.float32(255)), adapt(net).scores(X / np.float32(255)))

@pytest.mark.parametrize("build, message", [
    (lambda: small(classes=5), r"5.weight has shape \(4, 144\) in .*w, but \(5, 144\)"), (lambda: small().append(nn.Linear(4, 4)), "has no tensor 6.weight"),
    (lambda: small()[:5], "has a tensor 5.bias, which the model lacks")])
def test_weights_of_another_network(tmp_path, build, message):
    save_weights(small(), tmp_path / "w")
    other = initialise(build, 2)
    with pytest.raises(ValueError, match=message): load_weights(other, tmp_path / "w")
    assert same(other, initialise(build, 2))

def test_no_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"): load_weights(small(), tmp_path / "nowhere")

# ---- networks ----

@pytest.mark.parametrize("depth, widen, millions, giga", [(28, 10, 36.49, 5.95), (28, 4, 5.85, .959), (16, 4, 2.75, .506), (28, 2, 1.47, .243), (16, 2, .69, .129), (10, 2, .30, .073)])
def test_wide_resnets_have_the_size_of_the_papers(depth, widen, millions, giga):
    from torch.utils.flop_counter import FlopCounterMode
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        net = wide_resnet(depth, widen)
        assert net(torch.rand(1, 3, 32, 32)).shape == (1, 10)
    assert sum(weight.numel() for weight in net.parameters()) / 1e6 == pytest.approx(millions, abs=.005)
    assert counter.get_total_flops() / 2e9 == pytest.approx(giga, rel=.005)

def test_last_normalisation_and_dropout_are_as_asked():
    net = wide_resnet(16, 1, dropout=.2, last_momentum=.9)
    momenta = [part.momentum for part in net.modules() if isinstance(part, nn.BatchNorm2d)]
    assert momenta == [.1] * 12 + [.9] and {part.p for part in net.modules() if isinstance(part, nn.Dropout)} == {.2}
    strides = {name: part.stride[0] for name, part in net.named_modules() if isinstance(part, nn.Conv2d) and part.stride[0] > 1}
    assert strides == {f"group{i}.0.{part}": 2 for i in (2, 3) for part in ("body.conv2", "shortcut")}

@pytest.mark.parametrize("build", [lambda **options: resnet9(2, **options), lambda **options: wide_resnet(10, 1, **options)])
def test_normalisation_is_the_first_layer(build):
    x = torch.rand(5, 2, 8, 8, generator=generator())
    plain = initialise(lambda: build(channels=2, classes=3, mean=None, std=None), 0).eval()
    normalised = initialise(lambda: build(channels=2, classes=3, mean=(.2, .6), std=(.5, 2.)), 0).eval()
    moved = (x - torch.tensor([.2, .6])[:, None, None]) / torch.tensor([.5, 2.])[:, None, None]
    torch.testing.assert_close(normalised(x), plain(moved))
    assert normalised(x).shape == (5, 3) and not torch.equal(normalised(x), plain(x))

@pytest.mark.parametrize("call, message", [
    (lambda: resnet9(0), "width"), (lambda: resnet9(classes=0), "classes"), (lambda: resnet9(channels=1.5), "channels"), (lambda: resnet9(std=0), "std"),
    (lambda: wide_resnet(12), "16, 22, 28"), (lambda: wide_resnet(4), "depth"), (lambda: wide_resnet(widen=0), "widen"), (lambda: wide_resnet(dropout=1), "dropout"),
    (lambda: wide_resnet(last_momentum=2), "last_momentum"), (lambda: initialise(small, -1), "seed")])
def test_bad_networks(call, message):
    with pytest.raises(ValueError, match=message): call()

def test_initialise_is_by_seed_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert same(initialise(small, 1), initialise(small, 1)) and not same(initialise(small, 1), initialise(small, 2))
    assert torch.equal(torch.get_rng_state(), before)

WITHOUT = "import sys; sys.modules['torch'] = None; import robustness_nb.models as models; {}"

@pytest.mark.parametrize("statement", ["models.resnet9()", "models.wide_resnet()", "import robustness_nb.training"])
def test_without_pytorch_the_extra_is_named(statement):
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(statement)], capture_output=True, text=True)
    assert done.returncode == 1 and 'ImportError: ' in done.stderr and 'pip install "robustness_nb[torch]"' in done.stderr

def test_models_import_without_pytorch():
    code = WITHOUT.format("models.adapt(len); print(models.fit.__name__)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "fit\n"

# ---- adapt ----

IMAGES = X / np.float32(255)

def test_adapted_networks_are_measured_in_evaluation_mode():
    net = trained()[0].train()
    net[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    scores = adapt(net).scores(IMAGES)
    assert [part.training for part in net.modules()] == [True, True, False, True, True, True, True]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items()) and torch.equal(torch.get_rng_state(), state)
    with torch.no_grad(): expected = net.eval()(torch.from_numpy(IMAGES)).numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    assert scores.dtype == np.float32 and np.array_equal(adapt(net).predict(IMAGES), expected.argmax(1))

def test_modes_come_back_after_a_failure():
    net = small()
    with pytest.raises(RuntimeError): adapt(net).predict(np.zeros((2, 5, 8, 8), np.float32))
    assert all(part.training for part in net.modules())

@pytest.mark.parametrize("precision, close", [("float32", 1e-5), ("bfloat16", .05)])
def test_batches_do_not_matter(precision, close):
    net = initialise(lambda: resnet9(4), 0)
    images = np.random.default_rng(1).random((600, 3, 8, 8), np.float32)
    whole = adapt(net, precision).scores(images)
    for size in 1, 7, 250, 251:
        parts = np.concatenate([adapt(net, precision).scores(images[i:i + size]) for i in range(0, 300, size)])
        np.testing.assert_allclose(parts[:300], whole[:300], atol=close)

def test_networks_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(60, classes\)"): adapt(nn.Flatten(0)).predict(IMAGES)
    assert adapt(nn.Flatten()).predict(IMAGES).shape == (60,)
    assert adapt(nn.Linear(2, 3)).predict(np.zeros((9, 2))).shape == (9,)
    with pytest.raises(ValueError, match="did you mean bfloat16"): adapt(small(), "bfloat6")
    with pytest.raises(ValueError, match="needs a torch module, not function"): adapt(lambda images: images, "bfloat16")

# ---- a GPU ----

@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(tmp_path):
    state = torch.cuda.get_rng_state()
    net, history = trained(checkpoint=tmp_path / "c", epochs=2)
    again, _ = trained(epochs=2)
    assert next(net.parameters()).is_cuda and torch.equal(torch.cuda.get_rng_state(), state)
    for a, b in zip(net.parameters(), again.parameters()): torch.testing.assert_close(a, b, rtol=.05, atol=.01)
    assert trained(checkpoint=tmp_path / "c", epochs=2)[1] == history and adapt(net).predict(IMAGES).shape == (60,)
    with pytest.raises(FloatingPointError): trained(net=initialise(lambda: FailsAfter(3), 1))
