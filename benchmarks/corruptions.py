"""How fast digits are corrupted and graded: a batch against one image at a time, and against corrupt-tta.

All figures are measured in one process, each the best of several tries; read the ratios, seconds depend on the machine.
"""
import subprocess
import sys
import time
import numpy as np
from robustness_nb.corruptions import corrupt, names
from robustness_nb.datasets import digits, split
from robustness_nb.evaluation import corruption_report
from robustness_nb.models import fit

PEER = "gaussian_noise", "shot_noise", "impulse_noise", "pixelate", "brightness", "contrast"  # the names both have
SEVERITIES = range(1, 6)


def seconds(work, tries=3):
    "The best of several tries."
    def once():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    return min(once() for _ in range(tries))


def batched(x, name): return [corrupt(x, name, s) for s in SEVERITIES]


def one_by_one(x, name): return [[corrupt(image[None], name, s, start=i) for i, image in enumerate(x)] for s in SEVERITIES]


def by_peer(x, name):
    import corrupt_tta
    images = np.repeat((255 * x).astype(np.uint8).transpose(0, 2, 3, 1), 3, axis=3)
    return [[corrupt_tta.corrupt(image, corruption_name=name, severity=s) for image in images] for s in SEVERITIES]


def process(*arguments): return seconds(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))


def main():
    train, test = split(digits(), 500, seed=7)
    x = test.x
    try: import corrupt_tta  # noqa: F401
    except ModuleNotFoundError: print("corrupt-tta is not installed (extra `bench`): no comparison with it")
    peer = "corrupt_tta" in sys.modules

    print(f"{len(x)} digits, severities 1 to 5\n{'corruption':16}{'batch, ms':>10}{'one by one':>12}{'corrupt-tta':>13}")
    total, single = 0, 0
    for name in names():
        for i, images in enumerate(one_by_one(x[:20], name)):
            assert np.array_equal(np.concatenate(images), batched(x[:20], name)[i]), name
        batch, slow = seconds(lambda: batched(x, name)), seconds(lambda: one_by_one(x, name), 1)
        other = f"{seconds(lambda: by_peer(x, name), 1) / batch:.0f} x" if peer and name in PEER else "–"
        total, single = total + batch, single + slow
        print(f"{name:16}{1000 * batch:10.1f}{slow / batch:10.0f} x{other:>13}")
    print(f"{'all':16}{1000 * total:10.1f}{single / total:10.0f} x\n")

    models = {name: fit(name, train) for name in ("svc", "knn")}
    print(f"whole matrix for SVC and KNN       {seconds(lambda: corruption_report(models, test, progress=False)):6.2f} s")
    bare = process("-c", "pass")
    for label, arguments in {"import robustness_nb": ["-c", "import robustness_nb"], "robustness-nb version": ["-m", "robustness_nb.cli", "version"]}.items():
        print(f"{label:34} {process(*arguments):6.2f} s (Python alone {bare:.2f} s)")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "robustness_nb.cli", "run", "digits_gap", "--preset", "quick", "--rerun"], check=True, capture_output=True)
    print(f"run digits_gap --preset quick      {time.perf_counter() - start:6.2f} s as a process, nothing replayed")


if __name__ == "__main__": main()
