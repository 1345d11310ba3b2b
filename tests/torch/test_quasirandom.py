"""Sobol's points are PyTorch's: every coordinate and dtype, scrambled by the same seed or the default generator."""
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")

import flambeau


@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 3, 50, 21201])
def test_points(dimension, scramble):
    count = 33 if dimension < 1000 else 4
    for dtype in ("float32", "float64"):
        ours = flambeau.quasirandom.SobolEngine(dimension, scramble, seed=7).draw(count, dtype=getattr(flambeau, dtype))
        theirs = torch.quasirandom.SobolEngine(dimension, scramble, seed=7).draw(count, dtype=getattr(torch, dtype))
        assert (ours.numpy() == theirs.numpy()).all()


def test_the_default_generator():
    drawn = []
    for library in (flambeau, torch):
        library.manual_seed(3)
        engine = library.quasirandom.SobolEngine(4, scramble=True)
        drawn.append([engine.draw(5).tolist(), engine.fast_forward(3).draw().tolist(), library.rand(2).tolist()])
    assert drawn[0] == drawn[1]
