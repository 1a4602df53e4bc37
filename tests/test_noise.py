"Noise against distributions known otherwise, the noise of Siedel et al. (2022) bit for bit, and bad input. Real data come from $ROBUSTNESS_NB_DATA."
import hashlib, os
from math import inf
from pathlib import Path
import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest
from robustness_nb.noise import Draws, add_noise, augment, lp_noise, replace_values

DATA = os.environ.get("ROBUSTNESS_NB_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="needs ROBUSTNESS_NB_DATA, a folder with mscr2d")
NORMS = .1, .5, 1, 1.5, 2, 3, 10, 200, inf

def norm(v, p):
    top = np.abs(v).max(-1)
    return top if p == inf else top * ((np.abs(v) / top[..., None])**p).sum(-1)**(1/p)

# ---- distributions ----

@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("d", [1, 2, 7, 300])
def test_radius(p, d):
    v = lp_noise(4000, (d,), .3, p, seed=d)[:, 0]
    assert np.isfinite(v).all() and norm(v, p).max() <= .3 * (1 + 1e-12)
    assert kstest((norm(v, p) / .3)**d, "uniform").pvalue > 1e-3
    np.testing.assert_allclose(norm(lp_noise(100, (d,), .3, p, surface=True)[:, 0], p), .3, rtol=1e-9)

@pytest.mark.parametrize("p", [.5, 1, 1.5, 2, 3, 10])
def test_as_by_rejection(p):
    "Points of the box that fall into the ball, coordinate by coordinate and in their directions."
    box = np.random.default_rng(3).uniform(-1, 1, (150_000, 3))
    kept, drawn = box[norm(box, p) <= 1][:5000], lp_noise(5000, (3,), 1, p, seed=3)[:, 0]
    for of in (lambda v: v[:, 0], lambda v: v[:, 2], lambda v: np.abs(v).max(1) / norm(v, 1), lambda v: v.sum(1)):
        assert ks_2samp(of(kept), of(drawn)).pvalue > 1e-3

def test_sphere_of_the_box_and_the_disc():
    angle = lambda v: (np.arctan2(v[:, 1], v[:, 0]) / (2 * np.pi)) % 1
    assert kstest(angle(lp_noise(5000, (2,), 1, 2, surface=True)[:, 0]), "uniform").pvalue > 1e-3
    faces = lp_noise(5000, (2,), 1, inf, surface=True)[:, 0]
    assert kstest((faces[np.abs(faces) < 1] + 1) / 2, "uniform").pvalue > 1e-3

@pytest.mark.parametrize("value, eps", [(0, .2), (.1, .2), (.5, .1), (.95, .3), (1, 1)])
def test_truncated_is_uniform_within_range(value, eps):
    noisy = add_noise(np.full((1, 4000), float(value)), eps, bounds="truncate").ravel()
    low, high = max(value - eps, 0), min(value + eps, 1)
    assert kstest(noisy, "uniform", (low, high - low)).pvalue > 1e-3

def test_replaced_values():
    x = np.full((50, 400), .5)
    out = replace_values(x, .25, seed=4)
    assert ((out != x).sum(1) == 100).all() and kstest(out[out != x], "uniform").pvalue > 1e-3
    assert .45 < (replace_values(x, .5, "extremes") == 1).sum() / 10_000 < .55
    assert np.array_equal(replace_values(x, 0), x) and (replace_values(x, 1) != x).all()

# ---- each image's own numbers ----

@pytest.mark.parametrize("p", NORMS)
def test_batches_do_not_matter(p):
    x = np.random.default_rng(0).random((11, 3, 4, 4)).astype(np.float32)
    whole, rows = augment(x, .1, k=3, p=p, seed=6)
    parts = [augment(x[a:b], .1, k=3, p=p, seed=6, start=a)[0] for a, b in ((0, 1), (1, 8), (8, 11))]
    assert np.concatenate(parts).tobytes() == whole.tobytes() and whole.dtype == np.float32
    assert np.array_equal(rows, np.repeat(np.arange(11), 3))

def test_seeds_and_copies_differ():
    for p in NORMS:
        assert len(np.unique(np.concatenate([lp_noise(11, (48,), 1, p, k=3, seed=seed).reshape(-1, 48).sum(1) for seed in (6, 7)]))) == 66

def test_global_state_is_left_alone():
    np.random.seed(1)
    before = np.random.get_state()[1].tobytes()
    x = np.random.default_rng(0).random((5, 2))
    for sampling in "shared", "independent": augment(x, .1, seed=3, sampling=sampling)
    assert np.random.get_state()[1].tobytes() == before

def test_draws_are_one_stream():
    assert np.array_equal(Draws(9, key=(1,)).uniform(5)[4:], Draws(5, start=4, key=(1,)).uniform(5))
    assert not np.array_equal(Draws(9, key=(1,)).uniform(5), Draws(9, key=(2,)).uniform(5))

# ---- the paper ----

def test_shared_is_the_authors_recipe_point_by_point():
    x = np.random.default_rng(0).random((40, 2))
    for p, eps in (inf, .01), (2, .02):
        points, source = [], []
        for i, point in enumerate(x):
            for q in np.random.RandomState(5).uniform(point - eps, point + eps, (10, 2)):
                if p == inf or np.linalg.norm(q - point) < eps: points.append(q); source.append(i)
        noisy, rows = augment(x, eps, 10, p, 5, sampling="shared")
        assert noisy.tobytes() == np.array(points).tobytes() and rows.tolist() == source

DIGESTS = [
    (inf, 0, "test", 9350, "c5b4ccb89eca121a3a81e4a803f35b5adc8e4ee853ff0d0e2af82dbd63d471f7"),
    (inf, 0, "train", 37390, "998f8d552c1f64662915fd67cf97a0c736413acbe2548cc65f0850ac70416d23"),
    (inf, 1, "test", 9350, "be993471355c3dbdc6773a9f9cea0ce2f113d548f64926a6f55e39ecee207e12"),
    (inf, 1, "train", 37390, "dbc36889c75345ce444ec9c5026aa4d196cffee750da8800efbbaf72c15ce8af"),
    (inf, 2, "test", 9350, "9881e31bec214202f42573acc30a330d3447d2810aede47fb039ab919f0f29c1"),
    (inf, 2, "train", 37390, "c45b1a8e9e634e087d34589e2a22fc917cef658d88993d366ff37df2b514ac78"),
    (2, 0, "test", 7480, "70fd112c40eb1100cc9fd762833c825893b6c09679aaf1dc6e0f59cb5cdaba0d"),
    (2, 1, "test", 6545, "93faeb712e58b56e38cd3e578d9d7cddf96bac8d3d6ff7dfd642631076f7afa5"),
    (2, 2, "test", 8415, "29de7b591c3f37f9d6f84b668957f42bdb7d84566bc24716b8807d077e22884e"),
]
@needs_data
@pytest.mark.parametrize("p, seed, part, rows, digest", DIGESTS)
def test_the_authors_noise_bit_for_bit(p, seed, part, rows, digest):
    from sklearn.model_selection import train_test_split
    with np.load(Path(DATA, "mscr2d", "B_sep.npz")) as data: train, test = train_test_split(data["x"], test_size=.2, random_state=seed)
    eps = 0.004012795259015489 if p == inf else 0.004235183838840003
    noisy, _ = augment(test if part == "test" else train, eps, 10, p, seed, sampling="shared")
    assert noisy.shape == (rows, 2) and hashlib.sha256(np.ascontiguousarray(noisy).tobytes()).hexdigest() == digest

# ---- bad input ----

x = np.full((3, 4), .5)
@pytest.mark.parametrize("call, error, message", [
    (lambda: augment(x, -.1), ValueError, "eps must be at least 0"),
    (lambda: augment(x, np.nan), ValueError, "eps must be at least 0"),
    (lambda: augment(x, .1, p=0), ValueError, "p must be greater than 0"),
    (lambda: augment(x, .1, p=-2), ValueError, "p must be greater than 0"),
    (lambda: augment(x, .1, p=np.nan), ValueError, "p must be greater than 0"),
    (lambda: augment(x, .1, k=0), ValueError, "must be at least 1"),
    (lambda: augment(x, .1, k=0, sampling="shared"), ValueError, "k must be at least 1"),
    (lambda: augment(x[:0], .1), ValueError, r"not \(0, 4\)"),
    (lambda: augment(x * np.nan, .1), ValueError, "x must be finite"),
    (lambda: augment((255 * x).astype(np.uint8), .1), TypeError, "divide 0-255 integers by 255"),
    (lambda: augment(x, .1, sampling="sharde"), ValueError, "did you mean shared"),
    (lambda: augment(x, .1, p=3, sampling="shared"), ValueError, "p = 2 and p = inf"),
    (lambda: augment(x, .1, sampling="shared", bounds="clip"), ValueError, "shared noise takes no bounds"),
    (lambda: add_noise(x, .1, bounds="clipped"), ValueError, "did you mean clip"),
    (lambda: add_noise(x + 1, .1, bounds="clip"), ValueError, "range"),
    (lambda: add_noise(x, .1, p=2, bounds="truncate"), ValueError, "needs the box"),
    (lambda: replace_values(x, 1.1), ValueError, "fraction must lie in"),
    (lambda: replace_values(x, -.1), ValueError, "fraction must lie in"),
])
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message): call()

@pytest.mark.parametrize("argument, value", [("seed", 2.5), ("seed", "0"), ("seed", None), ("start", -1), ("start", 1.5)])
def test_seeds_and_starts_are_whole_numbers(argument, value):
    for call in (lambda **bad: lp_noise(2, (3,), 1, **bad)), (lambda **bad: replace_values(np.zeros((2, 3)), .5, **bad)):
        with pytest.raises(ValueError, match=f"{argument} must be a whole number") as caught: call(**{argument: value})
        assert repr(value) in str(caught.value)
