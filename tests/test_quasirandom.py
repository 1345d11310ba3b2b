"""Sobol's sequence: what makes it one, and that its parts fit together. Held against PyTorch in tests/torch."""
import pytest

import flambeau as torch
from flambeau.quasirandom import SobolEngine

pytest.importorskip("scipy")


@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 2, 7, 40])
def test_every_interval_has_one_point(dimension, scramble):
    """Of the first 2 ** m points, each interval of length 2 ** -m has exactly one, in every coordinate."""
    points = SobolEngine(dimension, scramble, seed=4).draw(64, dtype=torch.float64)
    assert points.shape == (64, dimension) and points.dtype is torch.float64
    assert torch.equal((points * 64).long().sort(0).values, torch.arange(64)[:, None].expand(64, dimension))


def test_the_sequence_goes_on():
    whole = SobolEngine(3, scramble=True, seed=1).draw(16)
    engine = SobolEngine(3, scramble=True, seed=1)
    assert torch.equal(torch.cat([engine.draw(), engine.draw(3), engine.draw_base2(2)]), whole[:8])
    assert torch.equal(engine.fast_forward(4).draw(4), whole[12:]) and engine.num_generated == 16
    out = torch.empty(0)
    assert torch.equal(engine.reset().draw(2, out=out), whole[:2]) and out.shape == (2, 3)
    assert not torch.equal(SobolEngine(3, scramble=True, seed=2).draw(16), whole)
    assert repr(engine) == "SobolEngine(dimension=3, scramble=True, seed=1)"
    assert repr(SobolEngine(2)) == "SobolEngine(dimension=2)"


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"\[1, 21201\], not 0"):
        SobolEngine(0)
    with pytest.raises(ValueError, match=r"then: n=3\+2\*\*1=5"):
        engine = SobolEngine(2)
        engine.draw(3)
        engine.draw_base2(1)
