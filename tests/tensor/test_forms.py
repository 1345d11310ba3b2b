"""The forms that operations have: what an operator stands for."""
import flambeau as torch
from flambeau.base import names
from flambeau.ops import arith
from flambeau.tensor.forms import spelled


def test_an_operator_without_a_method_looks_for_no_words(monkeypatch):
    def refuse(*_):
        raise AssertionError("to word an error takes milliseconds, and nobody made one")

    monkeypatch.setattr(names, "_worded", refuse)
    monkeypatch.setattr(names, "_words", {})
    assert not hasattr(type("Plain", (), {}), "rsub") and "rsub" not in dir(torch.Tensor)
    assert (1 - torch.ones(2)).tolist() == [0, 0]
    assert spelled(arith.rsub, "the operator") == "the operator"
    assert spelled(arith.add, None) is torch.Tensor.add
