"""Tensors without elements on a GPU: nothing is launched over them, and they come out as they do on the CPU."""
import pytest

import flambeau as torch

WORKS = {"bernoulli": torch.bernoulli, "dropout": torch.nn.functional.dropout, "sort": lambda x: x.sort(1)[0],
         "sum": lambda x: x.sum(0), "cumsum": lambda x: x.cumsum(1), "cat": lambda x: torch.cat([x, x], 1),
         "product": lambda x: x.t() @ x, "softmax": lambda x: x.softmax(1), "view": lambda x: x.view(-1)[:0],
         "index": lambda x: x[torch.zeros(0, dtype=torch.int64, device=x.device)], "like": torch.rand_like,
         "fft": lambda x: torch.view_as_real(torch.complex(x, x)), "copy": lambda x: x.clone().to(torch.bfloat16)}


@pytest.mark.parametrize("name", WORKS)
def test_nothing_gives_what_it_gives_on_the_cpu(name, simulated):
    here, there = (WORKS[name](torch.zeros(0, 3, device=device)) for device in ("cpu", "cuda"))
    assert there.device.type == "cuda"
    assert (there.shape, there.dtype, there.stride()) == (here.shape, here.dtype, here.stride())
    assert there.tolist() == here.tolist()
