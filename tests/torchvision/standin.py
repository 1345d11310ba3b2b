"""Flambeau's transforms under torchvision's name, for torchvision's tests, which import much that is not there.

What is torchvision's own (private names, the kinds of tensors, compiled operators) can be imported and named, and skips
the test that uses it, with the reason. Images are plain tensors here, so the tests of `tv_tensors.Image` and `.Video`
are run with those. Where ours says the same in another form, the tests are given torchvision's: what was drawn for an
image, one operation of AutoAugment, version 2's warning about ToTensor, a batch whose samples draw alike. DECLARED are
the tests that ask for what is different on purpose; docs/images.md has the same list.
"""
import enum
import functools
import importlib
import importlib.machinery
import re
import sys
import warnings
from types import ModuleType

import pytest

PRIVATE_MODULES = (
    "ops", "ops.boxes", "tv_tensors", "transforms._functional_tensor", "transforms._functional_pil",
    "transforms._transforms_video", "transforms.v2._utils", "transforms.v2.functional._geometry",
    "transforms.v2.functional._meta", "transforms.v2.functional._utils")


PRIVATE, KINDS = "a private name of torchvision's", "boxes, masks or key points"
STREAM = "draws come from a stream of the sample's own"
SIZES = "a batch has one shape, and each sample would have another size"
TENSORS = "an image and a video are plain tensors"
TOLERANCE = "a tolerance between tensors and Pillow's images that holds for torchvision's draws, not for all"
VERSION_2 = "version 1 refuses what version 2 takes, or says it in other words"
DECLARED = {                  # a pattern of tests' names → why they are not run
    r"v2.py::TestErase::test_transform_image_correctness": STREAM,
    r"v2.py::TestRandomZoomOut::test_transform\[make_video": SIZES,
    r"v2.py::TestRandomZoomOut::test_transform_params_correctness\[cpu-make_video": SIZES,
    r"v2.py::TestScaleJitter::test_transform\[cpu-make_video": SIZES,
    r"v2.py::TestShapeGetters::test_unsupported_types\[get_num_frames-make_image": TENSORS,
    r"tensor.py::TestColorJitter::test_color_jitter_(hue\[0.5-3|all\[3)": TOLERANCE,
    r"tensor.py::test_random_rotate\[.*-True-": SIZES,
    r"transforms.py::TestToTensor::test_to_tensor_errors": VERSION_2,
    r"transforms.py::TestToTensor::test_pil_to_tensor_errors": VERSION_2,
    r"transforms.py::test_rotate$": VERSION_2,
    r"transforms.py::test_gaussian_blur_asserts": VERSION_2,
    r"transforms.py::TestAffine::test_affine_translate_seq": VERSION_2,
    r"transforms.py::test_random_affine$": VERSION_2,
    r"transforms.py::test_elastic_transformation": VERSION_2,
}


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
    """What a test is given that is torchvision's own, or asks for."""
    for name, reason in DECLARED.items():
        if re.search(name, item.nodeid):
            return Theirs(item.name, reason)
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


@functools.cache
def logged(function):
    """A function that says that it was called, as torchvision's do: a test of each looks for it."""
    @functools.wraps(function)
    def run(*args, **kwargs):
        import torch
        torch._C._log_api_usage_once(f"{function.__module__}.{function.__name__}")
        return function(*args, **kwargs)
    return run


def of_one_image(make_params):
    """What was drawn has a row for each sample. A test that asks what was drawn for an image gets the row."""
    @functools.wraps(make_params)
    def run(self, flat_inputs):
        params = make_params(self, flat_inputs)
        if not sys._getframe(1).f_globals["__name__"].startswith("test_"):
            return params
        return {name: _as_theirs(rows[0]) for name, rows in params.items() if name != "applied"}
    return run


def _as_theirs(row):
    """A number, a list of one, or a tuple."""
    return row.item() if row.ndim == 0 else row.tolist() if len(row) == 1 else tuple(row.tolist())


def one_operation(self, image, transform_id, magnitude, interpolation, fill):
    """AutoAugment's `_apply_image_or_video_transform`"""
    from flambeau.data.transforms.arguments import fill_for
    from flambeau.data.transforms.auto import OPERATIONS
    return OPERATIONS[transform_id](image, magnitude, interpolation, fill_for(fill, image))


def warned_of(to_tensor):
    """Of ToTensor, which version 2 alone has deprecated: ours is both versions'."""
    @functools.wraps(to_tensor.__init__)
    def run(self):
        if sys._getframe(1).f_globals["__name__"] == "test_transforms_v2":
            warnings.warn("The transform `ToTensor()` is deprecated and will be removed in a future release.",
                          stacklevel=2)
        Module.__init__(self)
    from flambeau.nn import Module
    return run


def samples_draw_alike(transform, scripted, batch, msg=None):
    """test_transforms_tensor's check that a batch is transformed as its images are, one by one. There a batch has one
    draw, and all of them the same seed; here each sample is found by its number."""
    import torch

    from flambeau.utils.data.sample_random import addressing
    for function in (transform, scripted):
        with addressing(12, 0, range(len(batch))):
            whole = function(batch)
        for i, image in enumerate(batch):
            with addressing(12, 0, [i]):
                torch.testing.assert_close(function(image), whole[i], rtol=0, atol=0, msg=msg)


def adapt(module):
    """Give a module of tests, which was collected, what it compares by."""
    if hasattr(module, "_test_transform_vs_scripted_on_batch"):
        module._test_transform_vs_scripted_on_batch = samples_draw_alike


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
        if hasattr(held, "of_tensor") or name == "uniform_temporal_subsample":
            setattr(functional, name, logged(held))
    for kind in {kind for one in vars(transforms).values() if isinstance(one, type) for kind in one.__mro__}:
        if "make_params" in vars(kind):
            kind.make_params = of_one_image(kind.make_params)
    transforms.ToTensor.__init__ = warned_of(transforms.ToTensor)
    auto.AutoAugment._apply_image_or_video_transform = one_operation
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
