"""Hooks of modules: before and after forward and backward, of one module and of all."""
import gc
import weakref

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn.modules import module as module_file
from tests.nn.nets import Inner, Net, values


def test_forward_hooks():
    net, log = Inner(), []
    first = net.register_forward_pre_hook(lambda module, args: log.append("a"))
    net.register_forward_pre_hook(lambda module, args: args[0] + 1)
    net.register_forward_pre_hook(lambda module, args: log.append(values(args[0])), prepend=True)
    net.register_forward_hook(lambda module, args, out: out * 10)
    net.register_forward_hook(lambda module, args, out: log.append(values(args[0])))
    assert values(net(torch.zeros(2))) == [10.0, 20.0] and log == [[0.0, 0.0], "a", [1.0, 1.0]]
    first.remove()
    log.clear()
    net(torch.zeros(2))
    assert log == [[0.0, 0.0], [1.0, 1.0]]


def test_forward_hooks_with_keywords():
    net = Net()
    with net.register_forward_pre_hook(lambda module, args, kwargs: (args, {"shift": kwargs["shift"] + 1}),
                                       with_kwargs=True), \
            net.register_forward_hook(lambda module, args, kwargs, out: (out, kwargs), with_kwargs=True):
        out, kwargs = net(torch.zeros(2), shift=2.0)
    assert values(out) == [3.0, 3.0] and kwargs == {"shift": 3.0}
    assert values(net(torch.zeros(2), shift=2.0)) == [2.0, 2.0]
    with net.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True), \
            pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\), but got 3"):
        net(torch.zeros(2))


def test_hooks_that_are_always_called():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")
    net, log = Fails(), []
    net.register_forward_hook(lambda module, args, out: log.append("plain"))
    net.register_forward_hook(lambda module, args, out: log.append(out), always_call=True)
    net.register_forward_hook(lambda module, args, kwargs, out: log.append(kwargs), always_call=True, with_kwargs=True)
    net.register_forward_hook(lambda module, args, out: 1 / 0, always_call=True)
    with pytest.raises(ValueError, match="no"), pytest.warns(UserWarning, match="silenced as another error was raised"):
        net(3)
    assert log == [None, {}]


def test_a_hook_that_fails_is_not_called_again():
    net, log = Inner(), []

    def failing(module, args, out):
        log.append(1)
        raise ValueError
    net.register_forward_hook(failing, always_call=True)
    with pytest.raises(ValueError):
        net(torch.ones(2))
    assert log == [1]


def test_full_backward_hooks():
    net, log = Inner(), []
    x = torch.ones(2, requires_grad=True)
    net.register_full_backward_pre_hook(lambda module, grad: log.append(("pre", values(grad[0]))))
    net.register_full_backward_hook(lambda module, into, out: log.append((values(into[0]), values(out[0]))))
    out = net(x)
    assert out.grad_fn.name() == "BackwardHookFunctionBackward"
    (out * torch.tensor([1.0, 10.0])).sum().backward()
    assert log == [("pre", [1.0, 10.0]), ([1.0, 20.0], [1.0, 10.0])]
    assert values(x.grad) == [1.0, 20.0] and values(net.weight.grad) == [1.0, 10.0]


def test_full_backward_hooks_replace_gradients():
    net = Inner()
    x = torch.ones(2, requires_grad=True)
    net.register_full_backward_pre_hook(lambda module, grad: (grad[0] * 2,))
    net.register_full_backward_hook(lambda module, into, out: (into[0] + 100,))
    net(x).sum().backward()
    assert values(x.grad) == [102.0, 104.0] and values(net.weight.grad) == [2.0, 2.0]
    with net.register_full_backward_hook(lambda module, into, out: (1, 2)), \
            pytest.raises(RuntimeError, match="invalid number of grad_input, got 2, but expected 1"):
        net(x).sum().backward()
    with net.register_full_backward_pre_hook(lambda module, out: (1, 2)), \
            pytest.raises(RuntimeError, match="invalid number of grad_output, got 2, but expected 1"):
        net(x).sum().backward()


def test_full_backward_hooks_of_several_inputs_and_outputs():
    class Two(nn.Module):
        def forward(self, x, how, y):
            return x * y, how, x + y
    net, log = Two(), []
    net.register_full_backward_hook(lambda module, into, out: log.append((into, out)))
    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(5.0)
    a, how, b = net(x, "text", y)
    assert how == "text"
    (a * 10 + b).backward()
    (gx, none, gy), (ga, nothing, gb) = log[0]
    # as in PyTorch, what wants no gradient shows as zeros: it went through the same node
    assert none is nothing is None and [g.item() for g in (gx, gy, ga, gb)] == [51.0, 0.0, 10.0, 1.0]


def test_full_backward_hooks_without_a_gradient_to_the_inputs():
    net, log = Inner(), []
    net.register_full_backward_hook(lambda module, into, out: log.append((into, values(out[0]))))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        net(torch.ones(2)).sum().backward()
    assert log == [((None,), [1.0, 1.0])]
    with torch.no_grad():
        assert net(torch.ones(2)).grad_fn is None


def test_writing_in_place_to_what_a_hook_watches():
    net = nn.ReLU(inplace=True)
    net.register_full_backward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="BackwardHookFunction.* is a view and is being modified inplace"):
        net(torch.ones(2, requires_grad=True) * 1)


def test_backward_hooks_of_long_ago():
    net, log = nn.ReLU(), []
    net.register_backward_hook(lambda module, into, out: log.append((module, values(out[0]))))
    net(torch.ones(2, requires_grad=True) * 1).sum().backward()
    assert log == [(net, [1.0, 1.0])]
    with pytest.raises(RuntimeError, match="both regular backward hooks and full backward hooks on a single Module"):
        net.register_full_backward_hook(lambda *_: None)
    other = Net()
    other.register_backward_hook(lambda *_: None)
    with pytest.warns(FutureWarning, match="when the forward contains multiple autograd Nodes"):
        other(torch.ones(2, requires_grad=True) * 1)


def test_hooks_of_all_modules():
    net, log = Net(), []
    name = {net: "net", net.first: "first", net.second: "second"}
    x = torch.ones(2, requires_grad=True)
    with module_file.register_module_forward_pre_hook(lambda m, args: log.append(f"to {name[m]}")), \
            module_file.register_module_forward_hook(lambda m, args, out: log.append(f"from {name[m]}")), \
            module_file.register_module_full_backward_pre_hook(lambda m, out: log.append(f"back to {name[m]}")), \
            module_file.register_module_full_backward_hook(lambda m, into, out: log.append(f"back from {name[m]}")):
        net(x).sum().backward()
    assert log == ["to net", "to first", "from first", "to second", "from second", "from net", "back to net",
                   "back to second", "back from second", "back to first", "back from first", "back from net"]
    log.clear()
    net(x)
    assert not log
    with pytest.raises(RuntimeError, match="as a global Module hook"):
        module_file.register_module_backward_hook(lambda *_: None)


def test_hooks_of_registration():
    log = []
    with module_file.register_module_parameter_registration_hook(lambda m, name, p: log.append(name)), \
            module_file.register_module_buffer_registration_hook(lambda m, name, b: log.append(name)), \
            module_file.register_module_module_registration_hook(lambda m, name, s: log.append(name)):
        Net()
    assert log == ["weight", "mean", "cache", "first", "weight", "mean", "cache", "second", "scale"]
    frozen = nn.Parameter(torch.zeros(1), requires_grad=False)
    with module_file.register_module_parameter_registration_hook(lambda m, name, p: frozen):
        assert Inner().weight is frozen


def test_a_module_with_hooks_dies_with_its_last_reference():
    net = Inner()
    net.register_forward_hook(lambda *_: None)
    net.register_full_backward_hook(lambda *_: None)
    net._register_load_state_dict_pre_hook(lambda *_: None, with_module=True)
    net(torch.ones(2, requires_grad=True)).sum().backward()
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


def test_no_table_is_made_by_calling_saving_or_loading():
    net = Inner()
    before = set(vars(net))
    net(torch.ones(2))
    net.load_state_dict(net.state_dict())
    assert set(vars(net)) == before
    assert net._forward_hooks == {} and net._state_dict_hooks == {}
