"""How fast images are corrupted: against imagecorruptions and corrupt-tta, with growing batches and images; and how fast CIFAR-10 and digits are graded.

All figures are measured in one process. Ours and the peers' take turns, and each is given the best of several tries: read the ratios, seconds depend on the machine.
Both peers are optional (extra `bench`; imagecorruptions by `pip install --no-deps imagecorruptions`, as it asks for an old scikit-image). A corruption takes a batch
of ours at once, and one image after the other in the peers, which know no batch.
"""
import subprocess
import sys
import time
import numpy as np
from corruption_peers import installed
from robustness_nb.corruptions import corrupt, names
from robustness_nb.datasets import cifar10, digits, split
from robustness_nb.evaluation import corruption_report
from robustness_nb.models import fit, resnet9
from robustness_nb.records import root
from robustness_nb.training import load_weights
from turns import best

SIZES = {32: 256, 224: 32}  # pixels: images in a batch
LADDER = "imagenet-c"  # the only one that the peers know


def photographs(n, size):
    "Smooth random pictures: clouds of every colour."
    rng = np.random.default_rng(0)
    coarse = rng.random((n, 3, 8, 8)).repeat(-(-size // 8), 2).repeat(-(-size // 8), 3)[:, :, :size, :size]
    return np.clip(coarse + .1 * rng.standard_normal(coarse.shape), 0, 1).astype(np.float32)


def against_peers(size, n, peers, severities=(1, 3, 5)):
    "A line for each corruption; returns the ratios to the fastest peer."
    images = photographs(n, size)
    theirs = (255 * images).astype(np.uint8).transpose(0, 2, 3, 1)
    print(f"\n{size} px, batches of {n}, severities {severities}\n{'corruption':20}{'ours, images/s':>16}" + "".join(f"{peer:>18}" for peer in peers))
    ratios = {}
    for name in names(LADDER):
        def ours(): return [corrupt(images, name, s, ladder=LADDER) for s in severities]
        def by(peer): return lambda: [[peer(name, image, s) for image in theirs[:max(2, n // 16)]] for s in severities]
        corrupt(images, name, 3, ladder=LADDER)
        mine, *others = best(ours, *map(by, peers.values()))
        share = max(2, n // 16) / n
        times = [other / share / mine for other in others]
        if times: ratios[name] = min(times)
        print(f"{name:20}{len(severities) * n / mine:16,.0f}" + "".join(f"{t:16.1f} x" for t in times), flush=True)
    if ratios:
        values = np.array(list(ratios.values()))
        print(f"{'geometric mean':20}{'':16}{np.exp(np.log(values).mean()):16.1f} x the fastest peer; slowest {min(ratios, key=ratios.get)} {values.min():.1f} x; glass blur {ratios['glass_blur']:.0f} x")
    return ratios


def growth():
    "How time per image goes with the batch and with the size."
    print("\nmicroseconds per image, mean over all corruptions, severity 3")
    def per_image(n, size):
        images = photographs(n, size)
        return 1e6 * sum(best(lambda: corrupt(images, name, 3, ladder=LADDER))[0] for name in names(LADDER)) / n / len(names(LADDER))
    print("batch at 32 px   " + "  ".join(f"{n}: {per_image(n, 32):.0f}" for n in (1, 10, 100, 1000)))
    print("size, batch of 8 " + "  ".join(f"{size} px: {per_image(8, size):.0f}" for size in (8, 32, 64, 128, 224)))


def process(*arguments): return best(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))[0]


def cifar10_graded():
    "The test set of CIFAR-10 under all corruptions and severities of CIFAR-10-C, graded by a ResNet-9 of width 16. Skipped where the data are not at hand."
    try: data = cifar10("test")
    except (FileNotFoundError, ImportError) as error: return print(f"\nCIFAR-10 not graded: {error}")
    model = resnet9(16)
    load_weights(model, root() / "results/weights/cifar10_resnet9.safetensors")
    def corrupted():
        for start in range(0, len(data), 2000):
            x = data.floats(slice(start, start + 2000))
            for name in names("cifar-10-c"):
                for severity in range(1, 6): corrupt(x, name, severity, ladder="cifar-10-c", start=start)
    whole, alone = best(lambda: corruption_report({"ResNet-9": model}, data, ladder="cifar-10-c", progress=True), corrupted, tries=1)
    print(f"\nCIFAR-10, {len(data):,} images, {len(names('cifar-10-c'))} corruptions, 5 severities: corrupted and graded in {whole / 60:.1f} minutes; corrupting alone takes {alone / whole:.0%} of that")


def digits_graded():
    train, test = split(digits(), 500, seed=7)
    models = {name: fit(name, train) for name in ("svc", "knn")}
    print(f"\nwhole digits matrix for SVC and KNN {best(lambda: corruption_report(models, test, progress=False))[0]:6.2f} s")
    bare = process("-c", "pass")
    for label, arguments in {"import robustness_nb": ["-c", "import robustness_nb"], "robustness-nb version": ["-m", "robustness_nb.cli", "version"]}.items():
        print(f"{label:35} {process(*arguments):6.2f} s (Python alone {bare:.2f} s)")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "robustness_nb.cli", "run", "digits_gap", "--preset", "quick", "--rerun"], check=True, capture_output=True)
    print(f"run digits_gap --preset quick       {time.perf_counter() - start:6.2f} s as a process, nothing replayed")


def main():
    peers = installed()
    if len(peers) < 2: print(f"installed of imagecorruptions and corrupt_tta: {', '.join(peers) or 'neither'}")
    for size, n in SIZES.items(): against_peers(size, n, peers)
    growth()
    cifar10_graded()
    digits_graded()


if __name__ == "__main__": main()
