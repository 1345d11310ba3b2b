"""A name that is not there: the error says which is near, or that PyTorch has it; and asking again is cheap."""
import copy
import pickle
import time

import pytest

import flambeau as torch
from flambeau.base import names

OWNERS = {"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional, "torch.optim": torch.optim,
          "torch.linalg": torch.linalg, "torch.special": torch.special, "torch.Tensor": torch.Tensor,
          "torch.utils": torch.utils, "torch.autograd": torch.autograd, "torch.func": torch.func,
          "torch.testing": torch.testing}


def said(owner, name):
    """The words of the AttributeError."""
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert caught.value.name == name
    return str(caught.value)


@pytest.mark.parametrize("place", OWNERS)
def test_a_misspelt_name_leads_to_one_that_is_there(place):
    owner = OWNERS[place]
    there = {name for name in dir(owner) if not name.startswith("_") and len(name) > 4}
    for name in sorted(there)[::7]:
        wrong = name[:2] + name[3:]                          # a letter forgotten
        if hasattr(owner, wrong):
            continue
        words = said(owner, wrong)
        if wrong in names.absent().get(place, ()):
            continue
        meant = words.rpartition("did you mean ")[2].removesuffix("?").rpartition(".")[2]
        assert hasattr(owner, meant), f"{place}.{wrong}: {words}"


@pytest.mark.parametrize("place", sorted(names.absent()))
def test_what_pytorch_has_and_flambeau_has_not_is_said(place):
    owner = torch
    for part in place.split(".")[1:]:
        owner = getattr(owner, part)
    for name in names.absent()[place]:
        if place == "torch.utils.data":                      # which has its own words for data pipes
            assert "DataPipes" in said_of(owner, name)
        elif place != "torch.random":
            assert f"Flambeau has no {place}.{name}, which PyTorch has" in said(owner, name)


def said_of(owner, name):
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    return str(caught.value)


def test_names_that_python_asks_for_are_refused_without_a_word():
    x = torch.ones(2)
    assert str(pytest.raises(AttributeError, getattr, x, "__array_fancy__").value) \
        == "'Tensor' object has no attribute '__array_fancy__'"
    assert not hasattr(x, "_ipython_display_") and not hasattr(torch, "__wrapped__")


def test_asking_again_is_cheap():
    x = torch.ones(2)
    hasattr(x, "iloc_of_pandas")
    start = time.process_time()
    for _ in range(1000):
        hasattr(x, "iloc_of_pandas")
    assert time.process_time() - start < 0.5                 # a search takes a millisecond or more each


def test_a_property_that_fails_says_so_itself():
    class Marked(torch.Tensor):
        @property
        def mark(self):
            return self.owner.mark

    with pytest.raises(AttributeError, match="object has no attribute 'owner'"):
        torch.ones(2).as_subclass(Marked).mark  # noqa: B018


def test_a_tensor_is_copied_and_pickled_as_before():
    x = torch.ones(2)
    assert copy.deepcopy(x).tolist() == copy.copy(x).tolist() == pickle.loads(pickle.dumps(x)).tolist() == [1.0, 1.0]
