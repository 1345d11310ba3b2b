"""Draw PyTorch's own random numbers on the CPU.

A generator is a Mersenne twister and one spare normal sample. Every distribution turns the twister's
32-bit words into samples the way PyTorch 2.13 does, word for word, so that a seed gives the same numbers
here and there and a state can travel both ways.

Note [Words]: what one sample takes from the stream.
    word     one word, modulo the range                    randint below 2**28, random_, randperm
    word64   two words, high one first, modulo the range   randint from 2**28, random_ of 64-bit dtypes
    unit32   one word, its low 24 bits                     rand, long randn, bernoulli with a 32-bit p
    unit64   a word64, its low 53 bits                     rand and randn of float64, every other distribution
Results reach the 16-bit floats by way of float32.

The samples equal PyTorch's bit for bit where it runs on the same machine: what passes through log, sin or exp passes
through the system's functions (libm.py), as there, or through those that PyTorch has itself (box_muller.py). Where
PyTorch multiplies and adds, its compiler has made one instruction of it that rounds once (fma.py); on a processor that
has none, and with ATEN_CPU_CAPABILITY=default, its bits are others.
"""
import ctypes
import math
import operator
import os
import sys
from contextlib import contextmanager

import numpy as np

from ....base import dtypes
from ....base.locks import new_lock
from ....base.spec import CPU, spec as make_spec
from ..memory import allocator
from ..memory.address import address
from . import box_muller, few, libm
from .binomial import binomial_one
from .fma import FLOAT32, FLOAT64, multiply_add
from .mersenne_twister import STATE_WORDS, coins, native, sample, words as twister_words
from .samplers import system_functions

DEFAULT_SEED = 67280421310721
CHUNK_SAMPLES = 1 << 16             # samples made at a time: the words and the temporaries stay in cache
CHUNK_NORMALS = 1 << 14             # the same, of what takes most temporaries
SMALL_PERMUTATION = (2**32 - 1) // 20
SIGNIFICAND_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
REAL_DTYPE = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}
NUMPY_RANDOM_BYTES = 16 << 20       # room for numpy.random to load: measured 7 MiB
FEW_SAMPLES = 16                    # of normal numbers, which Python makes sooner than NumPy
UINT64 = np.uint64
WORD_DTYPE = np.dtype(np.uint32)

# The C struct behind torch.get_rng_state(): 5056 bytes with the padding. `left` counts down to the next
# twist, `next` up from the last one; a freshly seeded engine has left 1 and next 0. PyTorch keeps a spare
# float besides the spare double for old checkpoints' sake; nothing on the CPU draws it.
STATE_DTYPE = np.dtype([("seed", "u8"), ("left", "i4"), ("seeded", "i4"), ("next", "u8"), ("words", "u8", STATE_WORDS),
                        ("normal_x", "f8"), ("spare", "f8"), ("normal_rho", "f8"), ("has_spare", "i4"),
                        ("padding", "i4"), ("spare32", "f4"), ("has_spare32", "?")], align=True)


class RandomStream:
    """A stream of random numbers that starts from a seed. How numbers follow from it is a device's affair.

    Methods named after distributions draw: each gives a one-dimensional array of `device`'s. A device that has no
    stream of its own (Backend.new_random_stream) gets the CPU's numbers.
    """

    device = CPU

    def manual_seed(self, seed):
        """Start over from `seed`, an integer in [-2**63, 2**64); a negative one counts from 2**64."""
        need(hasattr(seed, "__index__") and not isinstance(seed, bool),
             f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = operator.index(seed)
        if not -2**63 <= seed < 2**64:
            raise ValueError(f"Overflow when unpacking long long: the seed {seed} is outside [-2**63, 2**64)")
        self._start(seed % 2**64)
        return self

    def seed(self):
        """Start over from a seed that the operating system picks, and return it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def get_state(self):
        """Where it stands, as PyTorch's bytes for it: an array of NumPy's, uint8."""
        return self._state()

    def set_state(self, state):
        """Continue from a state that `get_state` gave, here or in PyTorch."""
        state = np.asarray(state)
        if state.dtype != np.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor, got {state.dtype}")
        self._continue(state)

    def on(self, device):
        """This stream, for a tensor on `device`."""
        return self

    def clone_state(self):
        """Another stream that will draw the same numbers as this one."""
        twin = self.new()
        twin.set_state(self.get_state())
        return twin

    # What each kind says for itself:
    #     new()                          another stream of this kind
    #     initial_seed(), _start(seed)   the seed that it started from; start over
    #     position()                     something that is different after every draw
    #     _state(), _continue(state)     behind `get_state` and `set_state`


class MersenneTwister(RandomStream):
    """The CPU's stream; the same seed gives the same numbers as `torch.Generator`."""

    def __init__(self, device=CPU):
        self.device = device
        self._lock = new_lock(finish=True)       # NumPy has a lock of its own, which no child could renew
        self._twister = self._idle = None        # `_idle`: to be seeded anew; to make one takes 0.2 ms
        self._start(DEFAULT_SEED)

    # ------------------------------------------------------------------ seed and state

    def _start(self, seed):
        with self._lock:
            self._seed = seed
            self._idle = self._twister or self._idle
            self._twister = None            # until the first word; numpy.random takes 15 ms to import
            self._spare = self._spare32 = None

    def initial_seed(self):
        return self._seed

    def position(self):
        """What is different after every draw."""
        now = self._twister and self._twister.state["state"]
        return now and (now["pos"], now["key"].tobytes()), self._spare, self._spare32

    def _state(self):
        """The state as torch.get_rng_state() lays it out: uint8[5056]."""
        state = np.zeros(1, STATE_DTYPE)[0]
        with self._lock:
            state["seed"], state["seeded"], state["left"] = self._seed, 1, 1
            if self._twister is None:
                state["words"] = seed_words(self._seed)
            else:
                now = self._twister.state["state"]
                state["words"], state["next"], state["left"] = now["key"], now["pos"], STATE_WORDS + 1 - now["pos"]
            state["spare"], state["has_spare"] = self._spare or 0, self._spare is not None
            state["spare32"], state["has_spare32"] = self._spare32 or 0, self._spare32 is not None
        return np.frombuffer(state.tobytes(), np.uint8).copy()

    def _continue(self, state):
        need(state.size == STATE_DTYPE.itemsize, f"Expected a CPUGeneratorImplState of size {STATE_DTYPE.itemsize} but "
                                           f"found the input RNG state size to be {state.size}")
        state = np.frombuffer(state.tobytes(), STATE_DTYPE)[0]
        need(state["seeded"] and 0 < state["left"] <= STATE_WORDS and state["next"] <= STATE_WORDS,
             "Invalid mt19937 state")
        words = state["words"].astype(np.uint32)
        with self._lock:
            self._seed, self._twister = int(state["seed"]), None
            if state["next"] or not np.array_equal(words, seed_words(self._seed)):
                self._twister = twister(words, STATE_WORDS + 1 - int(state["left"]))
            self._spare = float(state["spare"]) if state["has_spare"] else None
            self._spare32 = float(state["spare32"]) if state["has_spare32"] else None

    def set_aside(self):
        """Where it stands, to be given to `put_back`, at the price of a look: nothing may draw before it is seeded."""
        with self._lock:
            standing = self._seed, self._twister, self._spare, self._spare32
            self._twister = None
            return standing

    def put_back(self, standing):
        """Go on from where it stood; what was drawn since is forgotten."""
        with self._lock:
            self._idle = self._twister or self._idle
            self._seed, self._twister, self._spare, self._spare32 = standing

    def new(self):
        """Another stream of this kind."""
        return MersenneTwister(self.device)

    def __getstate__(self):
        return {"state": self.get_state()}

    def __setstate__(self, kept):
        self.__init__()
        self.set_state(kept["state"])

    # ------------------------------------------------------------------ words and units; see Note [Words]

    def _stream(self):
        if self._twister is None:
            self._twister, self._idle = seeded(self._idle, self._seed), None
        return self._twister

    def _few(self, kind, count, dtype, first=0.0, second=0.0, odds=None):
        """So many samples of a kind that few.py names, or None where they are to be made here. The lock is held."""
        if count.__class__ is not int or not 0 < count <= few.MAX_FEW:
            return None
        return few.drawn(self, kind, count, dtype, first, second, odds)

    def _few_alone(self, *what):
        """The same, under the lock."""
        with self._lock:
            return self._few(*what)

    def _word(self, n):
        if not n:
            return np.empty(0, np.uint32)   # which begins no stream
        found = self._few(few.RAW_WORDS, n, WORD_DTYPE)
        return twister_words(self._stream(), n) if found is None else found

    def _word64(self, n):
        words = self._word(2 * n)
        out = words[0::2].astype(UINT64)
        out <<= UINT64(32)
        out |= words[1::2]
        return out

    def _unit32(self, n):
        return units_of(self._word(n))

    def _unit64(self, n):
        words = self._word64(n)
        words &= UINT64(2**53 - 1)
        out = words.view(np.int64).astype(FLOAT64)
        out *= 2.0**-53
        return out

    def _fill(self, shape, dtype, source, rule=None):
        """A new array of `rule(source)` rounded to `dtype`, made a chunk at a time."""
        count = math.prod(shape) if isinstance(shape, tuple) else shape
        if 0 < count <= CHUNK_SAMPLES:
            with self._lock:
                drawn = source(count)
            return rounded(drawn if rule is None else rule(drawn), np.dtype(dtype)).reshape(shape)
        out = lined_up_room(shape, dtype)
        flat = out.reshape(-1)
        with self._lock:
            for start in range(0, flat.size, CHUNK_SAMPLES):
                part = flat[start:start + CHUNK_SAMPLES]
                drawn = source(part.size)
                part[:] = rounded(drawn if rule is None else rule(drawn), flat.dtype)
        return out

    @contextmanager
    def _units(self):
        """A function that gives one unit64 at a time, for samplers that cannot say how many they need.

        It reads ahead, and at the end the stream goes back to behind the last one that was used.
        """
        with self._lock:
            mark, used = None, 0

            def ahead():
                nonlocal mark, used
                while True:
                    mark, used = self._stream().state, 0
                    for value in self._unit64(1024).tolist():
                        used += 1
                        yield value

            yield ahead().__next__
            if mark:
                self._twister.state = mark
                self._word64(used)

    # ------------------------------------------------------------------ uniform and normal

    def uniform(self, shape, dtype, low=0.0, high=1.0):
        """Uniform over [low, high)."""
        found = self._few_alone(few.UNIFORM, shape, dtype, low, high)
        if found is not None:
            return found
        dtype = np.dtype(dtype)
        if dtype.kind == "c":
            return self._complex(self.uniform, shape, dtype, low, high)
        low, high = float(low), float(high)
        if dtype == FLOAT64:
            source, scale = self._unit64, high - low
        else:
            source, low32, high32 = self._unit32, FLOAT32.type(low), FLOAT32.type(high)
            scale, low = float(high32 - low32), float(low32)
        if (low, high) == (0.0, 1.0) and dtype in (FLOAT32, FLOAT64):
            return self._fill(shape, dtype, source)
        out = self._fill(shape, dtype, source, lambda u: scaled(u, scale, low))
        bottom, top = rounded(np.array([low, high]), dtype)
        out[out == top] = bottom            # rounding may have reached `high`, which is not in the range
        return out

    def normal(self, shape, dtype, mean=0.0, std=1.0, contiguous=True):
        """Normal around `mean`. For a tensor that is not contiguous PyTorch draws other numbers: say so."""
        if not contiguous or shape.__class__ is int and shape < 16:
            found = self._few_alone(few.NORMAL, shape, dtype, mean, std)
            if found is not None:
                return found
        dtype = np.dtype(dtype)
        if dtype.kind == "c":
            return self._complex(self.normal, shape, dtype, mean, std / math.sqrt(2), contiguous)
        out = lined_up_room(shape, dtype)
        flat, n = out.reshape(-1), out.size
        with self._lock:
            if n < 16 or not contiguous:
                flat[:] = rounded(scaled(self._normal64(n), std, mean), dtype)
                return out
            self._fill_normal(flat, dtype, mean, std)
        return out

    def _fill_normal(self, flat, dtype, mean, std):
        """Fill `flat`, which has 16 elements or more, with normal samples in PyTorch's order."""
        source = self._unit64 if dtype == FLOAT64 else self._word
        n = flat.size
        whole = n - n % 16
        for start in range(0, whole, CHUNK_NORMALS):
            part = flat[start:min(start + CHUNK_NORMALS, whole)]
            if whole == n or start + CHUNK_NORMALS < whole:
                normals(source(part.size), mean, std, part)
                continue
            # A short tail is covered by drawing the last 16 again. What it needed itself PyTorch had drawn already, in
            # all but the 16-bit floats.
            drawn = source(part.size + (n - whole if dtype.itemsize > 2 else 0) + 16)
            made = np.empty(part.size + 16, dtype)
            normals(np.concatenate([drawn[:part.size], drawn[-16:]]), mean, std, made)
            part[:], flat[-16:] = made[:-16], made[-16:]

    def _normal64(self, n):
        """`n` standard normal samples, two from each pair of units; an odd one is kept for the next call."""
        spare = []
        if n and self._spare is not None:
            spare, self._spare = [self._spare], None
        pairs = (n - len(spare) + 1) // 2
        if n <= FEW_SAMPLES:                # Python is done before NumPy has begun
            units, drawn = iter(self._unit64(2 * pairs).tolist()), spare
            for u1, u2 in zip(units, units):
                radius, angle = math.sqrt(-2.0 * math.log1p(-u2)), 2.0 * math.pi * u1
                drawn += (radius * math.cos(angle), radius * math.sin(angle))
            if len(drawn) > n:
                self._spare = drawn.pop()
            return np.array(drawn)
        u1, u2 = self._unit64(2 * pairs).reshape(pairs, 2).T
        radius, angle = np.sqrt(-2.0 * system("log1p", -u2)), 2.0 * math.pi * u1
        drawn = np.stack([radius * system("cos", angle), radius * system("sin", angle)], axis=1).reshape(-1)
        drawn = np.concatenate([spare, drawn])
        if len(drawn) > n:
            self._spare = float(drawn[-1])
        return drawn[:n]

    def _complex(self, draw, shape, dtype, *params):
        """Real and imaginary parts are drawn as neighbours of one real array."""
        out = np.empty(shape, dtype)
        return draw(2 * out.size, REAL_DTYPE[dtype.name], *params).view(dtype).reshape(out.shape)

    # ------------------------------------------------------------------ integers

    def integers(self, low, high, shape, dtype):
        """Integers in [low, high); `high` None means up to the largest that `dtype` holds exactly."""
        if high is not None and -2**24 <= low < high <= 2**24:     # all of which float32 holds
            found = self._few_alone(few.INTEGERS, shape, dtype, high - low, low % 2**64)
            if found is not None:
                return found
        dtype = np.dtype(dtype)
        if high is None and low == -2**63:
            return self._fill(shape, dtype, self._word64, lambda w: w.view(np.int64))
        if high is None:
            high = largest(dtype) + 1
        if dtype.kind not in "iub" and dtype.name in SIGNIFICAND_BITS:       # NumPy takes its time to say a name
            low, high = representable(low, high, dtype)
        need(low < high, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        span, base = UINT64(high - low), UINT64(low % 2**64)  # the sum wraps around into the signed range
        source = self._word if span < 2**28 else self._word64
        return self._fill(shape, dtype, source, lambda w: (w % w.dtype.type(span) + base).view(np.int64))

    def random_(self, shape, dtype):
        """Integers from 0 to the largest that `dtype` holds exactly."""
        dtype = np.dtype(dtype)
        span = largest(dtype) + 1
        if dtype in (FLOAT64, np.int64):
            return self._fill(shape, dtype, self._word64, lambda w: (w % UINT64(span)).view(np.int64))
        return self._fill(shape, dtype, self._word, lambda w: w % np.uint32(span))

    def permutation(self, n, dtype=np.int64):
        """The numbers 0 to n - 1 in random order."""
        dtype = np.dtype(dtype)
        with self._lock:
            found = self._few(few.PERMUTATION, n, dtype)
            if found is not None:
                return found
            if n >= SMALL_PERMUTATION:      # a 32-bit word modulo so large a range would favour small numbers
                return rounded(self._permutation64(n), dtype)
            out = np.empty(n, np.int64)
            if n and sample("permutation", self._stream(), n, out, n):
                return rounded(out, dtype)
            targets = np.arange(n, dtype=np.uint32)      # at step i, swap what is at i and at targets[i]
            if n:
                targets[:-1] += self._fill(n - 1, np.uint32, self._word) % (np.uint32(n) - targets[:-1])
        if n >= 4096:
            return rounded(swapped(targets), dtype)
        order = list(range(n))
        for i, target in enumerate(targets.tolist()):
            order[i], order[target] = order[target], order[i]
        return rounded(np.array(order, np.int64), dtype)

    def _permutation64(self, n):
        """Each number goes to a random index up to its own, and what was there moves to the end."""
        out = np.empty(n, np.int64)
        order = memoryview(out)             # no list: 200 million Python integers would not fit
        for start in range(0, n, CHUNK_SAMPLES):
            stop = min(start + CHUNK_SAMPLES, n)
            targets = self._word64(stop - start) % np.arange(start + 1, stop + 1, dtype=UINT64)
            for i, target in enumerate(targets.tolist(), start):
                order[i] = order[target]
                order[target] = i
        return out

    # ------------------------------------------------------------------ one sample from one unit
    # (Older PyTorch took bernoulli and exponential from MKL's streams on Intel processors; 2.13 does not.)

    def bernoulli(self, p, shape, dtype):
        """One with probability `p`, a number or an array that broadcasts to `shape`; else zero."""
        if not isinstance(p, np.ndarray):
            found = self._few_alone(few.BERNOULLI, shape, dtype, p)
            if found is not None:
                return found
            count = math.prod(shape) if isinstance(shape, tuple) else shape
            if np.dtype(dtype) == FLOAT32 and count:
                with self._lock:
                    made = coins(self._stream(), float(p), count)
                if made is not None:
                    return made.reshape(shape)
            return self._fill(shape, dtype, self._unit64, lambda u: u < float(p))
        found = self._few_alone(few.ODDS, shape, dtype, 0.0, 0.0, p)
        if found is not None:
            return found
        need(((p >= 0) & (p <= 1)).all(), "Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
        unit, source = (FLOAT64, self._unit64) if p.dtype == FLOAT64 else (FLOAT32, self._unit32)
        return np.asarray(self._fill(shape, unit, source) < p.astype(unit)).astype(dtype)

    def _ruled(self, kind, shape, dtype, params, source, rule):
        """Samples of a kind that few.py names, or where they are more, of `rule(source)`."""
        found = self._few_alone(kind, shape, dtype, *params)
        return self._fill(shape, dtype, source, rule) if found is None else found

    def exponential(self, shape, dtype, lambd=1.0):
        return self._ruled(few.EXPONENTIAL, shape, dtype, (lambd,), self._unit64,
                           lambda u: system("log1p", -u) * (-1.0 / lambd))

    def geometric(self, shape, dtype, p):
        return self._ruled(few.GEOMETRIC, shape, dtype, (p,), self._unit64,
                           lambda u: np.ceil(system("log", u) / math.log1p(-p)))

    def cauchy(self, shape, dtype, median=0.0, sigma=1.0):
        return self._ruled(few.CAUCHY, shape, dtype, (median, sigma), self._unit64,
                           lambda u: scaled(system("tan", math.pi * (u - 0.5)), sigma, median))

    def log_normal(self, shape, dtype, mean=1.0, std=2.0):
        return self._ruled(few.LOG_NORMAL, shape, dtype, (mean, std), self._normal64,
                           lambda z: system("exp", scaled(z, std, mean)))

    # ------------------------------------------------------------------ one sample from many

    def poisson(self, rate):
        """A Poisson count for each rate, in the dtype of `rate`."""
        rates = rate.astype(FLOAT64).reshape(-1)
        need((rates >= 0).all(), "invalid Poisson rate, expected rate to be non-negative")
        made = self._sampled("poissons", rates.size, rates)
        if made is not None:
            return rounded(made.reshape(rate.shape), rate.dtype)
        with self._units() as unit:
            counts = [poisson_one(r, unit) for r in rates.tolist()]
        return rounded(np.array(counts, FLOAT64).reshape(rate.shape), rate.dtype)

    def standard_gamma(self, alpha):
        """A gamma sample of unit scale for each shape parameter, float32 or float64."""
        real = alpha.dtype.type             # PyTorch takes these steps in the dtype of alpha
        alpha_ = alpha.reshape(-1)
        with np.errstate(divide="ignore"):
            power = real(1) / alpha_
        d = np.where(alpha_ < 1, alpha_ + real(1), alpha_) - real(FLOAT32.type(1) / FLOAT32.type(3))

        made = self._sampled("gammas", alpha.size, alpha_, power, d)
        if made is None:
            made = self._gammas(alpha_, power, d)
        return np.maximum(made.astype(alpha.dtype), np.finfo(alpha.dtype).tiny).reshape(alpha.shape)

    def _gammas(self, alpha, power, d):
        """The samples, in Python."""
        with self._units() as unit:
            def normal():
                if self._spare is not None:
                    value, self._spare = self._spare, None
                    return value
                angle, radius = 2.0 * math.pi * unit(), math.sqrt(-2.0 * math.log1p(-unit()))
                self._spare = radius * math.sin(angle)
                return radius * math.cos(angle)

            out = []
            for a, one_over_a, d_ in zip(alpha.tolist(), power.tolist(), d.tolist()):
                if not a > 0:               # nothing to draw for; a nan would never be accepted
                    out.append(0.0 if a == 0 else math.nan)
                    continue
                boost = (1 - unit()) ** one_over_a if a < 1 else 1.0
                out.append(boost * d_ * gamma_one(d_, unit, normal))
        return np.array(out, FLOAT64)

    def _sampled(self, name, count, *given):
        """Samples of a compiled function of samplers.py as float64; None where Python is to make them."""
        functions = system_functions()
        given = [np.ascontiguousarray(one, FLOAT64).reshape(-1) for one in given]
        if not count or functions is None or not all(np.isfinite(one).all() for one in given):
            return None
        with self._lock:
            out, spare = np.empty(count, FLOAT64), np.array([self._spare or 0.0, self._spare is not None], FLOAT64)
            more = [spare] if name == "gammas" else []
            if not sample(name, self._stream(), count, ctypes.addressof(functions), *given, out, count, *more):
                return None
            self._spare = float(spare[0]) if spare[1] else None
        return out

    def binomial(self, count, prob):
        """A number of successes for each pair of a number of trials and a probability."""
        made = self._sampled("binomials", count.size, count, prob)
        if made is not None:
            return made.astype(count.dtype).reshape(count.shape)
        with self._units() as unit:
            drawn = [binomial_one(n, p, unit) for n, p in zip(count.reshape(-1).tolist(), prob.reshape(-1).tolist())]
        return np.array(drawn, count.dtype).reshape(count.shape)

    def dirichlet(self, alpha, size):
        """A point of the simplex for each `size` concentrations in a row."""
        # PyTorch draws the gamma numbers in float64 and divides there
        gammas = self.standard_gamma(alpha.astype(FLOAT64)).reshape(-1, size)
        parts = gammas / gammas.sum(-1, keepdims=True)
        return np.maximum(parts, np.finfo(alpha.dtype).tiny).astype(alpha.dtype).reshape(-1)

    def multinomial(self, weights, num_samples, replacement=False):
        """`num_samples` indices for each row of `weights`, drawn in proportion to the weights."""
        wrong = "invalid multinomial distribution "
        exact = weights if weights.dtype in (FLOAT32, FLOAT64) else weights.astype(FLOAT32)
        if replacement and num_samples > 1:
            need((exact >= 0).all(), wrong + "(encountering probability entry < 0)")
            need(np.isfinite(exact).all(), wrong + "(encountering probability entry = infinity or NaN)")
            steps = np.cumsum(exact, axis=-1, dtype=exact.dtype).reshape(-1, exact.shape[-1])
            need((steps[:, -1] > 0).all(), wrong + "(sum of probabilities <= 0)")
            steps /= steps[:, -1:].copy()
            steps = steps.astype(FLOAT64)
            with self._lock:
                picked = np.empty((len(steps), num_samples), np.int64)
                made = picked.size and sample("places", self._stream(), picked.size, steps, picked, *steps.shape,
                                              num_samples)
            if made:
                return picked.reshape(*weights.shape[:-1], num_samples)
            units = self._fill((len(steps), num_samples), FLOAT64, self._unit64)
            picked = [np.searchsorted(row, unit) for row, unit in zip(steps, units)]
            return np.array(picked, np.int64).reshape(*weights.shape[:-1], num_samples)

        need((np.isfinite(exact) & (exact >= 0)).all(),
             "probability tensor contains either `inf`, `nan` or element < 0")
        need((exact.sum(-1) > 0).all(), wrong + "(sum of probabilities <= 0)")
        # A race of clocks that tick at these rates: who is first, who is second, and so on.
        waits = self.exponential(weights.shape, weights.dtype).astype(exact.dtype, copy=False)
        with np.errstate(divide="ignore", invalid="ignore"):
            race = rounded(exact / waits, weights.dtype).astype(exact.dtype, copy=False)
        if num_samples == 1:
            return race.argmax(-1)[..., None]
        return np.argsort(-race, axis=-1, kind="stable")[..., :num_samples]


def need(holds, message):
    if not holds:
        raise RuntimeError(message)


# ---------------------------------------------------------------------- the twister

def seed_words(seed):
    """The twister's state for a seed, of which PyTorch keeps 64 bits and uses 32 (Knuth's recurrence)."""
    words = [seed & 0xFFFFFFFF]
    for i in range(1, STATE_WORDS):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
    return np.array(words, np.uint32)


def twister(words, position):
    """NumPy's generator in a state."""
    made = _new_twister()
    made.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}
    return made


def seeded(idle, seed):
    """NumPy's generator at the start of a seed: `idle`, if there is one, started over."""
    made = idle or _new_twister()
    np.random.RandomState(made).seed(seed & 0xFFFFFFFF)         # the state that `seed_words` says
    return made


def _new_twister():
    # Refused memory half-way through, its modules raise ImportErrors and SystemErrors that do not say so.
    if "numpy.random" not in sys.modules and not allocator.has_room(NUMPY_RANDOM_BYTES):
        raise allocator.failure(None, said="NumPy's generators take up to "
                                        f"{allocator.bytes_in_words(NUMPY_RANDOM_BYTES)} to load")
    from numpy.random import MT19937
    return MT19937(0)


# ---------------------------------------------------------------------- the arithmetic

def rounded(values, dtype):
    """`values` in `dtype`; on the way to a 16-bit float, in float32 first, as C++ converts them."""
    if dtype.itemsize == 2 and dtype.name in SIGNIFICAND_BITS:
        with np.errstate(over="ignore"):
            return values.astype(FLOAT32).astype(dtype)
    return values.astype(dtype, copy=False)


def normals(drawn, mean, std, out):
    """Normal samples of the dtype of `out`, from words, or of float64 from units; see box_muller.py."""
    if out.dtype == FLOAT64:
        out[:] = scaled(box_muller.from_units(drawn, 0.0, 1.0, system), std, mean)
        return
    run = native("normals", out.size) if box_muller.has_vectors() else None
    if run is None:
        out[:] = rounded(box_muller.from_units(units_of(drawn), mean, std, system), out.dtype)
        return
    made = out if out.dtype == FLOAT32 else np.empty(out.size, FLOAT32)
    run(address(drawn), address(made), out.size // 16, mean, std)
    if made is not out:
        out[:] = rounded(made, out.dtype)


def units_of(words):
    """What 32-bit words are as numbers in [0, 1); the array is written over."""
    words &= np.uint32(2**24 - 1)
    out = words.view(np.int32).astype(FLOAT32)          # signed: what processors convert fastest
    out *= FLOAT32.type(2.0**-24)
    return out


def system(name, values):
    """What the system's function `name` gives for each element; see libm.py."""
    return libm.mapped(name, values, native("map32" if values.dtype == FLOAT32 else "map64", values.size))


def scaled(values, scale, low):
    """`values * scale + low`, rounded once; the array may be written over."""
    scale, low = float(scale), float(low)
    run = native("scale64", values.size) if values.dtype == FLOAT64 and low else None
    if run is None:
        return multiply_add(values, scale, low)
    run(values.ctypes.data, values.size, scale, low)
    return values


def largest(dtype):
    """The end of the row of integers that `dtype` counts through."""
    if dtype.name in SIGNIFICAND_BITS:
        return 2**SIGNIFICAND_BITS[dtype.name]
    return 1 if dtype == np.bool_ else int(np.iinfo(dtype).max)


def representable(low, high, dtype):
    """The range [low, high) moved inwards to numbers that `dtype` holds, lest a draw round out of it."""
    digits = SIGNIFICAND_BITS[dtype.name]
    if -2**digits <= low and high <= 2**digits:
        return low, high

    def near(value):
        return float(rounded(np.array(value, np.int64), dtype))

    if near(low + 1) < low:
        low = int(near(low + 1)) + (1 << abs(low + 1).bit_length() - digits)
    need(math.isfinite(near(high - 1)), f"to - 1 is out of bounds for {dtype.name}, got to={high}")
    if high <= near(high - 1) < 2**63:      # PyTorch's conversion overflows at 2**63, and high stays
        high = int(near(high - 1)) - (1 << abs(high - 1).bit_length() - digits)
    return low, high


def lined_up_room(shape, dtype):
    """An uninitialised array; see Note [Lined up] in memory/allocator.py."""
    dtype = np.dtype(dtype)
    if math.prod(shape if isinstance(shape, tuple) else (shape,)) * dtype.itemsize < allocator.LINED_UP_BYTES:
        return np.empty(shape, dtype)
    return allocator.blank(make_spec(dtypes.from_numpy(dtype), shape if isinstance(shape, tuple) else (shape,)))[0]


def swapped(targets):
    """0 to n - 1 after swapping i with targets[i] >= i for each i in turn, without a loop over n.

    Step i leaves for good, at i, what it finds at its target: what the last earlier step with that target put
    there, or else the target's own number. A step k puts down what stood at k just before it: `stood[k]`,
    which in turn is what the last earlier step with target k put there, or k.
    """
    n = len(targets)
    keys = targets.astype(UINT64) << UINT64(32)
    keys |= np.arange(n, dtype=UINT64)
    keys.sort()                             # by target, then by step, as plain integers: the fast sort
    step, target = keys.astype(np.uint32), (keys >> UINT64(32)).astype(np.uint32)

    stood = np.arange(n, dtype=np.uint32)
    moving = step != target
    stood[target[moving]] = step[moving]     # the last of equal targets wins
    open_ = np.flatnonzero(stood != np.arange(n, dtype=np.uint32))
    while len(open_):                       # follow the references, doubling the reach each time
        here = stood[open_]
        there = stood[here]
        stood[open_] = there
        open_ = open_[here != there]

    found = target.copy()
    again = np.flatnonzero(target[1:] == target[:-1])
    found[again + 1] = stood[step[again]]
    out = np.empty(n, np.uint32)
    out[step] = found
    return out


def poisson_one(rate, unit):
    if rate == 0:
        return 0
    if rate < 10:                           # count the units whose product stays above e**-rate
        count, product, floor = 0, unit(), math.exp(-rate)
        while product > floor:
            count, product = count + 1, product * unit()
        return count
    # Hörmann's transformed rejection (PTRS, 1993)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_sure = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = unit() - 0.5, unit()
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + rate + 0.43) if edge else -1
        if edge >= 0.07 and v <= v_sure:
            return k
        if k < 0 or (edge < 0.013 and v > edge):
            continue
        if (math.log(v) if v else -math.inf) + math.log(inverse_alpha) - math.log(a / (edge * edge) + b) <= (
                k * math.log(rate) - rate - log_gamma(k + 1)):
            return k


def log_gamma(x):
    """The system's, where there is one: Python's own has other last places."""
    return (libm.function("lgamma") or math.lgamma)(x)


def gamma_one(d, unit, normal):
    """Marsaglia and Tsang's rejection (2000) for a shape of d + 1/3, at least 1: the sample over d."""
    c, squeeze = 1.0 / math.sqrt(9.0 * d), float(FLOAT32.type(0.0331))
    while True:
        x = normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v, u, xx = y * y * y, 1 - unit(), x * x
        if u < 1.0 - squeeze * xx * xx or math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
            return v


# ---------------------------------------------------------------------- the streams that are drawn from by default

_of_cpu = MersenneTwister()
_seed_of_devices = DEFAULT_SEED           # what `seed_devices` said last: a stream that is made later starts from it
_adding = new_lock()


def stream_of(device):
    """The stream that tensors on `device` are drawn from where no other is named."""
    backend = device.backend
    if device is CPU or backend is None:
        return _of_cpu
    if backend.random_stream is None:
        made = backend.new_random_stream() or _of_cpu
        with _adding:
            if backend.random_stream is None:
                if made is not _of_cpu:
                    made.manual_seed(_seed_of_devices)
                backend.random_stream = made
    return backend.random_stream


def default_streams():
    """Every stream that is drawn from by default so far, the CPU's first."""
    backends = [device.backend for device in list(CPU._known.values()) if device.backend is not None]
    return list(dict.fromkeys([_of_cpu, *[b.random_stream for b in backends if b.random_stream is not None]]))


def seed_devices(seed):
    """Start the streams of all devices but the CPU over from `seed`, those too that have not been asked for yet."""
    global _seed_of_devices
    for one in default_streams()[1:]:
        one.manual_seed(seed)
    _seed_of_devices = seed


class Positions:
    """Where the default streams stand now; `restore()` takes all of them back there."""

    def __init__(self):
        self.states = {one: one.get_state() for one in default_streams()}

    def restore(self):
        for one in default_streams():
            if one in self.states:
                one.set_state(self.states[one])
            else:                                         # made since then: at its beginning
                one.manual_seed(one.initial_seed())
