"""Parameters, buffers, and modules that take their sizes from the first input."""
import copy
import pickle

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from tests.nn.nets import values


def test_parameter():
    p = nn.Parameter(torch.ones(2))
    assert p.requires_grad and p.is_leaf and isinstance(p, nn.Parameter) and isinstance(p, torch.Tensor)
    assert type(p * 2) is torch.Tensor and type(p.detach()) is torch.Tensor
    assert not nn.Parameter(torch.ones(1), requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        nn.Parameter(torch.ones(2, dtype=torch.int64))
    with pytest.raises(TypeError):
        nn.Parameter([1.0])
    base = torch.ones(2)
    nn.Parameter(base).data.fill_(3.0)
    assert values(base) == [3.0, 3.0]


def test_parameter_of_a_subclass():
    class Mine(torch.Tensor):
        pass
    p = nn.Parameter(torch.ones(2).as_subclass(Mine))
    assert type(p) is Mine and isinstance(p, nn.Parameter) and p.requires_grad
    net = nn.Module()
    net.p = p
    assert net._parameters["p"] is p


def test_uninitialized_parameter():
    p = nn.UninitializedParameter(dtype=torch.float64)
    assert repr(p) == "<UninitializedParameter>" and p.requires_grad and p.dtype is torch.float64
    assert nn.parameter.is_lazy(p) and not nn.parameter.is_lazy(nn.Parameter())
    for use in (lambda: p + 1, lambda: p.sum(), lambda: p.numel(), lambda: torch.add(p, 1), lambda: p[0],
                lambda: p.fill_(1)):
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter in"):
            use()
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
        _ = p.shape
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized parameter"):
        p.share_memory_()
    for other, dtype in ((copy.deepcopy(p), torch.float64), (pickle.loads(pickle.dumps(p)), torch.float32)):
        assert nn.parameter.is_lazy(other) and other is not p
        assert other.dtype is dtype                              # a pickle has none, in PyTorch either
    p.materialize((2, 3))
    assert type(p) is nn.Parameter and p.shape == (2, 3) and p.dtype is torch.float64 and p.requires_grad
    b = nn.UninitializedBuffer(persistent=False)
    assert isinstance(b, nn.Buffer) and not b.persistent
    b.materialize(4)
    assert type(b) is torch.Tensor and b.shape == (4,)


def test_lazy_linear():
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(2, bias=False))
    assert repr(net[0]) == "LazyLinear(in_features=0, out_features=4, bias=True)" and net[0].has_uninitialized_params()
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight"]
    params = list(net.parameters())
    assert net(torch.ones(3, 5)).shape == (3, 2)
    assert type(net[0]) is type(net[1]) is nn.Linear and net[0].weight.shape == (4, 5) and net[1].weight.shape == (2, 4)
    assert list(map(id, net.parameters())) == list(map(id, params))
    assert "_initialize_hook" not in vars(net[0]) and not net[0]._forward_pre_hooks
    bound = 5 ** -0.5
    assert net[0].weight.abs().max().item() <= bound


def test_lazy_linear_converts_copies_and_loads_before_it_has_seen_input():
    lazy = nn.LazyLinear(4).double()
    assert lazy(torch.ones(5, dtype=torch.float64)).dtype is torch.float64
    twin = copy.deepcopy(nn.LazyLinear(4))
    assert twin(torch.ones(5)).shape == (4,) and type(twin) is nn.Linear
    given = nn.Linear(5, 4)
    lazy = nn.LazyLinear(4)
    lazy.load_state_dict(given.state_dict())
    assert lazy.weight.shape == (4, 5) and not lazy.has_uninitialized_params()
    x = torch.ones(1, 5)
    np.testing.assert_allclose(lazy(x).detach().numpy(), given(x).detach().numpy())
    assert type(lazy) is nn.Linear and lazy.in_features == 5
    with pytest.raises(RuntimeError, match="uninitialized parameter"):
        nn.Linear(5, 4).load_state_dict(nn.LazyLinear(4).state_dict())
    loaded = nn.LazyLinear(4)
    loaded.load_state_dict(given.state_dict())
    with pytest.raises(AssertionError, match="The in_features inferred from input: 3 is not equal"):
        loaded(torch.ones(1, 3))


def test_a_lazy_module_that_does_not_finish():
    class Never(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.UninitializedParameter()

        def initialize_parameters(self, x):
            pass
    with pytest.raises(RuntimeError, match="module Never has not been fully initialized"):
        Never()(1)
    Never.initialize_parameters = nn.modules.lazy.LazyModuleMixin.initialize_parameters
    with pytest.raises(NotImplementedError, match="initialize_parameters is not implemented for Never"):
        Never()(1)
