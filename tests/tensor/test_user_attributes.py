"""A tensor's `__dict__` holds what the program hung on it, and nothing of ours."""
import copy
import functools
import pickle

import numpy as np
import pytest

import flambeau as torch
from flambeau.tensor.user_attributes import OWN_FIELDS, fields


def used():
    """Tensors in every state: a leaf with a gradient and hooks, a result, a view, a written view, a detached one."""
    leaf = torch.ones(3, requires_grad=True)
    leaf.register_hook(lambda g: g)
    leaf.register_post_accumulate_grad_hook(lambda t: None)
    result = leaf * 2
    result.retain_grad()
    result.sum().backward()
    base = torch.zeros(2, 2)
    view = base[0]
    view.add_(1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        yield from (leaf, result, base, view, dual, leaf.data, leaf.detach(), torch.nn.Parameter(torch.ones(1)),
                    torch.empty(2, device="meta"))


def test_nothing_of_ours_is_seen():
    for tensor in used():
        assert vars(tensor) == {} and tensor.__dict__ == {} and set(fields(tensor)) <= OWN_FIELDS


def test_what_a_program_sets_is_there_and_can_be_changed_there():
    x = torch.ones(2)
    x.mark, x.other = 1, [2]
    assert vars(x) == {"mark": 1, "other": [2]} and isinstance(vars(x), dict)
    held = vars(x)
    held["third"] = 3
    held |= {"fourth": 4}
    held.update(fifth=5)
    assert (x.third, x.fourth, x.fifth) == (3, 4, 5) and held.setdefault("sixth", 6) == x.sixth
    assert held.pop("third") == 3 and not hasattr(x, "third") and held.pop("third", None) is None
    del held["mark"]
    assert not hasattr(x, "mark") and set(vars(x)) == {"other", "fourth", "fifth", "sixth"} == set(held)
    assert held.popitem() == ("sixth", 6) and not hasattr(x, "sixth")
    x.__dict__ = {"only": 7}
    assert vars(x) == {"only": 7} and x.only == 7 and torch.equal(x, torch.ones(2))
    vars(x).clear()
    assert vars(x) == {} and torch.equal(x, torch.ones(2))
    assert type(held.copy()) is type(copy.deepcopy(held)) is type(pickle.loads(pickle.dumps(held))) is dict
    assert "only" not in dir(x) and "shape" in dir(x)


def test_a_class_before_the_tensor_among_the_bases():
    """A plain class has a `__dict__` of Python's own, which comes first; monai's MetaTensor is made like this."""
    class Named:
        def take(self, other):
            self.__dict__ = {"name": other.name}

    class Marked(Named, torch.Tensor):
        pass

    class Other:
        pass

    class Twice(Other, Marked):
        pass

    for kind in (Marked, Twice):
        one, two = torch.ones(2, 3).as_subclass(kind), torch.zeros(4).as_subclass(kind)
        assert vars(one) == {} and isinstance(one, Named)
        one.name, two.other = "one", 1
        two.take(one)
        assert vars(two) == {"name": "one"} and two.shape == (4,) and not hasattr(two, "other")
        two.__dict__ = one.__dict__.copy()
        assert torch.equal(two + 1, torch.ones(4)) and one.view(-1).shape == (6,)


def test_our_fields_cannot_be_written_through_it():
    x = torch.ones(2)
    for name in ("_spec", "_node"):
        with pytest.raises(AttributeError, match=f"'{name}' is a field"):
            vars(x)[name] = None
        with pytest.raises(AttributeError):
            x.__dict__ = {name: None}
        assert vars(x).pop(name, "none") == "none"
    assert torch.equal(x, torch.ones(2))


def test_every_field_of_ours_starts_with_an_underscore():
    """Whatever was done with a tensor: any other name belongs to the program."""
    leaf = torch.ones(2, 3, requires_grad=True)
    leaf.register_hook(lambda g: g)
    view = leaf.t()[1:]
    view.retain_grad()
    (view.sin() * 2).sum().backward()
    with torch.no_grad():
        cut = leaf * 2
    kinds = [leaf, view, cut, leaf.data, leaf.detach(), leaf.grad, torch.nn.Parameter(leaf), leaf.sum(),
             torch.from_numpy(np.ones(2)), copy.deepcopy(leaf), pickle.loads(pickle.dumps(cut)),
             torch.tensor([1, 2]), torch.empty(2, device="meta"), leaf.as_subclass(torch.nn.Parameter)]
    held = {name for tensor in kinds for name in fields(tensor)} | OWN_FIELDS
    assert {"_spec", "_offset", "_site", "_storage", "_node"} <= held
    assert [name for name in held if not name.startswith("_")] == []


@pytest.mark.parametrize("name", ["spec", "offset", "site", "value", "slot", "node", "kind", "storage_", "version"])
def test_a_program_calls_its_attributes_what_it_likes(name):
    def work(tensor):
        """What results from it, by views, in place, backward and compiled code."""
        view = tensor.t()[1:]
        out = (view * 2).sum() + tensor.exp()[0, 0]
        out.backward()
        with torch.no_grad():
            tensor.mul_(3)
        return [out, tensor.grad.clone(), view.clone(), torch.compile(lambda x: x * 2)(tensor), tensor + 1]

    expected = work(torch.ones(2, 3, requires_grad=True))
    tensor = torch.ones(2, 3, requires_grad=True)
    setattr(tensor, name, "mine")
    for given, wanted in zip(work(tensor), expected, strict=True):
        assert torch.equal(given, wanted)
    assert getattr(tensor, name) == "mine" and vars(tensor) == {name: "mine"}
    assert vars(copy.deepcopy(tensor)) == {name: "mine"} == vars(pickle.loads(pickle.dumps(tensor)))
    assert not hasattr(tensor + 1, name)
    delattr(tensor, name)
    assert not hasattr(tensor, name) and tensor.shape == (2, 3)


def test_a_parameter_with_the_attributes_of_another():
    """As accelerate and diffusers make one on another device."""
    class Marked(torch.nn.Parameter):
        def __new__(cls, data, requires_grad=True, **attributes):
            made = super().__new__(cls, data, requires_grad)
            made.__dict__.update(attributes)
            return made

    old = Marked(torch.ones(2), bits=4)
    old.sum().backward()
    new = type(old)(torch.zeros(2), requires_grad=old.requires_grad, **old.__dict__)
    assert new.bits == 4 and vars(new) == {"bits": 4} and new.grad is None and new.tolist() == [0, 0]
    plain = torch.nn.Parameter(torch.ones(2))
    assert torch.nn.Parameter(torch.zeros(2), **plain.__dict__).tolist() == [0, 0]


def test_attributes_travel():
    x = torch.ones(2)
    x.mark = [1]
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert vars(twin) == {"mark": [1]} and twin.mark is not x.mark


def test_a_cached_property_of_a_subclass():
    class Counted(torch.Tensor):
        @functools.cached_property
        def total(self):
            return self.sum().item()

    x = torch.ones(3).as_subclass(Counted)
    assert x.total == 3 and vars(x) == {"total": 3.0}
