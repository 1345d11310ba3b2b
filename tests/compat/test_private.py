"""What packages import of PyTorch's insides; the same cases hold in PyTorch (tests/torch/test_private.py)."""
import pytest

import flambeau
from flambeau.backends.cpu.machine_code import capability
from tests.compat.cases import CASES, run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_flambeau(case):
    run(case, flambeau)


@pytest.mark.parametrize("triple, features, word", [
    ("x86_64-unknown-linux-gnu", "avx2 fma avx512vl avx512bw avx512dq avx512f", "AVX512"),
    ("x86_64-unknown-linux-gnu", "avx2 fma avx512f", "AVX2"), ("x86_64-apple-darwin", "avx2 fma", "AVX2"),
    ("x86_64-unknown-linux-gnu", "avx2", "NO AVX"), ("x86_64-unknown-linux-gnu", "sse2", "NO AVX"),
    ("aarch64-unknown-linux-gnu", "neon fp-armv8", "DEFAULT"), ("arm64-apple-darwin", "neon", "DEFAULT"),
])
def test_what_the_processor_has(triple, features, word):
    assert capability(triple, frozenset(features.split())) == word


def test_a_processor_that_is_stood_for():
    """The answer is about the processor that kernels are compiled for."""
    assert flambeau.backends.cpu.__name__                     # our package: PyTorch's switches are beside it
    from flambeau.backends import library_switches
    assert library_switches.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX", "AVX2", "AVX512")
