"""FGSM, PGD and SimBA: what they promise, what they leave alone, and that they do what other libraries do."""
import gc, itertools, random, subprocess, sys, warnings
from copy import deepcopy
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from robustness_nb.attacks import FGSM, PGD, Attack, SimBA, adapt_attack
from robustness_nb.datasets import digits, split
from robustness_nb.metrics import lp_norm
from robustness_nb.models import Classifier, adapt

torch = pytest.importorskip("torch")
INF = np.inf
TRAIN, TEST = split(digits(), 500, seed=7)
X, Y = TEST.x[:60], TEST.y[:60]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"))]

def flat(x): return x.reshape(len(x), -1)

@pytest.fixture(scope="module")
def net():
    "A small convolutional net with batch normalisation and dropout, trained for a moment."
    from robustness_nb.training import initialise, train
    nn = torch.nn
    module = initialise(lambda: nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(.2), nn.Linear(128, 10)), seed=0)
    train(module, TRAIN, epochs=3, seed=0, batch_size=64, lr=.1, crop=0, flip=False, precision="float32", progress=False)
    return module.eval()

@pytest.fixture(scope="module")
def forest(): return RandomForestClassifier(20, random_state=0).fit(flat(TRAIN.x), TRAIN.y)

# --- promises

SETTINGS = st.fixed_dictionaries(dict(eps=st.sampled_from([0., 1e-3, .05, .3]), targeted=st.booleans(), bounds=st.sampled_from([(0, 1), None, (-.5, 1.5)])))

@settings(max_examples=25, deadline=None)
@given(SETTINGS, st.sampled_from([INF, 2, 1]))
def test_fgsm_stays_within_eps_and_bounds(net, given, p):
    result = FGSM(p=p, **given).run(net, X, Y, (Y + 1) % 10 if given["targeted"] else None)
    assert (lp_norm(result.adversarial - X, p) <= given["eps"] + 1e-6).all()
    if given["bounds"]: assert result.adversarial.min() >= given["bounds"][0] and result.adversarial.max() <= given["bounds"][1]
    else: np.testing.assert_allclose(lp_norm(result.adversarial - X, p), given["eps"], atol=1e-6)
    assert result.adversarial.dtype == X.dtype and not np.shares_memory(result.adversarial, X)

@settings(max_examples=25, deadline=None)
@given(SETTINGS, st.sampled_from([INF, 2]), st.booleans(), st.booleans(), st.integers(1, 4))
def test_pgd_stays_within_eps_and_bounds(net, given, p, random_start, early_stop, steps):
    attack = PGD(p=p, random_start=random_start, early_stop=early_stop, steps=steps, **given)
    result = attack.run(net, X, Y, (Y + 1) % 10 if given["targeted"] else None, seed=steps)
    assert (lp_norm(result.adversarial - X, p) <= given["eps"] + 1e-6).all()
    if given["bounds"]: assert result.adversarial.min() >= given["bounds"][0] and result.adversarial.max() <= given["bounds"][1]
    assert 1 <= result.queries.min() and result.queries.max() <= steps

@pytest.mark.parametrize("attack", [FGSM(0.), PGD(0.), PGD(0., random_start=True), PGD(0., p=2), SimBA(0.), SimBA(0., basis="dct")])
def test_eps_0_changes_nothing(net, attack): np.testing.assert_array_equal(attack.perturb(net, X, Y), X)

ATTACKS = [FGSM(.1), FGSM(.5, p=2), PGD(.1, steps=5, random_start=True, restarts=2), PGD(.6, p=2, steps=5, random_start=True), PGD(.1, early_stop=False), SimBA(.3, max_iter=15), SimBA(.5, max_iter=15, basis="dct")]

@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_neither_batch_size_nor_order_matters(net, attack):
    whole = attack.run(net, X, Y, seed=5)
    mixed = np.random.default_rng(0).permutation(len(X))
    for order, size in (mixed, 256), (np.arange(len(X)), 7), (mixed, 1):
        again = attack.run(net, X[order], Y[order], seed=5, numbers=order, batch_size=size)
        np.testing.assert_allclose(again.adversarial, whole.adversarial[order], atol=1e-6)
        for field in "prediction", "success", "queries": np.testing.assert_array_equal(getattr(again, field), getattr(whole, field)[order])

@pytest.mark.parametrize("attack", [PGD(.1, steps=1, random_start=True), SimBA(.1, max_iter=5)], ids=repr)
def test_the_seed_decides(net, attack):
    a, b, c = (attack.perturb(net, X, Y, seed=seed) for seed in (0, 0, -1))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()

def test_images_have_starts_of_their_own(net):
    same = np.repeat(X[:1], 3, 0)
    moved = PGD(.1, steps=1, step_size=1e-9, random_start=True, bounds=None).perturb(net, same, Y[:1].repeat(3))
    assert len(np.unique(flat(moved), axis=0)) == 3

@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_success_is_what_the_model_says(net, attack):
    result = attack.run(net, X, Y)
    np.testing.assert_array_equal(result.prediction, adapt(net).predict(np.clip(result.adversarial, 0, 1)))
    np.testing.assert_array_equal(result.success, result.prediction != Y)
    np.testing.assert_array_equal(result.adversarial, attack.perturb(net, X, Y))

@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_queries_are_what_the_model_saw(net, attack):
    seen = []
    handle = net.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    try: queries = attack.run(net, X, Y, batch_size=13).queries
    finally: handle.remove()
    assert sum(seen) == queries.sum() + len(X) # the closing prediction is not counted

def test_pgd_finds_all_that_fgsm_finds_and_more_with_restarts(net):
    right = adapt(net).predict(X) == Y
    once = FGSM(.1).run(net, X, Y).success[right].mean()
    more, most = (PGD(.1, steps=20, random_start=r > 1, restarts=r).run(net, X, Y).success[right].mean() for r in (1, 3))
    assert once < more <= most

def test_early_stop_leaves_an_image_where_it_fell(net):
    stopped, full = (PGD(.1, steps=20, early_stop=early).run(net, X, Y) for early in (True, False))
    assert stopped.success.sum() >= full.success.sum() and stopped.queries.sum() < full.queries.sum()
    stands = ~stopped.success
    np.testing.assert_allclose(stopped.adversarial[stands], full.adversarial[stands], atol=1e-6)
    wrong = adapt(net).predict(X) != Y
    np.testing.assert_array_equal(stopped.adversarial[wrong], X[wrong])

def test_targeted(net):
    targets = (Y + 3) % 10
    for attack in FGSM(.3, targeted=True), PGD(.3, steps=20, targeted=True), SimBA(.3, max_iter=128, targeted=True):
        result = attack.run(net, X, Y, targets)
        np.testing.assert_array_equal(result.success, result.prediction == targets)
    assert PGD(.3, steps=20, targeted=True).run(net, X, Y, targets).success.mean() > .9

def test_own_loss_is_raised_or_lowered(net):
    def score(logits, y): return -logits.gather(1, y[:, None])[:, 0]
    def scores(x): return adapt(net).scores(x)[np.arange(len(x)), Y]
    for attack, sign in (FGSM(.01, loss=score), -1), (PGD(.01, loss=score, early_stop=False), -1), (FGSM(.01, loss=score, targeted=True), 1):
        moved = attack.perturb(net, X, (Y + 1) % 10 if attack.targeted else Y, Y if attack.targeted else None)
        assert (sign * (scores(moved) - scores(X)) > 0).all()
    mean = FGSM(.1, loss=lambda logits, y: torch.nn.functional.cross_entropy(logits, y)).perturb(net, X, Y) # a mean has the same sign
    np.testing.assert_array_equal(mean, FGSM(.1).perturb(net, X, Y))

def test_bounds_may_differ_by_pixel(net):
    low, high = np.zeros((1, 8, 8)), np.full((1, 8, 8), 1.)
    high[0, :4] = X[:, 0, :4].max()
    low[0, 4:] = -1
    for attack in FGSM(.7, bounds=(low, high)), PGD(.7, bounds=(low, high)), SimBA(.7, bounds=(low, high)):
        moved = attack.perturb(net, X, Y)
        assert ((moved >= low) & (moved <= high)).all() and moved.min() < 0

def test_points_in_double_precision_move_exactly():
    net, x = torch.nn.Linear(2, 2), np.random.default_rng(0).normal(size=(9, 2))
    moved = FGSM(.1, bounds=None).perturb(net, x, np.zeros(9, int))
    np.testing.assert_allclose(np.abs(moved - x), .1, atol=1e-15)
    np.testing.assert_array_equal(PGD(0., bounds=None).perturb(net, x, np.zeros(9, int)), x)

# --- what stays as it was

def state(module):
    return ([part.training for part in module.modules()], [p.requires_grad for p in module.parameters()], [p.grad for p in module.parameters()],
            [t.clone() for t in module.state_dict().values()], torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())

def equal(a, b): return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b

@pytest.mark.parametrize("attack", [*ATTACKS, PGD(.1, steps=2, mode="train"), FGSM(.1, mode="train")], ids=repr)
def test_the_model_and_global_random_states_stay_as_they_were(net, attack):
    module = deepcopy(net)
    module.train()
    module[1].eval()
    module[0].weight.requires_grad_(False)
    before, images = state(module), X.copy()
    attack.run(module, images, Y)
    for old, new in zip(before, state(module)): assert all(map(equal, old, new)) if isinstance(old, (list, tuple)) else equal(old, new)
    np.testing.assert_array_equal(images, X)

def test_a_failure_puts_the_mode_back(net):
    module = deepcopy(net).train()
    with pytest.raises(ValueError, match="classes are 0 to 9"): PGD().run(module, X, Y + 5)
    assert all(part.training for part in module.modules())

@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_works_where_gradients_are_off(net, context):
    with context(): moved = PGD(.1).perturb(net, X, Y)
    np.testing.assert_array_equal(moved, PGD(.1).perturb(net, X, Y))

def test_training_mode_is_another_attack(net):
    a, b = PGD(.1, mode="train", steps=3).run(net, X, Y, seed=1), PGD(.1, mode="train", steps=3).run(net, X, Y, seed=1)
    np.testing.assert_array_equal(a.adversarial, b.adversarial)
    assert (a.queries == 3).all()
    assert (a.adversarial != PGD(.1, steps=3).perturb(net, X, Y)).any()
    seen = []
    handle = net[1].register_forward_hook(lambda module, *_: seen.append(module.training))
    try: PGD(.1, mode="train", steps=3).run(net, X, Y)
    finally: handle.remove()
    assert seen == [True] * 3 + [False]

def test_memory_does_not_grow_with_the_steps(net):
    alive = []
    def count(*_): alive.append(sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects()))
    handle = net.register_forward_hook(count)
    try: PGD(.01, steps=30, early_stop=False).perturb(net, X, Y)
    finally: handle.remove()
    assert max(alive[2:]) <= alive[1]

@pytest.mark.parametrize("device", DEVICES)
def test_runs_on_the_model_s_device(net, device):
    there = deepcopy(net).to(device)
    for attack in ATTACKS[:5]:
        np.testing.assert_allclose(attack.run(there, X, Y).success, attack.run(net, X, Y).success)

def test_loads_and_attacks_without_pytorch():
    code = """import sys; sys.modules["torch"] = None
import numpy as np
from robustness_nb.attacks import FGSM, SimBA
x, model = np.full((2, 3), .5), lambda x: np.stack([x.sum(1), 1.4 - x.sum(1)], 1)
assert SimBA(.2).run(model, x, [0, 0]).success.all()
try: FGSM().run(model, x, [0, 0])
except TypeError as error: assert "SimBA" in str(error)
else: raise SystemExit("no error")"""
    subprocess.run([sys.executable, "-c", code], check=True)

# --- SimBA

def plain_simba(scores, x, label, eps, max_iter, order, bounds): # as the documentation of AdversarialAttacks.jl tells it, one image at a time
    x = x.ravel().copy()
    p = scores(x)
    last, queries = p[label], 1
    for i in range(max_iter):
        for side in -1, 1:
            moved = x.copy()
            moved[order[i % len(order)]] += x.dtype.type(side * eps)
            moved = np.clip(moved, *bounds).astype(x.dtype)
            p = scores(moved)
            queries += 1
            if p[label] < last:
                x, last = moved, p[label]
                if p.argmax() != label: return x, queries
                break
    return x, queries

@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([.05, .3, 1.]), st.integers(1, 30))
def test_simba_is_the_plain_algorithm(forest, seed, eps, max_iter):
    rng = np.random.default_rng(seed)
    order, rows = rng.permutation(64)[:20], rng.choice(len(X), 8, replace=False)
    result = SimBA(eps, max_iter, order=order).run(forest, X[rows], Y[rows])
    for i, row in enumerate(rows):
        x, queries = plain_simba(lambda x: forest.predict_proba(x[None].astype(float))[0], X[row], Y[row], eps, max_iter, order, (0, 1))
        np.testing.assert_array_equal(result.adversarial[i].ravel(), x)
        assert result.queries[i] == queries

def total(other, sign=1): return lambda x: np.stack([sign * x.sum(1), np.broadcast_to(other(x.sum(1)), len(x)).astype(x.dtype)], 1)

HALF = [[.5] * 4]
TOYS = {"sum, 50": (total(lambda s: 0), HALF, .1, 50, [0, 0, 0, 0], False, 77), "sum, 5": (total(lambda s: 0), HALF, .1, 5, [.3, .4, .4, .4], False, 6),
        "-sum": (total(lambda s: 0, -1), HALF, .1, 50, [.5, .5, .5, .6], True, 3), "constant": (lambda x: np.ones((len(x), 2), np.float32), HALF, .1, 50, [.5] * 4, False, 101),
        "10 - sum": (total(lambda s: 10 - s), [[2, 2, 1, 1]], .3, 100, None, True, 2), "1 - sum": (total(lambda s: 1 - s), HALF, .1, 5, [.3, .4, .4, .4], False, 6)}

@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", TOYS)
def test_toys_of_the_julia_package(name, seed):
    model, x, eps, max_iter, final, success, queries = TOYS[name]
    result = SimBA(eps, max_iter, project=name == "10 - sum").run(model, np.float32(x), [0], seed=seed)
    assert result.success[0] == success and result.queries[0] == queries
    if final: np.testing.assert_allclose(np.sort(result.adversarial[0]), final, atol=1e-6)
    else: assert result.adversarial.max() <= 1 and sorted(result.adversarial[0].round(6)) in ([.7, 1, 1, 1], [1, 1, 1, 1])

@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_iris_flips_in_every_order(order):
    from sklearn.datasets import load_iris
    from sklearn.tree import DecisionTreeClassifier
    iris = load_iris()
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(iris.data, iris.target)
    for kind in np.float32, np.float64:
        result = SimBA(.3, 100, order=order, bounds=(iris.data.min(0), iris.data.max(0))).run(tree, iris.data[50:51].astype(kind), [1])
        np.testing.assert_allclose(result.adversarial, [[7, 3.2, 5, 1.4]], atol=1e-6)
        assert result.queries[0] == 3 + 2 * order.index(2) and result.prediction[0] == 2

def test_dct_steps_have_length_eps_and_low_frequencies(net):
    from scipy.fft import dctn
    result = SimBA(.4, max_iter=1, basis="dct", bounds=None).run(net, X, Y)
    change = result.adversarial - X
    size = lp_norm(change, 2)
    np.testing.assert_allclose(size[size > 0], .4, atol=1e-6)
    frequencies = np.abs(dctn(change, axes=(2, 3), norm="ortho"))
    assert (frequencies > 1e-5).sum((1, 2, 3)).max() == 1 and frequencies[:, :, 4:].max() < 1e-6 and frequencies[:, :, :, 4:].max() < 1e-6

def test_models_of_every_kind(net, forest):
    logistic = LogisticRegression(max_iter=300).fit(flat(TRAIN.x), TRAIN.y)
    for model in net, forest, logistic, adapt(forest), lambda x: forest.predict_proba(flat(x)):
        assert SimBA(.3, max_iter=100).run(model, X, Y).success.mean() > .5
    with pytest.raises(TypeError, match="only predicts labels"): SimBA().run(Classifier(None, adapt(forest).predict), X, Y)

def test_a_sure_net_is_not_lost_to_rounding(net):
    sure = torch.nn.Sequential(net, Scale(12.))
    assert SimBA(.3, max_iter=100).run(sure, X, Y).success.mean() > .9

class Scale(torch.nn.Module):
    def __init__(self, factor): super().__init__(); self.factor = factor
    def forward(self, x): return self.factor * x

# --- bad input

@pytest.mark.parametrize("change,kind,message", [
    (dict(images=(255 * X).astype(np.uint8)), TypeError, "divide 0-255 integers by 255"), (dict(images=2 * X - 1), ValueError, "must lie in the attack's bounds"),
    (dict(images=X[0, 0, 0]), ValueError, "must have shape"), (dict(images=X[:0]), ValueError, "at least one image"), (dict(images=X * np.nan), ValueError, "NaN"),
    (dict(labels=np.eye(10)[Y]), ValueError, "one-hot"), (dict(labels=Y / 1), TypeError, "whole numbers"), (dict(labels=Y[:5]), ValueError, r"shape \(60,\)"),
    (dict(labels=Y - 1), ValueError, "at least 0"), (dict(labels=Y + 1), ValueError, "classes are 0 to 9"), (dict(targets=Y), ValueError, "targeted=True"),
    (dict(batch_size=0), ValueError, "batch_size must be"), (dict(seed=.5), ValueError, "seed must be"), (dict(numbers=np.arange(3)), ValueError, "numbers must have shape")])
def test_bad_calls(net, change, kind, message):
    given = dict(images=X, labels=Y) | change
    for attack in FGSM(), PGD(), SimBA():
        with pytest.raises(kind, match=message): attack.run(net, given["images"], given["labels"], given.get("targets"), **{k: v for k, v in given.items() if k not in ("images", "labels", "targets")})

@pytest.mark.parametrize("make,message", [
    (lambda: FGSM(-.1), "eps must be at least 0"), (lambda: PGD(np.nan), "eps must be at least 0"), (lambda: SimBA(INF), "eps must be at least 0"), (lambda: FGSM(p=3), "p must be one of inf, 2, 1"),
    (lambda: PGD(p=1), "p must be one of inf, 2,"), (lambda: PGD(steps=0), "steps must be"), (lambda: PGD(step_size=0), "step_size must be"), (lambda: PGD(restarts=2), "random_start=True"),
    (lambda: FGSM(bounds=(1, 0)), "low < high"), (lambda: FGSM(mode="training"), "unknown mode"), (lambda: SimBA(max_iter=0), "max_iter must be"), (lambda: SimBA(basis="wavelet"), "unknown basis"),
    (lambda: SimBA(frequencies=0), "frequencies must be"), (lambda: SimBA(order=[64]).run(lambda x: flat(x)[:, :10], X, Y), "order must be numbers of directions"),
    (lambda: SimBA(basis="dct").run(lambda x: x, flat(X), Y), "images of shape"), (lambda: FGSM(targeted=True).run(None, X, Y), "needs targets"),
    (lambda: PGD(targeted=True).run(None, X, Y, Y), "must differ"), (lambda: FGSM(bounds=([0] * 3, [1] * 3)).run(None, X, Y), "an image's shape")])
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message): make()

@pytest.mark.parametrize("attack", [FGSM(), PGD()])
def test_models_without_a_gradient(net, forest, attack):
    class Rounded(torch.nn.Module):
        def forward(self, x): return x.flatten(1)[:, :10].detach()
    for model in forest, adapt(net), lambda x: x, Rounded():
        with pytest.raises(TypeError, match="SimBA does without"): attack.run(model, X, Y)

def test_broken_models_are_named_with_their_images(net):
    class Broken(torch.nn.Module):
        def __init__(self, answer): super().__init__(); self.answer = answer
        def forward(self, x): return self.answer(x.flatten(1)[:, :10])
    marked = X.copy()
    marked[53] = .995
    def nan_late(x): return torch.where((x > .9).all(1, keepdim=True), float("nan"), x)
    for attack in FGSM(), PGD(), SimBA():
        with pytest.raises(ValueError, match="images 50 to 59: the model returned .* NaN"): attack.run(Broken(nan_late), marked, Y, batch_size=25)
        with pytest.raises(ValueError, match=r"images 0 to 59: the model must return .* \(60, classes\)"): attack.run(Broken(lambda x: x[:, 0]), X, Y)
    root = Broken(lambda x: torch.sqrt(x - x.detach()))
    with pytest.raises(ValueError, match="gradient is NaN"): FGSM().run(root, X, Y)

@pytest.mark.parametrize("attack,message", [(FGSM(8), "8/255"), (PGD(8), "8/255"), (SimBA(8), "8/255"), (FGSM(100., p=2), "8/255")])
def test_eps_in_grey_levels_is_warned_of(net, attack, message):
    with pytest.warns(UserWarning, match=message): attack.run(net, X, Y)

def test_probabilities_are_warned_of(net):
    with pytest.warns(UserWarning, match="probabilities"): FGSM().run(torch.nn.Sequential(net, torch.nn.Softmax(1)), X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FGSM().run(net, X, Y)

# --- other libraries

def library(name): return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)

def close(ours, theirs, allowed=0): # to 1e-6; `allowed` is the share of images that may differ by a sign of a gradient near zero
    worst = np.abs(np.asarray(theirs) - ours).reshape(len(ours), -1).max(1)
    assert (worst > 1e-6).mean() <= allowed, worst.max()

def tensors(): return torch.tensor(X), torch.tensor(Y)

@pytest.mark.parametrize("eps", [.02, .1, .3])
def test_torchattacks_makes_the_same_images(net, eps):
    ta = library("torchattacks")
    close(FGSM(eps).perturb(net, X, Y), ta.FGSM(net, eps)(*tensors()))
    close(PGD(eps, steps=10, step_size=eps / 4, early_stop=False).perturb(net, X, Y), ta.PGD(net, eps, eps / 4, 10, random_start=False)(*tensors()), .05)
    theirs = ta.PGDL2(net, 5 * eps, eps, 10, random_start=False, eps_for_division=1e-30)(*tensors())
    close(PGD(5 * eps, 2, steps=10, step_size=eps, early_stop=False).perturb(net, X, Y), theirs, .05)
    targeted = ta.PGD(net, eps, eps / 4, 5, random_start=False)
    targeted.set_mode_targeted_by_label(quiet=True)
    close(PGD(eps, steps=5, step_size=eps / 4, early_stop=False, targeted=True).perturb(net, X, Y, (Y + 1) % 10), targeted(torch.tensor(X), torch.tensor((Y + 1) % 10)), .05)

@pytest.mark.parametrize("eps", [.02, .1, .3])
def test_foolbox_makes_the_same_images(net, eps):
    fb = library("foolbox")
    model = fb.PyTorchModel(net, bounds=(0, 1), device="cpu")
    for p, size, name in (INF, eps, "LinfFastGradientAttack"), (2, 5 * eps, "L2FastGradientAttack"), (1, 20 * eps, "L1FastGradientAttack"):
        close(FGSM(size, p).perturb(net, X, Y), getattr(fb.attacks, name)()(model, *tensors(), epsilons=size)[1])
    for p, size, name in (INF, eps, "LinfPGD"), (2, 5 * eps, "L2PGD"):
        theirs = getattr(fb.attacks, name)(rel_stepsize=.25, steps=10, random_start=False)(model, *tensors(), epsilons=size)[1]
        close(PGD(size, p, steps=10, step_size=size / 4, early_stop=False).perturb(net, X, Y), theirs, .05)

def art_classifier(net, bounds):
    library("art")
    from art.estimators.classification import PyTorchClassifier
    return PyTorchClassifier(net, loss=torch.nn.CrossEntropyLoss(), input_shape=X.shape[1:], nb_classes=10, clip_values=bounds, device_type="cpu")

@pytest.mark.parametrize("eps", [.02, .1, .3])
def test_art_makes_the_same_images(net, eps):
    model, free = art_classifier(net, (0, 1)), art_classifier(net, None) # with p = 2, ART clips before it projects
    from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescent
    close(FGSM(eps).perturb(net, X, Y), FastGradientMethod(model, eps=eps).generate(X, Y))
    close(FGSM(5 * eps, 2).perturb(net, X, Y), FastGradientMethod(model, norm=2, eps=5 * eps).generate(X, Y))
    close(PGD(eps, steps=10, step_size=eps / 4, early_stop=False).perturb(net, X, Y), ProjectedGradientDescent(model, eps=eps, eps_step=eps / 4, max_iter=10, verbose=False).generate(X, Y), .05)
    theirs = ProjectedGradientDescent(free, norm=2, eps=5 * eps, eps_step=eps, max_iter=10, verbose=False).generate(X, Y)
    close(PGD(5 * eps, 2, steps=10, step_size=eps, early_stop=False, bounds=None).perturb(net, X, Y), theirs, .05)

def torchattacks_pgd(net): return adapt_attack(library("torchattacks").PGD(net, eps=.1, alpha=.03, steps=5)), "torchattacks PGD"

def foolbox_pgd(net): return adapt_attack(library("foolbox").attacks.LinfPGD(rel_stepsize=.3, steps=5), eps=.1), "foolbox LinfProjectedGradientDescentAttack"

def art_pgd(net):
    model = art_classifier(net, (0, 1))
    from art.attacks.evasion import ProjectedGradientDescent
    return adapt_attack(ProjectedGradientDescent(model, eps=.1, eps_step=.03, max_iter=5, num_random_init=1, verbose=False)), "art ProjectedGradientDescent"

def autoattack(net):
    attack = library("pyautoattack").AutoAttack(net, eps=.1, version="custom", attacks=["apgd-ce"], seed=0)
    attack.apgd.n_iter, attack.apgd.n_restarts = 10, 1
    return adapt_attack(attack), "pyautoattack AutoAttack"

@pytest.mark.parametrize("make", [torchattacks_pgd, foolbox_pgd, art_pgd, autoattack])
def test_adapted_attacks(net, make):
    module = deepcopy(net).train()
    attack, name = make(module)
    assert isinstance(attack, Attack) and attack.name == name
    before = state(module)
    result = attack.run(module, X, Y, seed=1, batch_size=40)
    after = state(module)
    assert before[0] == after[0] and before[1] == after[1] and all(map(torch.equal, before[3], after[3])) and torch.equal(before[4], after[4]) and before[5:] == after[5:]
    assert result.queries is None and result.adversarial.dtype == np.float32
    assert (lp_norm(result.adversarial - X, INF) <= .1 + 1e-6).all() and result.success.mean() > .3
    np.testing.assert_array_equal(attack.perturb(module, X, Y, seed=1, batch_size=40), result.adversarial)
    if "foolbox" not in name:
        with pytest.raises(ValueError, match="made for another model"): attack.run(deepcopy(net), X, Y)

def test_adapted_attacks_may_be_targeted(net):
    ta, fb = library("torchattacks"), library("foolbox")
    by_label = ta.PGD(net, eps=.3, alpha=.05, steps=20)
    by_label.set_mode_targeted_by_label(quiet=True)
    targets = (Y + 1) % 10
    for attack in adapt_attack(by_label), adapt_attack(fb.attacks.LinfPGD(steps=40), eps=.3, targeted=True):
        assert attack.targeted and attack.run(net, X, Y, targets).success.mean() > .9
        with pytest.raises(ValueError, match="needs targets"): attack.run(net, X, Y)

def test_foolbox_finds_the_smallest_change(net):
    fb = library("foolbox")
    assert adapt_attack(fb.attacks.L2DeepFoolAttack()).run(net, X, Y).success.mean() > .95
    with pytest.raises(ValueError, match="give eps"): adapt_attack(fb.attacks.LinfPGD())

def test_art_attacks_scikit_learn_models():
    library("art")
    from art.attacks.evasion import FastGradientMethod
    from art.estimators.classification import SklearnClassifier
    logistic = LogisticRegression(max_iter=300).fit(flat(TRAIN.x), TRAIN.y)
    result = adapt_attack(FastGradientMethod(SklearnClassifier(logistic, clip_values=(0, 1)), eps=.1)).run(logistic, flat(X), Y)
    assert result.success.mean() > (logistic.predict(flat(X)) != Y).mean()

def test_adapted_functions_and_what_is_none():
    assert adapt_attack(attack := FGSM()) is attack
    model = adapt(lambda x: flat(x)[:, :10])
    np.testing.assert_array_equal(adapt_attack(lambda model, x, y: x / 2).perturb(model, X, Y), X / 2)
    for bad, message in (lambda model, x, y: x[1:], "returned images of shape"), (lambda model, x, y: x * np.nan, "NaN"):
        with pytest.raises(ValueError, match=message): adapt_attack(bad).run(model, X, Y)
    with pytest.raises(TypeError, match="attack must come from"): adapt_attack(.1)
    with pytest.raises(ValueError, match="eps is for Foolbox only"): adapt_attack(print, eps=.1)
