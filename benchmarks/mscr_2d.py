"""What a run of the MSCR paper's 2D experiment costs beside its bare calls of `fit`: the full 9 x 9 grid of random forests, one seed.

Both are measured in one process, in turns, and the least of several tries counts; read the ratio, seconds depend on the machine. Set B is
used where ROBUSTNESS_NB_DATA or the cache has it, else the made-up stand-in.

    python benchmarks/mscr_2d.py [--model random_forest] [--tries 3]
"""
import argparse
import time
from joblib import parallel_config
from robustness_nb.datasets import load, split
from robustness_nb.evaluation import noise_run
from robustness_nb.models import builders
from robustness_nb.noise import augment
from robustness_nb.separation import class_separation


def points():
    try: return load("two_d_B")
    except FileNotFoundError: return load("waves")


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="random_forest", choices=["random_forest", "nearest_neighbour"])
    parser.add_argument("--tries", type=int, default=3)
    asked = parser.parse_args()
    data = points()
    grid = sorted([0, .001, .002, .007, .01, .015, .02, .03, class_separation(data.x, data.y).r])
    train, _ = split(data, -(-len(data) // 5), 0)
    sets = [augment(train.x, eps, 10, sampling="shared") for eps in grid]

    def fits():
        with parallel_config("threading", n_jobs=-1):
            for x, rows in sets: builders[asked.model](0).fit(x, train.y[rows])

    def whole(): noise_run(data, asked.model, grid, grid, seed=0, sampling="shared")

    times = [(seconds(fits), seconds(whole)) for _ in range(asked.tries)]
    fit, run = map(min, zip(*times))
    print(f"{asked.model} on {data.name}, 9 training noises x 9 test noises, one seed, least of {asked.tries}")
    print(f"bare fits {fit:.2f} s, whole run {run:.2f} s: {run / fit:.2f} times")


if __name__ == "__main__": main()
