"""Fourier transforms along a dimension, as native steps.

    lines     as many lines at once as a vector has lanes, each in the thread's room from the first pass to the last
    columns   a line by itself, where there are few: n = n1 * n2, so that it is n2 lines of n1 elements which lie side
              by side, twiddles, and then n1 lines of n2 (Cooley and Tukey; Bailey's four steps)

Lengths are products of the radices of fft_kernels.py; others are left to the reference. Twiddles are computed in
float64 and rounded once.
"""
import math
from typing import NamedTuple

import numpy as np

from ....base.once import cache
from .fft_kernels import (
    COMPLEX,
    FFT_FIELDS,
    MAX_PASSES,
    MIRRORED,
    PACKED,
    PLAIN_LINES,
    RADICES,
    REAL,
    SETS_OF_RADICES,
    TWIDDLED,
    UNPACKED,
    FFTKernels,
    bits,
)
from .gemm import HASTY_CYCLES, LibraryCall
from .gemm_kernels import compiled_kernels
from .images import grain

MAX_LENGTH = 4096             # of a line in a room: two copies, of all lanes, fit into the second cache
MAX_COLUMNS_LENGTH = 1 << 22  # of a line that is cut into columns, for which a table of as many twiddles is kept
IDLE_LENGTH = 512             # a longer line is not worth transforming where three of four lanes are idle
PASS_CYCLES = 10              # of an element of all lanes
COMPLEX_PARTS = {"complex64": "float32", "complex128": "float64", "float32": "float32", "float64": "float64"}


class Lines(NamedTuple):
    """Where lines are: (size, stride of what is read, of what is written) of the dimension that the lanes go along, and
    of those around it; and the steps along a line. All in numbers, of which a complex one is two."""

    lanes: tuple
    around: tuple
    in_step: int
    out_step: int


def transform(dtype, x, y, kind, dim, inverse, scale):
    """The LibraryCalls of the transform along `dim`, "c2c", "r2c" or "c2r", times `scale`; or None. `x` and `y` are
    (shape, strides), of the dtypes that they have."""
    real = COMPLEX_PARTS.get(dtype.name)
    if real is None or 0 in x[0] or 0 in y[0]:
        return None
    machine = compiled_kernels(real, FFTKernels)
    wide_in, wide_out = 1 if kind == "r2c" else 2, 1 if kind == "c2r" else 2
    n = y[0][dim] if kind == "c2r" else x[0][dim]
    walks = [(size, s * wide_in, t * wide_out)
             for d, (size, s, t) in enumerate(zip(x[0], x[1], y[1], strict=True)) if d != dim]
    lines = _lines(_merged(walks), x[1][dim] * wide_in, y[1][dim] * wide_out, machine.lanes,
                   (kind != "r2c" and 2, x[1][dim] == 1), (kind != "c2r" and 2, y[1][dim] == 1))
    if kind == "c2c" and (n > MAX_LENGTH or n > IDLE_LENGTH // 2 and lines.lanes[0] * 2 <= machine.lanes):
        calls = _columns(machine, real, n, lines, inverse, scale)
        if calls is not None:
            return calls
    call = _whole_lines(machine, real, kind, n, x[0][dim], y[0][dim], lines, inverse, scale)
    return call and [call]


def _merged(walks):
    """Dimensions that both sides walk evenly made one, outermost first."""
    out = []
    for size, s, t in sorted([one for one in walks if one[0] != 1], key=lambda one: -one[2]):
        if out and (out[-1][1], out[-1][2]) == (s * size, t * size):
            out[-1] = out[-1][0] * size, s, t
        else:
            out.append((size, s, t))
    return out


def _lines(walks, in_step, out_step, lanes, reading, writing):
    """Lines with the lanes along the dimension that costs least: few blocks, read and written by vectors. `reading` and
    `writing` are the stride of lines that lie side by side, and whether the elements of a line do."""
    def cost(number):
        size, *strides = walks[number]
        singly = sum(stride != beside and not along or size < lanes
                     for stride, (beside, along) in zip(strides, (reading, writing), strict=True))
        return math.prod(-(-n // lanes) if i == number else n for i, (n, _, _) in enumerate(walks)) * (1 + singly)
    if not walks:
        return Lines((1, 0, 0), (), in_step, out_step)
    best = min(range(len(walks)), key=cost)
    return Lines(walks[best], tuple(one for i, one in enumerate(reversed(walks)) if len(walks) - 1 - i != best),
                 in_step, out_step)


def _whole_lines(machine, real, kind, n, size_in, size_out, lines, inverse, scale):
    """A LibraryCall whose lines are in the room as a whole; or None."""
    packed = kind != "c2c" and n % 2 == 0
    length = n // 2 if packed else n
    radices = radices_of(length)
    if radices is None or length > MAX_LENGTH or lines.lanes[0] * 4 <= machine.lanes and length > IDLE_LENGTH:
        return None
    step_in, im_in, step_out, im_out = lines.in_step, 1, lines.out_step, 1
    read = write = COMPLEX
    before = after = PLAIN_LINES
    if kind == "r2c":
        step_in, im_in, read = (2 * step_in, step_in, COMPLEX) if packed else (step_in, 0, REAL)
        after, size_in = (PACKED, length) if packed else (PLAIN_LINES, n)
    elif kind == "c2r":
        before, size_in = UNPACKED if packed else MIRRORED, n // 2 + 1
        step_out, im_out, write = (2 * step_out, step_out, COMPLEX) if packed else (step_out, 0, REAL)
        size_out = length if packed else n
    extra = _roots(n, length + 1) if packed else ()
    return _call(machine, real, radices, lines, inverse, scale, extra,
                 dict(read=read, before=before, after=after, write=write, count_in=size_in, in_step=step_in,
                      in_im=im_in, count_out=size_out, out_step=step_out, out_im=im_out))


def _columns(machine, real, n, lines, inverse, scale):
    """The two LibraryCalls of lines as columns; None where no two factors are good, or lines lie in too many ways."""
    first = max([d for d in range(2, math.isqrt(n) + 1) if n % d == 0], default=0)
    if not first or n > MAX_COLUMNS_LENGTH or first < min(machine.lanes, 8) or n // first > MAX_LENGTH:
        return None
    second, whole = n // first, [one for one in (lines.lanes, *lines.around) if one[0] != 1]
    radices = radices_of(first), radices_of(second)
    if None in radices or len(whole) > 2:
        return None
    apart, around = 2 * n, []                    # in working memory the lines stand one after the other
    for size, s, t in whole:
        around.append((size, s, t, apart))
        apart *= size
    down = Lines((second, lines.in_step, 2), tuple((size, s, room) for size, s, _, room in around),
                 second * lines.in_step, 2 * second)
    along = Lines((first, 2 * second, lines.out_step), tuple((size, room, t) for size, _, t, room in around),
                  2, first * lines.out_step)
    size = machine.size
    plain = dict(read=COMPLEX, before=PLAIN_LINES, write=COMPLEX, in_im=1, out_im=1)
    scratch = apart * size
    table = twiddle_table(real, first, second, machine.lanes)
    one = _call(machine, real, radices[0], down, inverse, 1.0, (), dict(
        plain, after=TWIDDLED, count_in=first, in_step=down.in_step, count_out=first, out_step=down.out_step),
        table.ctypes.data, buffers=(0, 2), scratch=scratch)
    two = _call(machine, real, radices[1], along, inverse, scale, (), dict(
        plain, after=PLAIN_LINES, count_in=second, in_step=along.in_step, count_out=second, out_step=along.out_step),
        buffers=(2, 1), scratch=scratch)
    return [one, two]


def _call(machine, real, radices, lines, inverse, scale, extra, fields, address=None, buffers=(0, 1), scratch=0):
    n, element = math.prod(radices), machine.kernels.element
    count, s, t = lines.lanes
    if len(lines.around) > 2:
        return None
    (near, near_in, near_out), (far, far_in, far_out) = (*lines.around, (1, 0, 0), (1, 0, 0))[:2]
    blocks = -(-count // machine.lanes)
    twiddles = _twiddles(radices)
    f = dict(fields, n=n, passes=len(radices), lines=count, blocks=blocks, outer=near, inverse=int(inverse),
             in_line=s, in_outer=near_in, in_outer_2=far_in, out_line=t, out_outer=near_out, out_outer_2=far_out,
             scale=bits(scale, element), extra=len(FFT_FIELDS) + 2 * len(twiddles) if address is None else address,
             source=buffers[0], target=buffers[1])
    f.update({f"radix_{i}": radices[i] if i < len(radices) else 0 for i in range(MAX_PASSES)})
    words = [f[name] for name in FFT_FIELDS] + [bits(part, element) for one in (*twiddles, *extra)
                                                for part in (one.real, one.imag)]
    tiles, cycles = blocks * near * far, n * (len(radices) + 2) * PASS_CYCLES
    most = max([RADICES.index(radix) + 1 for radix in radices], default=1)
    known = next(known for known in SETS_OF_RADICES if most <= known)
    fn = machine.function("lines", known, hasty=tiles * cycles < HASTY_CYCLES)
    return LibraryCall(fn, tiles, grain(tiles, cycles), words, scratch)


def radices_of(n):
    """The radices of the passes over a length, or None. A power of two goes by eights, with one or two fours rather
    than a two."""
    twos = (n & -n).bit_length() - 1
    fours = 0 if twos % 3 == 0 else 1 if twos % 3 == 2 else 2 if twos > 3 else 1 if twos == 2 else 0
    out, n = [8] * ((twos - 2 * fours) // 3) + [4] * fours + [2] * ((twos - 2 * fours) % 3), n >> twos
    for radix in RADICES:
        while radix % 2 and n % radix == 0:
            out.append(radix)
            n //= radix
    return out if n == 1 and len(out) <= MAX_PASSES else None


@cache
def _roots(n, count):
    """The first roots of one, exp(-2 pi i k / n)."""
    return tuple(_root(k, n) for k in range(count))


def _root(k, n):
    """exp(-2 pi i k / n), by an angle of at most an eighth of a turn."""
    k %= n
    eighths = (8 * k + n // 2) // n if n else 0
    angle = 2 * math.pi * (8 * k - eighths * n) / (8 * n)
    c, s = math.cos(angle), math.sin(angle)
    half = math.sqrt(0.5)
    by = [(1, 0), (half, half), (0, 1), (-half, half), (-1, 0), (-half, -half), (0, -1), (half, -half)][eighths % 8]
    return complex(c * by[0] - s * by[1], -(c * by[1] + s * by[0]))


def _twiddles(radices):
    """Those of all passes, one after the other."""
    left, out = math.prod(radices), []
    for radix in radices:
        m = left // radix
        out += [_root(p * k, left) for p in range(m) for k in range(1, radix)]
        left = m
    return out


@cache
def twiddle_table(real, first, second, lanes):
    """What columns are multiplied by: for each row of `second`, or as many as there are lanes, the real parts of these
    roots of one, and then the imaginary ones. Steps have its address in them, so that it is kept for good."""
    n = first * second
    turns = np.outer(np.arange(first), np.arange(max(second, lanes))) % n
    eighths = (8 * turns + n // 2) // n                   # angles of at most half of an eighth of a turn
    angles = (8 * turns - eighths * n) * (2 * math.pi / (8 * n))
    roots = np.exp(-1j * math.pi / 4 * np.arange(9))[eighths]
    c, s = np.cos(angles), np.sin(angles)
    return np.stack([roots.real * c + roots.imag * s, roots.imag * c - roots.real * s], 1).astype(real)
