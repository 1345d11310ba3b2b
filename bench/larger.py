"""Larger samples out of OpInfo's tiny ones, for everything.py: dimensions grow together, and what follows them too.

A sample says how an operation is called, not how it scales. So ways to grow are tried one after the other: which sizes
of dimensions are multiplied (all; those above 2, or 3, since some dimensions mean coordinates; one alone), and which of
the integers among the arguments go with them (none, the shapes, all, one). A way is good if PyTorch takes the arguments
and both they and the result become larger. Equal sizes grow alike: square matrices stay square, and operands fit.

Tensors are repeated, with some noise: otherwise sorts, maxima and searches would be full of ties, which have no one
answer. Indices grow with the dimension that they point into, and each repetition gets its own. Matrices that are to be
factorised are drawn anew: a repeated matrix is singular.
"""
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable

import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.torch.harness import copy, tensors

SAMPLES_TRIED = 8
SAMPLES_LOOKED_AT = 24
NOISE = 0.05                       # the part by which a repeated element is at most smaller than the original
NOISE_NUMEL = 1 << 20
MAX_FACTOR_STEP = 8                # a step of growth multiplies sizes by no more than this
MAX_ELEMENTS_OVER = 3              # times the elements asked for that a sample may have
MATRIX_NAMES = ("linalg.", "cholesky", "lu", "qr", "svd", "inverse", "pinverse", "logdet", "geqrf", "ormqr",
                "pca_lowrank", "triangular_solve", "matrix_exp", "det", "slogdet", "lobpcg")
NO_MATRICES = ("linalg.vecdot", "linalg.cross", "linalg.norm", "linalg.vector_norm", "linalg.diagonal", "linalg.vander",
               "linalg.multi_dot", "linalg.tensorinv", "linalg.tensorsolve")
INTEGERS = (torch.int64, torch.int32)
SORTED_NAMES = ("searchsorted", "bucketize", "nn.functional.embedding_bag")     # boundaries, offsets


class NoLargerSample(Exception):
    """None of the ways to grow gives arguments that PyTorch takes."""


# --- how a sample grows ---

@dataclasses.dataclass(frozen=True)
class Growth:
    """One way for a sample to grow."""
    grows: Callable                # size → whether it is multiplied
    numbers: str                   # which integers are multiplied, see `NUMBERS`
    moves_indices: bool            # whether integers in tensors are, too
    matrices: bool                 # whether matrices are drawn anew
    kernels: bool                  # whether all tensors but the first keep their dimensions from the third on
    sorts: bool                    # whether tensors have to be sorted

    def __call__(self, sample, factor):
        """`sample` with its dimensions `factor` times as large; what required a gradient does again."""
        source = torch.Generator().manual_seed(0)
        walk = Walk(self, factor, source, tensors(sample))
        with torch.no_grad():
            return SampleInput(walk.argument(sample.input, (0,)),
                               args=tuple(walk.argument(x, (k,)) for k, x in enumerate(sample.args, 1)),
                               kwargs={name: walk.keyword(x, name) for name, x in sample.kwargs.items()},
                               output_process_fn_grad=sample.output_process_fn_grad, name=sample.name)


@functools.cache
def noise_once():
    return 1 - NOISE * torch.rand(NOISE_NUMEL, generator=torch.Generator().manual_seed(1))


def noise(count):
    """Factors a little below one; of many, the same again, each time a little smaller."""
    once = noise_once()
    if count <= NOISE_NUMEL:
        return once[:count]
    times = -(-count // NOISE_NUMEL)
    return (torch.linspace(1, 1 - NOISE, times)[:, None] * once).view(-1)[:count]


# Which integers are multiplied: none; those in lists and tuples that are the size of a dimension that grows; all in
# lists and tuples, but for ones, or with them; the first of a list, by the factor or its powers (`view`); all; or one
# positional argument.
NUMBERS = ("none", "sizes", "lists", "lists with ones", "head 1", "head 2", "head 3", "head 4", "all", "0", "1", "2")


class Walk:
    """Goes through the arguments of one sample."""

    def __init__(self, growth, factor, source, found):
        self.growth, self.factor, self.source = growth, factor, source
        self.first = found[0] if found else None
        self.sizes = {size for t in found for size in t.shape if growth.grows(size)}
        self.made = {}             # a tensor that stands in two places stays one

    def argument(self, x, where):
        if isinstance(x, torch.Tensor):
            if id(x) not in self.made:
                self.made[id(x)] = self.tensor(x)
            return self.made[id(x)]
        if type(x) is int:
            alone = self.growth.numbers == "all" or self.growth.numbers == str(where[0]) and len(where) == 1
            return x * self.factor if alone and x > 1 else x
        if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
            made = [self.argument(part, (*where, k)) for k, part in enumerate(x)]
            return type(x)(self.shape(made) if x and all(type(part) is int for part in x) else made)
        return x

    def keyword(self, x, name):
        grows = not isinstance(x, int) or self.growth.numbers == "all" and not name.startswith(("dim", "axis"))
        return self.argument(x, (name,)) if grows else x

    def shape(self, numbers):
        """A list of integers, of which `argument` has done what it does to single ones."""
        kind, factor = self.growth.numbers, self.factor
        if kind.startswith("lists"):
            return [n * factor if n > 1 or kind == "lists with ones" else n for n in numbers]
        if kind == "sizes":
            return [n * factor if n in self.sizes else n for n in numbers]
        if kind.startswith("head"):
            at = next((k for k, n in enumerate(numbers) if n > 1), None)
            return [n * factor ** int(kind[-1]) if k == at else n for k, n in enumerate(numbers)]
        return numbers

    def tensor(self, t):
        fixed = 2 if self.growth.kernels and t is not self.first else t.dim()
        factors = [self.factor if k < fixed and self.growth.grows(size) else 1 for k, size in enumerate(t.shape)]
        if all(factor == 1 for factor in factors):
            return t
        plain = t.detach()
        if self.growth.matrices and t.dim() > 1 and t.is_floating_point():
            out = self.matrix(plain, [size * factor for size, factor in zip(t.shape, factors)])
        else:
            out = plain.repeat(factors)
            if t.is_floating_point() or t.is_complex():
                out *= noise(out.numel()).view(out.shape)
            elif t.dtype in INTEGERS and self.growth.moves_indices:
                out = out * self.factor + self.repetition(t.shape, out.shape)
        if self.growth.sorts:
            out = out.sort(-1)[0]
        return out.requires_grad_(t.requires_grad)

    def repetition(self, shape, larger):
        """Of each element the number of its repetition, below the factor."""
        numbers = torch.zeros((), dtype=torch.int64)
        for k, (size, whole) in enumerate(zip(shape, larger)):
            along = torch.arange(whole) // max(size, 1)
            numbers = numbers + along.view([-1 if axis == k else 1 for axis in range(len(shape))])
        return numbers % self.factor

    def matrix(self, small, shape):
        """A well-conditioned matrix of the kind that `small` is: triangular, symmetric, or neither."""
        out = torch.randn(shape, generator=self.source).to(small.dtype)
        rows, columns = shape[-2:]
        if rows != columns:
            return out
        out *= 0.5 / rows ** 0.5
        lower, upper = torch.equal(small, small.tril()), torch.equal(small, small.triu())
        if not lower and not upper and torch.allclose(small, small.mT, 1e-3, 1e-4):
            out = (out + out.mT) / 2
        out = out + torch.diag(torch.linspace(1.5, 2.5, rows, dtype=out.dtype))
        return out.tril() if lower else out.triu() if upper else out


def growths(op, sample):
    """The ways to grow `sample`, the likeliest first."""
    found = tensors(sample)
    sizes = list(dict.fromkeys(size for t in found for size in t.shape if size > 1))
    matrices = op.name.startswith(MATRIX_NAMES) and op.name not in NO_MATRICES
    kernels = "conv" in op.name
    indices = any(t.dtype in INTEGERS for t in found)
    ways = [lambda size: size > 1, lambda size: size > 2, lambda size: size > 3]
    ways += [functools.partial(int.__eq__, size) for size in sizes] if len(sizes) > 1 else []
    for grows in ways if found else ways[:1]:
        for numbers in NUMBERS:
            for moves in (True, False) if indices else (False,):
                yield Growth(grows, numbers, moves, matrices, kernels, op.name in SORTED_NAMES)


# --- finding the one, and its size ---

def elements(*parts):
    """How many there are in all tensors; what lies between them counts, too, but no memory twice."""
    held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // t.itemsize for t in tensors(*parts)}
    return max(sum(t.numel() for t in tensors(*parts)), sum(held.values()))


def run(function, sample, writes=False):
    """(the result, seconds) of PyTorch, on a copy where the operation writes into what it is given."""
    given = copy(sample) if writes else sample
    torch.manual_seed(0)
    with torch.no_grad():
        start = time.thread_time()               # one thread computes: see everything.py
        made = function(given.input, *given.args, **given.kwargs)
        return made, time.thread_time() - start


def likeliest_first(function, samples):
    """The first samples that PyTorch takes: those of several elements, where there is something to do, and nothing is
    broadcast, show more of an operation."""
    def unlikely(sample):
        found = tensors(sample)
        single = found and (max(t.numel() for t in found) < 2 or any(t.dim() == 0 for t in found))
        return 2 if single else int(any(1 in t.shape for t in found))
    ranked = []
    for sample in sorted(samples, key=unlikely)[:SAMPLES_LOOKED_AT]:
        with contextlib.suppress(Exception):
            given = copy(sample)
            made = run(function, given)[0]
            ranked.append((3 if made is given.input or not elements(made) else unlikely(sample), sample))
    return [sample for _, sample in sorted(ranked, key=lambda pair: pair[0])]


def way_to_grow(op, function, samples):
    """(sample, Growth) of the first sample that can grow: if there is one, by a way that has the result grow too."""
    for sample in likeliest_first(function, samples)[:SAMPLES_TRIED]:
        before = elements(run(function, sample, writes=True)[0])
        second = None
        for growth in growths(op, sample):
            try:
                larger = growth(sample, 2)
                if elements(larger) == elements(sample) and growth.numbers == "none":
                    continue
                after = elements(run(function, larger)[0])
                given = not tensors(sample) or elements(larger) > elements(sample)
            except Exception:
                continue
            if after > before and given:
                return sample, growth
            if second is None and (after > before or elements(larger) > elements(sample)):
                second = growth
        if second is not None:
            return sample, second
    raise NoLargerSample


class Grower:
    """The larger samples of one operation."""

    def __init__(self, op, function, samples, slowest):
        self.slowest = slowest
        self.function, (self.sample, self.growth) = function, way_to_grow(op, function, samples)
        self.known = {}            # factor → (elements, seconds)

    def at(self, factor):
        larger = self.growth(self.sample, factor)
        if not self.known:
            run(self.function, larger)           # the first call of a process is slow
        made, seconds = run(self.function, larger)
        if seconds > self.slowest / 2:           # or did something else run meanwhile?
            seconds = min(seconds, run(self.function, larger)[1])
        self.known[factor] = (max(elements(larger), elements(made)), seconds)
        return larger

    def to(self, target):
        """A sample where the arguments or the results have about `target` elements, or as many as take PyTorch
        `slowest` seconds. And the factor."""
        factor, sample, last = 2, self.at(2), 1
        while True:
            have, seconds = self.known[factor]
            if have >= target / 1.5 or seconds > self.slowest / 2:
                return sample, factor
            power = self.power(last, factor, have)
            wanted = (target / have) ** (1 / power)
            # work may grow by one power more than its elements do
            measurable = seconds > self.slowest / 1000
            bearable = (self.slowest / seconds) ** (1 / (power + 1)) if measurable else wanted
            following = max(factor + 1, int(factor * min(wanted, bearable, MAX_FACTOR_STEP) + 0.5))
            if have * (following / factor) ** power > MAX_ELEMENTS_OVER * target:
                return sample, factor
            try:
                larger = self.at(following)
            except Exception:      # indices that fitted by chance do not any more
                return sample, factor
            if self.known[following][0] <= have or self.known[following][1] > 4 * self.slowest:
                return sample, factor
            last, factor, sample = factor, following, larger

    def power(self, last, factor, have):
        """By which power of the factor the elements grow."""
        if last in self.known:
            return max(0.5, math.log(have / self.known[last][0]) / math.log(factor / last))
        return max(1.0, math.log(have / max(1, elements(self.sample))) / math.log(factor))
