"""What PyTorch says of the mistakes that `flambeau.watch` finds: nothing, but for a loss of two sizes."""
import gc
import warnings

import pytest
import torch

from tests.watch.cases import CASES, COPPER

MISTAKES = [(case.name, case.mistake) for case in CASES
            if COPPER not in case.mistake and ".accumulate(" not in case.mistake
            and case.name != "vmap"]           # which PyTorch refuses
SAYS = {"mse_loss(pred, y)": "Using a target size"}       # in a program with this → how PyTorch's warning begins


@pytest.mark.parametrize("name, mistake", MISTAKES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(MISTAKES)])
def test_pytorch_is_silent(name, mistake, capsys):
    expected = next((said for line, said in SAYS.items() if line in mistake), None)
    names = {"torch": torch, "__name__": "mistake"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        exec(compile(mistake, "train.py", "exec"), names)
    names.clear()
    gc.collect()
    assert [str(one.message)[:len(expected or "")] for one in said] == ([expected] if expected else [])
    assert not capsys.readouterr().err
