"""`DataLoader` without workers: batches, order, whole-batch fetch, arguments, refusals."""
import collections
import copy
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    dataloader as loaders,
    default_collate,
    random_split,
)
from flambeau.utils.data._utils import gather


class Squares(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return i * i


class Count(IterableDataset):
    def __init__(self, length, told=None):
        self.length, self.told = length, told

    def __iter__(self):
        return iter(range(self.length))

    def __len__(self):
        if self.told is None:
            raise TypeError("no length")
        return self.told


def table(length=10, first=0):
    """Rows that say where they are: row i holds first + i."""
    x = torch.arange(first, first + length, dtype=torch.float32).unsqueeze(1).repeat(1, 3)
    return TensorDataset(x, torch.arange(first, first + length))


def plain(thing):
    if isinstance(thing, torch.Tensor):
        return str(thing.dtype), thing.tolist()
    if isinstance(thing, list | tuple):
        return [plain(part) for part in thing]
    return {key: plain(value) for key, value in thing.items()} if isinstance(thing, dict) else thing


# --- batches --------------------------------------------------


def test_batches_of_samples():
    assert [batch.tolist() for batch in DataLoader(Squares(5), 2)] == [[0, 1], [4, 9], [16]]
    assert [batch.tolist() for batch in DataLoader(Squares(5), 2, drop_last=True)] == [[0, 1], [4, 9]]
    assert list(DataLoader(Squares(3), batch_size=None)) == [0, 1, 4]
    assert [batch.tolist() for batch in DataLoader([1.5, 2.5, 3.5], 2)] == [[1.5, 2.5], [3.5]]
    assert list(DataLoader([])) == []
    assert [type(batch) for batch in DataLoader(Squares(5), 2, collate_fn=tuple)] == [tuple] * 3


@pytest.mark.parametrize("length, drop_last", [(10, False), (10, True), (9, False), (2, True), (0, False)])
def test_length(length, drop_last):
    loader = DataLoader(Squares(length), 3, drop_last=drop_last)
    assert len(loader) == len(list(loader)) == len(iter(loader))


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
def test_streams():
    assert [batch.tolist() for batch in DataLoader(Count(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [batch.tolist() for batch in DataLoader(Count(5), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Count(3), batch_size=None)) == [0, 1, 2]
    for length, options in (3, dict(batch_size=2)), (2, dict(batch_size=2, drop_last=True)), (5, dict(batch_size=None)):
        assert len(DataLoader(Count(5, 5), **options)) == length
    with pytest.raises(TypeError, match="no length"):
        len(DataLoader(Count(5)))
    loader = DataLoader(Count(3, told=1), batch_size=None)
    list(loader)                                        # nobody has asked for the length yet
    assert len(loader) == 1
    with pytest.warns(UserWarning, match=r"Length of IterableDataset .* reported to be 1.* but 2 samples have been"):
        list(loader)


def test_each_iteration_is_its_own():
    loader = DataLoader(Squares(4), 2)
    one, other = iter(loader), iter(loader)
    assert next(one).tolist() == next(other).tolist() == [0, 1] and next(one).tolist() == [4, 9]
    with pytest.raises(StopIteration):
        next(one)
    with pytest.raises(StopIteration):
        next(one)


# --- order and seeds --------------------------------------------------


def test_shuffling_visits_everything_in_the_order_of_the_seed():
    loader = DataLoader(table(100), 7, shuffle=True)
    torch.manual_seed(1)
    order = torch.cat([y for _, y in loader]).tolist()
    assert sorted(order) == list(range(100)) != order
    again = torch.cat([y for _, y in loader]).tolist()
    torch.manual_seed(1)
    assert torch.cat([y for _, y in loader]).tolist() == order != again


def test_what_is_drawn_from_the_default_generator():
    """A seed for the workers when the iterator is made, one for the sampler with its first batch; nothing after."""
    def seed():
        return torch.empty((), dtype=torch.int64).random_().item()
    torch.manual_seed(3)
    batches = iter(DataLoader(table(10), 5, shuffle=True))
    first = next(batches)[1].tolist()
    rest = next(batches)[1].tolist()
    after = torch.rand(3).tolist()
    torch.manual_seed(3)
    assert batches._base_seed == seed()
    assert torch.randperm(10, generator=torch.Generator().manual_seed(seed())).tolist() == first + rest
    assert torch.rand(3).tolist() == after


def test_a_generator_given_is_the_only_one_used():
    generator = torch.Generator().manual_seed(9)
    before = torch.get_rng_state().tolist()
    order = [y.tolist() for _, y in DataLoader(table(10), 5, shuffle=True, generator=generator)]
    assert torch.get_rng_state().tolist() == before
    twin = torch.Generator().manual_seed(9)
    torch.empty((), dtype=torch.int64).random_(generator=twin)
    assert torch.randperm(10, generator=twin).tolist() == sum(order, [])


# --- whole batches --------------------------------------------------


def strided():
    wide = torch.arange(80.0).view(10, 8)
    return TensorDataset(wide[:, ::2], wide.t().contiguous().t(), wide.view(10, 2, 2, 2).permute(0, 3, 1, 2),
                         torch.arange(10).expand(3, 10).t(), torch.zeros(10, 0), wide[:, 0] > 30,
                         wide.to(torch.bfloat16), wide.to(torch.complex64))


WHOLE = {
    "table": table,
    "strided": strided,
    "subset": lambda: Subset(table(20), [3, 19, 3, 0, 7, 8, 9, 1, 2, 11]),
    "subset of an array": lambda: Subset(table(20), np.array([3, 19, 3, 0, 7, 8, 9, 1, 2, 11], np.int32)),
    "subset of a tensor": lambda: Subset(table(20), torch.tensor([3, 19, 3, 0, 7, 8, 9, 1, 2, 11])),
    "subset of a range": lambda: Subset(table(40), range(30, 0, -3)),
    "subset of a subset": lambda: Subset(Subset(table(20), list(range(19, 0, -1))), tuple(range(0, 19, 2))),
    "split": lambda: random_split(table(20), [0.5, 0.5], torch.Generator().manual_seed(0))[0],
    "concatenation": lambda: table(4) + table(0) + table(6, 50),
    "concatenation of parts": lambda: ConcatDataset([Subset(table(9), [8, 0, 4]), table(5, 90),
                                                     Subset(table(3), [1, 2])]),
    "stack": lambda: StackDataset(table(), torch.arange(10) * 2, Subset(table(12), range(1, 11))),
    "named stack": lambda: StackDataset(a=table(), b=table(4) + table(6, 20)),
    "concatenation of stacks": lambda: StackDataset(a=table(3)) + StackDataset(a=table(7)),
    "tensor": lambda: torch.arange(30).view(10, 3),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True, "batch_size": 3}, {"batch_size": 10},
                                     {"sampler": [1, 1, 9, 0]}, {"batch_sampler": [[2, 3], [9], [-1, 0]]},
                                     {"sampler": "replacement"}])
def test_a_batch_taken_whole_is_what_its_samples_make(name, options, monkeypatch):
    data = WHOLE[name]()
    options = {"batch_size": 4, **options} if "batch_sampler" not in options else options
    if options.get("sampler") == "replacement":
        options["sampler"] = RandomSampler(data, replacement=True, num_samples=50)
    torch.manual_seed(0)
    by_one = DataLoader(data, **options, collate_fn=lambda samples: default_collate(samples))
    expected = [plain(batch) for batch in by_one]
    gathered = []
    kept = gather.rows
    monkeypatch.setattr(gather, "rows", lambda *args: gathered.append(kept(*args)) or gathered[-1])
    torch.manual_seed(0)
    batches = list(DataLoader(data, **options))
    assert [plain(batch) for batch in batches] == expected
    assert any(rows is not None for rows in gathered)                   # and it was taken whole

    def leaves(thing):
        if isinstance(thing, torch.Tensor):
            yield thing
        else:
            for part in thing.values() if isinstance(thing, dict) else thing:
                yield from leaves(part)
    assert all(leaf.is_contiguous() for batch in batches for leaf in leaves(batch))


def test_one_copy_for_each_tensor(monkeypatch):
    copies = []
    kept = gather.rows
    monkeypatch.setattr(gather, "rows", lambda *args: copies.append(1) or kept(*args))
    for options in ({}, {"shuffle": True}):
        copies.clear()
        assert len(list(DataLoader(table(1000), 100, **options))) == 10
        assert len(copies) == 2 * 10


def test_writing_into_a_batch_leaves_the_dataset_alone_and_the_reverse_is_seen():
    data = table(6)
    for options in ({}, {"shuffle": True}, {"sampler": [0, 1, 2, 3, 4, 5]}):
        for x, y in DataLoader(data, 2, **options):
            x.fill_(-1)
            y.add_(100)
        assert data.tensors[1].tolist() == list(range(6)) and data.tensors[0].min().item() == 0
    batches = iter(DataLoader(data, 3))
    next(batches)
    data.tensors[1].mul_(10)                            # what is not fetched yet is what it is then
    assert next(batches)[1].tolist() == [30, 40, 50]


def test_pending_and_numpy_tensors():
    array = np.arange(6.0)
    data = TensorDataset(torch.arange(6.0) * 2 + 1, torch.from_numpy(array))
    array[5] = 77
    (x, y), = DataLoader(data, 6)
    assert x.tolist() == [1, 3, 5, 7, 9, 11] and y.tolist() == [0, 1, 2, 3, 4, 77]


def test_rows_with_a_gradient_keep_it():
    weight = torch.ones(4, 2, requires_grad=True)
    for (x,) in DataLoader(TensorDataset(weight), 2):
        x.sum().backward()
    assert weight.grad.tolist() == [[1, 1]] * 4


def test_what_is_overridden_is_called():
    class Doubled(TensorDataset):
        def __getitem__(self, i):
            return [2 * part for part in super().__getitem__(i)]

    class Noted(Subset):
        def __getitems__(self, indices):
            noted.append(indices)
            return super().__getitems__(indices)

    noted = []
    assert [y.tolist() for _, y in DataLoader(Doubled(*table(4).tensors), 2)] == [[0, 2], [4, 6]]
    assert [y.tolist() for _, y in DataLoader(Subset(Doubled(*table(4).tensors), [3, 0]), 2)] == [[6, 0]]
    assert [y.tolist() for _, y in DataLoader(Noted(table(4), [3, 0]), 2)] == [[3, 0]] and noted == [[0, 1]]

    class Named(TensorDataset):
        def __len__(self):
            return 2
    assert [y.tolist() for _, y in DataLoader(Named(*table(4).tensors), 4)] == [[0, 1]]


def test_many_samples_are_asked_for_by_a_list():
    class Together(Squares):
        def __getitems__(self, indices):
            asked.append(indices)
            return [i + 100 for i in indices]
    asked = []
    assert [batch.tolist() for batch in DataLoader(Together(3), 2)] == [[100, 101], [102]]
    assert asked == [[0, 1], [2]] and all(type(i) is int for indices in asked for i in indices)
    assert list(DataLoader(Together(2), batch_size=None)) == [0, 1]


def test_a_position_that_is_not_there():
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        list(DataLoader(table(10), batch_sampler=[[0, 10]]))
    with pytest.raises(IndexError):
        list(DataLoader(Subset(table(10), [1, 2]), batch_sampler=[[0, 2]]))
    with pytest.raises(IndexError):
        list(DataLoader(Subset(table(10), [1, 20]), 2))
    with pytest.raises(IndexError):
        list(DataLoader(table(), batch_sampler=[[]]))


def test_positions_that_are_tensors():
    assert [y.tolist() for _, y in DataLoader(table(), 2, sampler=torch.tensor([3, 1, 0]))] == [[3, 1], [0]]
    assert [y.tolist() for _, y in DataLoader(table(), batch_sampler=[np.array([3, 1]), range(5, 1, -2), (7,)])] \
        == [[3, 1], [5, 3], [7]]


# --- arguments --------------------------------------------------


def test_what_a_loader_is_made_of():
    loader = DataLoader(Squares(4), 2)
    assert isinstance(loader.sampler, SequentialSampler) and isinstance(loader.batch_sampler, BatchSampler)
    assert (loader.batch_size, loader.drop_last, loader.num_workers, loader.prefetch_factor) == (2, False, 0, None)
    assert loader.collate_fn is default_collate and loader.multiprocessing_context is None
    assert isinstance(DataLoader(Squares(4), shuffle=True).sampler, RandomSampler)
    assert DataLoader(Squares(4), batch_sampler=[[0]]).batch_size is None
    assert DataLoader(Squares(4), batch_size=None).batch_sampler is None
    assert DataLoader(Squares(4), num_workers=1).prefetch_factor == 2
    assert copy.copy(loader).batch_size == 2

    class Typed(DataLoader[int]):
        pass
    assert list(Typed(Squares(1), None)) == [0]


@pytest.mark.parametrize("name", "batch_size batch_sampler sampler drop_last dataset persistent_workers".split())
def test_some_attributes_are_fixed(name):
    loader = DataLoader(Squares(4))
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
        setattr(loader, name, None)
    loader.collate_fn = tuple
    assert next(iter(loader)) == (0,)


class Backwards(Sampler):
    def __iter__(self):
        return iter([2, 1, 0])


def test_samplers_of_ones_own():
    assert [batch.tolist() for batch in DataLoader(Squares(4), 2, sampler=Backwards())] == [[4, 1], [0]]
    assert [y.tolist() for _, y in DataLoader(table(), 2, sampler=Backwards())] == [[2, 1], [0]]
    assert list(DataLoader(Squares(4), None, sampler=Backwards())) == [4, 1, 0]

    class Twice(BatchSampler):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch + batch
    twice = Twice(SequentialSampler(range(3)), 2, False)
    assert [y.tolist() for _, y in DataLoader(table(), batch_sampler=twice)] == [[0, 1, 0, 1], [2, 2]]


@pytest.mark.parametrize("options, error, words", [
    (dict(num_workers=-1), ValueError, "num_workers option should be non-negative"),
    (dict(timeout=-1), ValueError, "timeout option should be non-negative"),
    (dict(prefetch_factor=2), ValueError, "prefetch_factor option could only be specified in multiprocessing"),
    (dict(prefetch_factor=-2, num_workers=1), ValueError, "prefetch_factor option should be non-negative"),
    (dict(persistent_workers=True), ValueError, "persistent_workers option needs num_workers > 0"),
    (dict(batch_size=None, drop_last=True), ValueError, "mutually exclusive with drop_last"),
    (dict(batch_size=2, batch_sampler=[[0]]), ValueError, "batch_sampler option is mutually exclusive"),
    (dict(shuffle=True, batch_sampler=[[0]]), ValueError, "batch_sampler option is mutually exclusive"),
    (dict(sampler=[0], batch_sampler=[[0]]), ValueError, "batch_sampler option is mutually exclusive"),
    (dict(drop_last=True, batch_sampler=[[0]]), ValueError, "batch_sampler option is mutually exclusive"),
    (dict(sampler=[0], shuffle=True), ValueError, "sampler option is mutually exclusive with shuffle"),
    (dict(batch_size=0), ValueError, "batch_size should be a positive integer value, but got batch_size=0"),
    (dict(batch_size=1.5), ValueError, "batch_size should be a positive integer value"),
    (dict(drop_last=3), ValueError, "drop_last should be a boolean value"),
    (dict(multiprocessing_context="fork"), ValueError, r"with multi-process loading \(num_workers > 0\)"),
    (dict(multiprocessing_context="thread"), ValueError, "can only be used with multi-process loading"),
    (dict(multiprocessing_context="frk", num_workers=1), ValueError, "should specify a valid start method in .*'frk'"),
    (dict(multiprocessing_context=3, num_workers=1), TypeError, "valid context object or a string"),
])
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        DataLoader(Squares(4), **options)


@pytest.mark.parametrize("options", [dict(shuffle=True), dict(sampler=[0]), dict(batch_sampler=[[0]])])
def test_a_stream_has_its_own_order(options):
    name, = options
    with pytest.raises(ValueError, match=f"DataLoader with IterableDataset: expected unspecified {name} option"):
        DataLoader(Count(3), **options)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_pinning_and_timeouts_without_workers():
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"):
        assert next(iter(DataLoader(Squares(2), pin_memory=True))).tolist() == [0]
    with pytest.warns(UserWarning, match="pin_memory_device is deprecated"):
        iter(DataLoader(Squares(2), pin_memory=True, pin_memory_device="cuda"))
    with pytest.raises(AssertionError, match="requires timeout == 0"):
        iter(DataLoader(Squares(2), timeout=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(Squares(2), num_workers=1, in_order=False)
        with pytest.raises(UserWarning, match="will create 10000 worker processes"):
            DataLoader(Squares(2), num_workers=10_000)
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        copy.deepcopy(iter(DataLoader(Squares(2))))


def test_what_is_not_there_says_so():
    import flambeau.utils.data as data
    with pytest.raises(NotImplementedError, match="no torch.utils.data.IterDataPipe .*: write a Dataset"):
        data.IterDataPipe()
    assert not isinstance(Squares(2), data.IterDataPipe)

    @data.functional_datapipe("squares")
    class Pipe(data.IterDataPipe):
        pass
    with pytest.raises(NotImplementedError, match="no torch.utils.data.IterDataPipe"):
        Pipe()
    assert not hasattr(data, "nonsense")
    assert collections.Counter(data.__all__).most_common(1)[0][1] == 1
    assert all(hasattr(data, name) for name in data.__all__)


def test_a_loader_of_another_make_will_do():
    """fastai iterates over an object with PyTorch's attributes and no others."""
    class Foreign:
        dataset = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
        _dataset_kind = loaders._DatasetKind.Iterable
        _IterableDataset_len_called = None
        _auto_collation = drop_last = pin_memory = False
        pin_memory_device, num_workers, timeout, generator = "", 0, 0, None

        def __init__(self):
            self._index_sampler, self.collate_fn = iter(range(9)), lambda batch: batch

    given = list(loaders._SingleProcessDataLoaderIter(Foreign()))
    assert [t.tolist() for t in given] == [[1.0, 2.0], [3.0]]


def test_an_iterator_of_another_make_will_do():
    """torchdata derives a loader and its iterator from PyTorch's, and writes both anew."""
    class Iterator(loaders._BaseDataLoaderIter):
        def __init__(self, loader):
            super().__init__(loader)
            self.seeds = self._base_seed, self._shared_seed

        def _next_data(self):
            return [self._dataset[i] for i in self._next_index()]

    class Loader(DataLoader):
        def __init__(self, dataset):
            for name, held in {"dataset": dataset, "num_workers": 0, "timeout": 0, "generator": None, "batch_size": 2,
                               "drop_last": False, "pin_memory": False, "collate_fn": None,
                               "batch_sampler": BatchSampler(SequentialSampler(dataset), 2, False)}.items():
                vars(self)[name] = held
            self._dataset_kind, self._IterableDataset_len_called = loaders._DatasetKind.Map, None

        def __iter__(self):
            return Iterator(self)

    loader = Loader([10, 11, 12])
    assert list(loader) == [[10, 11], [12]]
    assert [isinstance(seed, int) for seed in iter(loader).seeds] == [True, False]
