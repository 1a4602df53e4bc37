"What the benchmarks have in common: works are timed in turns."
import sys
import time


def best(*works, tries=3):
    "Seconds of the best of several tries for each, one after the other, so that all meet the same weather. Waits for a GPU if PyTorch uses one."
    torch = sys.modules.get("torch")
    found = [float("inf")] * len(works)
    for _ in range(tries):
        for k, work in enumerate(works):
            start = time.perf_counter()
            work()
            if torch and torch.cuda.is_available(): torch.cuda.synchronize()
            found[k] = min(found[k], time.perf_counter() - start)
    return found
