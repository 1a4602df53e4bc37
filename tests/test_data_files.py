"""Where data come from: folders, downloads, the cache, and what happens when a file is damaged or missing."""
import hashlib, os, pickle, time
from io import BytesIO
from pathlib import Path
import numpy as np
import pytest
from PIL import Image
from robustness_nb import datasets
from robustness_nb.datasets import cifar10, known_data, load, two_d
from robustness_nb.separation import class_separation

DATA = os.environ.get("ROBUSTNESS_NB_DATA")
real = pytest.mark.skipif(not DATA, reason="ROBUSTNESS_NB_DATA is not set")

@pytest.fixture
def places(tmp_path, monkeypatch): # an empty data folder and an empty cache
    (tmp_path/"data").mkdir()
    monkeypatch.setenv("ROBUSTNESS_NB_DATA", str(tmp_path/"data"))
    monkeypatch.setenv("ROBUSTNESS_NB_CACHE", str(tmp_path/"cache"))
    return tmp_path/"data", tmp_path/"cache"

def files_in(folder): return [p for p in folder.rglob("*") if p.is_file()] if folder.exists() else []

# --- the 2D sets

@real
@pytest.mark.parametrize("name", "ABC")
def test_two_d_is_what_is_known(name):
    data = two_d(name)
    assert data.fingerprint == known_data()[f"two_d_{name}"]["sha256"] and len(data) == known_data()[f"two_d_{name}"]["n"]
    assert load(f"two_d_{name}").fingerprint == data.fingerprint

@pytest.fixture
def served(tmp_path, monkeypatch): # a folder served over HTTP in place of the authors' repository
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
    folder = tmp_path/"served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(datasets, "TWO_D", f"http://127.0.0.1:{server.server_address[1]}/")
    yield folder
    server.shutdown()

def made_set(path):
    np.savez(path, x=np.random.default_rng(0).random((20, 2)), y=np.arange(20) % 2)
    return hashlib.sha256(path.read_bytes()).hexdigest()

def test_two_d_is_downloaded_once_and_checked(places, served, monkeypatch):
    _, cache = places
    monkeypatch.setitem(datasets.TWO_D_FILES, "B", made_set(served/"B_sep.npz"))
    first = two_d("B")
    (served/"B_sep.npz").unlink()
    assert two_d("B").fingerprint == first.fingerprint
    assert [p.name for p in files_in(cache)] == ["B_sep.npz"]

def test_a_broken_download_leaves_nothing(places, served):
    made_set(served/"B_sep.npz")
    with pytest.raises(ValueError, match="B_sep.npz is damaged"): two_d("B")
    assert files_in(places[1]) == []

def test_no_way_to_the_data_is_one_error_that_says_what_to_do(places, monkeypatch):
    monkeypatch.setattr(datasets, "TWO_D", "http://127.0.0.1:9/")
    with pytest.raises(FileNotFoundError, match="B_sep.npz is in no data folder.*mscr2d.*ROBUSTNESS_NB_DATA"): two_d("B")
    assert files_in(places[1]) == []

def test_a_damaged_file_in_the_data_folder_is_named(places):
    (places[0]/"mscr2d").mkdir()
    made_set(places[0]/"mscr2d/B_sep.npz")
    with pytest.raises(ValueError, match="B_sep.npz is damaged"): two_d("B")

def test_a_data_folder_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv("ROBUSTNESS_NB_DATA", "/nowhere/at/all")
    with pytest.raises(FileNotFoundError, match="ROBUSTNESS_NB_DATA names /nowhere/at/all"): two_d("B")

# --- the stand-in

def test_waves_is_like_set_b():
    made = datasets.waves()
    assert len(made) == 4674 and .45 < made.y.mean() < .55
    assert .008 <= class_separation(made.x, made.y).distance < .009

# --- CIFAR-10

def pictures(n=20): return np.random.default_rng(1).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), np.arange(n) % 10

def as_known(monkeypatch, x, y):
    sha256 = datasets.Dataset("made", x, y, datasets.CIFAR10_CLASSES).fingerprint
    monkeypatch.setattr(datasets, "known_data", lambda: dict(cifar10_test=dict(n=len(x), sha256=sha256)))

def as_parquet(path, x, y):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True)
    images = []
    for picture in x.transpose(0, 2, 3, 1):
        Image.fromarray(picture).save(file := BytesIO(), "png")
        images.append(dict(bytes=file.getvalue(), path=""))
    pq.write_table(pa.table(dict(img=images, label=y)), path)

@pytest.mark.parametrize("name", ["test.parquet", "plain_text/test-00000-of-00001.parquet"])
def test_cifar10_from_parquet(places, monkeypatch, name):
    x, y = pictures()
    as_parquet(places[0]/"cifar10"/name, x, y)
    as_known(monkeypatch, x, y)
    for data in cifar10("test"), cifar10("test"):
        assert isinstance(data.x, np.memmap) and not data.x.flags.writeable
        np.testing.assert_array_equal(data.x, x)
        np.testing.assert_array_equal(data.y, y)

def test_cifar10_from_batches(places, monkeypatch):
    torchvision = pytest.importorskip("torchvision.datasets")
    x, y = pictures()
    folder = places[0]/"cifar-10-batches-py"
    folder.mkdir()
    (folder/"test_batch").write_bytes(pickle.dumps(dict(data=x.reshape(len(x), -1), labels=y.tolist())))
    (folder/"batches.meta").write_bytes(pickle.dumps(dict(label_names=list(datasets.CIFAR10_CLASSES))))
    def md5(name): return hashlib.md5((folder/name).read_bytes()).hexdigest()
    monkeypatch.setattr(torchvision.CIFAR10, "train_list", [])
    monkeypatch.setattr(torchvision.CIFAR10, "test_list", [["test_batch", md5("test_batch")]])
    monkeypatch.setattr(torchvision.CIFAR10, "meta", dict(filename="batches.meta", key="label_names", md5=md5("batches.meta")))
    as_known(monkeypatch, x, y)
    np.testing.assert_array_equal(cifar10("test").x, x)

def test_a_batch_that_is_not_the_published_one_is_never_unpickled(places):
    pytest.importorskip("torchvision.datasets")
    folder = places[0]/"cifar-10-batches-py"
    folder.mkdir()
    (folder/"test_batch").write_bytes(b"cos\nsystem\n(S'touch " + str(places[0]/"owned").encode() + b"'\ntR.")
    with pytest.raises(FileNotFoundError, match="CIFAR-10 is in no data folder, or damaged there"): cifar10("test")
    assert not (places[0]/"owned").exists() and files_in(places[1]) == []

def test_cifar10_that_is_not_cifar10_is_not_kept(places):
    as_parquet(places[0]/"cifar10/test.parquet", *pictures())
    with pytest.raises(ValueError, match="not those that are known"): cifar10("test")
    assert files_in(places[1]) == []

def test_a_truncated_parquet_file_is_named(places):
    as_parquet(places[0]/"cifar10/test.parquet", *pictures())
    path = places[0]/"cifar10/test.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"test\.parquet is damaged"): cifar10("test")
    assert files_in(places[1]) == []

def test_a_truncated_cache_is_named(places, monkeypatch):
    x, y = pictures()
    as_parquet(places[0]/"cifar10/test.parquet", x, y)
    as_known(monkeypatch, x, y)
    cifar10("test")
    path = places[1]/"cifar10_test/x.npy"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="cifar10_test is damaged.*delete it"): cifar10("test")

@real
@pytest.mark.slow
def test_real_cifar10(): # counts and means as the data's README gives them
    train, test = cifar10("train"), cifar10("test")
    assert (len(train), len(test)) == (50_000, 10_000)
    assert set(np.bincount(train.y)) == {5000} and set(np.bincount(test.y)) == {1000}
    np.testing.assert_allclose(train.x.mean((0, 2, 3), dtype=np.float64)/255, [.49140, .48216, .44653], atol=5e-6)
    assert train.fingerprint == known_data()["cifar10_train"]["sha256"]
    started = time.perf_counter()
    cifar10("train")
    assert time.perf_counter() - started < 1
