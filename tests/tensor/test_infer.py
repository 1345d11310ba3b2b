"""What counts of an argument: `find` against a plain account of the rule, and every way into a call against `find`."""
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.base import entry as entries
from flambeau.base.core import COMPILED
from flambeau.base.op import known
from flambeau.tensor import call as calling, find, forms, infer, known_calls, overrides
from flambeau.tensor.forms import declared
from flambeau.tensor.subclass import opted_out
from flambeau.trace.recording.record import instruction_of

pytestmark = pytest.mark.pinned

Pair = namedtuple("Pair", "left right")


class Opted(torch.Tensor):
    """A subclass that takes no part in `__torch_function__`: a plain tensor to every way in."""

    __torch_function__ = opted_out


class Own(torch.Tensor):
    """A subclass that does."""


overrides.has_override(Opted)
PLAIN = [torch.ones(3), torch.ones(2, 3), torch.ones(3, 2).t(), torch.arange(3), torch.tensor(2), torch.tensor(2.0),
         torch.ones(3).as_subclass(Opted), torch.nn.Parameter(torch.ones(3)), torch.ones(3, device="meta")]
numbers = st.sampled_from([True, False, 0, 1, 2, -1, 0.0, 1.0, 2.5, 1j, 1 + 0j])
scalars = st.sampled_from([np.float64(1), np.float32(1), np.int64(1), np.bool_(True), np.complex64(1)])
others = st.sampled_from([None, "sum", "", torch.float32, torch.int64, torch.device("cpu"), torch.strided, float, int,
                          bool, ...])
inner = st.one_of(numbers, scalars, st.none(), st.tuples(numbers), st.just("x"))
groups = st.lists(inner, max_size=3).flatmap(lambda held: st.sampled_from([held, tuple(held), torch.Size([1, 2])]))
tensor_lists = st.lists(st.one_of(st.sampled_from(PLAIN), st.none()), min_size=1, max_size=3) \
    .filter(lambda held: any(t is not None for t in held))
tensor_groups = tensor_lists.flatmap(lambda held: st.sampled_from([held, tuple(held), Pair(held[0], held[-1])]))
arguments = st.one_of(st.sampled_from(PLAIN), numbers, scalars, others, groups, st.builds(Pair, numbers, numbers))

# of each way that an operation reads numbers and lists: all by type, none, some; a list of tensors, or of numbers
OPERATIONS = [declared[name] for name in ("add", "clamp", "_sum_dim", "addmm", "cat", "roll", "_full", "sort")]
for op in OPERATIONS:
    op.prepare()


def meaning(op, at, a):
    """What counts of the argument `a` at place `at`, in the words of Note [Keys]."""
    if isinstance(a, np.generic):
        a = a.item()
    if isinstance(a, torch.Tensor):
        return ("tensor", a._spec)
    if type(a) in (bool, int, float, complex):
        return ("number", type(a)) if op.pointwise or op.arg_names[at] in op.scalars else ("number", type(a), a)
    if isinstance(a, (tuple, list)):
        if op.lists and any(isinstance(b, torch.Tensor) for b in a):
            return ("tensors", *[None if b is None else b._spec for b in a])
        return ("tuple", *[whole(b.item() if isinstance(b, np.generic) else b) for b in a])
    return ("other", type(a), a)


def whole(b):
    """All of something in a tuple: its class and what it is."""
    return (type(b), *map(whole, b)) if type(b) is tuple else (type(b), b)


def bound_call(op):
    """As many arguments as the operation has, of any kind, also such as it would refuse."""
    one = st.one_of(arguments, tensor_groups) if op.lists else arguments
    return st.tuples(*[one] * len(op.arg_names))


def twin(args):
    """Other arguments that Python takes to be equal, or nearly: where a key could mistake one call for another."""
    def swap(a, inside=False):
        if isinstance(a, (tuple, list)) and any(isinstance(b, torch.Tensor) for b in a):
            return st.sampled_from([list(a), tuple(a)])
        if isinstance(a, (tuple, list)):
            swapped = st.tuples(*[swap(b, True) for b in a])
            return swapped if inside else swapped.flatmap(lambda made: st.sampled_from([made, list(made)]))
        if type(a) in (bool, int, float, complex) and a in (0, 1):
            return st.sampled_from([bool(a), int(a.real), float(a.real), complex(a), np.float64(a.real),
                                    type(a) if a else a])
        return st.just(a)
    return st.tuples(*map(swap, args))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_calls_share_a_key_if_all_that_counts_is_equal(data):
    op = data.draw(st.sampled_from(OPERATIONS))
    one = data.draw(bound_call(op))
    two = data.draw(st.one_of(twin(one), bound_call(op)))
    key_one, _, full_one, inputs = find.find(op, known[op], one, None, True)
    key_two, _, _, _ = find.find(op, known[op], two, None, True)
    same = [meaning(op, at, a) for at, a in enumerate(one)] == [meaning(op, at, a) for at, a in enumerate(two)]
    assert (key_one == key_two) is same
    template, tensors = infer.tensor_slots(op, full_one)
    assert list(map(id, tensors)) == list(map(id, inputs))            # what is recorded, and where autograd finds it
    assert [slot is None for slot in template] == [meaning(op, at, a)[0] not in ("tensor", "tensors")
                                                   for at, a in enumerate(one)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_arguments_as_given_share_a_key_only_if_they_do_when_bound(data):
    """However many there are, and by name: one of two calls that are told apart when bound never finds the other's."""
    op = data.draw(st.sampled_from(OPERATIONS))
    one = data.draw(bound_call(op))
    two = data.draw(twin(one))
    n = data.draw(st.integers(1, op.n_positional))
    named = data.draw(st.lists(st.sampled_from(op.arg_names[n:]), unique=True)) if n < len(op.arg_names) else []

    def as_given(args):
        kwargs = {name: args[op.arg_names.index(name)] for name in named}
        key = find.find(op, known[op], args[:n], kwargs)[0]
        counts = [*range(n), *map(op.arg_names.index, named)]
        return key, [meaning(op, at, args[at]) for at in counts]
    (key_one, meant_one), (key_two, meant_two) = as_given(one), as_given(two)
    if key_one is not None and key_one == key_two:
        assert meant_one == meant_two
    if not named and meant_one == meant_two and None not in (key_one, key_two):
        assert key_one == key_two


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.__name__)
def test_whom_somebody_may_override_is_not_looked_for(op):
    """A class is asked first; so is what is in a list, where an operation takes lists."""
    own = torch.ones(3).as_subclass(Own)
    assert find.find(op, known[op], (own,), None) == find.UNKNOWN_KEY
    if op.lists:
        assert find.find(op, known[op], ([torch.ones(3), own],), None) == find.UNKNOWN_KEY


OPERATORS = [name for short in (*forms.BINARY_OPERATORS, *forms.COMPARISON_OPERATORS)
             for name in (f"__{short}__", f"__r{short}__")
             if hasattr(torch.Tensor, name) and not getattr(torch.Tensor, name).op.composite]


@pytest.mark.skipif(COMPILED, reason="nobody can step between a compiled operator and the recorder")
@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(OPERATORS), self=st.sampled_from(PLAIN),
       other=st.one_of(st.sampled_from(PLAIN), numbers))
def test_the_short_way_of_an_operator_is_the_long_way(name, self, other):
    """An operator remembers entries by specs and types alone: they are those that `find` has for its arguments."""
    form = getattr(torch.Tensor, name)
    recorded = []

    def recorder(entry, args, inputs, params):
        recorded.append((entry, args, list(inputs), tuple(params)))
        return PLAIN[0]
    with pytest.MonkeyPatch.context() as patch:
        for module in (known_calls, calling):
            patch.setattr(module, "record_one", recorder)
        infer.forget()
        for _ in range(2):                     # the second comes the short way
            try:
                if form(self, other) is NotImplemented:
                    return
            except (RuntimeError, TypeError, NotImplementedError):    # refused: then it is refused every time
                assert not recorded
    if not recorded:
        return
    (entry, args, inputs, params), short = recorded
    assert short[0] is entry and entry is find.find(entry.op, known[entry.op], args, None, True)[1]
    for a, b in zip((*args, *inputs, *params), (*short[1], *short[2], *short[3]), strict=True):
        assert a is b


FUNCTIONS = [getattr(torch, name) for name in ("add", "sub", "mul", "true_divide", "pow", "maximum", "eq", "sin", "neg",
                                               "reshape", "sum", "argmax", "remainder", "bitwise_and", "unsqueeze")]


@settings(max_examples=200, deadline=None)
@given(op=st.sampled_from(FUNCTIONS), self=st.sampled_from(PLAIN), more=st.one_of(st.just(()), st.tuples(
    st.one_of(st.sampled_from(PLAIN), numbers))), method=st.booleans())
def test_the_short_way_of_a_function_is_the_long_way(op, self, more, method):
    """Functions, and methods, over one or two operands are remembered by specs and types alone: the instruction is that
    which `call` would record, whatever came before."""
    def instruction(made):
        found = instruction_of(made._storage.value)
        return None if found is None else (found.entry, found.offsets, tuple(map(repr, found.params)))

    def attempt(call):
        try:
            made = call()
            return made.shape, made.dtype, instruction(made), made._offset, made._spec.strides
        except (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError) as error:
            return type(error), str(error).splitlines()[0]
    short = (lambda: getattr(self, op.__name__)(*more)) if method else lambda: op(self, *more)
    if method and not hasattr(self, op.__name__):
        return
    long = attempt(lambda: calling.call(op, (self, *more), {}))
    for _ in range(3):
        assert attempt(short) == long


@pytest.mark.parametrize("name, args, kwargs", [
    ("add", (PLAIN[0], 2), {"alpha": 3}), ("add", (PLAIN[1], PLAIN[0]), {}), ("_clamp", (PLAIN[0], 0, 1.5), {}),
    ("_clamp", (PLAIN[0],), {"max": 2}), ("_sum_dim", (PLAIN[1], (0, 1), False, None), {}),
    ("_sum_dim", (PLAIN[1], [0], True), {"dtype": torch.float64}), ("cat", ([PLAIN[1], PLAIN[1]],), {}),
    ("cat", ((PLAIN[0], PLAIN[6]), 0), {}), ("_roll", (PLAIN[1], (1,), (0,)), {}),
    ("_roll", (PLAIN[1], [1, 2], [0, 1]), {}),
    ("sort", (PLAIN[1],), {"descending": True}), ("addmm", (PLAIN[0], PLAIN[1], torch.ones(3, 3)), {"alpha": 2.0}),
])
def test_a_call_like_one_before_has_its_entry(name, args, kwargs):
    """The first call is bound and inferred, the second found by what was given, a third by what is bound."""
    recorded = []

    def recorder(entry, *rest):
        recorded.append((entry, *rest))
        return PLAIN[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calling, "record", recorder)
        infer.forget()
        for _ in range(2):
            calling.call(declared[name], args, dict(kwargs))
    assert sum(len(facts.given) for facts in known.values()) == 1
    (entry, full, inputs, _), again = recorded
    assert again[0] is entry is find.find(entry.op, known[entry.op], full, None, True)[1]
    assert list(map(id, again[2])) == list(map(id, inputs))
    assert entry.pick is None or entry.pick(again[1]) == entry.pick(full)


def test_an_operation_knows_its_calls_until_they_are_forgotten():
    """By operands, by arguments as given and by all of them; where modes begin, what leads past these is forgotten."""
    facts = known[torch.add]
    for forget, left in (infer.forget_ways, True), (infer.forget, False):
        for _ in range(2):
            PLAIN[0] + PLAIN[0]
            PLAIN[0].add(PLAIN[0], alpha=2)
        assert facts.operands and facts.given and facts.entries
        forget()
        assert not facts.operands and not facts.given and bool(facts.entries) is left


@pytest.mark.parametrize("name, args, way", [
    ("add", (PLAIN[0], 1), entries.ONE_RESULT), ("sort", (PLAIN[1],), entries.SEVERAL_RESULTS),
    ("gather", (PLAIN[1], 0, torch.zeros(1, 1, dtype=torch.int64)), entries.CHECKED),
    ("unsqueeze", (PLAIN[1], 0), entries.ONE_VIEW), ("unbind", (PLAIN[1],), entries.ANY_VIEW),
    ("_nonzero", (PLAIN[1],), entries.LONG_WAY), ("add", (torch.ones(2, device="meta"), 1), entries.LONG_WAY),
])
def test_an_entry_says_in_which_way_its_calls_are_recorded(name, args, way):
    op = declared[name]
    calling.call(op, args, {})
    assert find.find(op, known[op], op.bind(args, {}), None, True)[1].way == way


def test_a_class_is_no_number():
    """`float`, also where a number of its class was seen before."""
    x = torch.ones(3)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"'other' \(position 2\) must be Tensor, not type: got <class 'float'>"):
            x.add(float)
        with pytest.raises(TypeError, match=r"'alpha' \(position 3\) must be Number, not type: got <class 'int'>"):
            x.add(1, alpha=int)
        x.add(1.0)


def test_a_tensor_in_a_tuple_is_the_number_it_holds_now():
    x, dim = torch.ones(2, 3), torch.tensor(0)
    assert x.sum((dim,)).tolist() == [2, 2, 2]
    dim.fill_(1)
    assert x.sum((dim,)).tolist() == [3, 3]
    with pytest.raises(TypeError, match=r"argument 'dim' \(position 2\) must be int, not Tensor: it is float32"):
        x.sum((torch.tensor(1.0),))


@pytest.mark.parametrize("function", [find.find, calling.call, calling.record_one], ids=lambda f: f.__name__)
def test_no_variable_of_what_every_call_runs_is_in_a_cell(function):
    """A comprehension that reads one puts it there, and each look at it then costs more: 0.15 µs a call in `find`."""
    assert not function.__code__.co_cellvars
