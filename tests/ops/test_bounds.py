"""What operations claim of their results beforehand (`bounds`) holds for what they compute; and checks go by it.

The data itself is the oracle: a claim is made while a result is pending, and compared with the contents after.
"""
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flambeau as torch
from flambeau.base.observers import Observer, observing
from flambeau.tensor.forms import declared
from flambeau.trace import bounds
from flambeau.trace.recording.record import current
from flambeau.trace.value import looks

from . import test_tables
from .rows import ROWS

SETTINGS = dict(deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
EXECUTORS = pytest.mark.parametrize("executor", ("reference", "native"))
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
NAN, INF = float("nan"), float("inf")
assert test_tables.ROWS is ROWS                           # importing it has filled them


class Claims(Observer):
    """Takes down what is claimed of every result of whole numbers when it is recorded."""

    def __init__(self):
        self.made, self.seen = [], set()

    def recorded(self, instruction):
        trace, op = current(), instruction.entry.op
        for slot in instruction.results():
            value = trace.values[slot]
            dtype = value.spec.dtype
            if bounds.range_of(dtype) is not None and getattr(op, "bounds", None) is not None:
                self.seen.add(op)
                self.made.append((op, value, bounds._found(value, dtype, trace, bounds.MAX_DEPTH, True)))

    def hold(self):
        for op, value, (low, high) in self.made:
            array = value.ready().array
            if array.size:
                assert low <= array.min() and array.max() <= high, \
                    f"{op.__name__} claims {low} to {high}, and gives {array.min()} to {array.max()}"
        return self.seen


def claims_of(compute):
    with observing(Claims()) as claims:
        compute()
    return claims.hold()


RECURRENT = re.compile("rnn|lstm|gru", re.IGNORECASE)     # of floats alone


def whole(t):
    return (t * 7).long() if t.is_floating_point() else t


@EXECUTORS
def test_claims_of_the_tables(executor):
    with torch.config.using(executor=executor):
        seen = set()
        for row in ROWS:
            seen |= claims_of(lambda row=row: row.ours(*row.tensors()))
            if row.meta and not RECURRENT.search(row.op):
                try:
                    seen |= claims_of(lambda row=row: row.ours(*row.tensors(whole)))
                except (RuntimeError, IndexError, TypeError, ValueError):
                    pass                                  # not every operation takes whole numbers
    claiming = {op for op in declared.values() if op.bounds is not None}
    assert len(seen) > 0.8 * len(claiming), claiming - seen


POSITIONS = {
    "argmax": lambda x: x.argmax(), "argmax of rows": lambda x: x.argmax(1), "argmin of columns": lambda x: x.argmin(0),
    "max": lambda x: x.max(1), "min": lambda x: x.min(-1, True), "sort": lambda x: x.sort(1),
    "sort down": lambda x: x.sort(0, True), "topk": lambda x: x.topk(1), "topk of columns": lambda x: x.topk(2, 0),
    "kthvalue": lambda x: x.kthvalue(1, 0), "median": lambda x: x.median(1), "nanmedian": lambda x: x.nanmedian(0),
    "mode": lambda x: x.mode(1), "cummax": lambda x: x.cummax(1), "cummin": lambda x: x.cummin(0),
    "searchsorted": lambda x: torch.searchsorted(x[0].contiguous(), x), "bucketize": lambda x: torch.bucketize(x, x[0]),
    "argsort": lambda x: x.argsort(1, descending=True, stable=True)}


@EXECUTORS
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_exist_whatever_the_data(name, dtype, executor):
    for odd in (NAN, INF, -INF, 0.0):
        for shape in ((4, 9), (3, 1), (2, 64)):
            x = torch.tensor(np.random.default_rng(3).normal(size=shape)).to(dtype)
            for change in (lambda x: x, lambda x: x.fill_(odd), lambda x: x.index_fill(1, torch.tensor([0]), odd)):
                given = change(x.clone())
                with torch.config.using(executor=executor):
                    torch.cpu.synchronize()
                    assert claims_of(lambda given=given: POSITIONS[name](given))


DTYPES = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
UNARY = {
    "neg": lambda x: -x, "long": lambda x: x.long(), "int8": lambda x: x.to(torch.int8), "bytes": lambda x: x.byte(),
    "add": lambda x: x + 3, "sub": lambda x: x - 100, "rsub": lambda x: 5 - x, "mul": lambda x: x * -3,
    "alpha": lambda x: torch.add(x, x, alpha=2), "mod": lambda x: x % 7, "mod -": lambda x: x % -5,
    "fmod": lambda x: x.fmod(6), "floor": lambda x: x // 3, "trunc": lambda x: x.div(4, rounding_mode="trunc"),
    "clamp": lambda x: x.clamp(-2, 9), "clamp_min": lambda x: x.clamp(min=2), "clamp_max": lambda x: x.clamp(max=4),
    "cumsum": lambda x: x.cumsum(0), "sum": lambda x: x.sum(), "amax": lambda x: x.amax(), "max": lambda x: x.max(),
    "flip": lambda x: x.flip(0), "roll": lambda x: x.roll(1), "cat": lambda x: torch.cat((x, x[:1] + 1)),
    "stack": lambda x: torch.stack((x, x * 2), 1)[:, 1], "view": lambda x: x[1:][::2], "write": None, "fill": None,
    "tril": lambda x: x.expand(2, x.numel()).tril()[1], "and": lambda x: x & 6, "or": lambda x: x | 9,
    "xor": lambda x: x ^ 3, "sign": lambda x: x.sign(), "index": lambda x: x[torch.arange(x.numel()) % x.numel()],
    "masked": lambda x: x.masked_fill(x > 2, 4), "sort": lambda x: x.sort().indices, "bool": lambda x: x > 3,
    "scatter": lambda x: x.scatter(0, torch.zeros(1, dtype=torch.int64), 7), "count": lambda x: (x > 1).sum(),
    "repeat": lambda x: x.repeat(2), "add 0-d": lambda x: x + torch.tensor(1000), "ints": lambda x: x.view(torch.uint8)}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "where": lambda a, b: torch.where(a > 0, a, b), "mod": lambda a, b: a % torch.where(b == 0, 3, b),
    "floor": lambda a, b: a // torch.where(b == 0, 3, b), "and": torch.bitwise_and, "xor": torch.bitwise_xor,
    "clamp": lambda a, b: torch.clamp(a, b, b + 2), "put": lambda a, b: a.index_put((torch.tensor([0]),), b[:1]),
    "hull": lambda a, b: torch.cat((a, b))}


@st.composite
def programs(draw):
    """(contents of the inputs, dtypes, steps): a step is the name of a function, and which tensors it is of."""
    inputs = [(draw(st.lists(st.integers(-4, 12), min_size=1, max_size=6)), draw(st.sampled_from(DTYPES)))
              for _ in range(2)]
    steps = draw(st.lists(st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 9), st.integers(0, 9)),
                          min_size=1, max_size=9))
    return inputs, steps


def run(program):
    inputs, steps = program
    tensors = [torch.tensor(values).to(dtype) for values, dtype in inputs]
    for name, i, j in steps:
        a, b = tensors[i % len(tensors)], tensors[j % len(tensors)]
        if not a.numel() or not b.numel():
            continue
        try:
            if name == "write":
                made = a.clone()
                made[1:] = b.reshape(-1)[0]
            elif name == "fill":
                made = a.clone()
                made[:1] = 40
                made += 1
            elif name in BINARY and j % 2:
                n = min(a.numel(), b.numel())
                made = BINARY[name](a.reshape(-1)[:n], b.reshape(-1)[:n])
            elif UNARY.get(name) is not None:
                made = UNARY[name](a.reshape(-1))
            else:
                continue
        except (RuntimeError, NotImplementedError, TypeError):            # a bool has no minus, and the like
            continue
        tensors.append(made if made.ndim else made.reshape(1))


@EXECUTORS
@given(program=programs())
@settings(**SETTINGS)
def test_claims_of_programs(executor, program):
    with torch.config.using(executor=executor):
        torch.cpu.synchronize()
        claims_of(lambda: run(program))


# --- checks that go by it ---------------------------------------------------------------------------------------------


def looked(compute):
    """Whether calls look at contents."""
    torch.cpu.synchronize()
    before = looks(), current().gone
    compute()
    return (looks(), current().gone) != before


TABLE = torch.arange(12.0).reshape(4, 3)
SAFE = {
    "x[i]": lambda x: TABLE.clone()[x.argmax(1) % 4], "gather": lambda x: x.gather(1, x.argmin(1, True)),
    "rollout": lambda x: TABLE.clone()[TABLE.clone()[x.argmax(1) % 4].argmax(1)],
    "index_select": lambda x: x.index_select(1, x.topk(2).indices[0]),
    "index_add": lambda x: TABLE.clone().index_add(0, x.argmin(1).clamp(max=3), x[:, :3]),
    "index_copy": lambda x: x.index_copy(0, x.argmax(0)[:2] % 2, x[:2]),
    "index_fill": lambda x: x.index_fill(1, x.argmax(1), 0.0), "take": lambda x: x.take(x.argmax(0)),
    "put": lambda x: x.put(x.argmax(0), x[0]), "scatter": lambda x: x.scatter(1, x.argmax(1, True), 1.0),
    "scatter_add": lambda x: x.scatter_add(1, x.sort().indices, x), "x[i] = v": lambda x: written(x),
    "scatter_reduce": lambda x: x.scatter_reduce(1, x.sort().indices, x, "amax"),
    "embedding": lambda x: torch.nn.functional.embedding((x > 0).long(), TABLE.clone()),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.argmax(1), 9), "bincount": lambda x: x.argmax(1).bincount(minlength=9),
    "nll": lambda x: torch.nn.functional.cross_entropy(x, x.argmax(1)),
    "division": lambda x: torch.arange(4) // (x > 0).sum().clamp(min=1),
    "where": lambda x: TABLE.clone()[torch.where(x[:, 0] > 0, 1, -4)],
    "cat": lambda x: TABLE.clone()[torch.cat((x.argmax(1) % 4, torch.zeros(2, dtype=torch.int64)))],
    "one at a time": lambda x: TABLE.clone()[torch.stack([x.argmax(), x.argmin()]) % 4]}


def written(x):
    x[torch.arange(4), x.argmax(1)] = 1.0


@pytest.mark.parametrize("name", SAFE)
def test_what_must_pass_is_not_looked_at(name):
    x = torch.tensor(np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32))
    SAFE[name](x.clone())
    assert not looked(lambda: SAFE[name](x.clone()))


WRONG = {
    "x[i]": (IndexError, lambda x: TABLE[x.argmax(1) + 4]), "gather": (RuntimeError, lambda x: x.gather(0, x.sort().indices)),
    "written to": (IndexError, lambda x: spoilt(x)), "too small": (IndexError, lambda x: TABLE[x.argmax(1) * 0 - 5]),
    "wraps around": (IndexError, lambda x: TABLE[(x.argmax(1) * 0 + 127).to(torch.int8).add(1).long()]),
    "embedding": (IndexError, lambda x: torch.nn.functional.embedding(-(x < 9).long(), TABLE)),
    "division": (RuntimeError, lambda x: torch.arange(4) // (x > 99).sum()),
    "index_add": (RuntimeError, lambda x: x.index_add(0, x.argmax(1) * 0 + 4, x)),
    "one_hot": (RuntimeError, lambda x: torch.nn.functional.one_hot(x.argmax(1), 2)),
    "bincount": (RuntimeError, lambda x: (x.argmax(1) - 9).bincount(minlength=9)),
    "nll": (IndexError, lambda x: torch.nn.functional.cross_entropy(x, x.argmax(1) * 0 + 9))}


def test_counts_go_by_what_is_known_each_time():
    x = torch.tensor(np.random.default_rng(1).normal(size=(4, 9)))
    for _ in range(4):
        index = x.argmax(1)
        assert index.bincount(minlength=9).tolist() == np.bincount(index.numpy(), minlength=9).tolist()
        assert (x.argmax(1) + 3).bincount(minlength=9).sum() == 4
        with pytest.raises(RuntimeError, match="non-negative"):
            (x.argmax(1) - 9).bincount(minlength=9)
        assert (x.argmax(1) * 0 + 20).bincount(minlength=9).shape == (21,)


def spoilt(x):
    i = x.argmax(1) % 4
    i[2] = 4
    return TABLE[i]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_at_the_call(name):
    error, compute = WRONG[name]
    x = torch.tensor(np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32))
    for _ in range(2):
        with pytest.raises(error):
            compute(x.clone())


def test_contents_written_from_outside_are_measured_anew():
    index = torch.arange(5000) % 10
    table = torch.zeros(10)
    for _ in range(3):
        assert table[index].shape == (5000,)
    seen = index.numpy()
    seen[7] = 10
    with pytest.raises(IndexError, match="index 10"):
        table[index]
    seen[7] = 3
    table[index]
    seen[8] = 11
    del seen
    with pytest.raises(IndexError, match="index 11"):
        table[index]
    index[8] = 0
    table[index]
    index[9] = 12
    with pytest.raises(IndexError, match="index 12"):
        table[index]


def test_contents_that_are_ignored_do_not_stand_in_the_way():
    scores = torch.zeros(5000, 3)
    target = torch.arange(5000) % 3
    target[::2] = -100
    for _ in range(3):
        torch.nn.functional.cross_entropy(scores, target)
    target[4999] = 3
    with pytest.raises(IndexError, match="Target 3"):
        torch.nn.functional.cross_entropy(scores, target)


def test_a_repetition_goes_by_what_it_repeats():
    table = torch.arange(6.0)

    @torch.compile
    def by_remainder(index): return table[index % 6] * 2

    @torch.compile
    def as_it_is(index): return table[index] * 2

    @torch.compile
    def by_row(x): return (x.gather(1, x.argmax(1, True)) * table[x.topk(2).indices[:, 0]]).sum()

    x = torch.arange(12.0).reshape(2, 6)
    for _ in range(4):
        assert by_row(x).item() == (5 + 11) * (5 + 5)        # each row beside each
    assert by_row.recordings and not any(found.checks for found in by_row.recordings)
    inside = torch.ones(3, 9).argmax(1)                   # what is known of this is not known of the next
    for index in (inside, inside + 1, torch.tensor([3, 5, 1])):
        for _ in range(3):
            assert by_remainder(index).tolist() == [2 * (i % 6) for i in index.tolist()]
            assert as_it_is(index).tolist() == [2 * i for i in index.tolist()]
    assert by_remainder(torch.tensor([6, -1, 13])).tolist() == [0.0, 10.0, 2.0]
    with pytest.raises(IndexError):
        as_it_is(torch.tensor([3, 6, 0]))
