"""Counting operations by itself; tests/torch/test_flops.py holds the counts to PyTorch's."""
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.tensor import overrides
from flambeau.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from flambeau.utils.flop_counter import FlopCounterMode, register_flop_formula


def test_a_product_takes_two_for_each_pair():
    with FlopCounterMode(display=False) as counter:
        torch.mm(torch.ones(2, 3), torch.ones(3, 5))
        for _ in range(2):
            torch.ones(2, 3) @ torch.ones(3, 5)
    assert counter.get_total_flops() == 3 * 2 * 2 * 3 * 5
    assert counter.get_flop_counts() == {"Global": {torch.ops.aten.mm: 180}}
    assert overrides.modes_active == 0


def test_calls_remembered_before_and_compiled_functions_are_counted():
    a, b = torch.ones(2, 3), torch.ones(3, 5)
    product = torch.compile(lambda a, b: (a @ b).sum())
    for _ in range(3):
        product(a, b), torch.mm(a, b)
    with FlopCounterMode(display=False) as counter:
        product(a, b)
        torch.mm(a, b)
    assert counter.get_total_flops() == 2 * 60


def test_modules_have_their_share():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with FlopCounterMode(display=False) as counter:
        net(torch.ones(3, 4)).sum().backward()
    shares = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    assert shares["Sequential"] == shares["Global"] == shares["Sequential.0"] + shares["Sequential.1"]


def test_the_same_operator_twice_is_refused():
    with pytest.raises(RuntimeError, match="duplicate"):
        register_flop_formula(torch.ops.aten.mm)(lambda *args: 0)
    with pytest.raises(ValueError, match="OpOverloadPacket"):
        register_flop_formula(torch.mm)(lambda *args: 0)


def test_dispatch_modes_can_be_derived_from_and_say_what_there_is_instead():
    class Mode(TorchDispatchMode):
        pass
    with pytest.raises(NotImplementedError, match="TorchFunctionMode"), Mode():
        pass
    assert not is_traceable_wrapper_subclass(torch.ones(1))
