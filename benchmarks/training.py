"""How fast `train` is: against a bare loop of the same net on batches that are ready, and against the usual DataLoader with torchvision's transforms.

All are measured in one process, in turns; shown is the median of the turns. Read the ratios, images per second depend on the machine.
"""
import argparse
import time
from itertools import cycle
from types import SimpleNamespace
import numpy as np
import torch
from torch.nn import functional as F
from robustness_nb.models import resnet9, wide_resnet
from robustness_nb.training import initialise, train

BATCH = 256


def loop(net, batches, device):
    "One step for each batch, and nothing else but the loss at the end."
    optimiser = torch.optim.SGD(net.parameters(), .1, .9, nesterov=True, weight_decay=5e-4)
    for images, labels in batches:
        images, labels = images.to(device, memory_format=torch.channels_last), labels.to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = net(images)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=.05)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


def loader(x, y):
    "Batches the usual way: image by image, in two workers."
    from torch.utils.data import DataLoader
    from torchvision.transforms import v2
    change = v2.Compose([v2.RandomCrop(32, 4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])

    class Images(torch.utils.data.Dataset):
        def __len__(self): return len(y)

        def __getitem__(self, i): return change(x[i]), y[i]

    return DataLoader(Images(), BATCH, shuffle=True, num_workers=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="batches in one measurement")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each kind")
    parser.add_argument("--net", default="resnet9", choices=["resnet9", "wide_resnet"], help="ResNet-9 of width 16, or WRN-16-4")
    asked = parser.parse_args()
    device, n = torch.device("cuda" if torch.cuda.is_available() else "cpu"), BATCH * asked.steps
    x = np.random.default_rng(0).integers(0, 256, (n, 3, 32, 32), np.uint8)
    data = SimpleNamespace(x=x, y=np.arange(n) % 10)
    tensors = torch.from_numpy(x), torch.from_numpy(data.y)
    net = initialise(resnet9 if asked.net == "resnet9" else lambda: wide_resnet(16, 4), 0).to(device, memory_format=torch.channels_last)
    ready = [(images.to(device, torch.float32, memory_format=torch.channels_last) / 255, labels.to(device))
             for images, labels in zip(tensors[0][:4 * BATCH].split(BATCH), tensors[1][:4 * BATCH].split(BATCH))]
    ways = {"bare loop": lambda: loop(net, (batch for batch, _ in zip(cycle(ready), range(asked.steps))), device),
            "train": lambda: train(net, data, epochs=1, seed=0, progress=False),
            "train, noise L-inf": lambda: train(net, data, epochs=1, seed=0, noise=.1, progress=False),
            "train, noise L2": lambda: train(net, data, epochs=1, seed=0, noise=1., p=2, progress=False),
            "DataLoader": lambda: loop(net, loader(*tensors), device)}
    seconds = {name: [] for name in ways}
    for turn in range(asked.rounds + 1):
        for name, work in ways.items():
            started = time.perf_counter()
            work()
            if turn: seconds[name].append(time.perf_counter() - started)
    bare = np.array(seconds["bare loop"])
    print(f"{asked.net}, {device}, {torch.get_num_threads()} threads, batches of {BATCH}\n{'':20}{'images/s':>10}{'of the bare loop':>18}")
    for name, taken in seconds.items(): print(f"{name:20}{n / np.median(taken):10.0f}{np.median(bare / taken):18.3f}")


if __name__ == "__main__": main()
