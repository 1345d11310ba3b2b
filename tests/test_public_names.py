"""The names that classes go by: `flambeau.Tensor`, and `torch.Tensor` where Flambeau stands in for PyTorch."""
import copy
import pickle
import subprocess
import sys
import warnings

import pytest

import flambeau as torch
from tests.patience import PATIENCE

# What `repr(type(thing))` says in PyTorch.
THINGS = {
    "torch.Tensor": "torch.ones(2)", "torch.Size": "torch.ones(2).shape", "torch.dtype": "torch.float32",
    "torch.device": "torch.device('cpu')", "torch.layout": "torch.strided", "torch.finfo": "torch.finfo(torch.half)",
    "torch.iinfo": "torch.iinfo(torch.int8)", "torch.memory_format": "torch.channels_last",
    "torch.nn.parameter.Parameter": "torch.nn.Parameter(torch.ones(1))",
    "torch.storage.UntypedStorage": "torch.ones(1).untyped_storage()",
    "torch.storage.TypedStorage": "torch.ones(1).storage()",
}
STAND_IN = """
import copy, io, pickle, warnings
import flambeau
flambeau.install_as_torch()
import torch
warnings.simplefilter("ignore")
for name, text in {things}.items():
    thing = eval(text)
    kind = type(thing)
    assert repr(kind) == f"<class '{{name}}'>", repr(kind)
    assert f"{{kind.__module__}}.{{kind.__qualname__}}" == name
    assert pickle.loads(pickle.dumps(kind)) is kind
    if name not in ("torch.finfo", "torch.iinfo"):
        assert type(copy.deepcopy(thing)) is type(pickle.loads(pickle.dumps(thing))) is kind
assert repr(torch.Generator) == "<class 'torch._C.Generator'>"
assert torch.ones(1).type() == torch.nn.Parameter(torch.ones(1)).type() == "torch.FloatTensor"
saved = io.BytesIO()
things = [torch.nn.Parameter(torch.ones(1)), torch.float16, torch.Size([2]), torch.device("cpu")]
torch.save(things, saved)
saved.seek(0)
assert repr(torch.load(saved)) == repr(things)


@torch.compile
def step(x, p):
    assert isinstance(x, torch.Tensor) and x.device == torch.device("cpu")
    return (x.reshape(torch.Size([2, 1])) * p).to(torch.float64).sum()


for _ in range(3):
    p = torch.nn.Parameter(torch.full((1,), 3.0))
    step(torch.ones(2), p).backward()
    assert p.grad.item() == 2
"""


@pytest.mark.parametrize("name", THINGS)
def test_without_the_stand_in(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                     # TypedStorage is deprecated
        thing = eval(THINGS[name])
        kind = type(thing)
        assert repr(kind) == f"<class '{name.replace('torch', 'flambeau', 1)}'>"
        assert pickle.loads(pickle.dumps(kind)) is kind
        if name not in ("torch.finfo", "torch.iinfo"):
            assert type(copy.deepcopy(thing)) is type(pickle.loads(pickle.dumps(thing))) is kind


def test_under_the_stand_in():
    done = subprocess.run([sys.executable, "-c", STAND_IN.format(things=THINGS)], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_pickles_by_the_names_that_classes_are_written_under():
    """As those of earlier versions: the modules are still there."""
    assert pickle.loads(b"cflambeau.tensor.tensor\nTensor\n.") is torch.Tensor
    assert pickle.loads(b"cflambeau.base.spec\ndevice\n.") is torch.device
    assert pickle.loads(b"cflambeau.base.dtypes\nfloat32\n.") is torch.float32
