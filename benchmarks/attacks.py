"""How fast FGSM, PGD and SimBA are, against torchattacks, Foolbox and ART on the same net, and how much the active set and one gradient for a whole curve save.

All figures are measured in one process, each the best of several tries that take turns; read the ratios, seconds depend on the machine. The net is a small ResNet-9, trained
for a minute on digits blown up to 32 x 32 pixels. Foolbox, ART and torchattacks are optional (extra `bench`; torchattacks by `pip install --no-deps torchattacks`, as it asks for an old requests).
"""
import gc
import warnings
import numpy as np
import torch
from robustness_nb.attacks import FGSM, PGD, SimBA
from robustness_nb.datasets import Dataset, digits, split
from robustness_nb.evaluation import evaluate_robustness, evaluation_curve
from robustness_nb.models import adapt, fit, resnet9
from robustness_nb.training import initialise, train
from turns import best

EPS, STEPS = .2, 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def large(data): # 8 x 8 pixels to 32 x 32
    return Dataset(f"large {data.name}", data.x.repeat(4, 2).repeat(4, 3), data.y, data.classes)


def by_torchattacks(net, x, y):
    import torchattacks as ta
    return dict(FGSM=lambda: ta.FGSM(net, EPS)(x, y), PGD=lambda: ta.PGD(net, EPS, EPS / 4, STEPS, random_start=False)(x, y))


def by_foolbox(net, x, y):
    import foolbox as fb
    model, pgd = fb.PyTorchModel(net, bounds=(0, 1), device=DEVICE), fb.attacks.LinfPGD(rel_stepsize=.25, steps=STEPS, random_start=False)
    return dict(FGSM=lambda: fb.attacks.FGSM()(model, x, y, epsilons=EPS)[1], PGD=lambda: pgd(model, x, y, epsilons=EPS)[1])


def by_art(net, x, y):
    from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier
    model = PyTorchClassifier(net, torch.nn.CrossEntropyLoss(), tuple(x.shape[1:]), 10, clip_values=(0, 1), device_type="gpu" if DEVICE == "cuda" else "cpu")
    fgsm = FastGradientMethod(model, eps=EPS, batch_size=len(x))
    pgd = ProjectedGradientDescent(model, eps=EPS, eps_step=EPS / 4, max_iter=STEPS, batch_size=len(x), verbose=False)
    images, labels = x.cpu().numpy(), y.cpu().numpy()
    return dict(FGSM=lambda: fgsm.generate(images, labels), PGD=lambda: pgd.generate(images, labels))


def peers(net, x, y):
    "{library: {attack: function that makes adversarial images}} for the libraries that are installed."
    found = {}
    for name, make in dict(torchattacks=by_torchattacks, Foolbox=by_foolbox, ART=by_art).items():
        try: found[name] = make(net, x, y)
        except ImportError: print(f"{name} is not installed: no comparison with it")
    return found


def compare(net, images, labels):
    x, y = torch.tensor(images, device=DEVICE), torch.tensor(labels, device=DEVICE)
    ours = dict(FGSM=FGSM(EPS), PGD=PGD(EPS, steps=STEPS, step_size=EPS / 4, early_stop=False))
    others = peers(net, x, y)
    for name, attack in ours.items():
        made = attack.perturb(net, images, labels)
        for library, works in others.items():
            theirs = works[name]()
            differ = np.abs(made - (theirs.cpu().numpy() if torch.is_tensor(theirs) else theirs)).reshape(len(made), -1).max(1) > 1e-6
            print(f"{name} and {library}: {len(made) - differ.sum()} of {len(made)} adversarial images are the same")
        mine, *times = best(lambda: attack.perturb(net, images, labels), *(works[name] for works in others.values()), tries=12 if name == "FGSM" else 3)
        print(f"{name:5} of {len(x)} images: {1000 * mine:8.1f} ms; " + ", ".join(f"{library} {t / mine:.2f} x" for library, t in zip(others, times)))
    return others


def bare(net, images, labels):
    "One forward and one input-gradient pass, from and to numpy, and nothing else."
    x = torch.tensor(images).to(DEVICE, memory_format=torch.channels_last).requires_grad_()
    gradient, = torch.autograd.grad(torch.nn.functional.cross_entropy(net(x), torch.tensor(labels, device=DEVICE)), x)
    return gradient.cpu().numpy()


def robust(net, right, labels, images):
    "Share of all images that are right before and after; what is left to do after a library has made them."
    return float((right & (adapt(net).predict(images.cpu().numpy()) == labels)).mean())


def alive(net, attack, images, labels):
    "Most bytes in tensors when the net is called."
    sizes = []
    handle = net.register_forward_hook(lambda *_: sizes.append(sum(o.numel() * o.element_size() for o in gc.get_objects() if issubclass(type(o), torch.Tensor))))
    try: attack.perturb(net, images, labels)
    finally: handle.remove()
    return max(sizes)


def main():
    warnings.simplefilter("ignore")
    learn, test = map(large, split(digits(), 500, seed=7))
    net = initialise(lambda: resnet9(8, channels=1), seed=0)
    train(net, learn, epochs=3, seed=0, batch_size=128, crop=2, flip=False, precision="float32", device=DEVICE)
    net.eval()
    part = test[:256]
    images, labels = part.x, part.y
    print(f"ResNet-9 on {DEVICE}, {torch.get_num_threads()} threads, clean accuracy {(adapt(net).predict(images) == labels).mean():.1%}, eps {EPS:.3f}\n")

    others = compare(net, images, labels)
    fgsm, pass_ = best(lambda: FGSM(EPS).perturb(net, images, labels), lambda: bare(net, images, labels), tries=12)
    print(f"\nFGSM against a bare forward and input-gradient pass: {fgsm / pass_:.2f} x")

    active, full = PGD(EPS, steps=STEPS, step_size=EPS / 4), PGD(EPS, steps=STEPS, step_size=EPS / 4, early_stop=False)
    a, b = best(lambda: evaluate_robustness(net, active, part), lambda: evaluate_robustness(net, full, part))
    robust_a, robust_b = (evaluate_robustness(net, attack, part).robust_accuracy for attack in (active, full))
    print(f"PGD-{STEPS} evaluated with the active set: {b / a:.1f} x as fast as without; robust accuracy {robust_a:.2%} and {robust_b:.2%}")
    if "torchattacks" in others:
        import torchattacks as ta
        right = adapt(net).predict(images) == labels
        def pgd(): return robust(net, right, labels, others["torchattacks"]["PGD"]())
        t, = best(pgd)
        print(f"  and {t / a:.1f} x as fast as torchattacks, whose robust accuracy is {pgd():.2%}")
        sizes = np.linspace(.01, .2, 20)
        halves = [(torch.tensor(test.x[rows], device=DEVICE), torch.tensor(test.y[rows], device=DEVICE)) for rows in (slice(0, 250), slice(250, 500))]
        known = adapt(net).predict(test.x) == test.y
        def one_by_one(): return [robust(net, known, test.y, torch.cat([ta.FGSM(net, eps)(x, y) for x, y in halves])) for eps in sizes]
        def at_once(): return evaluation_curve(net, FGSM, sizes, test, batch_size=250)
        curve, loop = best(at_once, one_by_one)
        gap = np.abs(at_once().robust_accuracy - one_by_one()).max()
        print(f"FGSM curve of 20 sizes, 500 images: {loop / curve:.1f} x as fast as torchattacks size by size; robust accuracies differ by at most {gap:.2%}")

    small = split(digits(), 500, seed=7)[1][:100]
    for name, model in dict(random_forest=fit("random_forest", split(digits(), 500, seed=7)[0]), net=net).items():
        data = small if name != "net" else part[:100]
        attack = SimBA(.3, max_iter=30)
        together, alone = attack.run(model, data.x, data.y), attack.run(model, data.x, data.y, batch_size=1)
        a, b = best(lambda: attack.run(model, data.x, data.y), lambda: attack.run(model, data.x, data.y, batch_size=1), tries=1)
        print(f"SimBA on 100 images, {name}: a batch is {b / a:.0f} x as fast as one at a time; queries {together.queries.sum()} and {alone.queries.sum()}")
    few, many = (alive(net, PGD(EPS, steps=steps, early_stop=False), images, labels) for steps in (2, 40))
    print(f"Tensors alive during PGD: {few / 2**20:.1f} MiB with 2 steps, {many / 2**20:.1f} MiB with 40")


if __name__ == "__main__": main()
