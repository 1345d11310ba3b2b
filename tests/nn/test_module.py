"""`Module`: attributes, the tree, conversions, copies, text."""
import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from tests.nn.nets import Inner, Net, values

# --- attributes -------------------------------------------------------------------------------------------------------


def test_parts_are_registered_by_assignment_and_found_as_attributes():
    net = Net()
    assert list(net._parameters) == ["scale", "bias"] and list(net._modules) == ["first", "second"]
    assert net.scale is net._parameters["scale"] and net.bias is None and net.first is net._modules["first"]
    assert "scale" not in vars(net)
    assert {"first", "scale", "bias", "training", "forward"} <= set(dir(net))
    assert {"mean", "cache"} <= set(dir(net.first))


def test_an_attribute_that_is_not_there():
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'third'"):
        _ = Net().third


def test_an_assignment_moves_a_name_from_one_kind_to_another():
    net = Net()
    net.first = nn.Parameter(torch.ones(1))
    assert "first" in net._parameters and "first" not in net._modules
    net.plain = 3
    net.plain = Inner()
    assert "plain" not in vars(net)
    inner = Inner()
    inner.cache = nn.Parameter(torch.ones(1))
    assert "cache" not in inner._buffers and "cache" not in inner._non_persistent_buffers_set


@pytest.mark.parametrize("name, value, words", [
    ("scale", torch.ones(1), r"cannot assign 'torch.FloatTensor' as parameter 'scale' \(torch.nn.Parameter or None"),
    ("scale", 3, r"cannot assign 'int' as parameter 'scale'"),
    ("first", 3, r"cannot assign 'int' as child module 'first' \(torch.nn.Module or None expected\)"),
    ("first", torch.ones(1), r"as child module 'first'"),
])
def test_assigning_the_wrong_thing(name, value, words):
    with pytest.raises(TypeError, match=words):
        setattr(Net(), name, value)


def test_a_buffer_takes_tensors_only():
    inner = Inner()
    with pytest.raises(TypeError, match=r"cannot assign 'int' as buffer 'mean' \(torch.nn.Buffer, torch.Tensor or"):
        inner.mean = 3
    inner.mean = torch.ones(2)
    inner.cache = torch.zeros(1)
    assert list(inner.state_dict()) == ["weight", "mean"]
    inner.mean = None
    assert list(inner.state_dict()) == ["weight"]


def test_a_plain_tensor_is_no_part():
    net = Net()
    net.loose = torch.ones(2)
    assert "loose" in vars(net) and "loose" not in net.state_dict()


def test_none_keeps_the_place():
    net = Net()
    net.scale = None
    net.first = None
    assert net._parameters["scale"] is None and net._modules["first"] is None
    assert [name for name, _ in net.named_parameters()] == ["second.weight"]
    assert repr(net).startswith("Net(\n  (first): None\n")


def test_deleting():
    net = Net()
    del net.scale, net.first, net.second.mean, net.second.cache
    assert "scale" not in net._parameters and "first" not in net._modules
    assert not net.second._buffers and not net.second._non_persistent_buffers_set
    with pytest.raises(AttributeError):
        del net.first


def test_before_init():
    class Early(nn.Module):
        def __init__(self, value):
            self.part = value
            super().__init__()
    for value, words in ((nn.Parameter(torch.ones(1)), "cannot assign parameters before Module.__init__"),
                         (nn.ReLU(), "cannot assign module before Module.__init__")):
        with pytest.raises(AttributeError, match=words):
            Early(value)
    assert Early(3).part == 3
    bare = object.__new__(nn.Module)
    with pytest.raises(AttributeError, match="cannot assign buffer before"):
        bare.register_buffer("b", None)
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'x'"):
        _ = bare.x


@pytest.mark.parametrize("register, word", [("register_parameter", "parameter"), ("register_buffer", "buffer"),
                                            ("add_module", "module"), ("register_module", "module")])
def test_names(register, word):
    net = Net()
    register = getattr(net, register)
    with pytest.raises(TypeError, match=f"{word} name should be a string. Got int"):
        register(3, None)
    with pytest.raises(KeyError, match=f"{word} name can.*t contain"):
        register("a.b", None)
    with pytest.raises(KeyError, match=f"{word} name can.*t be empty string"):
        register("", None)
    with pytest.raises(KeyError, match="attribute 'training' already exists"):
        register("training", None)
    register("fresh", None)
    register("fresh", None)


def test_registering_the_wrong_thing():
    net = Net()
    with pytest.raises(TypeError, match=r"cannot assign 'torch.FloatTensor' object to parameter 'p' \(torch.nn.Par"):
        net.register_parameter("p", torch.ones(1))
    with pytest.raises(TypeError, match=r"cannot assign 'int' object to buffer 'b' \(torch Tensor or None required"):
        net.register_buffer("b", 3)
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        net.add_module("m", 3)
    grown = nn.Parameter(torch.ones(2)) * 2
    grown.__class__ = nn.Parameter
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor to parameter 'p'"):
        net.register_parameter("p", grown)


def test_init_takes_nothing_unless_asked_to_hand_on():
    with pytest.raises(TypeError, match="Module.__init__.. takes 1 positional argument but 2 were given"):
        nn.Module(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        nn.Module(size=3)

    class Mixin:
        def __init__(self, size):
            self.size = size

    class Both(nn.Module, Mixin):
        call_super_init = True
    assert Both(size=4).size == 4


def test_buffers_of_their_own_class():
    net = nn.Module()
    net.kept = nn.Buffer(torch.ones(2))
    net.loose = nn.Buffer(torch.ones(2), persistent=False)
    assert list(net._buffers) == ["kept", "loose"] and list(net.state_dict()) == ["kept"]
    assert isinstance(net.kept, nn.Buffer) and type(net.kept) is torch.Tensor
    assert not isinstance(torch.ones(1), nn.Buffer) and not isinstance(net.kept, nn.Parameter)

    class Own(nn.Module):
        def register_buffer(self, name, tensor):
            super().register_buffer(name, tensor)
    own = Own()
    own.kept = nn.Buffer(torch.ones(1))
    with pytest.raises(RuntimeError, match="without the persistent argument is not allowed"):
        own.loose = nn.Buffer(torch.ones(1), persistent=False)


def test_lookup_by_path():
    net = nn.Sequential(OrderedDict(net=Net()))
    assert net.get_submodule("net.first") is net.net.first and net.get_submodule("") is net
    assert net.get_parameter("net.first.weight") is net.net.first.weight
    assert net.get_buffer("net.second.mean") is net.net.second.mean
    for call, words in ((lambda: net.get_submodule("net.third"), "Net has no attribute `third`"),
                        (lambda: net.get_submodule("net.scale"), "`scale` is not an nn.Module"),
                        (lambda: net.get_parameter("net.first"), "`first` is not an nn.Parameter"),
                        (lambda: net.get_buffer("net.scale"), "`scale` is not a buffer")):
        with pytest.raises(AttributeError, match=words):
            call()
    net.set_submodule("net.first", nn.ReLU())
    assert isinstance(net.net.first, nn.ReLU)
    net.set_submodule("net.fresh", nn.ReLU())
    with pytest.raises(AttributeError, match="Net has no attribute `other`"):
        net.set_submodule("net.other", nn.ReLU(), strict=True)
    with pytest.raises(ValueError, match="is not an nn.Module"):
        net.set_submodule("net.first", 3)
    with pytest.raises(AttributeError, match="`scale` is not an nn.Module"):
        net.set_submodule("net.scale", nn.ReLU())
    with pytest.raises(ValueError, match="without a target name"):
        net.set_submodule("", nn.ReLU())


# --- the tree ---------------------------------------------------------------------------------------------------------


def test_names_of_everything():
    net = Net()
    assert [name for name, _ in net.named_modules()] == ["", "first", "second"]
    assert [name for name, _ in net.named_parameters()] == ["scale", "first.weight", "second.weight"]
    assert [name for name, _ in net.named_buffers()] == ["first.mean", "first.cache", "second.mean", "second.cache"]
    assert [name for name, _ in net.named_parameters("top")] == ["top.scale", "top.first.weight", "top.second.weight"]
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [name for name, _ in net.named_modules(prefix="top")] == ["top", "top.first", "top.second"]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert list(net.children()) == [net.first, net.second] and list(net.modules()) == [net, net.first, net.second]
    assert len(list(net.parameters())) == 3 and len(list(net.buffers())) == 4


def test_what_is_shared_is_told_once():
    net = Net()
    net.second = net.first
    net.tied = net.scale
    assert [name for name, _ in net.named_modules()] == ["", "first"]
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "first", "second"]
    assert [name for name, _ in net.named_parameters()] == ["scale", "first.weight"]
    assert [name for name, _ in net.named_parameters(remove_duplicate=False)] == ["scale", "tied", "first.weight",
                                                                                 "second.weight"]
    assert [name for name, _ in net.named_children()] == ["first"]
    assert list(net.state_dict()) == ["scale", "tied", "first.weight", "first.mean", "second.weight", "second.mean"]


def test_a_deep_tree():
    net = nn.ReLU()
    for _ in range(300):
        net = nn.Sequential(net)
    assert len(list(net.modules())) == 301
    assert list(net.named_modules())[-1][0] == ".".join("0" * 300)


def test_replacing_children_while_walking():
    net = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    for name, module in net.named_modules():
        if isinstance(module, nn.ReLU):
            net.set_submodule(name, nn.Tanh())
    assert isinstance(net[0][0], nn.Tanh) and isinstance(net[1], nn.Tanh)


def test_apply_goes_from_the_leaves_up():
    net, seen = Net(), []
    assert net.apply(seen.append) is net
    assert seen == [net.first, net.second, net]


def test_train_and_eval():
    net = Net()
    assert net.training and net.eval() is net and not net.training and not net.first.training
    net.second.train()
    assert net.second.training and not net.training
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(1)


# --- gradients and conversions ----------------------------------------------------------------------------------------


def test_gradients_are_asked_for_and_forgotten():
    net = Net()
    net(torch.ones(2)).sum().backward()
    # (x w + 0) w' s summed over two elements, with w = w' = (1, 2) and s = 3
    assert values(net.scale.grad) == 5.0 and values(net.first.weight.grad) == [3.0, 6.0]
    kept = net.scale.grad
    net.zero_grad(set_to_none=False)
    assert net.scale.grad is kept and values(kept) == 0.0
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    assert net.requires_grad_(False) is net and not any(p.requires_grad for p in net.parameters())


def test_conversion_keeps_the_parameters_themselves():
    net = Net()
    net(torch.ones(2)).sum().backward()
    scale, grad, before = net.scale, net.scale.grad, list(net.parameters())
    net.register_buffer("count", torch.tensor(3))
    assert net.double() is net
    assert list(map(id, net.parameters())) == list(map(id, before)) and net.scale is scale and scale.grad is grad
    assert scale.dtype is grad.dtype is net.first.mean.dtype is torch.float64 and net.count.dtype is torch.int64
    assert scale.requires_grad and scale.is_leaf
    for convert, dtype in ((net.half, torch.float16), (net.bfloat16, torch.bfloat16), (net.float, torch.float32)):
        convert()
        assert scale.dtype is dtype and net.count.dtype is torch.int64
    assert values(scale) == 3.0
    net.type(torch.float64)
    assert net.count.dtype is torch.float64


def test_to():
    net = Net()
    assert net.to(torch.float64).scale.dtype is torch.float64
    assert net.to("cpu", torch.float16).scale.dtype is torch.float16
    assert net.to(torch.ones(1)).scale.dtype is torch.float32
    assert net.to(dtype=torch.float64, device="cpu").scale.dtype is torch.float64
    assert net.to("cpu", torch.float32, True).scale.dtype is torch.float32
    assert net.to().scale.dtype is torch.float32 and net.cpu() is net
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes, but got desired dtype"):
        net.to(torch.int64)
    with pytest.raises(TypeError):
        net.to("cpu", torch.float32, "yes")
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        assert net.to(torch.complex64).scale.dtype is torch.complex64


def test_to_channels_last():
    net = nn.Module()
    net.kernel, net.vector = nn.Parameter(torch.ones(2, 3, 4, 5)), nn.Parameter(torch.ones(3))
    net.to(memory_format=torch.channels_last)
    assert net.kernel.is_contiguous(memory_format=torch.channels_last) and net.kernel.stride() == (60, 1, 15, 3)


def test_meta_and_back():
    net = Net().to("meta")
    assert net.scale.is_meta and net.scale.requires_grad and isinstance(net.scale, nn.Parameter)
    with pytest.raises(NotImplementedError, match="Please use torch.nn.Module.to_empty"):
        net.to("cpu")
    net.to_empty(device="cpu")
    assert not net.scale.is_meta and net.first.weight.shape == (2,) and net.first.mean.shape == (2,)
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter in the checkpoint to a meta"):
        nn.PReLU().to("meta").load_state_dict(nn.PReLU().state_dict())
    meta = Net().to("meta")
    meta.load_state_dict(Net().state_dict(), assign=True)
    assert values(meta.scale) == 3.0


def test_optimizing_after_conversion_writes_to_the_module():
    net = Net()
    params = list(net.parameters())
    net.double()
    with torch.no_grad():
        for p in params:
            p.fill_(7.0)
    assert values(net.first.weight) == [7.0, 7.0]


# --- copies and text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))],
                         ids=["deepcopy", "pickle"])
def test_copies(copied):
    net = Net()
    net.second = net.first
    net.tied = net.scale
    net.scale.requires_grad_(False)
    other = copied(net.eval())
    assert type(other) is Net and not other.training and repr(other) == repr(net)
    assert other.second is other.first is not net.first and other.tied is other.scale is not net.scale
    assert isinstance(other.scale, nn.Parameter) and not other.scale.requires_grad and other.first.weight.requires_grad
    with torch.no_grad():
        other.first.weight.fill_(9.0)
    assert values(net.first.weight) == [1.0, 2.0]
    assert list(other.state_dict()) == list(net.state_dict())
    assert values(other(torch.ones(2))) == [243.0, 243.0]


def test_a_copy_leaves_gradients_behind():
    net = Net()
    net(torch.ones(2)).sum().backward()
    assert copy.deepcopy(net).scale.grad is None and copy.copy(net).scale is net.scale


def double_it(module, args, out):
    return out * 2


def test_a_copy_has_hooks_and_handles_of_its_own():
    net = Inner()
    net.handle = net.register_forward_hook(double_it)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert values(other(torch.ones(2))) == [2.0, 4.0]
        other.handle.remove()
        assert values(other(torch.ones(2))) == [1.0, 2.0] and values(net(torch.ones(2))) == [2.0, 4.0]
        added = other.register_forward_hook(double_it)
        assert added.id not in net._forward_hooks


def test_text():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.ReLU()

        def extra_repr(self):
            return "x=1\ny=2"
    assert repr(nn.Module()) == "Module()"
    assert repr(Named()) == "Named(\n  x=1\n  y=2\n  (a): ReLU()\n)"
    assert repr(nn.Sequential(Named())) == "Sequential(\n  (0): Named(\n    x=1\n    y=2\n    (a): ReLU()\n  )\n)"


def test_forward_is_missing():
    with pytest.raises(NotImplementedError, match=r'Module \[Module\] is missing the required "forward" function'):
        nn.Module()(1)


def test_compile_in_place():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    x = torch.ones(2, 3)
    want = net(x)
    net.compile()
    for _ in range(3):
        np.testing.assert_allclose(net(x).detach().numpy(), want.detach().numpy(), rtol=1e-6)
    assert len(net._compiled_call_impl.recordings) == 1
    assert "_compiled_call_impl" not in vars(copy.deepcopy(net))
    with net.register_forward_hook(lambda module, args, out: out * 0):
        assert values(net(x).sum()) == 0.0


def test_an_error_says_in_which_module_it_was_raised():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(3, 2))

        def forward(self, x):
            return self.body(x)
    net = Net()
    for hooked in (False, True):
        with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
            net(torch.ones(1, 8))
        assert caught.value.__notes__ == ["in Net.body.1: Linear(in_features=3, out_features=2, bias=True)"], hooked
        net.body.register_forward_hook(lambda module, args, out: None)
    class Noting(Net):
        def forward(self, x):
            try:
                return self.body(x)
            except RuntimeError as error:
                error.add_note("a note of mine")
                raise
    with pytest.raises(RuntimeError) as caught:
        Noting()(torch.ones(1, 8))
    assert caught.value.__notes__ == ["a note of mine",
                                      "in Noting.body.1: Linear(in_features=3, out_features=2, bias=True)"]
    with pytest.raises(RuntimeError) as caught:
        net.body[1](torch.ones(1, 8))
    assert caught.value.__notes__ == ["in Linear(in_features=3, out_features=2, bias=True)"]


def test_parameters_come_in_the_order_of_their_names_however_modules_are_shared():
    shared = nn.Linear(3, 3)
    some = nn.ModuleList([nn.BatchNorm1d(5), shared, nn.Sequential(shared, nn.LSTM(3, 3))])
    net = nn.Sequential(nn.Linear(4, 5), some, nn.TransformerEncoderLayer(8, 2))
    net[0].again, net.scale = net[0].bias, nn.Parameter(torch.ones(2))
    net.register_parameter("missing", None)
    net.add_module("nothing", None)
    named = [p for _, p in net.named_parameters()]
    assert [id(p) for p in net.parameters()] == [id(p) for p in named] and len(set(map(id, named))) == len(named)
    assert [id(p) for p in net.parameters(recurse=False)] == [id(net.scale)]


def test_who_finds_parameters_in_a_way_of_his_own_is_asked():
    class Wrapped(nn.Linear):
        def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
            yield "only", self.weight

    class Hidden(nn.Sequential):
        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield prefix, self

    wrapped, plain = Wrapped(2, 2), nn.Linear(2, 2)
    assert [p is wrapped.weight for p in wrapped.parameters()] == [True]
    assert list(Hidden(nn.Linear(2, 2)).parameters()) == []
    plain.named_parameters = lambda prefix="", recurse=True: iter([("bias", plain.bias)])
    assert [p is plain.bias for p in plain.parameters()] == [True]
