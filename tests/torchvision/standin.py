"""Flambeau's transforms under torchvision's name, for torchvision's tests, which import much that is not there.

What is torchvision's own (private names, the kinds of tensors, compiled operators) can be imported and named, and skips
the test that uses it, with the reason. Images are plain tensors here, so the tests of `tv_tensors.Image` and `.Video`
are run with those.
"""
import enum
import functools
import importlib
import importlib.machinery
import sys
from types import ModuleType

import pytest

PRIVATE_MODULES = (
    "ops", "ops.boxes", "tv_tensors", "transforms._functional_tensor", "transforms._functional_pil",
    "transforms._transforms_video", "transforms.v2._utils", "transforms.v2.functional._geometry",
    "transforms.v2.functional._meta", "transforms.v2.functional._utils")


PRIVATE, KINDS = "a private name of torchvision's", "boxes, masks or key points"
ROWS = "what was drawn has a row for each sample"


class Theirs:
    """Something of torchvision's that is not here: a test that uses it is skipped. While tests are collected, what
    comes of it is such a thing again."""

    running = False

    def __init__(self, name, reason=PRIVATE):
        self.__name__, self.reason = name, reason

    def __call__(self, *args, **kwargs):
        return self.used()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.used()

    def used(self):
        if Theirs.running:
            pytest.skip(self.reason)
        return self


def given(item):
    """What a test is given that is torchvision's own, or looks at."""
    if "make_params" in item.name:
        return Theirs(item.name, ROWS)
    waiting = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, Theirs):
            return one
        if isinstance(one, (list, tuple)):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, functools.partial):
            waiting.extend([one.func, *one.args, *one.keywords.values()])
    return None


class Kind(type):
    """The class of `tv_tensors`' classes: a kind of tensor that is not here, or one that is a plain tensor here."""

    plain = False

    def __call__(cls, data, *args, **kwargs):
        if not cls.plain:
            return Theirs(cls.__name__, KINDS).used()
        import torch
        made = data.clone() if isinstance(data, torch.Tensor) else torch.as_tensor(data)
        return made.to(kwargs["dtype"]) if kwargs.get("dtype") is not None else made

    def __instancecheck__(cls, x):
        import torch
        return cls.plain and isinstance(x, torch.Tensor)


def kinds():
    """`torchvision.tv_tensors`"""
    made = {name: Kind(name, (), {}) for name in ("TVTensor", "Mask", "BoundingBoxes", "KeyPoints")}
    for name in ("Image", "Video"):
        made[name] = Kind(name, (), {})
        made[name].plain = True
    formats = enum.Enum("BoundingBoxFormat", [(name, name) for name in ("XYXY", "XYWH", "CXCYWH", "XYWHR", "CXCYWHR",
                                                                        "XYXYXYXY")])
    return {**made, "BoundingBoxFormat": formats,
            "is_rotated_bounding_format": lambda form: form.name in ("XYWHR", "CXCYWHR", "XYXYXYXY")}


def private_module(name, **names):
    """A module of torchvision's in which everything but `names` is torchvision's own."""
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(names, __path__=[])
    module.__getattr__ = lambda wanted: refused(wanted) if not wanted.startswith("__") else missing(wanted)
    parent, _, leaf = name.rpartition(".")
    setattr(sys.modules[parent], leaf, module)


def refused(name):
    kind = next((word for word in ("bounding", "Bounding", "mask", "keypoint", "KeyPoint", "IoU", "Clamping")
                 if word in name), None)
    return Theirs(name, KINDS if kind else PRIVATE)


def missing(name):
    raise AttributeError(name)


def image_from(array, mode):
    """torchvision's own maker of Pillow's images, which Pillow has deprecated an argument of."""
    from PIL import Image
    held = array.reshape(array.shape[0], -1)
    return Image.frombytes(mode, (array.shape[1] if array.ndim > 1 else 1, array.shape[0]), held.tobytes())


def logged(function):
    """A function that says that it was called, as torchvision's do: a test of each looks for it."""
    @functools.wraps(function)
    def run(*args, **kwargs):
        import torch
        torch._C._log_api_usage_once(f"{function.__module__}.{function.__name__}")
        return function(*args, **kwargs)
    return run


def install():
    """Hide torchvision, and put this in its place."""
    find = importlib.machinery.PathFinder.find_spec
    importlib.machinery.PathFinder.find_spec = \
        lambda name, path=None, target=None: None if name == "torchvision" else find(name, path, target)
    importlib.import_module("torchvision.transforms.v2.functional")
    from flambeau.data import pictures, transforms
    from flambeau.data.transforms import auto, functional
    from flambeau.data.transforms.colour_kernels import max_value
    for module in (transforms, functional):
        module.__getattr__ = lambda name: refused(name) if not name.startswith("__") else missing(name)
    for name, held in list(vars(functional).items()):
        if hasattr(held, "of_tensor"):
            setattr(functional, name, logged(held))
    pictures._Image_fromarray = image_from
    auto._apply_op = Theirs("_apply_op")
    transforms.Transform._v1_transform_cls = None             # both versions are one
    for name in PRIVATE_MODULES:
        private_module(f"torchvision.{name}")
    sys.modules["torchvision.tv_tensors"].__dict__.update(kinds())
    sys.modules["torchvision.transforms._functional_tensor"]._max_value = max_value
    sys.modules["torchvision.transforms.v2._utils"].__dict__.update(
        {name: getattr(transforms, name) for name in ("check_type", "has_all", "has_any")},
        is_pure_tensor=functional.is_pure_tensor)
