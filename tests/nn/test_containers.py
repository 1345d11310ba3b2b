"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""
import copy
from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau import nn

A, B, C, D = nn.ReLU(), nn.Tanh(), nn.GELU(), nn.SiLU()


class Add(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        return x + self.n


# --- Sequential -------------------------------------------------------------------------------------------------------


def test_sequential_calls_one_after_the_other():
    net = nn.Sequential(Add(1), nn.ReLU(), Add(10))
    assert net(torch.tensor([-5.0, 5.0])).tolist() == [10.0, 16.0]
    x = torch.ones(1)
    assert nn.Sequential()(x) is x


def test_sequential_takes_an_ordered_dict():
    net = nn.Sequential(OrderedDict(first=A, second=B))
    assert net.first is A and net[1] is B and list(net._modules) == ["first", "second"]
    with pytest.raises(TypeError, match="dict is not a Module subclass"):
        nn.Sequential({"first": A})


def test_sequential_is_indexed_as_a_list():
    net = nn.Sequential(A, B, C)
    assert len(net) == 3 and list(net) == [A, B, C] and net[-1] is C and net[torch.tensor(1)] is B
    part = net[1:]
    assert type(part) is nn.Sequential and list(part) == [B, C] and list(part._modules) == ["1", "2"]
    assert list(net[::-1]) == [C, B, A] and list(net[5:]) == []
    for at in (3, -4):
        with pytest.raises(IndexError, match=f"index {at} is out of range"):
            net[at]
    net[1] = D
    assert list(net) == [A, D, C]
    with pytest.raises(TypeError):
        net[1] = 3


def test_sequential_loses_members():
    net = nn.Sequential(A, B, C, D)
    assert net.pop(1) is B and list(net) == [A, C, D] and list(net._modules) == ["0", "1", "2"]
    del net[-1]
    assert list(net) == [A, C]
    net = nn.Sequential(A, B, C, D)
    del net[::2]
    assert list(net) == [B, D] and list(net._modules) == ["0", "1"]
    assert list(net.pop(slice(0, 1))) == [B] and list(net) == [D]


def test_sequential_grows():
    net = nn.Sequential(A)
    assert net.append(B) is net and net.insert(0, C) is net and net.extend([D]) is net
    assert list(net) == [C, A, B, D] and list(net._modules) == ["0", "1", "2", "3"]
    net.insert(-1, A)
    assert list(net) == [C, A, B, A, D]
    with pytest.raises(IndexError, match="Index out of range: 7"):
        net.insert(7, A)
    with pytest.raises(AssertionError, match="module should be of type"):
        net.insert(0, 3)
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        net.append(3)


def test_sequential_arithmetic():
    net = nn.Sequential(A, B)
    assert list(net + nn.Sequential(C)) == [A, B, C] and list(net * 2) == [A, B, A, B] == list(2 * net)
    assert len(net) == 2
    same = net
    net += nn.Sequential(C)
    net *= 2
    assert net is same and list(net) == [A, B, C, A, B, C]
    twice = nn.Sequential(A, B)
    twice += twice
    assert list(twice) == [A, B, A, B]
    for wrong in (lambda: net + [A], lambda: net.__iadd__(A)):
        with pytest.raises(ValueError, match="add operator supports only objects of Sequential class"):
            wrong()
    for factor, kind, words in ((0, ValueError, "Non-positive multiplication factor 0"),
                                (-1, ValueError, "Non-positive"), (1.5, TypeError, "unsupported operand type")):
        with pytest.raises(kind, match=words):
            net * factor
        with pytest.raises(kind, match=words):
            net *= factor


def test_a_subclass_of_sequential_slices_to_itself():
    class Stack(nn.Sequential):
        pass
    assert type(Stack(A, B)[:1]) is Stack


# --- ModuleList -------------------------------------------------------------------------------------------------------


def test_module_list():
    held = nn.ModuleList([A, B])
    assert held.append(C) is held and held.extend([D]) is held and list(held) == [A, B, C, D] and len(held) == 4
    held.insert(1, D)
    assert list(held) == [A, D, B, C, D] and held[-1] is D and held.pop(0) is A
    held[0] = C
    del held[1:3]
    assert list(held) == [C, D] and list(held._modules) == ["0", "1"]
    part = held[1:]
    assert type(part) is nn.ModuleList and list(part._modules) == ["0"]
    assert list(held + [A]) == [C, D, A] and len(held) == 2
    held += [A]
    assert list(held) == [C, D, A]
    with pytest.raises(IndexError, match="index 3 is out of range"):
        held[3]
    with pytest.raises(TypeError, match="ModuleList.extend should be called with an iterable, but got int"):
        held.extend(3)
    with pytest.raises(NotImplementedError, match=r"Module \[ModuleList\] is missing the required"):
        held(1)
    with pytest.raises(TypeError, match="is not a Module subclass"):
        nn.ModuleList([3])


def test_module_list_from_a_generator_and_from_itself():
    held = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert [name for name, _ in held.named_parameters()][:2] == ["0.weight", "0.bias"] and len(held) == 3
    held.extend(held)
    assert len(held) == 6 and held[0] is held[3]


def test_module_list_prints_equal_neighbours_once():
    assert repr(nn.ModuleList()) == "ModuleList()"
    assert repr(nn.ModuleList([A])) == "ModuleList(\n  (0): ReLU()\n)"
    assert repr(nn.ModuleList([A, A, B, A])) == "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n  (3): ReLU()\n)"
    assert repr(nn.ModuleList([nn.Sequential(A)] * 2)) == \
        "ModuleList(\n  (0-1): 2 x Sequential(\n    (0): ReLU()\n  )\n)"


# --- ModuleDict -------------------------------------------------------------------------------------------------------


def test_module_dict():
    held = nn.ModuleDict({"b": B, "a": A})
    assert list(held) == ["b", "a"] == list(held.keys()) and held["a"] is A and "b" in held and len(held) == 2
    assert list(held.values()) == [B, A] and list(held.items()) == [("b", B), ("a", A)]
    held["c"] = C
    held.update([("d", D), ["a", B]])
    assert list(held) == ["b", "a", "c", "d"] and held["a"] is B
    held.update(nn.ModuleDict({"e": A}))
    assert held.pop("e") is A and "e" not in held
    del held["b"]
    with pytest.raises(KeyError):
        held["b"]
    held.clear()
    assert len(held) == 0
    with pytest.raises(TypeError, match="should be called with an iterable of key/value pairs, but got int"):
        held.update(3)
    with pytest.raises(ValueError, match="element #0 has length 3; 2 is required"):
        held.update([("a", A, B)])
    with pytest.raises(TypeError, match="element #0 should be Iterable"):
        held.update([3])
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        held["x"] = 3
    with pytest.raises(KeyError, match="attribute 'training' already exists"):
        held["training"] = A


# --- containers of parameters -----------------------------------------------------------------------------------------


def test_parameter_list():
    p = nn.Parameter(torch.ones(2))
    held = nn.ParameterList([p, torch.zeros(3), "text"])
    assert len(held) == 3 and held[0] is p and isinstance(held[1], nn.Parameter) and held[-1] == "text"
    assert [name for name, _ in held.named_parameters()] == ["0", "1"] == list(held.state_dict())
    held[1] = torch.ones(4)
    held.append(torch.ones(1)).extend([p])
    assert held[1].shape == (4,) and len(held) == 5 and held[4] is p and list(held)[3].shape == (1,)
    held += [torch.ones(7)]
    assert held[5].shape == (7,)
    part = held[:2]
    assert type(part) is nn.ParameterList and len(part) == 2 and part[0] is p
    assert repr(nn.ParameterList([torch.ones(2, 3)])) == \
        "ParameterList(  (0): Parameter containing: [torch.float32 of size 2x3])"
    for wrong in (torch.ones(3), 3):
        with pytest.raises(TypeError, match="ParameterList.extend should be called with an iterable"):
            held.extend(wrong)
    with pytest.raises(IndexError, match="index 6 is out of range"):
        held[6]
    with pytest.raises(RuntimeError, match="ParameterList should not be called"):
        held(1)
    twin = copy.deepcopy(held)
    assert len(twin) == 6 and twin[0] is not p and twin[0].tolist() == [1.0, 1.0]


def test_parameter_dict():
    held = nn.ParameterDict({"b": torch.ones(2), "a": torch.zeros(3)})
    assert list(held) == ["a", "b"] == list(held.keys())                       # a plain dictionary is sorted, as there
    assert list(nn.ParameterDict(OrderedDict(b=torch.ones(1), a=torch.ones(1)))) == ["b", "a"]
    assert isinstance(held["b"], nn.Parameter) and held.b is held["b"] and "a" in held and len(held) == 2
    held["c"] = 5
    assert held["c"] == 5 and held.get("x") is None and held.get("x", 3) == 3
    assert list(reversed(held)) == ["c", "b", "a"]
    assert [name for name, _ in held.named_parameters()] == ["a", "b"]
    assert held.setdefault("c", 1) == 5 and held.setdefault("d", 1) == 1
    assert held.pop("c") == 5 and "c" not in held and held.popitem() == ("d", 1)
    twin = held.copy()
    assert type(twin) is nn.ParameterDict and twin["a"] is held["a"]
    both = held | nn.ParameterDict({"z": torch.ones(1)})
    assert list(both) == ["a", "b", "z"] and list(held) == ["a", "b"]
    held |= nn.ParameterDict({"y": torch.ones(1)})
    held.update([("x", torch.ones(1))])
    assert list(held) == ["a", "b", "y", "x"] and dict(held.items())["x"] is held["x"]
    assert list(held.fromkeys(["p", "q"], 7).values()) == [7, 7]
    del held["a"]
    held.clear()
    assert len(held) == 0 and not list(held.parameters())
    with pytest.raises(KeyError):
        held.popitem()
    with pytest.raises(TypeError, match="not a string .type is 'int'"):
        held[3] = torch.ones(1)
    assert len(held) == 0
    with pytest.raises(RuntimeError, match="ParameterDict should not be called"):
        held(1)


def test_container_of_long_ago():
    with pytest.warns(FutureWarning, match="`nn.Container` is deprecated"):
        assert nn.Container(a=A).a is A
