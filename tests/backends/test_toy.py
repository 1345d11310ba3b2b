"""A device that was registered, on which every operation runs: the seam that other devices stand behind."""
import copy
import io
import pickle

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn

from ..ops.rows import results
from ..ops.test_tables import floating, rows
from . import toy

TOY = torch.device("toy", 0)


@pytest.fixture
def log():
    torch.zeros(0, device=TOY)
    backend = TOY.backend
    backend.log.clear()
    yield backend.log
    backend.log.clear()


def stays(row, tensor):
    """Whether a tensor stands on the CPU beside data elsewhere: the lengths of packed sequences, as in PyTorch."""
    return "_pack" in row.name and tensor.dtype == torch.int64


@rows(lambda row: row.op != "cpu")
def test_operations(row):
    """Every row of every table: the CPU's bits, on the device, and derivatives too."""
    with torch.config.using(executor="reference"):
        ours, theirs = row.tensors(leaf=bool(row.grad)), row.tensors(leaf=bool(row.grad))
        ours = [t if stays(row, t) else t.detach().to(TOY).requires_grad_(t.requires_grad) for t in ours]
        torch.manual_seed(0)
        with TOY:                                            # what the row makes itself is there too
            mine = row.ours(*ours)
        torch.manual_seed(0)
        other = row.ours(*theirs)
        for a, b in zip(results(mine), results(other), strict=True):
            if not isinstance(a, torch.Tensor):
                assert a == b
                continue
            assert a.device == (b.device if stays(row, a) else TOY) and a.dtype == b.dtype
            assert a.shape == b.shape and a.stride() == b.stride()
            np.testing.assert_array_equal(a.detach().cpu().numpy(), b.detach().numpy())
        if row.grad:
            for made in (mine, other):
                sum((f.abs() if f.is_complex() else f).sum() for f in floating(made)).backward()
            for a, b in zip(ours, theirs, strict=True):
                if b.grad is not None:
                    assert a.grad.device == TOY
                    np.testing.assert_array_equal(a.grad.cpu().numpy(), b.grad.numpy())


def test_what_runs_where(log):
    x = torch.arange(4.0).to(TOY)
    y = (x * 2).exp()
    assert y.device == TOY and str(y.device) == "toy:0" and log.count("exp") == 0
    np.testing.assert_allclose(y.cpu().numpy(), np.exp(np.arange(4.0) * 2), rtol=1e-6)
    assert [word for word in log if word in ("mul", "exp")] == ["mul", "exp"]
    assert log.count("from_host") == 1                       # nothing else came from the CPU, and only the result went


def test_a_trace_of_two_devices():
    """Steps of the CPU and of the device, with copies between them, are one trace."""
    for executor in ("native", "reference"):
        with torch.config.using(executor=executor):
            x = torch.linspace(0, 1, 5000)
            y = ((x * 2).to(TOY) + 1).cpu() * (x - 1)
            np.testing.assert_allclose(y.numpy(), (x * 2 + 1).mul(x - 1).numpy(), rtol=1e-6)


def test_copies_between_devices_are_steps(log):
    """Each is made once, of what is needed alone, and no other stands in the log."""
    x = torch.linspace(0, 1, 500)
    torch.cpu.synchronize()
    with torch.config.using(executor="native"):
        y = ((x * 2).to(TOY) + 1).cpu() * (x - 1)
        assert str(torch.plans.of(y)) == """\
kernel 0  over [500]  mul  reads %0  keeps %1
transfer 1  over [500]  cpu to toy:0  reads %1  keeps %2
reference 2 on toy:0  add  reads %2  keeps %3
transfer 3  over [500]  toy:0 to cpu  reads %3  keeps %4
kernel 4  over [500]  fma, mul  reads %0, %4  gives %6"""
        y.tolist()
        assert log == ["from_host", "add", "to_host"]
        there = torch.plans.last().steps[1]
        assert (there.nbytes, there.flops, there.instructions, there.loop, there.llvm) == (2000, 0, (1,), None, None)
        assert (there.origin, there.device) == (torch.device("cpu"), TOY)


def test_a_copy_between_devices_converts_and_lays_out(log):
    """What is converted is converted before it goes; a part of a tensor goes alone, in the layout of its copy."""
    x = torch.arange(24.0).reshape(4, 6)
    torch.cpu.synchronize()
    with torch.config.using(executor="native"):
        y = (x * 2).to(TOY, torch.float16)
        z = x.t()[1:3].to(TOY)
        w = torch.tensor(3.0) * torch.ones(2, device=TOY)              # a number of the CPU joins
        v = y.to(torch.float64).to("toy:1")
        steps = torch.plans.of(v).steps
        assert [step.nbytes for step in steps if step.kind == "transfer"] == [48, 32, 4, 192]
        assert y.cpu().tolist() == (x * 2).tolist() == v.cpu().tolist() and v.device == torch.device("toy:1")
        assert z.cpu().tolist() == x.t()[1:3].tolist() and z.stride() == x.t()[1:3].to("cpu", copy=True).stride()
        assert w.tolist() == [3, 3]


def test_a_copy_that_fails_is_tried_again(monkeypatch):
    """Nothing is lost, and nothing was written over."""
    x = torch.ones(3)
    with torch.config.using(executor="native"):
        x += 1
        y = x.to(TOY)
        x += 1
        with monkeypatch.context() as patch:
            def refuse(self, array, spec):
                raise MemoryError("the toy box is full")
            patch.setattr(toy.ToyBackend, "from_host", refuse)
            with pytest.raises(MemoryError, match="full"):
                y.tolist()
        assert y.tolist() == [2, 2, 2] and x.tolist() == [3, 3, 3]


def test_a_number_of_the_cpu_joins():
    x = torch.ones(3, device=TOY)
    assert (x * torch.tensor(2.0)).device == TOY and (torch.tensor(2.0) * x).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match=r"same device, but found at least two devices, toy:0 and cpu"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match=r"toy:0 and toy:1"):
        x + torch.ones(3, device="toy:1")


def test_devices_by_name():
    assert torch.ones(2, device="toy").device == TOY == torch.device("toy:0")
    assert torch.ones(2).to("toy:1").to("toy:0").device == TOY
    with pytest.raises(RuntimeError, match="no toy:7"):
        torch.ones(2, device="toy:7")
    with torch.device("toy"):
        assert torch.randn(3).device == torch.tensor([1, 2]).device == nn.Linear(2, 3).weight.device == TOY


def test_in_place_views_and_writes():
    made = []
    for device in ("cpu", TOY):
        x = torch.arange(12.0, device=device).reshape(3, 4)
        x[1] = 7
        x.t()[2].mul_(10)
        x[:, 1:3].copy_(x[:, :2].clone())
        x.index_put_((torch.tensor([0, 2], device=device),), torch.tensor(3.5, device=device))
        x[[0, 1], torch.tensor([1, 2])] = x[torch.tensor([True, False, True])][:, 0] + 1    # positions from the CPU
        x.index_put_((torch.tensor([2]),), torch.tensor(1.0, device=device), accumulate=True)
        made.append(x.cpu().tolist())
    assert made[0] == made[1]


def test_training():
    made = []
    for device in ("cpu", TOY):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, y = torch.randn(16, 4).to(device), (torch.arange(16) % 2).to(device)
        with torch.config.using(executor="reference"):
            for _ in range(3):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        made.append((loss.item(), [p.detach().cpu().tolist() for p in model.parameters()]))
        assert all(p.device == torch.device(device) and p.grad.device == p.device for p in model.parameters())
    assert made[0] == made[1]


def test_saving_and_copying(tmp_path):
    x = torch.arange(6.0).reshape(2, 3).to(TOY)
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.device == TOY and twin.tolist() == x.tolist()
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1]}, file)
    for where, device in ((None, "toy:0"), ("cpu", "cpu"), ("toy:1", "toy:1"), (lambda s, tag: s, "cpu")):
        file.seek(0)
        found = torch.load(file, map_location=where)
        assert str(found["x"].device) == device and found["x"].tolist() == x.tolist()
        found["x"][1] = 0
        assert found["view"].tolist() == [0, 0, 0]           # still one storage
    from flambeau.safetensors import load_file, save_file
    save_file({"x": x}, tmp_path / "x.safetensors")
    assert load_file(tmp_path / "x.safetensors", device="toy:0")["x"].device == TOY
    assert load_file(tmp_path / "x.safetensors")["x"].tolist() == x.tolist()


def test_numpy_is_refused():
    x = torch.ones(2, device=TOY)
    with pytest.raises(TypeError, match="can't convert toy:0 device type tensor to numpy. Use Tensor.cpu()"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1, 1]


def test_printing():
    assert repr(torch.ones(2, device=TOY)) == "tensor([1., 1.], device='toy:0')"


def test_data_dependent_shapes():
    x = torch.tensor([0, 3, 0, 4], device=TOY)
    assert x.nonzero().device == TOY and x.nonzero().flatten().tolist() == [1, 3]
    assert x[x > 0].device == TOY and torch.unique(x).tolist() == [0, 3, 4]


def test_compile():
    f = torch.compile(lambda x, n: (x * n).sin() + 1)
    for n in (2.0, 3.0, 4.0, 5.0):
        x = torch.arange(4.0, device=TOY)
        assert f(x, n).device == TOY
        np.testing.assert_allclose(f(x, n).cpu().numpy(), np.sin(np.arange(4.0) * n) + 1, rtol=1e-6)
