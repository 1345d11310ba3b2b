"""Floats as integers that cannot hold them, beside PyTorch's on x86, on both executors, one by one and many at once."""
import math
import platform

import pytest
import torch

import flambeau as fb

VALUES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.9, -0.9, -1.0, -1.5, 255.0, 256.0, 300.0, -129.0, 128.0, -200.0,
          32768.0, -32769.0, 65535.0, 65536.0, 70000.0, 2.0**31, 2.0**31 - 1, -2.0**31, -2.0**31 - 1000, 2.0**32,
          2.0**32 + 4096, 2.0**40 + 2**16 + 5, 2.0**62, 2.0**63, -2.0**63, -2.0**63 * 1.1, 2.0**64, 1.5 * 2**63, 1e20,
          -1e20, 1e30, 1e300, -1e300]
INTEGERS = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64".split()


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="it is the processor's choice")
@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_floats_that_do_not_fit(name, integer):
    theirs = torch.tensor(VALUES, dtype=torch.float64).to(getattr(torch, name))
    mine = fb.tensor(VALUES, dtype=fb.float64).to(getattr(fb, name))
    # One by one: in PyTorch's vectors, uint32 comes out otherwise.
    expected = [x.clone().to(getattr(torch, integer)).item() for x in theirs]
    if integer != "uint32":
        assert theirs.repeat(64).to(getattr(torch, integer))[:len(VALUES)].tolist() == expected
    for executor in ("native", "reference"):
        with fb.config.using(executor=executor):
            assert mine.repeat(64).to(getattr(fb, integer))[:len(VALUES)].tolist() == expected, executor
            assert [x.clone().to(getattr(fb, integer)).item() for x in mine[:5]] == expected[:5], executor
