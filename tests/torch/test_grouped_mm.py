"""`grouped_mm`, the products of a mixture of experts: values and gradients as PyTorch's."""
import numpy as np
import pytest
import torch

import flambeau


@pytest.mark.parametrize("shapes", [((6, 8), (3, 8, 4)), ((8, 12), (12, 4)), ((3, 2, 8), (3, 8, 4)),
                                    ((3, 4, 8), (8, 12))])
def test_grouped_mm(shapes):
    draw = np.random.default_rng(0)
    given = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
    offs = np.array([2, 3, 6] if shapes[0] == (6, 8) else [4, 8, 12], np.int32)
    found = []
    for m in (flambeau, torch):
        a, b = (m.tensor(x, requires_grad=True) for x in given)
        more = {} if len(shapes[0]) == len(shapes[1]) == 3 else {"offs": m.tensor(offs)}
        made = m.nn.functional.grouped_mm(a, b, **more)
        plain = m._grouped_mm(a, b, *more.values())
        found.append((made.detach().numpy(), plain.detach().numpy()))
        if m is flambeau:
            made.square().sum().backward()
            assert a.grad is not None and b.grad is not None
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", [
    lambda m, a, b, o: m.nn.functional.grouped_mm(a, b),
    lambda m, a, b, o: m.nn.functional.grouped_mm(a.double(), b.double(), offs=o),
    lambda m, a, b, o: m.nn.functional.grouped_mm(a, b, offs=o.long()),
    lambda m, a, b, o: m.nn.functional.grouped_mm(a, b, offs=o[:2]),
    lambda m, a, b, o: m.nn.functional.grouped_mm(a, b, offs=o, out_dtype=m.float64),
])
def test_refusals(call):
    words = []
    for m in (flambeau, torch):
        with pytest.raises(RuntimeError) as caught:
            call(m, m.ones(6, 8), m.ones(3, 8, 4), m.tensor([2, 3, 6], dtype=m.int32))
        words.append(str(caught.value).partition("\n")[0].partition(";")[0][:40])
    assert words[0] == words[1]
