"""`utils.data` against the real one: batches, orders, what is drawn from which generator, collating, refusals."""
import array
import collections
import dataclasses
import enum
import random
import re
import types
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau

LIBRARIES = torch, flambeau
Point = collections.namedtuple("Point", "x y")


def said(thing):
    """A result as plain Python, the same for both libraries: tensors by dtype, shape, strides and contents."""
    if isinstance(thing, LIBRARIES[0].Tensor | LIBRARIES[1].Tensor):
        return ("tensor", str(thing.dtype), tuple(thing.shape), tuple(thing.stride()), thing.requires_grad,
                str(thing.tolist()))
    if isinstance(thing, np.ndarray):
        return "array", str(thing.dtype), thing.tolist()
    if isinstance(thing, collections.abc.Mapping):
        return type(thing).__name__, {key: said(value) for key, value in thing.items()}
    if isinstance(thing, collections.abc.Sequence | collections.deque) and not isinstance(thing, str | bytes):
        return type(thing).__name__, [said(part) for part in thing]
    return type(thing).__name__, thing


def outcome(function, *args):
    """What a call gives, or the error it raises, and the categories of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = "gives", said(function(*args))
        except Exception as error:
            found = "raises", type(error).__name__, str(error)
    return found, [(w.category.__name__, letters(str(w.message))[:40]) for w in caught]


def letters(text):
    """The letters of a text: messages may be punctuated differently, name another library, and say more."""
    text = re.sub(" object at 0x[0-9a-f]+", "", text.replace("flambeau", "torch"))
    return "".join(c for c in text.lower() if c.isalnum())


def same(function):
    """Check that `function(library)` does the same in both."""
    (expected, warned), (got, warned_too) = (outcome(function, library) for library in LIBRARIES)
    if expected[0] == "raises":
        assert got[:2] == expected[:2], got
        first = letters(expected[2].split("\n")[0].split(". ")[0])
        assert first in letters(got[2]), (expected[2], got[2])
    else:
        assert got == expected
    assert warned_too == warned


def data_of(library):
    return library.utils.data


def make(library):
    """The classes and datasets that the tables below use, made from one library."""
    data = data_of(library)

    class Numbers(data.Dataset):
        def __init__(self, length=10):
            self.length = length

        def __len__(self):
            return self.length

        def __getitem__(self, i):
            return i

    class Mixed(Numbers):
        def __getitem__(self, i):
            return {"row": library.full((2,), float(i)), "label": i, "name": str(i), "pair": (np.float32(i), [i / 2])}

    class Stream(data.IterableDataset):
        def __init__(self, length=7, told=None):
            self.length, self.told = length, told

        def __iter__(self):
            info = data.get_worker_info()
            return iter(range(self.length) if info is None else range(info.id, self.length, info.num_workers))

        def __len__(self):
            if self.told is None:
                raise TypeError("no length")
            return self.told

    class Together(Numbers):
        def __getitems__(self, indices):
            return [-i for i in indices]

    class Extended(data.Subset):
        def __getitem__(self, i):
            return "extended"

    class Doubled(data.TensorDataset):
        def __getitem__(self, i):
            return tuple(2 * part for part in super().__getitem__(i))

    def table(length=10, first=0):
        return data.TensorDataset(library.arange(first, first + 2 * length).reshape(length, 2).float(),
                                  library.arange(length) % 3)

    return types.SimpleNamespace(**{**locals(), **{name: getattr(data, name) for name in data.__all__
                                                   if name in flambeau.utils.data.__all__}})


DATASETS = {
    "numbers": lambda m: m.Numbers(),
    "mixed": lambda m: m.Mixed(),
    "together": lambda m: m.Together(),
    "list": lambda m: [5, 6, 7, 8, 9, 1, 2, 3, 4, 0],
    "table": lambda m: m.table(),
    "tensor": lambda m: m.library.arange(30).reshape(10, 3),
    "turned": lambda m: m.TensorDataset(m.library.arange(30).reshape(3, 10).t(),
                                        m.library.arange(240.0).reshape(10, 2, 3, 4).permute(0, 3, 1, 2)),
    "doubled": lambda m: m.Doubled(*m.table().tensors),
    "subset": lambda m: m.Subset(m.table(20), [3, 19, 3, 0, 7, 8, 9, 1, 2, 11]),
    "extended": lambda m: m.Extended(m.table(20), list(range(10))),
    "split": lambda m: m.random_split(m.table(20), [0.5, 0.5], m.library.Generator().manual_seed(2))[1],
    "concatenation": lambda m: m.table(4) + m.table(6, 50),
    "concatenation of unlike": lambda m: m.table(4) + m.TensorDataset(m.library.zeros(6, 2).double(),
                                                                      m.library.zeros(6)),
    "stack": lambda m: m.StackDataset(m.table(), m.Numbers(), m.Together()),
    "stack of tensors": lambda m: m.StackDataset(a=m.table(), b=m.library.arange(10)),
    "grad": lambda m: m.TensorDataset(m.library.ones(10, 2, requires_grad=True)),
    "stream": lambda m: m.Stream(),
}
OPTIONS = [
    dict(), dict(shuffle=True), dict(shuffle=True, drop_last=True), dict(batch_size=None), dict(batch_size=10),
    dict(batch_size=None, shuffle=True), dict(generator=5), dict(generator=5, shuffle=True),
    dict(sampler=lambda m, d: [2, 9, 9, 0, -1]),
    dict(sampler=lambda m, d: m.RandomSampler(d, replacement=True, num_samples=70)),
    dict(sampler=lambda m, d: m.RandomSampler(d, num_samples=25, generator=m.library.Generator().manual_seed(1))),
    dict(sampler=lambda m, d: m.SubsetRandomSampler([1, 3, 5, 7])),
    dict(sampler=lambda m, d: m.WeightedRandomSampler([0.1] * 5 + [1.0] * 5, 12)),
    dict(sampler=lambda m, d: m.WeightedRandomSampler([0.1] * 5 + [1.0] * 5, 9, replacement=False)),
    dict(sampler=lambda m, d: m.DistributedSampler(d, 3, 1, seed=4)),
    dict(sampler=lambda m, d: m.library.tensor([3, 1, 4])),
    dict(batch_sampler=lambda m, d: [[0, 1], [9], [5, 5, 5]]),
    dict(batch_sampler=lambda m, d: m.BatchSampler(m.RandomSampler(d), 3, False)),
    dict(batch_sampler=lambda m, d: [[]]),
    dict(batch_sampler=lambda m, d: [[10]]),
    dict(collate_fn=lambda batch: ("mine", batch)),
]


def loaded(library, name, options, epochs=2):
    """The epochs of a loader, and the numbers that both generators give after each step."""
    m = make(library)
    dataset = DATASETS[name](m)
    given = dict(options)
    generator = library.Generator().manual_seed(given["generator"]) if "generator" in given else None
    if generator is not None:
        given["generator"] = generator
    for key in ("sampler", "batch_sampler"):
        if key in given:
            given[key] = given[key](m, dataset)
    if "batch_sampler" not in given:
        given.setdefault("batch_size", 4)

    def state():
        twin = library.Generator()
        twin.set_state((generator or library.default_generator).get_state())
        return library.rand(2, generator=twin).tolist(), library.get_rng_state()[-8:].tolist()

    library.manual_seed(11)
    loader = m.DataLoader(dataset, **given)
    steps = [state()]
    for _ in range(epochs):
        batches = iter(loader)
        steps += [batches._base_seed, state()]
        for batch in batches:
            steps += [said(batch), state()]
        steps.append(library.rand(3).tolist())
    return steps


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("at", range(len(OPTIONS)))
def test_batches_and_what_is_drawn(name, at):
    same(lambda library: loaded(library, name, OPTIONS[at]))


@pytest.mark.parametrize("name", ["mixed", "table", "split", "stack", "together"])
@pytest.mark.parametrize("options", [dict(shuffle=True, num_workers=2), dict(shuffle=True, generator=3, num_workers=1),
                                     dict(batch_size=None, shuffle=True, num_workers=1),
                                     dict(shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=1),
                                     dict(sampler=lambda m, d: m.RandomSampler(d, True, 20), num_workers=2)])
def test_batches_of_workers_and_what_is_drawn(name, options):
    for context in (None, "fork"):                        # without a word, some of these are threads' work
        same(lambda library: loaded(library, name, {**options, "multiprocessing_context": context}))


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"batch_size": None}, {"persistent_workers": True}])
def test_streams_of_workers(options):
    def run(library):
        m = make(library)
        loader = m.DataLoader(m.Stream(), **{"batch_size": 2, **options}, num_workers=2)
        return [list(loader), list(loader)]
    same(run)


def test_the_numbers_that_workers_draw():
    def run(library):
        m = make(library)

        class Draws(m.Numbers):
            def __getitem__(self, i):
                info = m.get_worker_info()
                return [info.id, info.num_workers, info.seed, len(info.dataset), repr(info.rng), info.worker_method,
                        library.initial_seed(), library.rand(2).tolist(), random.random(), np.random.rand(2).tolist(),
                        library.get_num_threads()]
        library.manual_seed(8)
        return list(m.DataLoader(Draws(5), None, num_workers=2))
    same(run)


# --- collating --------------------------------------------------


@dataclasses.dataclass
class Record:
    a: int = 1


class Level(enum.IntEnum):
    LOW = 1


class Wrapped(collections.abc.Mapping):
    """A mapping that cannot be made from a dictionary alone."""

    def __init__(self, held, other):
        self.held = held

    def __getitem__(self, key):
        return self.held[key]

    def __iter__(self):
        return iter(self.held)

    def __len__(self):
        return len(self.held)


class Tagged(dict):
    tag = None


BATCHES = {
    "ints": [1, 2], "ints and floats": [1, 2.5], "floats": [1.5, 2], "bools": [True, False], "bool and int": [True, 3],
    "large": [2**63, 1], "complex": [1j], "texts": ["a", "b"], "bytes": [b"a"], "none": [None, None], "nothing": [],
    "set": [{1}], "enum": [Level.LOW, Level.LOW], "record": [Record()],
    "dict": [{"a": 1, "b": 2.5}, {"a": 2, "b": 3.5}], "dict without": [{"a": 1}, {"b": 2}],
    "dict with more": [{"a": 1}, {"a": 2, "b": 3}], "ordered": [collections.OrderedDict(a=1)] * 2,
    "default": [collections.defaultdict(int, a=1)] * 2, "proxy": [types.MappingProxyType({"a": 1})] * 2,
    "wrapped": [Wrapped({"a": 1}, 2)] * 2, "tagged": [Tagged(a=1)] * 2, "user": [collections.UserDict(a=1)] * 2,
    "tuple": [(1, 2.5), (3, 4.5)], "list": [[1, 2.5], [3, 4.5]], "named": [Point(1, 2.5), Point(3, 4.5)],
    "uneven": [[1, 2], [3]], "empty": [(), ()], "deque": [collections.deque([1, 2])] * 2, "range": [range(3)] * 2,
    "array.array": [array.array("i", [1, 2])] * 2, "user list": [collections.UserList([1, 2])] * 2,
    "bytearray": [bytearray(b"ab")] * 2, "nested": [{"A": (0, [1.0, "x"])}, {"A": (1, [2.0, "y"])}],
    "float32": [np.float32(1), np.float32(2)], "float16": [np.float16(1)], "int8": [np.int8(1)], "bool_": [np.bool_(1)],
    "scalar and int": [np.float64(1), 2], "scalars": [np.float32(1), np.float64(2)], "str_": [np.str_("a")],
    "datetime": [np.datetime64("2020-01-01")],
    "arrays": [np.zeros(2, np.float32), np.ones(2, np.float32)], "mixed arrays": [np.float32([1]), np.float64([2])],
    "0-d": [np.array(1.0), np.array(2.0)], "uneven arrays": [np.zeros(2), np.zeros(3)], "text array": [np.array(["a"])],
    "objects": [np.array([None])], "turned": [np.zeros((4, 5, 3)).transpose(2, 0, 1)] * 2,
    "backwards": [np.zeros(3)[::-1]] * 2, "other order": [np.zeros((2, 3)), np.zeros((3, 2)).T],
    "big-endian": [np.zeros(2, ">f4")] * 2, "unsigned": [np.zeros(2, np.uint8)] * 2,
    "no elements": [np.zeros((2, 0))] * 2,
}


@pytest.mark.parametrize("name", BATCHES)
def test_collate(name):
    same(lambda library: data_of(library).default_collate(BATCHES[name]))


@pytest.mark.parametrize("name", BATCHES)
def test_convert(name):
    for sample in BATCHES[name][:1]:
        same(lambda library: data_of(library).default_convert(sample))


TENSORS = {
    "0-d": lambda t: [t.tensor(1), t.tensor(2)],
    "dtypes": lambda t: [t.tensor(1), t.tensor(2.5)],
    "shapes": lambda t: [t.zeros(2), t.zeros(3)],
    "number": lambda t: [t.zeros(2), 3],
    "rows": lambda t: [t.arange(6.0).reshape(3, 2)[i] for i in (2, 0, 2)],
    "columns": lambda t: [t.arange(6.0).reshape(2, 3)[:, i] for i in (2, 0)],
    "channels last": lambda t: [t.zeros(4, 5, 3).permute(2, 0, 1)] * 2,
    "permuted": lambda t: [t.zeros(2, 4, 5, 3).permute(3, 0, 1, 2)] * 2,
    "expanded": lambda t: [t.ones(1).expand(3)] * 2,
    "overlapping": lambda t: [t.arange(6)[i:i + 3] for i in (0, 1, 3)],
    "reinterpreted": lambda t: [t.arange(6.0).view(t.int32)[i:i + 1] for i in (0, 5)],
    "half": lambda t: [t.ones(2, dtype=t.bfloat16)] * 2,
    "bool": lambda t: [t.tensor([True, False])] * 2,
    "complex": lambda t: [t.ones(2, dtype=t.complex64)] * 2,
    "empty": lambda t: [t.zeros(0, 3)] * 2,
    "leaves": lambda t: [t.ones(2, requires_grad=True)] * 2,
    "results": lambda t: [t.ones(2, requires_grad=True) * 3] * 2,
    "views of a leaf": lambda t: [t.ones(2, 2, requires_grad=True)[0]] * 2,
    "in a dict": lambda t: [{"x": t.ones(2), "y": [t.tensor(1), np.zeros(2)]}] * 3,
}


@pytest.mark.parametrize("name", TENSORS)
def test_collate_of_tensors(name):
    same(lambda library: data_of(library).default_collate(TENSORS[name](library)))


def test_the_map_of_collate_functions():
    def run(library):
        known = data_of(library)._utils.collate
        names = sorted(str(key).replace("torch.", "").replace("flambeau.", "")
                       for key in known.default_collate_fn_map)
        return [names, known.collate([1, True], collate_fn_map={int: lambda batch, *, collate_fn_map=None: batch})]
    same(run)
    same(lambda library: data_of(library)._utils.collate.collate([1, 2]))


# --- samplers, splits, datasets --------------------------------------------------


CALLS = {
    "random": lambda m: list(m.RandomSampler(range(10))),
    "random, more": lambda m: list(m.RandomSampler(range(10), num_samples=25)),
    "random, fewer": lambda m: list(m.RandomSampler(range(10), num_samples=3)),
    "replacement": lambda m: list(m.RandomSampler(range(10), replacement=True, num_samples=64)),
    "subset": lambda m: list(m.SubsetRandomSampler("abcd")),
    "weights": lambda m: list(m.WeightedRandomSampler([0.2, 0.0, 5], 40)),
    "ranks": lambda m: [list(m.DistributedSampler(range(11), 3, rank, seed=1, drop_last=drop, shuffle=shuffle))
                        for rank in range(3) for drop in (False, True) for shuffle in (False, True)],
    "few": lambda m: [list(m.DistributedSampler(range(2), 5, rank)) for rank in range(5)],
    "split": lambda m: [part.indices for part in m.random_split(range(10), [3, 7])],
    "fractions": lambda m: [part.indices for part in m.random_split(range(101), [0.3, 0.3, 0.3, 0.1])],
    "tenths": lambda m: [len(part) for part in m.random_split(range(103), [0.1] * 10)],
    "nothing left": lambda m: [len(part) for part in m.random_split(range(3), [0.5, 0.25, 0.25, 0.0])],
    "negative lengths": lambda m: [len(part) for part in m.random_split(range(10), [-1, 11])],
    "too much": lambda m: m.random_split(range(10), [0.7, 0.7]),
    "too many": lambda m: m.random_split(range(10), [3, 8]),
    "no fraction": lambda m: m.random_split(range(10), [-0.5, 1.5]),
    "no samples": lambda m: m.RandomSampler([]),
    "half a sample": lambda m: m.RandomSampler([1], num_samples=1.5),
    "a true sample": lambda m: list(m.RandomSampler([1], num_samples=True)),
    "no flag": lambda m: m.RandomSampler([1], replacement=3),
    "no weights": lambda m: m.WeightedRandomSampler([[1.0]], 2),
    "weights, none": lambda m: m.WeightedRandomSampler([1.0], 0),
    "weights, true": lambda m: m.WeightedRandomSampler([1.0], True),
    "weights, flag": lambda m: m.WeightedRandomSampler([1.0], 2, 1),
    "weights, more": lambda m: list(m.WeightedRandomSampler([1.0], 2, False)),
    "weights, negative": lambda m: list(m.WeightedRandomSampler([-1.0, 1.0], 2)),
    "batches": lambda m: [list(m.BatchSampler(range(10), size, drop)) for size in (1, 3, 5, 20)
                          for drop in (True, False)],
    "batches, zero": lambda m: m.BatchSampler(range(10), 0, False),
    "batches, true": lambda m: m.BatchSampler(range(10), True, False),
    "batches, flag": lambda m: m.BatchSampler(range(10), 1, 1),
    "rank": lambda m: m.DistributedSampler(range(10), 2, 2),
    "no group": lambda m: m.DistributedSampler(range(10)),
    "sampler": lambda m: m.Sampler(range(10)),
    "no order": lambda m: iter(m.Sampler()),
    "rows": lambda m: [m.table()[3], m.table()[-1], m.table()[2:4], m.table()[[1, 2]]],
    "no row": lambda m: m.table()[10],
    "unlike tensors": lambda m: m.TensorDataset(m.library.zeros(2), m.library.zeros(3)),
    "a number": lambda m: m.TensorDataset(m.library.tensor(1)),
    "no dataset": lambda m: m.Dataset()[0],
    "no length": lambda m: len(m.Dataset()),
    "no stream": lambda m: m.IterableDataset(),
    "empty stack": lambda m: m.StackDataset(),
    "uneven stack": lambda m: m.StackDataset(m.Numbers(3), m.Numbers(4)),
    "both stacks": lambda m: m.StackDataset(m.Numbers(3), a=m.Numbers(3)),
    "stack": lambda m: [m.StackDataset(m.Numbers(), m.Together())[2],
                        m.StackDataset(a=m.Numbers(), b=m.Together()).__getitems__([2, 3])],
    "concatenation": lambda m: [(m.Numbers(3) + m.Numbers(4))[i] for i in (0, 3, 6, -1, -7)],
    "past the end": lambda m: (m.Numbers(3) + m.Numbers(4))[7],
    "before the start": lambda m: (m.Numbers(3) + m.Numbers(4))[-8],
    "old name": lambda m: (m.Numbers(3) + m.Numbers(4)).cummulative_sizes,
    "no concatenation": lambda m: m.ConcatDataset([]),
    "of a stream": lambda m: m.ConcatDataset([m.Stream()]),
    "chain": lambda m: list(m.Stream(2) + m.Stream(3)),
    "chain of others": lambda m: list(m.Stream(2) + m.Numbers(3)),
    "length of a chain": lambda m: [len(m.Stream(2, 2) + m.Stream(3, 3))],
    "subset by a list": lambda m: m.Subset(m.table(), [3, 4])[[0, 1]],
    "outside a subset": lambda m: m.Subset(m.table(), [3, 4])[2],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    def run(library):
        library.manual_seed(21)
        found = CALLS[name](make(library))
        return [found, library.rand(2).tolist()] if not isinstance(found, library.utils.data.Sampler) else "a sampler"
    same(run)


def test_a_generator_after_each_batch():
    """The state of a generator that is used elsewhere too, step by step."""
    def run(library, size, replacement, drop_last):
        generator = library.Generator().manual_seed(1)
        sampler = data_of(library).RandomSampler(range(10), replacement, 20, generator)
        steps = []
        for batch in data_of(library).BatchSampler(sampler, size, drop_last):
            steps.append((batch, library.rand(1, generator=generator).item()))
        return [*steps, library.rand(1, generator=generator).item()]
    for size in (3, 4, 5, 10, 20, 64):
        for replacement in (False, True):
            for drop_last in (False, True):
                same(lambda library: run(library, size, replacement, drop_last))


# --- the loader's arguments --------------------------------------------------


ARGUMENTS = [
    dict(num_workers=-1), dict(timeout=-1), dict(prefetch_factor=2), dict(prefetch_factor=-1, num_workers=1),
    dict(persistent_workers=True), dict(batch_size=None, drop_last=True), dict(batch_size=2, batch_sampler=[[0]]),
    dict(shuffle=True, batch_sampler=[[0]]), dict(sampler=[0], batch_sampler=[[0]]), dict(sampler=[0], shuffle=True),
    dict(drop_last=True, batch_sampler=[[0]]), dict(batch_size=0), dict(batch_size=1.5), dict(batch_size=True),
    dict(batch_size=np.int64(2)), dict(drop_last=3), dict(multiprocessing_context="fork"), dict(pin_memory=True),
    dict(multiprocessing_context="frk", num_workers=1), dict(multiprocessing_context=3, num_workers=1), dict(timeout=3),
    dict(pin_memory=True, pin_memory_device="cuda"), dict(pin_memory_device="cuda"), dict(in_order=False),
    dict(num_workers=4096), dict(shuffle=3), dict(nonsense=1), dict(batch_sampler=3),
]


@pytest.mark.parametrize("at", range(len(ARGUMENTS)))
@pytest.mark.parametrize("kind", ["Numbers", "Stream"])
def test_arguments(at, kind):
    def run(library):
        m = make(library)
        library.manual_seed(0)
        loader = m.DataLoader(getattr(m, kind)(), **ARGUMENTS[at])
        if loader.num_workers:
            return loader.num_workers
        return [next(iter(loader)), loader.batch_size, loader.drop_last, loader.prefetch_factor,
                type(loader.sampler).__name__, type(loader.batch_sampler).__name__, loader.collate_fn.__name__]
    same(run)


@pytest.mark.parametrize("name", "batch_size batch_sampler sampler drop_last dataset persistent_workers num_workers "
                                 "collate_fn generator timeout nonsense".split())
def test_attributes_that_can_be_set(name):
    same(lambda library: setattr(data_of(library).DataLoader([1, 2]), name, None))


@pytest.mark.parametrize("size, drop_last, told", [(1, False, 3), (2, False, 3), (2, True, 3), (None, False, 3),
                                                   (2, False, None)])
def test_lengths(size, drop_last, told):
    def run(library):
        m = make(library)
        loader = m.DataLoader(m.Stream(5, told), size, drop_last=drop_last)
        return [len(loader), list(loader), len(m.DataLoader(m.Numbers(), 3, drop_last=drop_last))]
    same(run)


@pytest.mark.parametrize("kind", [ValueError, KeyError, IndexError, OSError, UnicodeDecodeError, StopIteration])
def test_errors_of_workers(kind):
    error = UnicodeDecodeError("utf8", b"a", 0, 1, "r") if kind is UnicodeDecodeError else kind("bad")

    def run(library):
        m = make(library)

        class Fails(m.Numbers):
            def __getitem__(self, i):
                if i == 1:
                    raise error
                return i
        batches, found = iter(m.DataLoader(Fails(3), None, num_workers=1)), []
        for _ in range(3):
            try:
                found.append(next(batches))
            except Exception as raised:
                found.append((type(raised).__name__, *str(raised).split("\n")[:2]))
        return found
    same(run)


OUR_OPTIONS = ("worker_type", "randomness", "split_by_rank")      # keywords of DataLoader that PyTorch has not


def test_the_same_signature_and_names():
    import inspect
    for name in set(flambeau.utils.data.__all__) - {"DevicePrefetcher"}:          # which is ours alone
        theirs, ours = getattr(torch.utils.data, name), getattr(flambeau.utils.data, name)
        if name not in ("_DatasetKind", "Dataset", "IterableDataset", "Sampler"):
            said_by = [[(p.name, p.kind, str(p.default)) for p in inspect.signature(thing).parameters.values()
                        if p.name not in ("generator", *OUR_OPTIONS)] for thing in (theirs, ours)]
            assert said_by[0] == said_by[1], name
        assert ours.__module__.removeprefix("flambeau") == theirs.__module__.removeprefix("torch"), name
