"""Subclasses: what `__torch_function__` is given, what it may return, and what the inherited one does."""
import pytest

import flambeau as torch
from flambeau.overrides import (
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    is_tensor_like,
    wrap_torch_function,
)


class Plain(torch.Tensor):
    pass


class Derived(Plain):
    pass


class Other(torch.Tensor):
    pass


class Logged(torch.Tensor):
    """Writes down every call."""

    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, types, args, kwargs))
        return super().__torch_function__(func, types, args, kwargs or {})


class Duck:
    """No tensor at all, but takes part."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, types, args, kwargs


def calls(line, **names):
    Logged.calls.clear()
    made = eval(line, {"torch": torch, **names})
    return made, list(Logged.calls)


@pytest.mark.parametrize("line", """x + 1 | 1 + x | 1 - x | x / 2 | 2 ** x | x @ x | -x | abs(x) | x == 1 | x < 1
~(x > 0) | x[0] | x[x > 0] | x.sum() | torch.sum(x) | x.view(1, 2) | x.t() | torch.cat([x, y]) | torch.stack([y, x])
torch.add(y, x) | torch.add(input=y, other=x) | torch.where(x > 0, x, y) | x.new_zeros(3) | torch.zeros_like(x)
torch.rand_like(x) | x.clone() | x.detach() | x.data | x.to(torch.float64) | x.double() | x.exp().log()
torch.nn.functional.relu(x) | x.unbind()[0] | x.max(0).values | x.clone().add_(1) | x.clone().uniform_()
torch.bernoulli(x * 0) | x.expand(3, 2) | x.cumsum(0) | x.softmax(0) | torch.sin(x, out=x.clone())
torch.full_like(x, 3) | x.as_subclass(Plain)""".replace("\n", " | ").split("|"))
def test_results_are_of_the_subclass(line):
    x, y = Plain([1.0, 2.0]), torch.ones(2)
    made = eval(line.strip(), {"torch": torch, "x": x, "y": y, "Plain": Plain})
    plain = eval(line.strip(), {"torch": torch, "x": torch.tensor([1.0, 2.0]), "y": y, "Plain": torch.Tensor})
    assert type(made) is Plain and made.dtype is plain.dtype and made.shape == plain.shape
    if "rand" not in line and "uniform" not in line:
        assert made.tolist() == plain.tolist()


def test_in_place_operations_return_the_same_object():
    x = Plain([1.0, 2.0])
    y = x
    y += 1
    assert y is x and x.add_(1) is x and x.tolist() == [3, 4]
    z = torch.zeros(2)
    kept = z
    z += x                                                  # the override's answer, over the same memory
    assert type(z) is Plain and type(kept) is torch.Tensor and kept.tolist() == [3, 4]


def test_the_most_derived_class_decides():
    assert type(Plain([1.0]) + Derived([1.0])) is Derived and type(Derived([1.0]) + Plain([1.0])) is Derived
    with pytest.raises(TypeError, match="no implementation found"):
        Plain([1.0]) + Other([1.0])


def test_an_override_sees_the_public_function_and_the_arguments_as_they_were_written():
    x, y = Logged([1.0, 2.0]), torch.ones(2)
    _, seen = calls("torch.add(x, y, alpha=2)", x=x, y=y)
    (func, types, args, kwargs), = seen
    assert func is torch.add and types == (Logged,) and args[0] is x and args[1] is y and kwargs == {"alpha": 2}
    for line, func in {"x.add(1)": torch.Tensor.add, "x + 1": torch.Tensor.add, "1 + x": torch.Tensor.add,
                       "x.add_(1)": torch.Tensor.add_, "x.sum()": torch.Tensor.sum, "torch.sum(x)": torch.sum,
                       "x[0]": torch.Tensor.__getitem__, "torch.cat([x, "
                                                         "y])": torch.cat, "x.detach()": torch.Tensor.detach,
                       "torch.nn.functional.relu(x)": torch.nn.functional.relu, "torch.rand_like(x)": torch.rand_like,
                       "x.uniform_()": torch.Tensor.uniform_, "-x": torch.Tensor.neg, "x < 1": torch.Tensor.lt,
                       "x.new_zeros(2)": torch.Tensor.new_zeros, "torch.zeros_like(x)": torch.zeros_like}.items():
        _, seen = calls(line, x=x, y=y)
        assert [f for f, *_ in seen] == [func], line
        assert func.__name__.strip("_").split(".")[-1] in line or func.__name__ in ("add", "neg", "lt", "__getitem__")


def test_an_override_may_return_anything():
    made = torch.add(Duck(), 1)
    assert made[0] == "add" and made[1] == (Duck,) and made[2][1] == 1
    assert (torch.ones(2) + Duck())[0] == "add" and torch.cat([Duck()])[0] == "cat"
    assert torch.mul(torch.ones(1), other=Duck())[3].keys() == {"other"}


def test_overrides_can_be_set_aside():
    x = Plain([1.0])
    with torch.DisableTorchFunctionSubclass():
        assert type(x + 1) is torch.Tensor
    assert type(x + 1) is Plain


def test_gradients_pass_and_are_plain():
    leaf = torch.ones(2, requires_grad=True)
    x = leaf.as_subclass(Plain)
    assert not x.is_leaf and x.grad_fn.name() == "AliasBackward0"
    ((x * x) * 3).sum().backward()
    assert leaf.grad.tolist() == [6, 6] and type(leaf.grad) is torch.Tensor
    own = Plain([1.0, 2.0]).requires_grad_()
    (own ** 3).sum().backward()
    assert own.grad.tolist() == [3, 12] and type(own.grad) is torch.Tensor


def test_as_subclass_shares_memory_and_refuses_other_classes():
    t = torch.zeros(2)
    x = t.as_subclass(Plain)
    x[0] = 5
    assert t.tolist() == [5, 0] and type(x.as_subclass(torch.Tensor)) is torch.Tensor
    with pytest.raises(TypeError, match="does not inherit from Tensor"):
        t.as_subclass(int)


def test_a_subclass_with_a_constructor_of_its_own():
    class Named(torch.Tensor):
        def __new__(cls, data, name):
            return torch.as_tensor(data).as_subclass(cls)

        def __init__(self, data, name):
            self.name = name

    x = Named([1.0, 2.0], "x")
    assert x.name == "x" and x.tolist() == [1, 2] and type(x * 2) is Named and not hasattr(x * 2, "name")
    assert repr(x) == "Named([1., 2.])"


def test_functions_written_outside_take_part():
    def double(x):
        if has_torch_function_unary(x):
            return handle_torch_function(double, (x,), x)
        return x * 2

    x, log = Plain([1.0]), Logged([1.0])
    assert type(double(x)) is Plain and type(double(torch.ones(1))) is torch.Tensor
    Logged.calls.clear()
    double(log)
    assert Logged.calls[0][0] is double
    assert has_torch_function((x,)) and has_torch_function_variadic(1, x) and not has_torch_function((torch.ones(1), 3))
    assert is_tensor_like(x) and is_tensor_like(Duck()) and is_tensor_like(torch.ones(1)) and not is_tensor_like(3)

    @wrap_torch_function(lambda a, b: (a, b))
    def join(a, b):
        return a + b
    assert type(join(torch.ones(1), x)) is Plain and type(join(torch.ones(1), torch.ones(1))) is torch.Tensor


def test_parameters_do_not_take_part():
    p = torch.nn.Parameter(torch.ones(2))
    assert type(p) is torch.nn.Parameter and type(p * 2) is torch.Tensor and type(p.view(2)) is torch.Tensor
    assert type(p.detach()) is torch.Tensor and type(p.data) is torch.Tensor and not has_torch_function((p,))
    assert type(p + Plain([1.0, 2.0])) is Plain
    kept = torch.nn.Parameter(Plain([1.0, 2.0]))
    assert type(kept) is Plain and isinstance(kept, torch.nn.Parameter) and kept.requires_grad
    assert repr(kept) == "Parameter(Plain([1., 2.], requires_grad=True))"
    assert not isinstance(torch.ones(1), torch.nn.Parameter)


def test_parameters_share_memory_with_what_they_were_made_from():
    t = torch.ones(2)
    p = torch.nn.Parameter(t)
    t[0] = 5
    assert p.tolist() == [5, 1] and p.is_leaf
    assert repr(p) == "Parameter containing:\ntensor([5., 1.], requires_grad=True)"
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require "
                       "gradients"):
        torch.nn.Parameter(torch.ones(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="made from a tensor, got list"):
        torch.nn.Parameter([1.0])
    assert torch.nn.Parameter().shape == (0,)


def test_what_others_put_on_tensor_is_called_as_it_is(monkeypatch):
    """fastai gives Tensor methods of its own; they are no functions of PyTorch's to be asked about."""
    monkeypatch.setattr(torch.Tensor, "tagged", lambda self, other: (type(self).__name__, type(other).__name__), False)

    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    assert torch.zeros(2).as_subclass(Refusing).tagged(torch.zeros(1)) == ("Refusing", "Tensor")


def test_a_class_takes_no_part_by_the_handler_of_the_private_module():
    class Out(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        def __getitem__(self, index):
            return super().__getitem__(index)

    x = torch.arange(6.0).view(2, 3).as_subclass(Out)
    assert type(x) is Out and not has_torch_function_unary(x)
    assert x[1].tolist() == [3.0, 4.0, 5.0]
    assert type(x[0]) is type(x + 1) is type(torch.exp(x)) is torch.Tensor
