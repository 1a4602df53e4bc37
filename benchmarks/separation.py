"""How fast the class separation of CIFAR-10 is found: against scikit-learn's and faiss's brute force, and how time grows with n.

All figures are measured in one process; read the ratios, seconds depend on the machine. Needs ROBUSTNESS_NB_DATA, a folder that holds
CIFAR-10 as cifar10/train.parquet in the layout of uoft-cs/cifar10, and pyarrow and pillow; faiss-cpu is compared with if it is installed.

    python benchmarks/separation.py [--peer-n 5000] [--full-faiss]
"""
import argparse
import io
import os
import time
import tracemalloc
from pathlib import Path
import numpy as np
from robustness_nb.separation import class_separation, nearest_opposite

NAMES = {np.inf: "L-inf", 2: "L2", 1: "L1"}
SKLEARN = {np.inf: "chebyshev", 2: "euclidean", 1: "manhattan"}


def cifar10():
    import pyarrow.parquet as parquet
    from PIL import Image
    table = parquet.read_table(Path(os.environ["ROBUSTNESS_NB_DATA"], "cifar10", "train.parquet"))
    images = [np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in table["img"].to_pylist()]
    return np.stack(images), table["label"].to_numpy()


def seconds(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def memory(work):
    "The most that arrays take while `work` runs, in GiB."
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**30


def opposite(x, y, search):
    "The smallest distance between classes, by a search for each class among the points of all others."
    return min(search(x[y != label], x[y == label]).min() for label in np.unique(y))


def by_sklearn(x, y, p):
    from sklearn.neighbors import NearestNeighbors

    def search(points, queries):
        return NearestNeighbors(n_neighbors=1, algorithm="brute", metric=SKLEARN[p], n_jobs=-1).fit(points).kneighbors(queries)[0]
    return opposite(x.reshape(len(x), -1) / 255, y, search)


def by_faiss(x, y, p):
    import faiss
    metric = {np.inf: faiss.METRIC_Linf, 2: faiss.METRIC_L2, 1: faiss.METRIC_L1}[p]

    def search(points, queries):
        index = faiss.IndexFlat(points.shape[1], metric)
        index.add(points)
        found = index.search(queries, 1)[0]
        return found**.5 if p == 2 else found
    return opposite(x.reshape(len(x), -1).astype(np.float32) / 255, y, search)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--peer-n", type=int, default=5000, help="images the peers search")
    options.add_argument("--full-faiss", action="store_true", help="let faiss search all images in L2 too (minutes)")
    options = options.parse_args()
    x, y = cifar10()
    for p in NAMES: print(f"first call, {NAMES[p]}, with compiling: {seconds(lambda: class_separation(x[:200], y[:200], p))[0]:.1f} s")  # noqa: B023

    print(f"\nSeconds for the first n images\n{'n':>8}" + "".join(f"{name + ' smallest':>16}" for name in NAMES.values()) + f"{'L-inf of each':>16}{'L2 of each':>16}")
    for n in 5000, 10_000, 20_000, len(x):
        part = x[:n], y[:n]
        times = [seconds(lambda: class_separation(*part, p))[0] for p in NAMES]  # noqa: B023
        times += [seconds(lambda: nearest_opposite(*part, p))[0] for p in (np.inf, 2)]  # noqa: B023
        print(f"{n:8}" + "".join(f"{t:16.2f}" for t in times), flush=True)
    for kind, images in ("bytes", x), ("float32", x.astype(np.float32) / 255), ("float32, no whole 255ths", x.astype(np.float32) / 200):
        for p in NAMES: print(f"{kind}: {memory(lambda: print(class_separation(images, y, p))):.2f} GiB above the data")  # noqa: B023

    peers = {"scikit-learn": by_sklearn}
    try: import faiss  # noqa: F401
    except ModuleNotFoundError: print("faiss-cpu is not installed: no comparison with it")
    else: peers["faiss"] = by_faiss
    some = x[:options.peer_n], y[:options.peer_n]
    print(f"\n{len(some[0])} images, smallest distance\n{'norm':8}{'ours, s':>9}" + "".join(f"{peer + ', s':>17}{'ratio':>8}" for peer in peers))
    for p, name in NAMES.items():
        found = class_separation(*some, p)
        ours = min(seconds(lambda: class_separation(*some, p))[0] for _ in range(5))  # noqa: B023
        line = f"{name:8}{ours:9.2f}"
        for search in peers.values():
            took, distance = seconds(lambda: search(*some, p))  # noqa: B023
            assert abs(distance / found.distance - 1) < 1e-4, (name, distance, found)
            line += f"{took:17.2f}{took / ours:6.0f} x"
        print(line, flush=True)
    if options.full_faiss and "faiss" in peers:
        ours, took = seconds(lambda: class_separation(x, y, 2))[0], seconds(lambda: by_faiss(x, y, 2))[0]
        print(f"all {len(x)} images, L2: {ours:.1f} s, faiss {took:.1f} s, {took / ours:.0f} x")


if __name__ == "__main__": main()
