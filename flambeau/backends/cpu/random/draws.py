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
from contextlib import contextmanager

import numpy as np

from ....base.locks import new_lock
from ....base.spec import CPU
from . import few
from .arithmetic import (
    REAL_DTYPE,
    SIGNIFICAND_BITS,
    UINT64,
    gamma_one,
    largest,
    lined_up_room,
    normals,
    poisson_one,
    representable,
    rounded,
    scaled,
    swapped,
    system,
    units_of,
)
from .binomial import binomial_one
from .fma import FLOAT32, FLOAT64
from .mersenne_twister import STATE_WORDS, coins, sample, words as twister_words
from .numpy_twister import seed_words, seeded, twister
from .random_stream import DEFAULT_SEED, RandomStream, need
from .samplers import system_functions

CHUNK_SAMPLES = 1 << 16             # samples made at a time: the words and the temporaries stay in cache
CHUNK_NORMALS = 1 << 14             # the same, of what takes most temporaries
SMALL_PERMUTATION = (2**32 - 1) // 20
FEW_SAMPLES = 16                    # of normal numbers, which Python makes sooner than NumPy
WORD_DTYPE = np.dtype(np.uint32)

# The C struct behind torch.get_rng_state(): 5056 bytes with the padding. `left` counts down to the next
# twist, `next` up from the last one; a freshly seeded engine has left 1 and next 0. PyTorch keeps a spare
# float besides the spare double for old checkpoints' sake; nothing on the CPU draws it.
STATE_DTYPE = np.dtype([("seed", "u8"), ("left", "i4"), ("seeded", "i4"), ("next", "u8"), ("words", "u8", STATE_WORDS),
                        ("normal_x", "f8"), ("spare", "f8"), ("normal_rho", "f8"), ("has_spare", "i4"),
                        ("padding", "i4"), ("spare32", "f4"), ("has_spare32", "?")], align=True)


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
