"""Draw PyTorch's own random numbers on a GPU: Philox 4x32-10, as cuRAND and PyTorch's CUDA kernels go through it.

A stream is a seed and an offset, which is how many words every thread has drawn so far. Philox gives four words of 32
bits for a key (the seed) and a counter: offset / 4 in its lower half, the number of the thread in its upper half. There
is no state on the device, so a draw is one launch, and what it gives follows from seed, offset and count alone.

Note [Threads]: which thread draws which element is part of PyTorch's numbers, and depends on the GPU. It takes blocks
of 256 threads, as many as there are elements for, but no more than the GPU can hold at once (multiprocessors times
the blocks that fit on one): `threads` in all. Thread t draws four words at a time (or two numbers of 64 bits) and
puts them down at t, t + threads, t + 2 threads and t + 3 threads, and goes on 4 threads further; the offset moves on
by 4 for each such turn. So our kernels are launched over the same grid.

What a word becomes, see `RULES` in random_kernels.py. Where PyTorch uses the approximate functions of the hardware
(`__logf`), so do we; it is compiled with a multiplication and an addition as one operation where they meet, ours are
not, so these are spelt out.

Equal to PyTorch's bit for bit: uniform, normal, integers, bernoulli, exponential, cauchy, log_normal, geometric, gamma,
Dirichlet and binomial numbers, Poisson numbers of rates below 64, dropout's mask, permutations, and multinomial without
replacement or of one sample. Poisson numbers of larger rates follow their distribution, with others than PyTorch's; and
multinomial with replacement is PyTorch's but where a sum that is rounded otherwise moves a boundary.
"""
import math
import struct
from functools import cache, lru_cache

import numpy as np

from ...base import dtypes
from ...base.locks import new_lock
from ...base.spec import spec
from ..cpu.random.arithmetic import REAL_DTYPE, SIGNIFICAND_BITS, largest, representable, rounded
from ..cpu.random.random_stream import RandomStream, need
from .calls import LaunchCall
from .random_kernels import (
    SAMPLE_UNITS,
    SHUFFLE_EQUALS,
    coins_source,
    each_source,
    integer_source,
    keep_source,
    real_source,
)
from .single_launch import launch

BLOCK_THREADS = 256
PHILOX_STATE_BYTES = 16                  # the seed and the offset, as torch.cuda.get_rng_state() has them
LARGEST_32_BIT_OFFSET = 2**31 - 1        # in bytes: PyTorch draws what is larger in parts
PROBABILITY_OFFSET = 10                  # what a draw with a tensor of probabilities moves the offset on by, in PyTorch
POISSON_OFFSET, GAMMA_OFFSET, BINOMIAL_OFFSET = 20, 10, 42
SAMPLE_THREADS = 128                     # of a block that draws with replacement
BINOMIAL_THREADS = 128                   # of a block that draws binomial numbers
FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


@cache
def name_of(dtype):
    """The kernels' name of a NumPy dtype."""
    return FLOATS.get(dtype.name, dtype.name)


@cache
def real_part(dtype):
    """The dtype of the parts of a complex one; None of any other."""
    return REAL_DTYPE.get(dtype.name)


class Position:
    """Where a stream stands; generators of several devices may share one."""

    def __init__(self, seed=0, offset=0):
        self.seed, self.offset, self.lock = seed, offset, new_lock()

    def advance(self, count):
        """The (seed, offset) to draw from, and the offset moves on by `count` words, whole groups of four."""
        with self.lock:
            found = self.seed, self.offset
            self.offset += -(-count // 4) * 4
        return found


class Philox(RandomStream):
    """The stream of a GPU; a seed gives the same numbers as torch.Generator(device="cuda") on a GPU of its kind."""

    def __init__(self, backend, where=None):
        self.backend, self.where = backend, where or Position()
        self.threads_at_once = _threads_at_once(backend.properties)

    @property
    def device(self):
        return self.backend.device

    def new(self):
        return Philox(self.backend)

    def on(self, device):
        return self if device is self.backend.device else Philox(device.backend, self.where)

    # --- seed and state

    def _start(self, seed):
        with self.where.lock:
            self.where.seed, self.where.offset = seed, 0

    def initial_seed(self):
        return self.where.seed

    def position(self):
        return self.where.seed, self.where.offset

    def get_offset(self):
        return self.where.offset

    def set_offset(self, offset):
        need(offset % 4 == 0 and offset >= 0, f"offset must be a multiple of 4, got {offset}")
        self.where.offset = offset

    def _state(self):
        with self.where.lock:
            return np.frombuffer(struct.pack("<QQ", *self.position()), np.uint8).copy()

    def _continue(self, state):
        need(state.size in (PHILOX_STATE_BYTES, PHILOX_STATE_BYTES // 2),
             f"RNG state is wrong size: {state.size} bytes, and a CUDA generator's are {PHILOX_STATE_BYTES}")
        seed, offset = struct.unpack("<QQ", state.tobytes().ljust(PHILOX_STATE_BYTES, b"\0"))
        with self.where.lock:
            self.set_offset(offset)
            self.where.seed = seed

    def __getstate__(self):
        raise TypeError("the stream of a GPU cannot be pickled: keep get_state(), and give it to set_state()")

    # --- launches

    def _blank(self, n, dtype):
        """Memory for n elements, as the backend keeps it: `_seen` makes an array of it."""
        return self.backend.blank(spec(dtypes.from_numpy(dtype), (n,), None, self.backend.device))[0]

    def _seen(self, blank):
        return self.backend.seen(blank)

    def _fill(self, source, n, dtype, per_turn, numbers=()):
        """`n` new numbers of a kernel of the form `FILL`, of which a turn gives `per_turn`."""
        out = self._blank(n, dtype)
        if n:
            address = self.backend.address(out)
            for start, count in self._parts(n, dtype.itemsize, per_turn):
                threads, turns = self._threads(count, per_turn)
                seed, offset = self.where.advance(4 * turns)
                self._launch(source, threads, (address + start * dtype.itemsize,), (count, seed, offset, *numbers))
        return out

    def _threads(self, n, per_turn):
        """(the threads that draw n numbers, the turns they take); see Note [Threads]."""
        threads = min(self.threads_at_once, -(-n // BLOCK_THREADS) * BLOCK_THREADS)
        return threads, (n - 1) // (threads * per_turn) + 1

    def _parts(self, n, itemsize, per_turn):
        """The (start, count) that PyTorch draws by themselves: halves of what it cannot address with 32 bits, for which
        it has moved the offset on before it found that out."""
        if n <= LARGEST_32_BIT_OFFSET and 1 + (n - 1) * itemsize <= LARGEST_32_BIT_OFFSET:
            return [(0, n)]
        self.where.advance(4 * self._threads(n, per_turn)[1])
        done, todo = [], [(0, n)]
        while todo:
            start, count = todo.pop()
            if 1 + (count - 1) * itemsize <= LARGEST_32_BIT_OFFSET:
                done.append((start, count))
            else:
                half = count // 2
                todo += [(start + half, count - half), (start, half)]
        return done

    def _launch(self, source, threads, addresses, ints):
        grid = -(-threads // BLOCK_THREADS)
        call = LaunchCall(source, "draw", (grid, 1, 1), (BLOCK_THREADS, 1, 1), 0, tuple(map(_as_word, ints)))
        launch(self.backend, call, addresses)

    def _real(self, rule, n, dtype, *numbers):
        type = name_of(dtype)
        return self._fill(real_source(rule, type), n, dtype, 2 if type == "f64" else 4, numbers)

    # --- distributions; the words are those of backends/cpu/random/draws.py

    def uniform(self, n, dtype, low=0.0, high=1.0):
        """Uniform over [low, high)."""
        dtype = np.dtype(dtype)
        if (real := real_part(dtype)) is not None:
            return self.uniform(2 * n, real, low, high)
        low, high = rounded(np.array([low, high], np.float64), dtype)         # in the dtype, and so is their difference
        return self._real("uniform", n, dtype, float(low), float(high), float(high - low))

    def normal(self, n, dtype, mean=0.0, std=1.0, contiguous=True):
        """Normal around `mean`."""
        dtype = np.dtype(dtype)
        if (real := real_part(dtype)) is not None:
            return self.normal(2 * n, real, mean, std / math.sqrt(2))
        return self._real("normal", n, dtype, float(mean), float(std))

    def log_normal(self, n, dtype, mean=1.0, std=2.0):
        return self._real("log_normal", n, np.dtype(dtype), float(mean), float(std))

    def exponential(self, n, dtype, lambd=1.0):
        return self._real("exponential", n, np.dtype(dtype), float(lambd))

    def geometric(self, n, dtype, p):
        return self._real("geometric", n, np.dtype(dtype), float(p))

    def cauchy(self, n, dtype, median=0.0, sigma=1.0):
        return self._real("cauchy", n, np.dtype(dtype), float(median), float(sigma))

    def bernoulli(self, p, n, dtype):
        """One with probability `p`, a number or an array of n of this device's; else zero."""
        dtype = np.dtype(dtype)
        type = name_of(dtype)
        if not hasattr(p, "shape"):
            return self._real("bernoulli", n, dtype, float(p))
        chance = np.dtype(np.float64 if type == "f64" else np.float32)
        chances, out = p.astype(chance), self._blank(n, dtype)
        seed, offset = self.where.advance(PROBABILITY_OFFSET)
        if n:
            addresses = self.backend.address(chances), self.backend.address(out)
            self._launch(coins_source(type), -(-n // 4), addresses, (n, seed, offset))
        return out

    def dropout_width(self, spec, offset):
        """How many neighbours PyTorch's dropout reads at a time of a tensor of `spec` that starts `offset` elements
        into its memory: up to 16 bytes, where it is dense and they are aligned and go into it. With 1 the mask is drawn
        in the order of positions, else in that of memory."""
        width = 16 // spec.dtype.itemsize if spec.dense else 1
        while spec.numel % width or offset % width:
            width //= 2
        return width

    def keep(self, n, p, dtype, width):
        """Dropout's mask: True where an element is kept, with probability 1 - `p`, of a tensor of n elements of `dtype`
        that PyTorch reads `width` at a time."""
        out = self._blank(n, np.dtype(np.bool_))
        if n:
            threads, turns = self._threads(n, 4)
            seed, offset = self.where.advance(4 * turns)
            source = keep_source("double" if np.dtype(dtype) == np.float64 else "float", width)
            self._launch(source, threads, (self.backend.address(out),), (n, seed, offset, 1.0 - p))
        return out

    # --- integers

    def integers(self, low, high, n, dtype):
        """Integers in [low, high); `high` None means up to the largest that `dtype` holds exactly."""
        dtype = np.dtype(dtype)
        type = name_of(dtype)
        if high is None and low == -2**63:
            return self._fill(integer_source("whole", type), n, dtype, 2)
        if high is None:
            high = largest(dtype) + 1
        if dtype.name in SIGNIFICAND_BITS:
            low, high = representable(low, high, dtype)
        need(low < high, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        span = high - low
        rule = "word" if span < 2**28 else "word64"
        return self._fill(integer_source(rule, type), n, dtype, 4 if rule == "word" else 2, (span, low))

    def random_(self, n, dtype):
        """Integers from 0 to the largest that `dtype` holds exactly."""
        dtype = np.dtype(dtype)
        type = name_of(dtype)
        if type == "bool":
            return self._fill(integer_source("bit", type), n, dtype, 4)
        rule = "word64" if type in ("f64", "int64") else "word"
        return self._fill(integer_source(rule, type), n, dtype, 2 if rule == "word64" else 4, (largest(dtype) + 1, 0))

    def permutation(self, n, dtype=np.int64):
        """The numbers 0 to n - 1 in random order: sorted by random keys of as many bits as make equal ones rare."""
        xp, dtype = self.backend.xp, np.dtype(dtype)
        if n == 0:
            return self._blank(0, dtype)
        bits = min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9)))))
        size = 32 if bits <= 32 else 64
        keys = self.integers(-2**(size - 1), 2**(size - 1) - 1, n, np.int32 if size == 32 else np.int64)
        keys = self._seen(keys).astype(np.int64)
        if bits < size:                                     # all of them: they are compared as signed
            keys &= (1 << bits) - 1
        with self.backend.driver.on(self.backend.index):
            order = xp.argsort(keys, kind="stable").astype(np.int64)
            keys = xp.ascontiguousarray(keys[order])
        seed, offset = self.where.advance(n)
        self._launch(SHUFFLE_EQUALS, n, (self.backend.address(keys), self.backend.address(order)), (n, seed, offset))
        return order.astype(dtype)

    # --- one sample from many

    def poisson(self, rate):
        """A Poisson count for each rate, in the dtype of `rate`."""
        return self._each("poisson", POISSON_OFFSET, rate.astype(np.float64)).astype(rate.dtype)

    def standard_gamma(self, alpha):
        """A gamma sample of unit scale for each shape parameter."""
        return self.backend.xp.maximum(self._each("gamma_", GAMMA_OFFSET, alpha), np.finfo(alpha.dtype).tiny)

    def dirichlet(self, alpha, size):
        """A point of the simplex for each `size` concentrations in a row."""
        xp = self.backend.xp
        gammas = self.standard_gamma(alpha).reshape(-1, size)
        parts = gammas / gammas.sum(-1, keepdims=True)
        info = np.finfo(alpha.dtype)
        return xp.clip(parts, info.tiny, 1 - info.eps).reshape(-1)

    def binomial(self, count, prob):
        """A number of successes for each pair of a number of trials and a probability."""
        return self._each("binomial", BINOMIAL_OFFSET, count, prob, each=8, stride=BINOMIAL_THREADS)

    def _each(self, sampler, offset_step, *operands, each=1, stride=1):
        """A draw for each element of `operands`, float32 or float64, `each` by one thread, `stride` apart."""
        operands = [self.backend.xp.ascontiguousarray(x.reshape(-1)) for x in operands]
        n, dtype = operands[0].size, operands[0].dtype
        out = self._blank(n, dtype)
        seed, offset = self.where.advance(offset_step)
        if n:
            addresses = [self.backend.address(x) for x in (*operands, out)]
            source = each_source(sampler, len(operands), "float" if dtype.itemsize == 4 else "double", each, stride)
            threads = -(-n // (each * stride)) * stride
            self._launch(source, threads, addresses, (n, seed, offset))
        return self._seen(out)

    def multinomial(self, weights, num_samples, replacement=False):
        """`num_samples` indices for each row of `weights`, drawn in proportion to the weights."""
        xp = self.backend.xp
        exact = weights if weights.dtype.itemsize > 2 else weights.astype(np.float32)
        need(bool((xp.isfinite(exact) & (exact >= 0)).all()),
             "probability tensor contains either `inf`, `nan` or element < 0")
        need(bool((exact.sum(-1) > 0).all()), "invalid multinomial distribution (sum of probabilities <= 0)")
        if replacement and num_samples > 1:
            return self._with_replacement(exact, num_samples)
        # A race of clocks that tick at these rates: who is first, who is second, and so on.
        waits = self._seen(self.exponential(weights.size, weights.dtype)).reshape(weights.shape).astype(exact.dtype)
        race = (exact / waits).astype(weights.dtype).astype(exact.dtype)
        if num_samples == 1:
            return race.argmax(-1)[..., None]
        return xp.argsort(-race, axis=-1, kind="stable")[..., :num_samples]

    def _with_replacement(self, weights, num_samples):
        xp = self.backend.xp
        shape, weights = weights.shape, weights.reshape(-1, weights.shape[-1])
        rows = len(weights)
        steps = xp.cumsum(weights / weights.sum(-1, keepdims=True), axis=-1)
        grid_rows = min(rows, 65535)
        seed, offset = self.where.advance(((rows - 1) // grid_rows + 1) * 4)
        units = self._blank(rows * num_samples, np.dtype(np.float32))
        row_threads = -(-num_samples // SAMPLE_THREADS) * SAMPLE_THREADS
        self._launch(SAMPLE_UNITS, rows * num_samples, (self.backend.address(units),),
                     (num_samples, rows, row_threads, grid_rows, seed, offset))
        base = xp.arange(rows, dtype=np.float64)[:, None] * 2            # all rows in a row, each behind the one before
        steps, units = steps.astype(np.float64) + base, self._seen(units).reshape(rows, num_samples)
        units = units.astype(np.float64) + base
        picked = xp.searchsorted(steps.reshape(-1), units.reshape(-1)).reshape(rows, num_samples)
        picked = picked - xp.arange(rows)[:, None] * weights.shape[-1]
        last = weights.shape[-1] - 1 - (weights[:, ::-1] > 0).argmax(-1)      # rounding may leave the sum below 1
        return xp.minimum(picked, last[:, None]).reshape(*shape[:-1], num_samples).astype(np.int64)


@lru_cache
def _threads_at_once(properties):
    blocks = properties.max_threads_per_multi_processor // BLOCK_THREADS
    return properties.multi_processor_count * blocks * BLOCK_THREADS


def _as_word(number):
    """The 8-byte word of Params for a number: a float's own bits, an integer's as an int64."""
    if isinstance(number, float):
        return struct.unpack("<q", struct.pack("<d", number))[0]
    number %= 2**64
    return number - 2**64 if number >= 2**63 else number
