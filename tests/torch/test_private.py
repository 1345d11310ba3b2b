"""PyTorch itself is as tests/compat/cases.py has it."""
import pytest

torch = pytest.importorskip("torch")

from flambeau.backends import library_switches
from tests.compat.cases import CASES, run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_pytorch(case):
    run(case, torch)


def test_the_word_for_the_processor():
    assert library_switches.cpu.get_cpu_capability() == torch.backends.cpu.get_cpu_capability()
