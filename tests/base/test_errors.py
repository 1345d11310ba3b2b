"""Sites and names: which line of the user's, and what a tensor is called there."""
import pytest

import flambeau as torch
from flambeau.base.errors import here, line_of, name_of, need


def made_there():
    return torch.ones(2)                                   # the line that counts


def test_a_tensor_knows_the_line_that_made_it():
    first = made_there.__code__.co_firstlineno
    assert line_of(made_there()._site) == f"test_errors.py:{first + 1}"
    x = torch.ones(2)
    line = test_a_tensor_knows_the_line_that_made_it.__code__.co_firstlineno
    for made in (x * 2, x[0], x.view(1, 2), torch.nn.functional.softmax(x, 0), x.max(0).values, x + x.t()):
        assert line_of(made._site) == f"test_errors.py:{line + 5}"


def test_sites_without_a_line():
    assert line_of(None) == "an unknown line"
    assert line_of(here()).startswith("test_errors.py:")


class Net:
    def __init__(self):
        self.weight = torch.ones(2)

    def name(self):
        return name_of(self.weight)


def test_names_are_looked_up_where_the_user_stands():
    mine, other = torch.ones(1), torch.zeros(1)
    assert name_of(mine) == "mine" and name_of(other) == "other" and name_of(torch.ones(1)) is None
    assert name_of(None, same=lambda held: held is other) == "other"
    net = Net()
    assert net.name() == "self.weight" and name_of(net.weight) == "net.weight"


def test_a_warning_stands_at_the_users_line():
    with pytest.warns(UserWarning, match="degrees of freedom") as caught:
        torch.ones(1).var()
    assert caught[0].filename == __file__


def test_need():
    need(True, "fine")
    with pytest.raises(ValueError, match="wrong") as caught:
        need(False, "wrong", ValueError)
    assert caught.value.refusal
