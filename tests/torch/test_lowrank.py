"""`svd_lowrank` and `pca_lowrank`: from one seed, the same singular values and the same product as PyTorch."""
import numpy as np
import pytest
import torch

import flambeau


def matrix(m, *shape):
    draw = np.random.default_rng(0)
    return m.tensor(draw.standard_normal((*shape[:-1], 3)) @ draw.standard_normal((*shape[:-2], 3, shape[-1])))


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (2, 6, 4)])
@pytest.mark.parametrize("options", [{}, {"q": 2}, {"q": 3, "niter": 0}])
def test_lowrank(shape, options):
    for name in ("svd_lowrank", "pca_lowrank"):
        given = {"q": 3, **options}
        found = []
        for m in (flambeau, torch):
            m.manual_seed(0)
            U, S, V = getattr(m, name)(matrix(m, *shape), **given)
            found.append((S.numpy(), (U @ m.diag_embed(S) @ V.mT).numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_what_is_taken_away_first():
    found = []
    for m in (flambeau, torch):
        m.manual_seed(0)
        A = matrix(m, 7, 5)
        found.append(m.svd_lowrank(A, 2, M=A.mean(0, keepdim=True))[1].numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("options", [{"q": 9}, {"q": -1}, {"niter": -1}])
def test_refusals(options):
    words = []
    for m in (flambeau, torch):
        with pytest.raises(ValueError) as caught:
            m.pca_lowrank(matrix(m, 7, 5), **options)
        words.append(str(caught.value))
    assert words[0] == words[1]
