"""Tensors on GPUs (simulated ones) as programs see them: names of devices, movement, memory that is shared, files."""
import copy
import io
import pickle

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.base import dtypes

pytestmark = [pytest.mark.pinned, pytest.mark.usefixtures("simulated")]
EXECUTORS = pytest.mark.parametrize("executor", ("reference", "native"))


class Shown:
    """An object of another library over the memory of a tensor."""

    def __init__(self, tensor, **changed):
        self.tensor, self.changed = tensor, changed

    @property
    def __cuda_array_interface__(self):
        return {**self.tensor.__cuda_array_interface__, **self.changed}


def test_names():
    x = torch.ones(2, device="cuda")
    assert x.device == torch.device("cuda:0") == torch.device("cuda", 0) and str(x.device) == "cuda:0"
    assert repr(x.device) == "device(type='cuda', index=0)"
    assert x.is_cuda and not x.is_cpu and x.get_device() == 0 and not torch.ones(2).is_cuda
    assert x.cuda() is x and x.to("cuda") is x and x.cuda(1).device == torch.device("cuda:1")
    assert torch.ones(2).cuda().device == x.device == torch.ones(2).to(0).device
    assert x.type() == "torch.cuda.FloatTensor"
    with torch.device("cuda:1"):
        assert torch.randn(3).device == torch.tensor([1, 2]).device == nn.Linear(2, 3).weight.device \
            == torch.device("cuda", 1)
    assert nn.Linear(2, 3).cuda().weight.is_cuda


def test_the_current_device_is_meant_without_an_index():
    with torch.cuda.device(1):
        assert torch.ones(2, device="cuda").device == torch.device("cuda:1") == torch.ones(2).cuda().device
        assert torch.ones(2, device="cuda:0").sum().item() == 2
    assert torch.ones(2, device="cuda").device == torch.device("cuda:0")


def test_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match=r"invalid device ordinal: there is no cuda:7, the 2 devices are cuda:0 to"):
        torch.ones(2, device="cuda:7")


def test_mixed_devices():
    x = torch.ones(3, device="cuda")
    assert (x * torch.tensor(2.0)).device == x.device and (torch.tensor(2.0) * x).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="same device, but found at least two devices, cuda:0 and cpu"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        x + torch.ones(3, device="cuda:1")


@EXECUTORS
def test_movement(executor):
    with torch.config.using(executor=executor):
        x = torch.arange(24.0).reshape(4, 6)
        for laid in (x, x.t(), x[::2, 1::3], x[:0], x[2, 3]):
            there = laid.to("cuda")
            assert there.cpu().tolist() == laid.tolist() and there.shape == laid.shape
            assert there.stride() == laid.to("cpu", copy=True).stride()
            beside = there.to("cuda:1")
            assert beside.device.index == 1 and beside.tolist() == laid.tolist() and (beside + 1).sum().item() == \
                laid.sum().item() + laid.numel()
        whole = x.cuda()
        for part in (whole[1:, ::2], whole.t()[1:3], whole[:, None].expand(4, 3, 6)):
            assert part.cpu().tolist() == part.to("cuda:1").tolist() == part.contiguous().tolist()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_dtypes(dtype):
    """Each can be held, moved, converted to and from, cut and put together, and printed."""
    x = torch.tensor([[0.0, 1.0, 2.0], [3.0, 8.0, 16.0]]).to(dtype)
    there = x.cuda()
    assert there.dtype is dtype and there.element_size() == x.element_size()
    bits = torch.uint8 if dtype is not torch.bool else torch.bool
    assert there.cpu().view(bits).tolist() == x.view(bits).tolist()
    assert there.to(torch.float64).tolist() == x.to(torch.float64).tolist() \
        if not dtype.is_complex else there.tolist() == x.tolist()
    for made in (lambda t: t.t().contiguous(), lambda t: torch.cat([t, t]), lambda t: t[:, 1], lambda t: t[1].clone(),
                 lambda t: torch.tensor([0.0, 3.0, 2.0], device=t.device).to(dtype),
                 lambda t: t[torch.tensor([[True, False, True], [False] * 3], device=t.device)]):
        ours, theirs = made(there), made(x)
        assert ours.is_cuda and ours.dtype is dtype
        assert ours.cpu().contiguous().view(bits).tolist() == theirs.contiguous().view(bits).tolist()
    assert repr(there).replace(", device='cuda:0'", "") == repr(x)


@EXECUTORS
def test_writes(executor):
    made = []
    with torch.config.using(executor=executor):
        for device in ("cpu", "cuda", "cuda:1"):
            x = torch.arange(12.0, device=device).reshape(3, 4)
            x[1] = 7
            x.t()[2].mul_(10)
            x[:, 1:3].copy_(x[:, :2].clone())
            x.index_put_((torch.tensor([0, 2], device=device),), torch.tensor(3.5, device=device))
            x[[0, 1], torch.tensor([1, 2])] = x[torch.tensor([True, False, True])][:, 0] + 1
            x.index_put_((torch.tensor([2]),), torch.tensor(1.0, device=device), accumulate=True)
            y = x.clone().expand(2, 3, 4)
            x.resize_(4, 4)[3] = 1
            z = torch.zeros(2, 2, device=device)
            z.as_strided((3,), (1,)).add_(torch.arange(3.0, device=device))
            z.untyped_storage().resize_(24)
            made.append((x.cpu().tolist(), y.cpu().tolist(), z.cpu().tolist(), z.untyped_storage().nbytes()))
    assert made[0] == made[1] == made[2]


def test_saving_and_copying(tmp_path):
    x = torch.arange(6.0).reshape(2, 3).cuda()
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert twin.device == x.device and twin.tolist() == x.tolist()
        twin[0] = -1
        assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1]}, file)
    for where, device in ((None, "cuda:0"), ("cpu", "cpu"), ("cuda:1", "cuda:1"), ("cuda", "cuda:0"),
                          (torch.device("cuda:1"), "cuda:1"), ({"cuda:0": "cuda:1"}, "cuda:1"),
                          (lambda s, tag: s, "cpu"), (lambda s, tag: s.cuda(1), "cuda:1")):
        file.seek(0)
        found = torch.load(file, map_location=where)
        assert str(found["x"].device) == device and found["x"].tolist() == x.tolist()
        found["x"][1] = 0
        assert found["view"].tolist() == [0, 0, 0]           # still one storage
    from flambeau.safetensors import load_file, save_file
    save_file({"x": x}, tmp_path / "x.safetensors")
    assert load_file(tmp_path / "x.safetensors", device="cuda:1")["x"].device == torch.device("cuda:1")
    assert load_file(tmp_path / "x.safetensors")["x"].tolist() == x.tolist()


def test_numpy_is_refused():
    x = torch.ones(2, device="cuda")
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"):
        x.numpy()
    with pytest.raises(TypeError, match="cuda:0 device type"):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [1, 1]


@EXECUTORS
def test_bfloat16_without_cupys(simulated, monkeypatch, executor):
    """A CuPy older than 14 has no such arrays: references are shown whole numbers, and give the same."""
    monkeypatch.setattr(simulated, "lacks", (*simulated.lacks, "bfloat16"))
    with torch.config.using(executor=executor):
        x = (torch.arange(12.0).reshape(3, 4) / 7).to(torch.bfloat16)
        for made in (lambda t: t * 3 + 1, lambda t: t.t().contiguous(), lambda t: t.sort(descending=True)[0],
                     lambda t: t.softmax(1), lambda t: t @ t.t(), lambda t: t.cumsum(0), lambda t: t[[2, 0]],
                     lambda t: torch.cat([t, t]), lambda t: t.to(torch.float64), lambda t: t.amax(1),
                     lambda t: t[t > 1], lambda t: t.unique(), lambda t: t.masked_select(t > 1),
                     lambda t: t.float().to(torch.bfloat16), lambda t: torch.arange(300, device=t.device).bfloat16(),
                     lambda t: t.sum(), lambda t: t.clone().index_fill_(0, torch.tensor(1, device=t.device), 2)):
            ours, theirs = made(x.cuda()), made(x)
            assert ours.dtype is theirs.dtype and ours.cpu().float().numpy() == pytest.approx(
                theirs.float().numpy(), rel=1e-2)


def test_printing():
    assert repr(torch.ones(2, device="cuda")) == "tensor([1., 1.], device='cuda:0')"
    assert repr(torch.ones((), device="cuda:1")) == "tensor(1., device='cuda:1')"
    assert repr(torch.zeros(0, 2, device="cuda")) == "tensor([], device='cuda:0', size=(0, 2))"


# --- memory that others see -------------------------------------------------------------------------------------------


@EXECUTORS
def test_the_array_interface_shares_memory(executor):
    with torch.config.using(executor=executor):
        x = torch.arange(6.0, device="cuda").reshape(2, 3)
        known = x.__cuda_array_interface__
        assert known["shape"] == (2, 3) and known["typestr"] == "<f4" and known["strides"] is None
        assert known["data"] == (x.data_ptr(), False) and known["version"] == 3
        y = torch.as_tensor(Shown(x))
        assert y.device == x.device and y.data_ptr() == x.data_ptr()
        y += 1
        assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
        x.t().mul_(2)
        assert y.tolist() == [[2, 4, 6], [8, 10, 12]]
        z = torch.as_tensor(Shown(x.t()[1:]), device="cuda")
        assert z.stride() == (1, 3) and z.tolist() == [[4, 10], [6, 12]]
        z[0] = 0
        assert x.tolist() == [[2, 0, 6], [8, 0, 12]]
        assert (y * 2).sum().item() == 56


def test_copies_of_others_memory():
    x = torch.arange(3, device="cuda:1")
    for made in (torch.tensor(Shown(x)), torch.as_tensor(Shown(x), dtype=torch.float64),
                 torch.asarray(Shown(x), copy=True), torch.as_tensor(Shown(x), device="cpu")):
        made += 1
        assert x.tolist() == [0, 1, 2] and made.tolist() == [1, 2, 3]
    assert torch.tensor(Shown(x)).device == x.device and torch.asarray(Shown(x)).data_ptr() == x.data_ptr()


def test_others_memory_that_cannot_be_a_tensor():
    x = torch.arange(6, device="cuda")
    with pytest.raises(ValueError, match="not negative; these are \\(-8,\\) bytes"):
        torch.as_tensor(Shown(x, strides=(-8,)))
    with pytest.raises(TypeError, match="can't convert np.ndarray of type"):
        torch.as_tensor(Shown(x, typestr="<M8[s]"))
    held = torch.as_tensor(Shown(x, data=(x.data_ptr(), True)))
    with pytest.raises(RuntimeError, match="read-only"):
        held += 1


def test_the_array_interface_is_refused():
    assert not hasattr(torch.ones(2), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="non-CUDA tensor type: torch.FloatTensor"):
        torch.ones(2).__cuda_array_interface__                             # noqa: B018
    with pytest.raises(RuntimeError, match="that requires grad"):
        torch.ones(2, device="cuda", requires_grad=True).__cuda_array_interface__       # noqa: B018


def test_dlpack_names_the_device():
    assert torch.ones(2, device="cuda:1").__dlpack_device__() == (2, 1)
    with pytest.raises(BufferError, match="require gradient"):
        torch.ones(2, device="cuda", requires_grad=True).__dlpack__()


@EXECUTORS
def test_an_address_that_was_asked_for(executor):
    """The memory stays where it is, and what is computed afterwards goes there."""
    with torch.config.using(executor=executor):
        x = torch.zeros(4, device="cuda")
        start = x.data_ptr()
        x += 3
        x[1:].mul_(2)
        assert x.data_ptr() == start and x[2:].data_ptr() == start + 8 and x.tolist() == [3, 6, 6, 6]


# --- what cannot be done ----------------------------------------------------------------------------------------------


def test_what_cupy_cannot_do_is_said(simulated, monkeypatch):
    """The operation, the dtypes, and what to do instead; nothing is computed elsewhere in silence."""
    x = torch.tensor([3.0, 1.0], device="cuda")

    def refuse(*args, **named):
        raise TypeError("Unsupported dtype float32 for sort")
    monkeypatch.setattr(x.device.backend.xp, "argsort", refuse)
    monkeypatch.setattr(simulated, "refusals", (TypeError,))
    with torch.config.using(executor="reference"), pytest.raises(
            NotImplementedError, match=r"sort of float32 cannot run on cuda:0 yet: CuPy says TypeError: Unsupported "
                                       r"dtype float32 for sort. Move the tensors with .cpu\(\)"):
        x.sort()[0].tolist()


@EXECUTORS
def test_training(executor):
    made = []
    for device in ("cpu", "cuda", "cuda:1"):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = torch.randn(16, 4).to(device), (torch.arange(16) % 2).to(device)
        with torch.config.using(executor=executor):
            for _ in range(3):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        made.append([loss.item(), *(v for p in model.parameters() for v in p.detach().cpu().flatten().tolist())])
        assert all(p.device == torch.device(device if ":" in device or device == "cpu" else "cuda:0")
                   and p.grad.device == p.device for p in model.parameters())
    np.testing.assert_allclose(made[1], made[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(made[1], made[2])


# --- storages ---------------------------------------------------------------------------------------------------------


def test_storages():
    x = torch.arange(3, dtype=torch.int32, device="cuda:1")
    held = x.untyped_storage()
    assert held.device == x.device and held.is_cuda and held.nbytes() == 12 and held.tolist()[:5] == [0, 0, 0, 0, 1]
    assert held.cpu().device.type == "cpu" and held.cpu().tolist() == held.tolist() == held.clone().tolist()
    assert torch.arange(3, dtype=torch.int32).untyped_storage().cuda().tolist() == held.tolist()
    assert torch.UntypedStorage(4, device="cuda").device == torch.device("cuda:0")
    assert torch.UntypedStorage([1, 2], device="cuda:1").tolist() == [1, 2]
    held[0] = 7
    assert x.tolist() == [7, 1, 2]


@EXECUTORS
def test_a_storage_whose_address_was_asked_for(executor):
    """It stays where it is while the object lives that was asked, and no longer."""
    with torch.config.using(executor=executor):
        x = torch.zeros(4, device="cuda")
        held = x.untyped_storage()
        start = held.data_ptr()
        x += 3
        assert held.data_ptr() == start == x.untyped_storage().data_ptr() and held.tolist()[3] == 64
        assert x._storage.exported and x._storage.still_exported()
        del held
        assert not x._storage.still_exported() and x.tolist() == [3, 3, 3, 3]
