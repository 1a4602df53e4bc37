"ImageNet-C, CIFAR-10-C, VISAT: contracts on every size, constants, definitions computed another way, and agreement with imagecorruptions and corrupt-tta."
import csv
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import ROOT
from scipy import ndimage, stats
from sklearn.datasets import load_sample_image

from robustness_nb import corruptions
from robustness_nb.corruptions import corrupt, ladder_sources, names, parameters, registry

sys.path.insert(0, str(ROOT / "benchmarks"))
import corruption_peers  # noqa: E402

STANDARD = "imagenet-c", "cifar-10-c"
FIFTEEN = ("gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost fog brightness contrast "
           "elastic_transform pixelate jpeg_compression").split()
EXTRA = "speckle_noise gaussian_blur spatter saturate".split()
RANDOM = set("gaussian_noise shot_noise impulse_noise speckle_noise glass_blur motion_blur snow frost fog spatter elastic_transform".split())
SEVERITIES = 1, 2, 3, 4, 5
SHAPES = (2, 1, 8, 8), (2, 1, 28, 28), (3, 3, 32, 32), (1, 3, 224, 224), (2, 5, 9, 33)
PHOTOGRAPHS = find_spec("corrupt_tta") or find_spec("imagecorruptions")


def standard(ladder="imagenet-c", extra=True):
    "Names, those that need photographs with a reason to skip."
    skip = pytest.mark.skipif(not PHOTOGRAPHS, reason="the photographs of frost are not installed (extra `frost`)")
    return [pytest.param(name, marks=skip) if name == "frost" else name for name in names(ladder, extra)]


def picture(n=1, channels=3, height=32, width=32, seed=0):
    "Random images in [0, 1], smooth but for a little noise."
    noise = np.random.default_rng(seed).random((n, channels, height, width))
    return np.clip(ndimage.gaussian_filter(noise, 2, axes=(2, 3)) * 3 - 1, 0, 1).astype(np.float32)


@pytest.fixture(scope="module")
def photo():
    "A photograph of 224 x 224 pixels, (1, 3, 224, 224)."
    return (load_sample_image("flower.jpg")[70:294, 180:404].transpose(2, 0, 1)[None] / 255).astype(np.float32)


# --- registry and constants


def test_both_ladders_have_fifteen_and_four():
    for ladder in STANDARD:
        assert set(names(ladder)) == {*FIFTEEN, *EXTRA} and set(names(ladder, extra=False)) == set(FIFTEEN)
    assert set(names("visat")) == {*FIFTEEN, *EXTRA} - {"jpeg_compression"}


@pytest.mark.parametrize("name, ladder, severity, steps", [  # as printed in the generators of hendrycks/robustness
    ("gaussian_noise", "imagenet-c", 5, dict(sd=.38)), ("gaussian_noise", "cifar-10-c", 5, dict(sd=.1)), ("shot_noise", "cifar-10-c", 1, dict(photons=500)),
    ("glass_blur", "imagenet-c", 4, dict(sigma=1.1, max_delta=3, iterations=2)), ("motion_blur", "cifar-10-c", 5, dict(radius=9, sigma=2.5)),
    ("snow", "imagenet-c", 4, dict(mean=.55, sd=.3, zoom=4.5, threshold=.85, blur_radius=12, blur_sigma=8, blend=.65)), ("fog", "cifar-10-c", 3, dict(amplitude=.75, decay=2.5)),
    ("saturate", "imagenet-c", 5, dict(multiply=20, add=.2)), ("jpeg_compression", "cifar-10-c", 2, dict(quality=65)),
    ("elastic_transform", "imagenet-c", 1, dict(alpha_fraction=2, sigma_fraction=.7, affine_fraction=.1, size_multiplier=244))])
def test_constants(name, ladder, severity, steps): assert parameters(name, severity, ladder) == steps


def test_every_entry_says_where_it_comes_from():
    assert all(registry[name].source for name in {*FIFTEEN, *EXTRA, "colour_quantise", "linf_noise", "l2_noise"})
    assert all(registry[name].family in corruptions.families for name in registry)
    assert ladder_sources().keys() == set(corruptions.ladders()) and all(about["source"] for about in ladder_sources().values())


def test_a_ladder_fits_another_size():
    for name, parameter, ratio in ("gaussian_blur", "sigma", .25), ("motion_blur", "radius", .25), ("elastic_transform", "size_multiplier", .25), ("pixelate", "scale", 4), ("gaussian_noise", "sd", 1):
        plain, small = parameters(name, 3, "imagenet-c"), parameters(name, 3, "imagenet-c", size=56)
        assert small[parameter] == pytest.approx(ratio * plain[parameter])
    images = picture(1, 3, 56, 56)
    blurred = ndimage.gaussian_filter(images, .75, axes=(2, 3), mode="nearest")
    assert np.allclose(corrupt(images, "gaussian_blur", 3, ladder="imagenet-c", rescale=True), blurred, atol=1e-5)


# --- contracts


@pytest.mark.parametrize("ladder", STANDARD)
@pytest.mark.parametrize("name", standard())
def test_every_size_and_channel_count(name, ladder):
    for shape in SHAPES:
        images = picture(*shape)
        before, result = images.copy(), corrupt(images, name, 5, ladder=ladder)
        assert result.shape == shape and result.dtype == np.float32 and np.array_equal(images, before)
        assert result.min() >= 0 and result.max() <= 1 and not np.array_equal(result, images) or name == "saturate" and shape[1] == 1


@pytest.mark.parametrize("name", standard())
def test_the_batch_changes_nothing_and_the_seed_only_chance(name):
    images = picture(7, 3, 32, 32)
    whole = corrupt(images, name, 3, ladder="cifar-10-c", seed=4, start=10)
    assert np.array_equal(whole[5:], corrupt(images[5:], name, 3, ladder="cifar-10-c", seed=4, start=15))
    assert np.array_equal(whole[:1], corrupt(images[:1], name, 3, ladder="cifar-10-c", seed=4, start=10))
    assert np.array_equal(whole, corrupt(images, name, 3, ladder="cifar-10-c", seed=5, start=10)) == (name not in RANDOM)


@pytest.mark.parametrize("name", standard())
def test_blocks_of_threads_change_nothing(name):
    images = picture(4, 3, 224, 224)
    assert np.array_equal(corrupt(images, name, 2, ladder="imagenet-c")[3], corrupt(images[3:], name, 2, ladder="imagenet-c", start=3)[0])


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")
    for dtype in torch.float32, torch.float64:
        images = torch.from_numpy(picture(2)).to(dtype)
        result = corrupt(images, "motion_blur", 3, ladder="cifar-10-c")
        assert isinstance(result, torch.Tensor) and result.dtype == dtype and result.device == images.device
        assert np.array_equal(result.numpy(), corrupt(images.numpy(), "motion_blur", 3, ladder="cifar-10-c"))


# --- definitions, computed another way


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_is_that_of_scipy(severity, photo):
    sigma = parameters("gaussian_blur", severity, "imagenet-c")["sigma"]
    assert np.allclose(corrupt(photo, "gaussian_blur", severity, ladder="imagenet-c"), ndimage.gaussian_filter(photo, sigma, axes=(2, 3), mode="nearest"), atol=1e-5)


@pytest.mark.parametrize("factor", [1.06, 1.13, 1.3, 2., 4.5])
@pytest.mark.parametrize("size", [8, 32, 33, 224])
def test_enlarging_is_the_zoom_of_scipy(factor, size):
    line = np.random.default_rng(0).random(size)
    seen = int(np.ceil(size / factor))
    large = ndimage.zoom(line[(size - seen) // 2:][:seen], factor, order=1)
    assert np.allclose(corruptions._enlarge(size, factor)[0] @ line, large[(len(large) - size) // 2:][:size], atol=1e-5)


def test_saturate_follows_hsv():
    import colorsys
    images = picture(1, 3, 8, 8)
    def saturated(pixel):
        hue, saturation, value = colorsys.rgb_to_hsv(*map(float, pixel))
        return colorsys.hsv_to_rgb(hue, min(saturation * 5 + .1, 1), value)
    assert np.allclose(corrupt(images, "saturate", 4, ladder="imagenet-c")[0], np.apply_along_axis(saturated, 0, images[0]), atol=1e-5)


def test_speckle_and_uniform_noise_follow_their_laws():
    half = np.full((50, 1, 32, 32), .5, np.float32)
    noise = corrupt(half, "speckle_noise", 1, ladder="cifar-10-c") / .5 - 1
    assert stats.kstest(noise.ravel(), stats.norm(0, .06).cdf).pvalue > 1e-3
    box = corrupt(half, "linf_noise", 3, ladder="lp-noise") - .5
    assert stats.kstest(box.ravel(), stats.uniform(-.1, .2).cdf).pvalue > 1e-3
    length = np.sqrt(((corrupt(half, "l2_noise", 3, ladder="lp-noise") - .5)**2).sum((1, 2, 3)))
    assert length.max() <= 2 + 1e-4 and stats.kstest((length / 2)**1024, stats.uniform.cdf).pvalue > 1e-3


def test_jpeg_is_what_pillow_writes(photo):
    from io import BytesIO
    from PIL import Image
    Image.fromarray(np.rint(255 * photo[0]).astype(np.uint8).transpose(1, 2, 0)).save(file := BytesIO(), "JPEG", quality=10)
    expected = np.asarray(Image.open(file)).transpose(2, 0, 1) / 255
    assert np.allclose(corrupt(photo, "jpeg_compression", 4, ladder="imagenet-c")[0], expected, atol=1e-6)


def test_colour_quantise_recolours_one_group():
    sign = np.full((8, 3, 32, 32), .9, np.float32)
    sign[:, :, 4:28, 4:28] = np.array([.8, .1, .2])[:, None, None]
    result = corrupt(sign, "colour_quantise", 1, ladder="visat-colour")
    assert np.array_equal(result[:, :, :4], sign[:, :, :4])  # the white border stays
    inside = {tuple(np.round(image[:, 10, 10].astype(float), 3).tolist()) for image in result}
    assert inside == {(.1, .8, .2), (.2, .1, .8)}
    grey = np.full((8, 3, 16, 16), .5, np.float32)
    assert {tuple(sorted(image[:, 3, 3].tolist())) for image in corrupt(grey, "colour_quantise", 1, ladder="visat-colour")} == {(0., 0., .5)}


# --- agreement with the peers: where chance plays no part, pixel by pixel; elsewhere in mean and spread


PEERS = corruption_peers.installed()
EXACT = dict(gaussian_blur=.003, defocus_blur=.007, zoom_blur=.004, contrast=.003, brightness=.004, saturate=.004, jpeg_compression=.004, pixelate=.009)  # mean |difference|; a step of a byte is .004. Of defocus_blur and pixelate the guide says why
FREE = {("corrupt_tta", "motion_blur"), ("corrupt_tta", "glass_blur"), ("corrupt_tta", "snow"), ("corrupt_tta", "spatter"), ("corrupt_tta", "fog"), ("imagecorruptions", "elastic_transform"),
        ("imagecorruptions", "zoom_blur")}  # defined otherwise there: see the guide

def pairs(of):
    found = [(peer, name) for name in of for peer in ("imagecorruptions", "corrupt_tta") if (peer, name) not in FREE]
    return [pytest.param(*pair, marks=pytest.mark.skipif(pair[0] not in PEERS, reason=f"{pair[0]} is not installed (extra `bench`)")) for pair in found]


@pytest.mark.parametrize("peer, name", pairs(EXACT))
def test_agreement_pixel_by_pixel(peer, name, photo):
    image = np.rint(255 * photo[0]).astype(np.uint8)
    for severity in SEVERITIES:
        theirs = np.asarray(PEERS[peer](name, image.transpose(1, 2, 0), severity), float).transpose(2, 0, 1) / 255
        ours = corrupt((image / np.float32(255))[None], name, severity, ladder="imagenet-c")[0]
        assert np.abs(ours - theirs).mean() < EXACT[name], severity


@pytest.mark.parametrize("peer, name", pairs(sorted(RANDOM - {"frost"}) + ["frost"] * bool(PHOTOGRAPHS)))
def test_agreement_in_distribution(peer, name, photo):
    "Mean, spread and fine structure (differences of neighbours), over some draws of each."
    image = np.rint(255 * photo[0]).astype(np.uint8)
    def marks(images): return np.array([(i.mean(), i.std(), np.abs(np.diff(i, axis=-1)).mean()) for i in images])
    np.random.seed(0)
    many = name in ("fog", "frost", "snow", "elastic_transform", "motion_blur")
    for severity in (1, 3, 5):
        theirs = marks([np.asarray(PEERS[peer](name, image.transpose(1, 2, 0), severity), float).transpose(2, 0, 1) / 255 for _ in range(12 if many else 2)])
        ours = marks(corrupt(np.repeat((image / np.float32(255))[None], 24 if many else 4, axis=0), name, severity, ladder="imagenet-c"))
        chance = 4 * np.sqrt(theirs.var(0) / len(theirs) + ours.var(0) / len(ours))
        assert (np.abs(ours.mean(0) - theirs.mean(0)) < .004 + chance).all(), (severity, ours.mean(0), theirs.mean(0), chance)


# --- bad input


def test_a_colour_corruption_wants_colour():
    with pytest.raises(ValueError, match="colour_quantise needs images of three channels.*not 1"): corrupt(picture(2, 1), "colour_quantise", 1, ladder="visat-colour")


def test_a_ladder_that_lacks_a_corruption():
    with pytest.raises(ValueError, match="'cifar-10-c' has no step for 'rotate'.*digits"): corrupt(picture(), "rotate", 1, ladder="cifar-10-c")


def test_frost_without_photographs(monkeypatch):
    corruptions._photograph_folder.cache_clear()
    monkeypatch.setattr(corruptions, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"robustness_nb\[frost\]"): corrupt(picture(), "frost", 1, ladder="imagenet-c")
    corruptions._photograph_folder.cache_clear()


def test_own_corruptions_from_a_file(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("from robustness_nb.corruptions import corruption\n\n@corruption('digital', by=[.1, .2, .3, .4, .5])\ndef darker(images, draws, by):\n    'Darker.'\n    return images * (1 - by)\n")
    for path, there in (str(file), True), (str(tmp_path / "none.py"), False):
        monkeypatch.setenv("ROBUSTNESS_NB_CORRUPTIONS", path)
        corruptions._load_own.cache_clear()
        if there: assert "darker" in names() and np.allclose(corrupt(picture(), "darker", 5), picture() / 2)
        else:
            with pytest.raises(FileNotFoundError, match="ROBUSTNESS_NB_CORRUPTIONS.*none.py"): names()
    monkeypatch.delenv("ROBUSTNESS_NB_CORRUPTIONS")
    corruptions._load_own.cache_clear()
    registry.pop("darker")


def test_the_csv_holds_every_constant_once():
    with open(ROOT / "robustness_nb/data/ladders.csv", encoding="utf-8") as lines: rows = list(csv.DictReader(lines))
    keys = [(r["ladder"], r["corruption"], r["severity"], r["parameter"]) for r in rows]
    assert len(keys) == len(set(keys))
    assert sum(r["ladder"] in STANDARD for r in rows) == 420 + 10  # 420 published ones, and the step of frost's photographs
