"""Datasets and models: the contract of a `Dataset`, the split of the paper, adapters, and bad input."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from robustness_nb import datasets, models
from robustness_nb.datasets import Dataset, check_name, split
from robustness_nb.models import Classifier, adapt, fit

X, Y = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 1, 8, 8), np.array([0, 1, 1, 0])
PAIR = Dataset("pair", X, Y, ("no", "yes"))


# --- datasets


def test_digits_keep_the_contract():
    data = datasets.load("digits")
    assert data.x.shape == (1797, 1, 8, 8) and data.x.dtype == np.float32 and (data.x.min(), data.x.max()) == (0, 1)
    assert data.y.dtype == np.int64 and data.classes == tuple("0123456789")
    assert np.array_equal(data.x * 16, (data.x * 16).round())


@pytest.mark.parametrize("test_size, seed", [(1, 0), (500, 7), (1796, 3)])
def test_split_is_that_of_scikit_learn(test_size, seed):
    data = datasets.digits()
    train, test = split(data, test_size, seed)
    x_train, x_test, y_train, y_test = train_test_split(data.x, data.y, test_size=test_size, random_state=seed)
    for part, x, y in (train, x_train, y_train), (test, x_test, y_test):
        assert np.array_equal(part.x, x) and np.array_equal(part.y, y)


@pytest.mark.parametrize("name, right", [("svc", 494), ("knn", 490)])
def test_clean_accuracies_of_the_paper(name, right, fitted, digits_split):
    test = digits_split[1]
    assert (fitted[name].predict(test.x) == test.y).sum() == right


@pytest.mark.parametrize("rows", [slice(1, 3), [3, 0], np.array([True, False, False, True])], ids=["slice", "numbers", "mask"])
def test_a_part_of_a_dataset(rows):
    part = PAIR[rows]
    assert np.array_equal(part.x, X[rows]) and np.array_equal(part.y, Y[rows])
    assert (part.name, part[:1].name, len(part)) == ("pair[2]", "pair[1]", 2)


def test_the_fingerprint_is_of_the_content_alone():
    pixel, label = X.copy(), Y.copy()
    pixel[3, 0, 7, 7], label[0] = .5, 1
    same = replace(PAIR, name="other", x=np.asfortranarray(X), y=np.repeat(Y, 2)[::2])
    others = [replace(PAIR, x=pixel), replace(PAIR, y=label), replace(PAIR, x=X.reshape(4, 1, 4, 16)), PAIR[:3], PAIR[[1, 0, 2, 3]]]
    assert same.fingerprint == PAIR.fingerprint
    assert len({PAIR.fingerprint, *(other.fingerprint for other in others)}) == 6


def pixel(value): return np.where(np.arange(X.size).reshape(X.shape) == 77, np.float32(value), X)

BAD_DATA = {
    "above 1": (dict(x=pixel(2)), ValueError, ["x", "[0, 1]", "2"]),
    "below 0": (dict(x=pixel(-.5)), ValueError, ["x", "[0, 1]", "-0.5"]),
    "NaN": (dict(x=pixel(np.nan)), ValueError, ["x", "finite", "NaN"]),
    "0 to 255": (dict(x=(X * 255).astype(np.int64)), TypeError, ["x", "floats in [0, 1]", "int64"]),
    "float64": (dict(x=X.astype(float)), TypeError, ["x", "float32", "float64"]),
    "no channel axis": (dict(x=X[:, 0]), ValueError, ["x", "(n, channels, height, width)", "(4, 8, 8)"]),
    "empty": (dict(x=X[:0], y=Y[:0]), ValueError, ["x", "at least one image", "(0, 1, 8, 8)"]),
    "too few labels": (dict(y=Y[:3]), ValueError, ["y", "(4,)", "(3,)"]),
    "too many labels": (dict(y=np.append(Y, 0)), ValueError, ["y", "(4,)", "(5,)"]),
    "labels in columns": (dict(y=Y[:, None]), ValueError, ["y", "(4,)", "(4, 1)"]),
    "no labels": (dict(y=Y[:0]), ValueError, ["y", "(4,)", "(0,)"]),
    "float labels": (dict(y=Y.astype(float)), ValueError, ["y", "int64", "float64"]),
    "a list of labels": (dict(y=[0, 1, 1, 0]), (TypeError, ValueError), ["y", "int64"]),
    "a list of images": (dict(x=X.tolist()), (TypeError, ValueError), ["x", "float32"]),
    "a class too many": (dict(y=Y * 2), ValueError, ["y", "0...1", "2"]),
    "a negative label": (dict(y=-Y), ValueError, ["y", "0...1", "-1"]),
}

@pytest.mark.parametrize("changes, error, words", BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data(changes, error, words):
    with pytest.raises(error) as caught: replace(PAIR, **changes)
    for word in words: assert word in str(caught.value)


@pytest.mark.parametrize("rows", [slice(0, 0), [], np.zeros(4, bool)], ids=["slice", "numbers", "mask"])
def test_an_empty_part_of_a_dataset(rows):
    with pytest.raises(ValueError, match="at least one image"): PAIR[rows]


@pytest.mark.parametrize("test_size", [0, 4, 5, -1])
def test_bad_test_sizes(test_size):
    with pytest.raises(ValueError) as caught: split(PAIR, test_size, seed=0)
    for word in ["test_size", "from 1 to 3", str(test_size)]: assert word in str(caught.value)


# --- names


@given(name=st.text(max_size=12), allowed=st.sets(st.text(st.characters(codec="ascii"), min_size=1, max_size=8), min_size=1, max_size=6))
@settings(deadline=None, max_examples=200)
def test_check_name_accepts_the_allowed_and_helps_with_the_rest(name, allowed):
    for known in allowed: assert check_name("thing", known, allowed) == known
    if name in allowed: return
    with pytest.raises(ValueError) as caught: check_name("thing", name, allowed)
    assert str(caught.value).startswith(f"unknown thing {name!r}")
    named = [known for known in allowed if known in str(caught.value)]
    assert len(named) == len(allowed) if "allowed: " in str(caught.value) else named


@pytest.mark.parametrize("call, words", [
    (lambda: datasets.load("digit"), ["dataset", "'digit'", "digits"]),
    (lambda: fit("svm", PAIR), ["model", "'svm'", "svc"]),
    (lambda: fit("transformer", PAIR), ["model", "'transformer'", *models.builders]),
])
def test_unknown_names(call, words):
    with pytest.raises(ValueError) as caught: call()
    for word in words: assert word in str(caught.value)


# --- models


@pytest.mark.parametrize("name", models.builders)
def test_every_model_fits_and_repeats_itself(name, digits_split):
    train, test = digits_split
    first, second = (fit(name, train[:300], seed=5).predict(test.x) for _ in range(2))
    assert first.dtype == np.int64 and np.array_equal(first, second)
    assert ((first == test.y).mean() > .7) == (name != "majority_class")


def scores(images):
    "Brightness of the upper and of the lower half."
    return np.stack([images[:, 0, :4].mean((1, 2)), images[:, 0, 4:].mean((1, 2))], axis=1)

@pytest.mark.parametrize("model", [
    SVC().fit(X.reshape(4, -1), Y), KNeighborsClassifier(1).fit(X.reshape(4, -1), Y),
    make_pipeline(PCA(2), SVC()).fit(X.reshape(4, -1), Y),
], ids=["SVC", "KNN", "pipeline"])
def test_scikit_learn_models_see_rows_of_pixels(model):
    assert np.array_equal(adapt(model).predict(X), model.predict(X.reshape(4, -1).astype(float)))


def test_scores_of_scikit_learn_models_are_probabilities():
    model = KNeighborsClassifier(3, weights="distance").fit(X.reshape(4, -1), Y)
    assert np.array_equal(adapt(model).scores(X * .9), model.predict_proba((X * .9).reshape(4, -1).astype(float)))


@pytest.mark.parametrize("convert", [np.asarray, np.float16, np.ndarray.tolist], ids=["array", "float16", "list"])
def test_a_function_is_a_model(convert):
    assert np.array_equal(adapt(lambda images: convert(scores(images))).predict(X), scores(X).argmax(1))


def test_adapt_leaves_an_adapted_model_alone():
    model = Classifier(scores)
    assert adapt(model) is model


@pytest.mark.parametrize("model", [None, 3, "svc", np.zeros((4, 2))], ids=repr)
def test_what_is_no_model(model):
    with pytest.raises(TypeError) as caught: adapt(model)
    for word in ["predict", "function", type(model).__name__]: assert word in str(caught.value)


@pytest.mark.parametrize("answer, words", [
    (lambda x: scores(x)[:3], ["(4, classes)", "(3, 2)"]),
    (lambda x: scores(x)[:, 0], ["(4, classes)", "(4,)"]),
    (lambda x: scores(x)[:, :0], ["(4, classes)", "(4, 0)"]),
    (lambda x: None, ["(4, classes)", "()"]),
    (lambda x: scores(x) * np.nan, ["NaN"]),
    (lambda x: scores(x) + np.inf, ["infinite"]),
])
def test_functions_that_return_no_scores(answer, words):
    with pytest.raises(ValueError) as caught: adapt(answer).predict(X)
    for word in ["model", "scores", *words]: assert word in str(caught.value)


@pytest.mark.parametrize("labels, words", [
    (Y[:3], ["4", "(3,)"]), (Y[:, None], ["4", "(4, 1)"]), (Y + .5, ["whole-number", "float64"]), (np.array(list("abba")), ["whole-number", "<U1"]), (None, ["4", "()"])])
def test_models_that_predict_no_labels(labels, words):
    with pytest.raises(ValueError) as caught: Classifier(None, lambda images: labels).predict(X)
    for word in ["model", "labels", *words]: assert word in str(caught.value)


def test_models_are_shown_good_images_only():
    with pytest.raises(ValueError, match=r"\[0, 1\]"): Classifier(scores).predict(X * 2)
    with pytest.raises(TypeError, match="uint8"): Classifier(scores).predict((X * 255).astype(np.uint8))
