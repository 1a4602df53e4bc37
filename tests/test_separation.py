"Separation against brute force, the figures of Siedel et al. (2022) and bad input. Real data come from $ROBUSTNESS_NB_DATA."
import csv, io, os, subprocess, sys, warnings
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.spatial.distance import cdist
from robustness_nb.separation import class_separation, nearest_opposite

DATA = os.environ.get("ROBUSTNESS_NB_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="needs ROBUSTNESS_NB_DATA, a folder with mscr2d and cifar10")
METRICS = {1: "cityblock", 2: "euclidean", np.inf: "chebyshev"}

def brute(x, y, p, other=None):
    x2, y2 = other or (x, y)
    a, b = (np.asarray(v, float).reshape(len(v), -1) for v in (x, x2))
    distances = cdist(a, b, METRICS[p]) if p in METRICS else cdist(a, b, "minkowski", p=p)
    return np.where(np.asarray(y)[:, None] != np.asarray(y2), distances, np.inf)

@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 12, 100, np.inf])
@pytest.mark.parametrize("kind", ["bytes", "floats", "float32", "plane", "far from zero"])
def test_as_brute_force(kind, p):
    rng = np.random.default_rng(5)
    d = 2 if kind == "plane" else 75
    x = rng.integers(0, 256, (300, d), np.uint8) if kind == "bytes" else rng.normal(size=(300, d)) + 1e4 * (kind == "far from zero")
    if kind == "float32": x = x.astype(np.float32)
    y, unit = rng.integers(0, 3, 300), 255 if kind == "bytes" else 1
    for half in (None, (x[100:], y[100:])):
        part, labels = (x, y) if half is None else (x[:100], y[:100])
        expected = brute(part, labels, p, half) / unit
        nearest, smallest = nearest_opposite(part, labels, p, half), class_separation(part, labels, p, half)
        np.testing.assert_allclose(nearest.distance, expected.min(1), rtol=1e-10)
        assert smallest.distance == pytest.approx(expected.min(), rel=1e-10) and smallest.r == smallest.distance / 2
        assert expected[smallest.pair] == pytest.approx(expected.min(), rel=1e-10) and smallest.classes[0] != smallest.classes[1]
        np.testing.assert_allclose(expected[np.arange(len(part)), nearest.row], expected.min(1), rtol=1e-10)

def test_bytes_and_their_quotients_agree():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 256, (200, 3, 6, 6), np.uint8), rng.integers(0, 2, 200)
    for p in METRICS:
        expected = class_separation(x, y, p)
        for floats in x / 255, (x / np.float32(255)).astype(np.float32): assert class_separation(floats, y, p) == expected
    assert (class_separation(x, y).distance * 255).is_integer()

@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_extremes_do_not_overflow(p):
    x = np.zeros((2, 3072), np.uint8)
    x[1] = 255
    assert class_separation(x, [0, 1], p).distance == pytest.approx(3072 ** (1/p) if p < np.inf else 1)

def points_of(kind, n, shape, rng): # drawn apart, in clusters, far from zero, or on a coarse grid with many ties
    x = rng.random((n, *shape))
    if kind == "clusters": return .001 * x + rng.random((4, *shape))[rng.integers(0, 4, n)]
    if kind == "far": return x + 1e3
    if kind == "grid": return np.floor(4 * x) / 4
    if kind == "bytes": return (255.99 * x).astype(np.uint8)
    if kind == "byte grid": return (255.99 * x).astype(np.uint8) // 100 * 100
    return x

SHAPES = st.one_of(st.tuples(st.integers(1, 40)), st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 4)), st.just((3, 16, 16)))

@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["floats", "clusters", "far", "grid", "bytes", "byte grid"]), SHAPES, st.integers(2, 200), st.integers(0, 150),
       st.integers(2, 4), st.sampled_from([1, 1.5, 2, 3, np.inf]), st.sampled_from([np.float32, np.float64]))
def test_any_problem_as_brute_force(seed, kind, shape, n, n2, classes, p, dtype):
    rng = np.random.default_rng(seed)
    every = points_of(kind, n + n2, shape, rng)
    if every.dtype != np.uint8: every = every.astype(dtype)
    labels = rng.integers(0, classes, n + n2)
    labels[:2] = 0, 1
    x, y, other = every[:n], labels[:n], (every[n:], labels[n:]) if n2 else None
    exact = p in METRICS and kind in ("grid", "bytes", "byte grid")
    unit = 255 if x.dtype == np.uint8 else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore") # equal points
        found = class_separation(x, y, p, other)
    expected = brute(x, y, p, other)
    closest = dict(rel=1e-9, abs=1e-11 * float(x.max()))
    assert found.distance * unit == pytest.approx(expected.min(), **closest) and expected[found.pair] == pytest.approx(expected.min(), **closest)
    if exact: assert found.pair == np.unravel_index(expected.argmin(), expected.shape)
    some = np.isfinite(expected).any(1)
    nearest, expected = nearest_opposite(x[some], y[some], p, other), expected[some]
    np.testing.assert_allclose(nearest.distance * unit, expected.min(1), rtol=closest["rel"], atol=closest["abs"])
    np.testing.assert_allclose(expected[np.arange(len(expected)), nearest.row], expected.min(1), rtol=closest["rel"], atol=closest["abs"])
    if exact: np.testing.assert_array_equal(nearest.row, expected.argmin(1))

def test_constant_columns_and_ties():
    x = np.ones((4, 20))
    x[2:, 3] = 2
    for p in METRICS: assert class_separation(x, [0, 0, 1, 1], p)[2:4] == ((0, 2), (0, 1))

def test_same_answer_whatever_the_threads():
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 8, (600, 30), np.uint8), rng.integers(0, 2, 600)
    assert len({class_separation(x, y, p=1) for _ in range(5)}) == 1

def test_one_thread(monkeypatch):
    x, y = np.random.default_rng(2).random((600, 30)), np.arange(600) % 2
    expected = class_separation(x, y), nearest_opposite(x, y).row.tolist()
    for count in 1, None:
        monkeypatch.setattr(os, "cpu_count", lambda: count)  # noqa: B023
        assert (class_separation(x, y), nearest_opposite(x, y).row.tolist()) == expected

@pytest.mark.parametrize("kind", ["images", "floats"])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 12, np.inf])
def test_large_points_and_many_tiles(kind, p):
    "More values than a piece of 512 and more numbers than one level; near-copies, so that bounds are put to the test."
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (8, 3, 18, 18))[rng.integers(0, 8, 250)] + rng.integers(-9, 10, (250, 3, 18, 18))
    x = np.clip(x, 0, 255).astype(np.uint8) if kind == "images" else 1e-3 * x.astype(np.float32) - 7
    y, unit = rng.integers(0, 3, 250), 255 if kind == "images" else 1
    expected = brute(x, y, p) / unit
    np.testing.assert_allclose(nearest_opposite(x, y, p).distance, expected.min(1), rtol=1e-9)
    assert class_separation(x, y, p).distance == pytest.approx(expected.min(), rel=1e-9)

@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e30, 1e140])
def test_any_unit(scale):
    x, y = np.random.default_rng(2).random((100, 5)), np.arange(100) % 2
    for p in METRICS:
        if scale < 1e-150 and p == 2: continue # squares would underflow
        assert class_separation(x * scale, y, p).pair == class_separation(x, y, p).pair

def test_float32_near_its_limits():
    x = np.array([[-3e38, 0], [3e38, 0], [3e38, 1e38], [-3e38, 2e38]], np.float32)
    assert class_separation(x, [0, 1, 0, 1]).pair == (1, 2)

def test_memory_layouts():
    x, y = np.random.default_rng(2).random((200, 3, 8, 8)), np.arange(200) % 3
    frozen = x.copy()
    frozen.flags.writeable = False
    for same in np.asfortranarray(x), np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1), frozen, x.astype(">f8"):
        assert class_separation(same, y, 2) == class_separation(x, y, 2)

@pytest.mark.parametrize("d", [2, 40])
def test_equal_points_warn(d):
    x = np.random.default_rng(0).random((50, d))
    x[30] = x[7]
    y = np.arange(50) % 2
    y[[7, 30]] = 0, 1
    with pytest.warns(UserWarning, match=r"x\[7\] and x\[30\] are equal, but their classes are 0 and 1"): found = class_separation(x, y)
    assert found.r == 0 and found.pair == (7, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        class_separation(x, np.where(np.arange(50) == 30, 0, y))

good, labels = np.random.default_rng(0).random((6, 5)), [0, 1, 0, 1, 0, 1]
@pytest.mark.parametrize("arguments, error, message", [
    ((good, [3] * 6), ValueError, "at least two classes, but every label is 3"),
    ((good[:1], [0]), ValueError, "at least 2 points, not 1"),
    ((good[:0], []), ValueError, r"not \(0, 5\)"),
    ((np.where(good == good[2, 2], np.nan, good), labels), ValueError, "x must be finite"),
    ((np.where(good == good[2, 2], -np.inf, good), labels), ValueError, "x must be finite"),
    ((good, labels, .99), ValueError, "p must be at least 1"),
    ((good, labels, np.nan), ValueError, "p must be at least 1"),
    ((good, labels[:5]), ValueError, r"y must have shape \(6,\)"),
    ((good, np.zeros((6, 2))), ValueError, r"y must have shape \(6,\)"),
    ((good.astype(str), labels), TypeError, "x must hold numbers"),
    ((good, labels, 2, (good[:, :4], labels)), ValueError, "x has 5 values a point, but other"),
    ((good, labels, 2, (good.astype(np.uint8), labels)), TypeError, "both be bytes"),
    ((good, labels, 2, (good * np.nan, labels)), ValueError, r"other\[0\] must be finite"),
])
def test_bad_input(arguments, error, message):
    for function in class_separation, nearest_opposite:
        with pytest.raises(error, match=message): function(*arguments)

def test_a_point_without_an_opposite():
    with pytest.warns(UserWarning, match="are equal, but their classes are 1 and 0"):
        assert class_separation(good, labels, other=(good, [0] * 6)).classes == (1, 0)
    with pytest.raises(ValueError, match="those of class 0 have none"): nearest_opposite(good, labels, other=(good, [0] * 6))

def test_quick_to_import():
    code = "import sys, robustness_nb.separation; assert not {'numba', 'scipy', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)

# ---- the paper's data ----

@needs_data
@pytest.mark.parametrize("name, p, r", [
    ("A", 1, 0.006210110965184812), ("A", 2, 0.004829776862910422), ("A", np.inf, 0.004392113653011481),
    ("B", 1, 0.005367142466342456), ("B", 2, 0.004235183838840003), ("B", np.inf, 0.004012795259015489),
    ("C", 1, 0.002299690000000021), ("C", 2, 0.0021717275446576996), ("C", np.inf, 0.0020303400000000194),
])
def test_two_d(name, p, r):
    with np.load(Path(DATA, "mscr2d", f"{name}_sep.npz")) as data: x, y = data["x"], data["y"]
    assert abs(class_separation(x, y, p).r - r) < 1e-15
    assert nearest_opposite(x, y, p).distance.min() == class_separation(x, y, p).distance

@pytest.fixture(scope="module")
def cifar10():
    parquet, image = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("PIL.Image")
    def read(split):
        table = parquet.read_table(Path(DATA, "cifar10", f"{split}.parquet"))
        return np.stack([np.asarray(image.open(io.BytesIO(row["bytes"]))) for row in table["img"].to_pylist()]), table["label"].to_numpy()
    return read("train"), read("test")

@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("p, r", [(np.inf, 27 / 255), (2, 1.3753207), (1, 32.93333)])
def test_cifar10(cifar10, p, r):
    found = class_separation(*cifar10[0], p)
    assert found.r == pytest.approx(r, abs=0 if p == np.inf else 1e-5)
    if p == np.inf: assert found.pair == (33862, 38299)

@needs_data
@pytest.mark.slow
def test_cifar10_nearest(cifar10):
    "All 109 bins of the published histogram, and the test set's smallest distances."
    train, test = cifar10
    values, counts = np.unique(np.rint(nearest_opposite(*train).distance * 255).astype(int), return_counts=True)
    with open(Path(__file__).parent / "data" / "mscr_cifar10_separation.csv") as lines:
        published = {int(row["value_in_255ths"]): int(row["count"]) for row in csv.DictReader(lines)}
    assert dict(zip(values.tolist(), counts.tolist())) == published and len(published) == 109
    assert class_separation(*test, other=train).distance == 56 / 255
    found = class_separation(*test)
    assert found.distance == 69 / 255 and set(found.pair) <= {1345, 5244, 6778}
