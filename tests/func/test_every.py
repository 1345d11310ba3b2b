"""A transform of functions is declared by its name in `__all__` of its module in flambeau/func. What it needs besides
is missed here by name; the call that is compared with PyTorch's, in tests/torch/test_func.py."""
import re
from pathlib import Path

import pytest

from flambeau import func
from flambeau.func import derivatives

from .test_derivatives import TRANSFORMS

ROOT = Path(__file__).parents[2]
SECTION = re.search(r"^## torch\.func$.*?(?=^## )", ROOT.joinpath("docs", "porting.md").read_text(encoding="utf-8"),
                    re.MULTILINE | re.DOTALL)[0]


@pytest.mark.parametrize("name", func.__all__)
def test_a_transform_is_whole(name):
    assert getattr(func, name).__doc__, f"torch.func.{name} says nothing of what it gives"
    assert f"`{name}`" in SECTION, f'the section "torch.func" of docs/porting.md does not name `{name}`'
    assert name in TRANSFORMS or name not in derivatives.__all__, \
        f'TRANSFORMS in tests/func/test_derivatives.py has no "{name}"'
