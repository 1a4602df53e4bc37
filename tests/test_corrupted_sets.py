"Stored benchmarks: what is written is read, streaming changes no byte, damaged and missing files are named."
from functools import partial

import numpy as np
import pytest

from robustness_nb import corrupted_sets
from robustness_nb.corruptions import corrupt
from robustness_nb.datasets import Dataset
from robustness_nb.evaluation import corruption_report
from robustness_nb.corrupted_sets import read_cifar_c, read_imagenet_c, stored_report, write_cifar_c, write_imagenet_c


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return Dataset("squares", rng.integers(0, 256, (20, 3, 16, 16), np.uint8), np.arange(20) % 4, ("a", "b", "c", "d"))


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_the_layout_is_that_of_cifar_10_c(data, tmp_path, batch_size):
    write_cifar_c(data, tmp_path, ["fog", "gaussian_noise"], batch_size=batch_size, seed=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fog.npy", "gaussian_noise.npy", "labels.npy"]
    images, labels = np.load(tmp_path / "gaussian_noise.npy"), np.load(tmp_path / "labels.npy")
    assert images.shape == (100, 16, 16, 3) and images.dtype == np.uint8 and np.array_equal(labels, np.tile(data.y, 5))
    for severity in 1, 5:
        expected = np.rint(255 * corrupt(data.floats(), "gaussian_noise", severity, seed=3, ladder="cifar-10-c"))
        read = read_cifar_c(tmp_path, "gaussian_noise", severity, data.classes)
        assert np.abs(read.x - expected).max() <= 1 and (read.x != expected).mean() < .001 and np.array_equal(read.y, data.y)


def test_a_tree_of_png_files_keeps_every_byte(data, tmp_path):
    [place] = write_imagenet_c(data, tmp_path, ["contrast"], severities=[2], ladder="cifar-10-c", quality=None, batch_size=3)
    assert place == tmp_path / "contrast" / "2" and sorted(p.name for p in place.iterdir()) == list("abcd") and not list(place.rglob("*.part"))
    read, order = read_imagenet_c(tmp_path, "contrast", 2), np.argsort(data.y, kind="stable")
    expected = np.rint(255 * corrupt(data.floats(), "contrast", 2, ladder="cifar-10-c"))[order]
    assert np.array_equal(read.y, data.y[order]) and read.classes == data.classes and (np.abs(read.x - expected) <= 1).all()
    assert np.array_equal(read_imagenet_c(tmp_path, "contrast", 2, slice(5, 9)).x, read.x[5:9])


def test_jpeg_files_are_near(data, tmp_path):
    slopes = np.linspace(0, 255, 16)[None, None, :, None] * np.linspace(.2, 1, 20)[:, None, None, None]
    smooth = Dataset("slopes", np.broadcast_to(slopes, (20, 3, 16, 16)).astype(np.uint8), data.y, data.classes)
    write_imagenet_c(smooth, tmp_path, ["gaussian_blur"], severities=[5], ladder="imagenet-c", rescale=True)
    read, order = read_imagenet_c(tmp_path, "gaussian_blur", 5), np.argsort(smooth.y, kind="stable")
    expected = corrupt(smooth.floats(), "gaussian_blur", 5, ladder="imagenet-c", rescale=True)[order]
    assert 0 < np.abs(read.floats() - expected).mean() < .01


def test_a_report_from_files_is_that_from_memory(data, tmp_path):
    def brightest(images): return images.mean((2, 3)) @ np.eye(3, 4)
    write_cifar_c(data, tmp_path, ["brightness", "snow"])
    whole = stored_report({"m": brightest}, data, partial(read_cifar_c, tmp_path), ["brightness", "snow"], batch_size=7)
    other = corruption_report({"m": brightest}, data, corruptions=["brightness", "snow"], ladder="cifar-10-c")
    assert np.array_equal(whole.clean, other.clean) and (whole.correct == other.correct).mean() > .95
    assert whole.errors()["m"].keys() == other.errors()["m"].keys()


@pytest.mark.parametrize("damage", [b"", b"<html>quota exceeded</html>", "short", "floats", "six", "objects"])
def test_damaged_arrays_are_named(data, tmp_path, damage):
    write_cifar_c(data, tmp_path, ["contrast"])
    path = tmp_path / "contrast.npy"
    if isinstance(damage, bytes): path.write_bytes(damage)
    elif damage == "short": path.write_bytes(path.read_bytes()[:-1000])
    else: np.save(path, dict(floats=np.zeros((100, 16, 16, 3)), six=np.zeros((96, 16, 16, 3), np.uint8), objects=np.array([{}], object))[damage])
    with pytest.raises(ValueError, match="contrast.npy is damaged"): read_cifar_c(tmp_path, "contrast", 3)


def test_labels_that_do_not_fit(data, tmp_path):
    write_cifar_c(data, tmp_path, ["contrast"])
    np.save(tmp_path / "labels.npy", np.zeros(99, np.int64))
    with pytest.raises(ValueError, match="labels.npy is damaged"): read_cifar_c(tmp_path, "contrast", 3)


def test_what_is_not_there_is_named(data, tmp_path):
    write_cifar_c(data, tmp_path, ["contrast"])
    with pytest.raises(FileNotFoundError, match="fog.npy.*has contrast"): read_cifar_c(tmp_path, "fog", 1)
    with pytest.raises(FileNotFoundError, match="no folder"): read_imagenet_c(tmp_path, "fog", 1)
    with pytest.raises(ValueError, match="1 to 5, not 6"): read_cifar_c(tmp_path, "contrast", 6)
    with pytest.raises(ValueError, match="did you mean"): write_cifar_c(data, tmp_path, ["contrats"])
    with pytest.raises(ValueError, match="not those of squares"): stored_report({"m": lambda images: np.eye(4)[np.zeros(len(images), int)]}, data[::-1], partial(read_cifar_c, tmp_path), ["contrast"])


def test_an_interrupted_write_leaves_nothing_half_done(data, tmp_path, monkeypatch):
    calls = iter(range(100))
    def broken(*arguments, **options):
        if next(calls) == 3: raise RuntimeError("power cut")
        return corrupt(*arguments, **options)
    monkeypatch.setattr(corrupted_sets, "corrupt", broken)
    with pytest.raises(RuntimeError): write_cifar_c(data, tmp_path, ["contrast"])
    assert [path.name for path in tmp_path.iterdir()] == ["labels.npy"]
