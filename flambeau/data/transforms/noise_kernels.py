"""Random numbers for every pixel of a batch, from one key for each sample, computed where they are used.

Number i of a sample is its key and i, well mixed (the end of MurmurHash3, on words of 32 bits, which vectors have). Two
of them make a normal number by Box and Muller's formula.
"""
import numpy as np

from ...base import dtypes
from ...base.op import Op
from ...base.spec import spec

# shifts and factors that mix a word of 32 bits, as signed numbers
MIX_32 = ((16, 0x85EBCA6B - (1 << 32)), (13, 0xC2B2AE35 - (1 << 32)), (16, None))
NOISE_STEP = 0x9E3779B9 - (1 << 32)       # 2 ** 32 over the golden ratio: neighbours land far apart
TWO_PI = 6.283185307179586


class normal_noise(Op):
    """Normal numbers [N, …, H, W] of mean 0 and variance 1 in float32, from `keys` [N, 2, 1, 1], int32."""

    forms = ""

    def meta(keys, shape): return spec(dtypes.float32, (keys.shape[0], *shape), None, keys.device)

    def ref(xp, keys, shape):
        count = int(np.prod(shape))
        position = xp.arange(count, dtype=xp.uint32) * xp.uint32(NOISE_STEP & 0xFFFFFFFF)
        words = []
        for i in (0, 1):
            word = keys[:, i, 0].astype(xp.uint32) + position
            for shift, factor in MIX_32:
                word = word ^ word >> xp.uint32(shift)
                word = word if factor is None else word * xp.uint32(factor & 0xFFFFFFFF)
            words.append((word >> xp.uint32(8)).astype(xp.float32))
        radius = xp.sqrt(xp.float32(-2) * xp.log((words[0] + xp.float32(1)) * xp.float32(2.0**-24)))
        return (radius * xp.cos(words[1] * xp.float32(TWO_PI * 2.0**-24))).reshape(len(keys), *shape)

    def body(k, keys, shape):
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        flat = (keys.shape[0], rows, columns)
        position = k.cast(k.index(1, (1, rows, 1)), dtypes.int32) * columns \
            + k.cast(k.index(2, (1, 1, columns)), dtypes.int32)
        position = position * NOISE_STEP
        words = []
        for i in (0, 1):
            key = k.reshape(k.gather(keys, 1, k.const(i, dtypes.int64)), (keys.shape[0], 1, 1))
            word = k.expand(key, flat) + position
            for shift, factor in MIX_32:
                word = word ^ ((word >> shift) & ((1 << 32 - shift) - 1))       # `>>` brings the sign along
                word = word if factor is None else word * factor
            words.append(k.cast((word >> 8) & 0xFFFFFF, dtypes.float32))
        radius = k.sqrt(k.log((words[0] + 1.0) * 2.0**-24) * -2.0)
        return k.reshape(radius * k.cos(words[1] * (TWO_PI * 2.0**-24)), (keys.shape[0], *shape))


def noise_keys(random):
    """Keys [n, 2, 1, 1] from the streams of `n` samples."""
    return random.integers(-1 << 31, 1 << 31, 2).astype(np.int32)[:, :, None, None]
