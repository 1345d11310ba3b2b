"""Tensors that are pickled or copied: what is kept, what is shared afterwards, what is refused."""
import copy
import io
import pickle

import numpy as np
import pytest

import flambeau as torch

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


class Tagged(torch.Tensor):
    """A subclass with something of its own."""


def through(thing, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(thing, protocol))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex128"])
def test_values_dtype_and_layout_are_kept(protocol, dtype):
    for t in (torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)), torch.zeros(0, 2), torch.tensor(1.5)):
        for u in (t, t.t() if t.ndim == 2 else t, t[..., 1:] if t.ndim == 2 else t):
            got = through(u, protocol)
            assert got.dtype is u.dtype and got.stride() == u.stride() and got.storage_offset() == u.storage_offset()
            assert got.tolist() == u.tolist() and type(got) is torch.Tensor


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tensors_that_shared_memory_still_do(protocol):
    base = torch.arange(6.0)
    found = through({"base": base, "tail": base[3:], "grid": base.view(2, 3), "other": base.clone()}, protocol)
    found["tail"][0] = 100
    assert found["base"].tolist() == [0, 1, 2, 100, 4, 5] and found["grid"][1, 0].item() == 100
    assert found["other"][3].item() == 3 and base[3].item() == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requires_grad_is_kept_and_history_is_not(protocol):
    leaf = torch.ones(2, requires_grad=True)
    assert through(leaf, protocol).requires_grad and through(leaf, protocol).is_leaf
    made = through(leaf * 2, protocol)
    assert made.requires_grad and made.is_leaf and made.tolist() == [2, 2]
    assert not through(leaf.detach(), protocol).requires_grad


def test_a_pending_result_is_computed_and_can_be_written_afterwards():
    got = through(torch.ones(3) * 2 + 1)
    got += 1
    assert got.tolist() == [4, 4, 4]


def test_buffers_out_of_band():
    t = torch.arange(1000.0)
    buffers = []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert len(data) < 1000 and len(buffers) == 1
    got = pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])      # read-only buffers are copied
    got += 1
    assert got.tolist() == list(range(1, 1001)) and t[0].item() == 0


def test_subclasses_parameters_and_attributes():
    t = Tagged([1.0, 2.0])
    t.tag = {"name": "x"}
    for got in (through(t), copy.copy(t), copy.deepcopy(t)):
        assert type(got) is Tagged and got.tag == {"name": "x"} and got.tolist() == [1, 2]
    p = torch.nn.Parameter(torch.ones(2))
    p.rate = 3
    for got in (through(p), copy.copy(p)):
        assert type(got) is torch.nn.Parameter and got.requires_grad and got.rate == 3
    fresh = copy.deepcopy(p)                 # as in PyTorch: a new Parameter over copied data, and no more than that
    assert type(fresh) is torch.nn.Parameter and fresh.requires_grad and not hasattr(fresh, "rate")
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert not through(frozen).requires_grad and not copy.deepcopy(frozen).requires_grad


def test_meta_tensors_and_the_small_objects():
    t = through(torch.empty(2, 3, device="meta"))
    assert t.is_meta and tuple(t.shape) == (2, 3)
    for thing in (torch.float16, torch.Size([2, 3]), torch.device("cpu"), torch.channels_last, torch.strided):
        assert through(thing) == thing and type(through(thing)) is type(thing)
    g = torch.Generator().manual_seed(3)
    torch.rand(5, generator=g)
    twin = through(g)
    assert torch.rand(4, generator=g).tolist() == torch.rand(4, generator=twin).tolist()


def test_pickles_of_exported_memory_are_copies():
    array = np.arange(3.0)
    array.flags.writeable = False
    got = through(torch.from_numpy(array))
    got += 1
    assert got.tolist() == [1, 2, 3] and array.tolist() == [0, 1, 2]


def test_copy_shares_and_deepcopy_does_not():
    t = torch.arange(3.0)
    near, far = copy.copy(t), copy.deepcopy(t)
    t[0] = 9
    assert near.tolist() == [9, 1, 2] and far.tolist() == [0, 1, 2] and near is not t


def test_deepcopy_keeps_sharing_and_identity_within_one_call():
    base = torch.arange(4.0)
    one, two, three = copy.deepcopy((base, base[1:], base))
    one[1] = 50
    assert two[0].item() == 50 and three is one and base[1].item() == 1
    far = copy.deepcopy(base[1:])
    assert far.storage_offset() == 1 and far.tolist() == [1, 2, 3]


def test_deepcopy_copies_the_gradient_of_a_leaf_and_refuses_the_rest():
    leaf = torch.ones(2, requires_grad=True)
    (leaf * 3).sum().backward()
    far = copy.deepcopy(leaf)
    assert far.requires_grad and far.grad.tolist() == [3, 3] and far.grad is not leaf.grad
    far.grad[0] = 0
    assert leaf.grad.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(leaf * 2)
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy([leaf.view(2)])


def test_deepcopy_of_a_container_of_layers_as_a_user_writes_it():
    model = {"w": torch.nn.Parameter(torch.ones(2)), "state": [torch.zeros(2), {"step": torch.tensor(3)}]}
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model["w"].add_(1)
    assert twin["w"].tolist() == [1, 1] and isinstance(twin["w"], torch.nn.Parameter)
    assert twin["state"][1]["step"].item() == 3


def test_a_pickle_of_pickles():
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    t = torch.ones(2)
    pickler.dump(t)
    pickler.dump(t[1:])
    buffer.seek(0)
    unpickler = pickle.Unpickler(buffer)
    assert unpickler.load().tolist() == [1, 1] and unpickler.load().tolist() == [1]
