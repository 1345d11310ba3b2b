"""TorchFunctionMode: a program shows a mode the same calls, by the same names and in the same order, as in PyTorch."""
import warnings

import numpy as np
import pytest
import torch

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore")


def log(m):
    class Log(m.overrides.TorchFunctionMode):
        def __init__(self, seen, tag=""):
            self.seen, self.tag = seen, tag

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(self.tag + (m.overrides.resolve_name(func) or func.__name__))
            return func(*args, **(kwargs or {}))
    return Log


def everything(m, layer):
    """A bit of each: operators, methods, properties, indices, factories, modules, gradients, in-place forms."""
    x = m.ones(2, 3, requires_grad=True)
    z = 1 - (x + 1)
    z = z.exp().sum()
    z.backward()
    assert x.grad is not None and x.shape == (2, 3) and x.size(0) == 2 and len(x) == 2 and x.dtype is m.float32
    x[0], x[:, 1]
    m.tensor([1.0]), m.rand(2), m.zeros_like(x)
    layer(x), m.nn.functional.relu(x), x.view(-1), x.T
    z.item(), float(z.detach()), repr(z)
    w = m.ones(2)
    w += 1
    w.uniform_()
    w.requires_grad_()
    m.cat([w, w]), m.stack([w]), m.where(w > 0, w, 0)
    w.detach()[0] = 3.0
    m.autograd.grad((w * 2).sum(), w)
    w.data, w.new_zeros(2), w.to(m.float64), w.detach().add_(1), w.t()
    m.manual_seed(0), m.is_tensor(x)


def test_the_same_calls_are_seen():
    found = []
    for m in (flambeau, torch):
        layer = m.nn.Linear(3, 2)
        everything(m, layer)                             # once before: then there is something to forget
        seen = []
        with log(m)(seen):
            everything(m, layer)
        everything(m, layer)
        found.append(seen)
    ours, theirs = ([n for n in names if not n.endswith(("uniform_", "__eq__", "Tensor.eq"))] for names in found)
    assert ours == theirs


def test_nested_modes():
    found = []
    for m in (flambeau, torch):
        seen, x, Log = [], m.ones(2), log(m)
        with Log(seen, "a "), Log(seen, "b "):
            depth = m.overrides._len_torch_function_stack()
            x + 1, x.shape, m.tensor([1.0]), x.mul_(2)
        found.append((seen, depth, m.overrides._len_torch_function_stack()))
    assert found[0] == found[1]


def test_functions_can_be_told_from_each_other_and_replaced():
    def program(m):
        class Swap(m.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func in (m.Tensor.add, m.add):
                    func = m.sub
                if func is m.ones:
                    return m.zeros(*args)
                if func == m.Tensor.shape.__get__:
                    return "shape"
                return func(*args, **(kwargs or {}))
        with Swap():
            inside = m.add(m.ones(1), 5).tolist(), m.ones(1).add(2).tolist(), (m.ones(1) + 2).tolist(), m.ones(1).shape
        return inside, m.ones(1).add(2).tolist(), tuple(m.ones(1).shape)
    assert program(flambeau) == program(torch)


def test_subclasses_come_after_modes():
    def program(m):
        seen = []

        class Sub(m.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append("sub " + func.__name__)
                return super().__torch_function__(func, types, args, kwargs)

        class Mode(m.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(("mode " + func.__name__, [t.__name__ for t in types]))
                return func(*args, **(kwargs or {}))

        class Not(m.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return NotImplemented
        x, m_plain = m.ones(2).as_subclass(Sub), m.ones(1)
        with Mode():
            m.add(x, 1)
            with m._C.DisableTorchFunctionSubclass() if m is torch else m.DisableTorchFunctionSubclass():
                m.add(x, 1)
        with Not():
            for given in (x, m_plain):
                with pytest.raises(TypeError):
                    m.add(given, 1)
        return seen[:2]
    assert program(flambeau) == program(torch)


def test_random_numbers_and_values_are_the_same_inside():
    for m in (flambeau, torch):
        m.manual_seed(0)
        plain = m.nn.Linear(3, 2)(m.rand(4, 3)).detach().numpy()
        m.manual_seed(0)
        with m.overrides.BaseTorchFunctionMode():
            inside = m.nn.Linear(3, 2)(m.rand(4, 3)).detach().numpy()
        np.testing.assert_array_equal(plain, inside)


def test_errors_leave_nothing_behind():
    def program(m):
        class Bad(m.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                raise KeyError(func.__name__)
        x = m.ones(1)
        for call in (lambda: x + 1, lambda: x.shape, lambda: m.tensor(1), lambda: x[0]):
            with pytest.raises(KeyError), Bad():
                call()
        return m.overrides._len_torch_function_stack(), (x + 1).tolist(), tuple(x.shape)
    with warnings.catch_warnings():
        assert program(flambeau) == program(torch)


def test_what_can_be_overridden_is_what_pytorch_says():
    theirs = torch.overrides.get_overridable_functions()
    names = {torch.overrides.resolve_name(f) for fs in theirs.values() for f in fs}
    ours = {flambeau.overrides.resolve_name(f)
            for fs in flambeau.overrides.get_overridable_functions().values() for f in fs}
    both = [n for n in ("torch.add", "torch.Tensor.add", "torch.nn.functional.relu", "torch.cat",
                        "torch.Tensor.shape.__get__", "torch.Tensor.__getitem__", "torch.fft.fft") if n in names]
    assert len(both) == 7 and set(both) <= ours
