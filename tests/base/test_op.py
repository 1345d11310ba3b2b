"""The form of an operation: signatures, promotion, refusals, and what the door does with a declaration of one's own."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.base import dtypes
from flambeau.base.errors import need
from flambeau.base.op import Composite, Op, Pointwise, check_devices, wrapped
from flambeau.base.spec import CPU, META, spec


class scaled(Pointwise):
    """`input` times `factor` plus `bias`."""

    scalars = ("bias",)

    def ref(xp, input, factor, *, bias=0.5):  return input * factor + bias
    def d_input(g, factor):                   return g * factor
    def d_factor(g, input):                   return g * input


class halves(Op):
    """The first and the second half of a vector."""

    returns = "halves first second"

    def meta(input):
        need(input.ndim == 1 and input.shape[0] % 2 == 0, f"needs an even vector, got {list(input.shape)}", ValueError)
        return (input.like(shape=(input.shape[0] // 2,)),) * 2

    def ref(xp, input):       return xp.split(input, 2)
    def grads(g, needs, input_spec):
        zero = lambda: torch.zeros(input_spec.shape[0] // 2, dtype=input_spec.dtype)
        return (torch.cat([zero() if part is None else part for part in g]),)


class positives(Op):
    """The elements above zero: how many is known only from the data."""

    eager = True

    def meta(input):          return None
    def ref(xp, input):       return input[input > 0]


class first_row(Op):
    """Row number `index`, which must be there."""

    def meta(input, index):   return input.like(shape=input.shape[1:])
    def verify(index, input_spec):
        need(index.item() < input_spec.shape[0], f"row {index.item()} of {input_spec.shape[0]}", IndexError)
    def ref(xp, input, index):    return input[index]


class twice(Composite):
    """Twice `input`, with a derivative that shows whose it is."""

    def of(input):            return input + input
    def d_input(g):           return g * 20


def test_calling_a_declaration_is_calling_the_operation():
    x = torch.tensor([1.0, 2.0])
    assert scaled(x, 3.0).tolist() == [3.5, 6.5] and scaled(x, factor=torch.tensor(2.0), bias=1.0).tolist() == [3, 5]
    assert repr(scaled) == "<operation scaled>"


@pytest.mark.parametrize("args, kwargs, words", [
    ((), {}, r'missing 2 required positional arguments: "input", "factor"'),
    ((1, 2, 3), {}, r"takes 2 positional arguments but 3 were given"),
    ((1, 2), {"nope": 1}, r"unexpected keyword argument 'nope'; its arguments are \(input, factor, bias\)"),
    ((1, 2), {"input": 1}, r"multiple values for argument 'input'"),
])
def test_binding_refuses_as_python_does(args, kwargs, words):
    with pytest.raises(TypeError, match=words):
        scaled(*[torch.tensor(float(a)) for a in args], **kwargs)


def test_numpys_names_for_arguments_are_understood():
    x = torch.arange(6.0).view(2, 3)
    assert torch.sum(x, axis=1, keepdims=True).tolist() == [[3], [12]] and torch.sort(x, axis=0).values.shape == (2, 3)


def test_derivatives_of_a_declaration():
    x, k = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(3.0, requires_grad=True)
    y = scaled(x, k)
    assert y.grad_fn.name() == "ScaledBackward0"
    y.sum().backward()
    assert x.grad.tolist() == [3, 3] and k.grad.item() == 3                        # summed over what was broadcast


def test_several_results_and_a_joint_rule():
    x = torch.arange(4.0, requires_grad=True)
    made = halves(x)
    assert made.first.tolist() == [0, 1] and made.second.tolist() == [2, 3]
    made.second.sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1]


def test_a_refusal_has_the_call_and_the_lines():
    odd = torch.ones(3)
    with pytest.raises(ValueError) as caught:
        halves(odd)
    assert str(caught.value).startswith("needs an even vector, got [3]\n  in halves(input: odd float32[3])\n"
                                        "  made: odd at test_op.py:")


def test_a_shape_that_depends_on_data():
    assert positives(torch.tensor([1.0, -1.0, 3.0])).tolist() == [1, 3]
    with pytest.raises(NotImplementedError, match="depends on data"):
        positives(torch.ones(3, device="meta"))


def test_data_is_verified_at_the_call():
    x = torch.arange(6.0).view(2, 3)
    assert first_row(x, torch.tensor(1)).tolist() == [3, 4, 5]
    with pytest.raises(IndexError, match="row 2 of 2"):
        first_row(x, torch.tensor(2))


def test_a_composite_with_rules_is_one_node():
    x = torch.tensor(1.0, requires_grad=True)
    y = twice(x)
    assert y.item() == 2 and y.grad_fn.name() == "TwiceBackward0"
    assert y.grad_fn.next_functions[0][0].variable is x
    y.backward()
    assert x.grad.item() == 20


def test_an_argument_without_a_rule_is_refused():
    class half_known(Pointwise):
        """`input` times `other`, with a derivative for `input` alone."""
        def ref(xp, input, other):   return input * other
        def d_input(g, other):       return g * other
    x = torch.ones(2, requires_grad=True)
    half_known(x, torch.ones(2)).sum().backward()
    with pytest.raises(NotImplementedError, match="no gradient for its argument 'other'"):
        half_known(x, torch.ones(2, requires_grad=True))


def test_devices_must_agree():
    a, b, zero = (spec(dtypes.float32, s, None, d) for s, d in (((2,), CPU), ((2,), META), ((), CPU)))
    assert check_devices([a, a], False) is CPU and check_devices([b, zero], False) is META
    for specs, whole in (([a, b], False), ([b, zero], True)):
        with pytest.raises(RuntimeError, match="at least two devices"):
            check_devices(specs, whole)


def test_numbers_wrap_as_in_c():
    assert wrapped(300, np.uint8) == 44 and wrapped(-1, np.uint8) == 255
    assert wrapped(128, np.int8) == -128 and wrapped(5, np.int8) == 5
    assert (torch.tensor([1], dtype=torch.uint8) + 300).tolist() == [45]
