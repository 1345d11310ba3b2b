"""Device, Size, Spec."""
import copy
import pickle

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import dtypes
from flambeau.base.spec import CPU, META, of_array, spec


def test_specs_are_interned():
    a = spec(dtypes.float32, (2, 3))
    assert a is spec(dtypes.float32, (2, 3), (3, 1)) is spec(dtypes.float32, (2, 3), None, CPU)
    assert a is not spec(dtypes.float32, (2, 3), (1, 2)) and a is not spec(dtypes.float32, (2, 3), None, META)
    assert (a.ndim, a.numel, a.nbytes, a.np_strides, a.contiguous, a.dense) == (2, 6, 24, (12, 4), True, True)
    turned = spec(dtypes.float32, (2, 3), (1, 2))
    assert not turned.contiguous and turned.dense and not spec(dtypes.float32, (2, 3), (6, 2)).dense


def test_specs_print_what_differs():
    assert repr(spec(dtypes.float32, (2, 3))) == "float32[2, 3]"
    assert repr(spec(dtypes.int64, (2, 3), (1, 2))) == "int64[2, 3] strides [1, 2]"
    assert repr(spec(dtypes.bool, (), None, META)) == "bool[] on meta"


def test_like_replaces_parts():
    a = spec(dtypes.float32, (2, 3), (1, 2))
    assert a.like(dtype=dtypes.bool) is spec(dtypes.bool, (2, 3), (1, 2))
    assert a.like(shape=(4,)) is spec(dtypes.float32, (4,))
    assert of_array(np.zeros((2, 1), np.int16)) is spec(dtypes.int16, (2, 1))


def test_size_is_a_tuple_that_stays_a_size():
    s = torch.Size([2, 3])
    assert s == (2, 3) and s.numel() == 6 and repr(s) == "torch.Size([2, 3])"
    assert all(isinstance(made, torch.Size) for made in (s[:1], s + (4,), (4,) + s, s * 2))
    assert pickle.loads(pickle.dumps(s)) == s and isinstance(copy.copy(s), torch.Size)
    assert torch.zeros(2, 3).shape == s and torch.zeros(2, 3).size(1) == 3


def test_devices_are_interned_and_compare():
    cpu = torch.device("cpu")
    assert cpu is torch.device("cpu") is torch.zeros(1).device and torch.device(cpu) is cpu
    assert str(cpu) == "cpu" and repr(cpu) == "device(type='cpu')" and cpu.index is None
    second = torch.device("cuda:1")
    assert second == torch.device("cuda", 1) and repr(second) == "device(type='cuda', index=1)"
    assert pickle.loads(pickle.dumps(second)) == second and hash(cpu) == hash(torch.device("cpu"))


@pytest.mark.parametrize("call, kind, words", [
    (lambda: torch.device("gpu"), RuntimeError, "Expected one of cpu, cuda"),
    (lambda: torch.device("cpu:x"), RuntimeError, "Invalid device string"),
    (lambda: torch.device("cuda:0", 1), RuntimeError, "must not include an index"),
    (lambda: torch.device(1.5), TypeError, "must be str"),
    (lambda: torch.zeros(1, device="cuda"), AssertionError, "not compiled with CUDA"),
    (lambda: torch.zeros(1, device="cpu:3"), RuntimeError, "does not exist"),
    (lambda: torch.zeros(1, device="mps"), RuntimeError, "not available")])
def test_devices_that_are_not_there(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_a_device_as_context_is_where_new_tensors_go():
    with torch.device("meta"):
        assert torch.zeros(2).device.type == "meta" and torch.tensor([1.0]).device.type == "meta"
        with torch.device("cpu"):
            assert torch.zeros(2).device.type == "cpu"
    assert torch.zeros(2).device.type == "cpu"
    torch.set_default_device("meta")
    try:
        assert torch.ones(1).is_meta
    finally:
        torch.set_default_device(None)
    assert not torch.ones(1).is_meta


def test_meta_tensors_have_everything_but_data():
    x = torch.zeros(2, 3, device="meta")
    y = (x @ x.t()).softmax(0)[1:].add_(1)
    assert y.shape == (1, 2) and y.is_meta and y._version == 1
    for look in (lambda: y.tolist(), lambda: y.numpy(), lambda: bool(y.sum() > 0), lambda: y.to("cpu")):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            look()
    w = torch.ones(3, device="meta", requires_grad=True)
    (w * 2).sum().backward()
    assert w.grad.is_meta and w.grad.shape == (3,)
