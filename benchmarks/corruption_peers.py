"""The two other libraries of corruptions, made to run with today's numpy, scipy and scikit-image: `{library: {corruption: image -> image}}`.

imagecorruptions 1.1.2 (of 2020) no longer imports: pkg_resources, scipy.ndimage.interpolation, numpy's float_ and scikit-image's `multichannel` are gone. Each is put back
here in its name, so that what is measured is its own code. An image is (height, width, 3) uint8.
"""
import sys
import types
from importlib.util import find_spec
from pathlib import Path
import numpy as np


def imagecorruptions():
    "Its functions (PIL or array, severity) by name; ImportError if it is not installed."
    import scipy.ndimage
    package = find_spec("imagecorruptions")
    if package is None: raise ImportError("imagecorruptions is not installed")
    folder = Path(package.submodule_search_locations[0])
    if "imagecorruptions.corruptions" not in sys.modules:
        stubs = {"pkg_resources": types.SimpleNamespace(resource_filename=lambda _, name: str(folder / name)),
                 "scipy.ndimage.interpolation": types.SimpleNamespace(map_coordinates=scipy.ndimage.map_coordinates)}
        kept = {name: sys.modules.get(name) for name in stubs}
        sys.modules.update(stubs)
        if not hasattr(np, "float_"): np.float_ = np.float64
        try: import imagecorruptions.corruptions as module
        finally:
            for name, old in kept.items():
                if old is None: sys.modules.pop(name)
                else: sys.modules[name] = old
        original = module.gaussian
        module.gaussian = lambda x, sigma, multichannel=False, **options: original(x, sigma, channel_axis=-1 if multichannel else None, **options)
    from imagecorruptions import corrupt
    return lambda name, image, severity: corrupt(image, severity, name)


def corrupt_tta():
    "The same for corrupt-tta."
    if find_spec("corrupt_tta") is None: raise ImportError("corrupt-tta is not installed")
    from corrupt_tta import corrupt
    return lambda name, image, severity: corrupt(image, severity, name)


def installed() -> dict: # {library: (name, image, severity) -> image}
    "Those of the two that are there."
    found = {}
    for load in imagecorruptions, corrupt_tta:
        try: found[load.__name__] = load()
        except ImportError: pass
    return found
