"""What stands in for parts of PyTorch that are not here."""
import pytest

import flambeau as torch
from flambeau import jit


@pytest.fixture(autouse=True)
def said_nothing_yet():
    jit._said.clear()


def test_what_would_be_scripted_runs_as_it_is():
    def double(x):
        return x * 2
    with pytest.warns(UserWarning, match="there is no TorchScript in Flambeau"):
        assert jit.script(double) is double
    model = torch.nn.Linear(2, 1)
    assert jit.script(model) is model                              # said once
    with pytest.warns(UserWarning, match="torch.jit.trace"):
        assert jit.trace(model, torch.ones(1, 2)) is model
    with pytest.raises(RuntimeError, match="modules in eval mode"):
        jit.freeze(model)
    with pytest.warns(UserWarning):
        assert jit.freeze(model.eval()) is model


def test_what_needs_the_compiled_program_is_missing():
    with pytest.raises(NotImplementedError, match=r"Flambeau has no torch\.jit\.save"):
        jit.save(torch.nn.Linear(2, 1), "model.pt")
