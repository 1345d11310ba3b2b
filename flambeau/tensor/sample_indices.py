"""Draw one index for each row of a few weights, as an agent does at every step that it takes.

A part of the compiled core: see Note [One source, two speeds] in base/core.py; sample_indices.pyx does the same in C.
It is `MersenneTwister.multinomial` (backends/cpu/random/draws.py) for few numbers, where NumPy's calls would take
longer than all else: the same words, the same arithmetic, and the same index.
"""
import math

import numpy as np

from ..backends.cpu.random.draws import MersenneTwister
from ..base import dtypes
from ..base.spec import CPU
from ..trace.value import Value

MAX_WEIGHTS = 256             # of all rows together
UNIT_MASK = 2**53 - 1         # what counts of two words


def drawn_indices(weights, wanted, source):
    """A Value of `wanted`, int64, with an index for each row of the plain tensor `weights`, drawn in proportion to them
    from the stream `source`. None, and nothing is drawn, where they are many, lie elsewhere, or cannot be weights: it
    is for others to draw, or to say what is wrong."""
    spec = weights._spec
    single = spec.dtype is dtypes.float32
    if not 0 < spec.numel <= MAX_WEIGHTS or not spec.contiguous or spec.device is not CPU \
            or not single and spec.dtype is not dtypes.float64 or source.__class__ is not MersenneTwister:
        return None
    value = weights._storage.value
    value.ready()
    array = value.look(spec, weights._offset).reshape(-1, spec.shape[-1])
    rows = array.tolist()
    for row in rows:
        if not (min(row) >= 0 and max(row) < math.inf and sum(row) > 0):
            return None
    with source._lock:
        words = iter(source._word(2 * spec.numel).tolist())
    # A race of clocks that tick at these rates: who is first.
    units = [((high << 32 | next(words)) & UNIT_MASK) * 2.0**-53 for high in words]
    waits = [-math.log1p(-unit) for unit in units]            # of unit 0 it is 0, and not -0
    with np.errstate(all="ignore"):
        race = array / np.array(waits, array.dtype).reshape(array.shape)
    return Value.of(race.argmax(-1).reshape(wanted.shape), wanted)
