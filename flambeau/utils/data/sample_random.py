"""Random numbers that belong to samples: each sample has a stream of its own, found by (seed, epoch, index).

What a sample draws depends on its stream and on how much it has drawn before, never on the batch around it, on the
worker that makes it or on what was made earlier. So an augmentation gives the same bits with any number of workers, any
batch size, and after a resume. A loader says which samples are being made (`addressing`), a transform asks for their
numbers (`sample_random`).

A stream is SplittableRandom's (Steele, Lea and Flood 2014): 64 bits that go on by an odd step of the stream's own, each
well mixed when it is drawn. Number c of a stream is computed from c, so a whole batch draws in a few NumPy calls.
"""
import functools
import hashlib
import operator
import threading
from array import array

import numpy as np

from ...tensor.generators import stream

WORD = (1 << 64) - 1          # the bits of a word
GOLDEN_STEP = 0x9E3779B97F4A7C15                     # 2**64 over the golden ratio: odd, and neighbours land far apart
# How bits are mixed for numbers and for steps (Stafford's variants 13 and 4 of MurmurHash3's end): shifts and factors.
NUMBER_FACTORS = (30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31)
STEP_FACTORS = (33, 0x62A9D9ED799705F5, 28, 0xCB24D0A5C88C35B3, 32)


def _operand(number):
    """A number to compute words with: as an array without dimensions, which NumPy takes in two thirds of the time that
    a number of its own takes. In a batch of 32 samples the calls are all of the time."""
    return np.array(number, np.uint64)


MIX_NUMBER, MIX_STEP = tuple(map(_operand, NUMBER_FACTORS)), tuple(map(_operand, STEP_FACTORS))
GOLDEN_WORD, ODD_BIT = _operand(GOLDEN_STEP), _operand(1)
UNIT_BITS, UNIT = _operand(11), np.array(2.0**-53)   # a double in [0, 1) is 53 bits of a word
NUMBERS_BY_ADDING = 4                                      # of each sample
MANY_POSITIONS = 256
POSITIONS = np.arange(1, MANY_POSITIONS + 1, dtype=np.uint64)[:, None]  # of the first numbers of a stream


def mixed(words, how=MIX_NUMBER):
    """`words` (uint64, written over) by a bijection in which every bit depends on all."""
    return _mixed_into(words, words, how)


def _mixed_into(out, words, how, shift=np.right_shift, exclusive_or=np.bitwise_xor, multiply=np.multiply):
    """The same, written to `out`; None: to an array of its own. (Called with their result these take a tenth less time
    than `^=` and `*=`, which look for another type's method first.)"""
    first, by, second, then_by, last = how
    shifted = shift(words, first)
    words = exclusive_or(words, shifted, out)
    multiply(words, by, words)
    shift(words, second, shifted)
    exclusive_or(words, shifted, words)
    multiply(words, then_by, words)
    shift(words, last, shifted)
    return exclusive_or(words, shifted, words)


def mixed_number(number):
    """`mixed` of one Python number."""
    first, by, second, then_by, last = NUMBER_FACTORS
    number &= WORD
    number = (number ^ number >> first) * by & WORD
    number = (number ^ number >> second) * then_by & WORD
    return number ^ number >> last


def sample_keys(seed, epoch, indices):
    """The keys of the samples at `indices`, uint64: within an epoch no two samples have the same.

    An index that is no integer is known by its repr.
    """
    words = np.multiply(index_words(indices), GOLDEN_WORD)
    np.add(words, _start(operator.index(seed), operator.index(epoch)), words)
    return _mixed_into(words, words, MIX_NUMBER)


@functools.lru_cache(64)
def _start(seed, epoch):
    """The word that the keys of an epoch begin at: every batch of it asks for the same."""
    return _operand(mixed_number(mixed_number(seed + GOLDEN_STEP) + epoch))


def index_words(indices):
    """Indices as uint64, an integer as itself."""
    if isinstance(indices, range):
        if indices.start >= 0 and indices.step > 0 and indices.stop < 1 << 63:
            return np.arange(indices.start, indices.stop, indices.step, np.uint64)
        return np.arange(indices.start, indices.stop, indices.step, np.int64).view(np.uint64)
    if not isinstance(indices, np.ndarray):
        indices = indices if indices.__class__ is list else list(indices)
        try:
            return np.asarray(memoryview(array("Q", indices)))   # in two thirds of the time that NumPy takes for a list
        except (TypeError, OverflowError):
            pass                                              # word by word, then: a negative one, or no integer
    if isinstance(indices, np.ndarray) and indices.dtype.kind in "iu":
        return indices.astype(np.int64).ravel().view(np.uint64)
    return np.array([_word_of(index) for index in indices], np.uint64)


def _word_of(index):
    if hasattr(index, "__index__"):
        return operator.index(index) & WORD
    return int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little")


class SampleRandom:
    """The random numbers of the samples of one batch, each from its own stream. Row i of a result is sample i's.

    >>> one = SampleRandom(sample_keys(seed=0, epoch=0, indices=[7, 8]))
    >>> other = SampleRandom(sample_keys(seed=0, epoch=0, indices=[5, 6, 7]))
    >>> bool((one.uniform(3)[0] == other.uniform(3)[2]).all())
    True
    """

    __slots__ = ("keys", "_steps", "_drawn", "_each_drawn", "_rows")

    def __init__(self, keys):
        self.keys = np.asarray(keys, np.uint64).reshape(-1)
        self._start_streams()

    def _start_streams(self):
        steps = _mixed_into(None, self.keys, MIX_STEP)
        self._steps = np.bitwise_or(steps, ODD_BIT, steps)
        self._each_drawn = 0                                  # how many numbers each has drawn, if there are no parts
        self._drawn = None                                    # then: of each how many; parts write here too
        self._rows = slice(None)                              # which of `_drawn` are ours

    def __len__(self):
        return len(self.keys)

    def _words(self, count):
        """The next `count` words of every stream: uint64 [n, count]."""
        if count < 0:
            raise ValueError(f"count is how many numbers each sample draws, and got {count}")
        if self._drawn is None:
            before, self._each_drawn = self._each_drawn, self._each_drawn + count
            if not before and count <= NUMBERS_BY_ADDING:
                return mixed(self._first_positions(count)).T
            if self._each_drawn <= MANY_POSITIONS:
                positions = POSITIONS[before:self._each_drawn]
            else:
                positions = np.arange(before + 1, self._each_drawn + 1, dtype=np.uint64)[:, None]
            positions = positions * self._steps           # samples side by side: NumPy is good at long rows
        else:
            positions = np.arange(1, count + 1, dtype=np.uint64)[:, None] + self._drawn[self._rows]
            self._drawn[self._rows] += np.uint64(count)
            positions *= self._steps
        positions += self.keys
        return mixed(positions).T

    def _first_positions(self, count):
        """A step after the other, where a draw begins: two additions take half the time that it takes to multiply
        positions and steps of different shapes."""
        positions, last = np.empty((count, len(self.keys)), np.uint64), self.keys
        for row in positions:
            last = np.add(last, self._steps, row)
        return positions

    def uniform(self, count=1, low=0.0, high=1.0):
        """`count` numbers for each sample, evenly spread over [low, high): float64 [n, count].

        `low` and `high` are numbers, or arrays with one for each sample.
        """
        numbers = _units(self._words(count))
        if low.__class__ is high.__class__ is float and low == 0 and high == 1:
            return numbers
        low, high = _of_each(low, np.float64), _of_each(high, np.float64)
        numbers *= high - low
        numbers += low
        return numbers

    def normal(self, count=1):
        """`count` numbers for each sample, normal with mean 0 and variance 1: float64 [n, count]."""
        words = self._words(count)
        radius = np.sqrt(-2 * np.log1p(-_units(words.copy())))        # Box and Muller's: log of a number in (0, 1]
        return radius * np.cos(2 * np.pi * _units(mixed(words, MIX_STEP)))

    def integers(self, low, high, count=1):
        """`count` integers for each sample, at least `low` and below `high`: int64 [n, count].

        `low` and `high` are integers, or arrays with one for each sample.
        """
        low, high = _of_each(low, np.int64), _of_each(high, np.int64)
        if not (low < high).all():
            at = np.argmin(np.ravel(low < high))
            low, high = (bound.ravel() for bound in np.broadcast_arrays(low, high))
            raise ValueError(f"high is exclusive and has to be above low: low is {low[at]}, high is {high[at]}")
        words = self._words(count)
        words %= (high - low).view(np.uint64)                 # off by less than one in 2**64 / (high - low)
        words += low.view(np.uint64)
        return words.view(np.int64)

    def permutation(self, length):
        """A permutation of `length` positions for each sample: int64 [n, length]."""
        return np.argsort(self._words(length), axis=1, kind="stable")

    def select(self, which):
        """The numbers of a part of the samples, by a mask or by positions: the same streams, which go on."""
        if not isinstance(which, slice):
            which = np.asarray(which)
            which = which if which.size else which.astype(np.int64).reshape(-1)
        rows = np.arange(len(self._all_drawn()))[self._rows][which]
        if rows.ndim != 1 or len(np.unique(rows)) != len(rows):
            raise ValueError("select takes a mask or positions in one dimension, each sample once; two rows of one "
                             f"sample would draw the same numbers: {which!r}")
        return self._part(rows, which)

    def _part(self, rows, which):
        made = object.__new__(SampleRandom)
        made.keys, made._steps, made._drawn, made._rows = self.keys[which], self._steps[which], self._all_drawn(), rows
        return made

    def _all_drawn(self):
        """How many numbers each has drawn, in an array that parts share."""
        if self._drawn is None:
            self._drawn = np.full(len(self.keys), self._each_drawn, np.uint64)
        return self._drawn

    def __repr__(self):
        return f"SampleRandom({len(self)} samples)"


def _units(words):
    """Words (written over) as numbers in [0, 1)."""
    numbers = np.right_shift(words, UNIT_BITS, words).astype(np.float64)
    return np.multiply(numbers, UNIT, numbers)


def _of_each(bound, dtype):
    """A bound, or one for each sample, as an array that a row of every sample meets."""
    bound = np.asarray(bound, dtype)
    return bound[:, None] if bound.ndim == 1 else bound.reshape(1, 1)


# --- which samples are being made --------------------------------------------------


_making = threading.local()   # `now`: the addressing in which this thread makes samples


def sample_random(n):
    """The random numbers of the `n` samples that a loader is making now; they go on where the last call left them.

    Where `n` is not the number of samples being made (one draw for a whole batch, two views of each), they are streams
    of the batch as a whole, which its indices make up. Outside of a loader they start from the default generator.
    """
    now = being_made()
    if now is None:
        return SampleRandom(stream(None).random_((n,), np.int64))
    return now.random(n)


def being_made():
    """The `addressing` in which this thread makes samples, or None."""
    return getattr(_making, "now", None)


class addressing:
    """While a loader makes the samples at `indices`, in the order in which a batch will have them.

        with addressing(seed, epoch, indices) as batch:
            samples = batch.each(dataset)     # what a sample draws is its own
            ...                               # here too, for all of them at once: `sample_random(len(indices))`

    `reseed(number)`, where given, seeds the global generators: before each sample with a number of the
    sample's, else with one of the batch's.
    """

    __slots__ = ("seed", "epoch", "indices", "reseed", "position", "_streams", "_others", "_before")

    def __init__(self, seed, epoch, indices, reseed=None):
        self.seed, self.epoch, self.indices, self.reseed = seed, epoch, indices, reseed
        self.position = None                  # of the one sample that is being made; None: all of them at once
        self._streams = self._others = None

    def __enter__(self):
        self._before = being_made()
        _making.now = self
        if self.reseed is not None:
            self.reseed(self._whole(0))
        return self

    def __exit__(self, *error):
        _making.now = self._before
        return False

    def each(self, dataset, indices=None):
        """The samples of `dataset` at `indices` (as many as in the batch; the batch's, if None), one by one."""
        indices = self.indices if indices is None else indices
        if self.reseed is None:
            made = [dataset[index] for self.position, index in enumerate(indices)]
        else:
            made = [dataset[index] for _, index in zip(self.one_by_one(), indices)]
        self.all_at_once()
        return made

    def one_by_one(self):
        """The positions of the batch, while the sample at each is made."""
        for position in range(len(self.indices)):
            self.position = position
            if self.reseed is not None:
                self.reseed(mixed_number(int(self.streams.keys[position])))
            yield position

    def all_at_once(self):
        """From here on the batch is made as a whole."""
        self.position = None
        if self.reseed is not None:
            self.reseed(self._whole(0))

    @property
    def streams(self):
        """The numbers of all samples of the batch."""
        if self._streams is None:             # most batches draw nothing: not before it is asked for
            self._streams = made = object.__new__(SampleRandom)
            made.keys = sample_keys(self.seed, self.epoch, self.indices)
            made._start_streams()
        return self._streams

    def random(self, n):
        """What `sample_random(n)` gives here."""
        at = self.position
        if at is None:
            return self.streams if n == len(self.indices) else self._other(n)
        return self.streams._part(slice(at, at + 1), slice(at, at + 1)) if n == 1 else self._other(n)

    def _other(self, n):
        """`n` streams of the batch as a whole, or of the one sample that is being made."""
        if self._others is None:
            self._others = {}
        found = self._others.get((self.position, n))
        if found is None:
            whole = self._whole(n) if self.position is None else int(self.streams.keys[self.position]) + n
            found = self._others[self.position, n] = SampleRandom(sample_keys(whole, self.epoch, range(n)))
        return found

    def _whole(self, number):
        """A number that seed, epoch and all indices make up, and `number`."""
        whole = mixed_number(mixed_number(operator.index(self.seed) + number) + self.epoch)
        for word in index_words(self.indices).tolist():
            whole = mixed_number(whole + word * GOLDEN_STEP) + 1
        return whole & WORD
