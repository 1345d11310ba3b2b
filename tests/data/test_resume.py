"""A loader that goes on: the same batches as a run that was never interrupted, epochs that are counted, random numbers
that belong to samples, and what it says of itself."""
import contextlib
import io
import random
import re
import sqlite3
import time
import types
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DevicePrefetcher,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from flambeau.utils.data._utils import kept_generators
from flambeau.utils.data.sample_random import SampleRandom, sample_keys, sample_random
from tests.thorough import sample

pytestmark = pytest.mark.pinned
N = 23


class Numbers(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return i


class Drawn(Dataset):
    """Samples that are what they draw, each in its own way."""

    def __init__(self, *ways):
        self.ways = ways

    def __len__(self):
        return N

    def __getitem__(self, i):
        return {"index": i, **{way: WAYS[way]() for way in self.ways}}


WAYS = {"torch": lambda: torch.rand(2), "python": random.random, "numpy": np.random.rand,
        "sample": lambda: sample_random(1).uniform()[0, 0]}


class Stream(IterableDataset):
    """The numbers below `length`, each worker its part; counted, with what each draws."""

    def __init__(self, length=N):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        part = range(self.length) if info is None else range(info.id, self.length, info.num_workers)
        for i in part:
            yield i, sample_random(1).uniform()[0, 0]


class OwnState(IterableDataset):
    """A stream that can say where it stands, and refuses to be gone through again."""

    def __init__(self):
        self.at, self.made = 0, 0

    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        while (i := self.at * step + start) < N:
            self.at += 1
            self.made += 1
            yield i, self.made, sample_random(1).uniform()[0, 0]
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Shouts(Sampler):
    """A sampler of somebody else's, which draws from Python's generator when it is asked for its order."""

    def __iter__(self):
        order = list(range(N))
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return N


class WholeBatches(Dataset):
    """Gives batches by itself, and writes down what it was asked for."""

    __batches__ = True

    def __init__(self):
        self.asked, self.closed = [], 0

    def __len__(self):
        return N

    def batches(self, batch_size, **options):
        self.asked.append(options)
        order = np.arange(N)
        if options["shuffle"]:
            order = np.random.RandomState([options["seed"] % 2**32, options["epoch"]]).permutation(N)
        order = order[options["rank"]::options["ranks"]]
        try:
            for start in range(options["start"] * batch_size, len(order), batch_size):
                batch = order[start:start + batch_size]
                if len(batch) == batch_size or not options["drop_last"]:
                    yield torch.from_numpy(batch.copy())
        finally:
            self.closed += 1


def plain(thing):
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, list | tuple):
        return [plain(part) for part in thing]
    return {key: plain(part) for key, part in thing.items()} if isinstance(thing, dict) else thing


def generator():
    return torch.Generator().manual_seed(5)


LOADERS = {
    "in order": lambda **o: DataLoader(Numbers(), 4, **o),
    "gathered": lambda **o: DataLoader(TensorDataset(torch.arange(N), torch.arange(N) * 2.0), 4, shuffle=True, **o),
    "shuffled": lambda **o: DataLoader(Drawn("sample"), 4, shuffle=True, **o),
    "generator": lambda **o: DataLoader(Drawn("sample"), 4, shuffle=True, generator=generator(), **o),
    "all ways": lambda **o: DataLoader(Drawn(*WAYS), 4, shuffle=True, randomness="sample", **o),
    "no batches": lambda **o: DataLoader(Drawn("sample"), None, shuffle=True, **o),
    "drop last": lambda **o: DataLoader(Numbers(), 4, shuffle=True, drop_last=True, **o),
    "replacement": lambda **o: DataLoader(Numbers(), 4, sampler=RandomSampler(range(N), True, 100, generator()), **o),
    "subset": lambda **o: DataLoader(Numbers(), 4, sampler=SubsetRandomSampler(range(3, 20)), **o),
    "weighted": lambda **o: DataLoader(Numbers(), 4, sampler=WeightedRandomSampler([1.0] * N, 50), **o),
    "foreign": lambda **o: DataLoader(Numbers(), 4, sampler=Shouts(), **o),
    "batch sampler": lambda **o: DataLoader(Numbers(), batch_sampler=BatchSampler(Shouts(), 5, False), **o),
    "ranks": lambda **o: DataLoader(Drawn("sample"), 4, shuffle=True, split_by_rank=(1, 3), **o),
    "stream": lambda **o: DataLoader(Stream(), 4, **o),
    "short stream": lambda **o: DataLoader(Stream(5), 2, **o),
    "stream of samples": lambda **o: DataLoader(Stream(), None, **o),
    "whole": lambda **o: DataLoader(WholeBatches(), 4, shuffle=True, **o),
}


def seed_all(number):
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def epochs(make, count, **options):
    """The batches of `count` epochs, as plain numbers."""
    seed_all(1)
    loader = make(**options)
    return [[plain(batch) for batch in loader] for _ in range(count)]


@pytest.fixture(autouse=True)
def no_advice():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


# --- going on --------------------------------------------------


@pytest.mark.parametrize("workers", sample([0, 2, 4], 2))
@pytest.mark.parametrize("name", LOADERS)
def test_a_resumed_run_gives_what_an_uninterrupted_one_gives(name, workers):
    options = dict(num_workers=workers, worker_type="thread") if workers else {}
    if name == "all ways" and workers:
        pytest.skip("threads share the generators that everybody uses")
    make = LOADERS[name]
    whole = epochs(make, 3, **options)
    for stop in range(0, len(whole[1]) + 1, 1 if workers == 0 else 3):
        seed_all(1)
        loader = make(**options)
        for _ in loader:
            pass
        batches = iter(loader)
        begun = [plain(next(batches)) for _ in range(stop)]
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, stop) and begun == whole[1][:stop]
        del batches
        seed_all(77)                          # another program, which has drawn other numbers
        loader = make(**options)
        loader.load_state_dict(state)
        assert loader.epoch == 1 and loader.state_dict()["batch"] == stop
        assert [plain(batch) for batch in loader] == whole[1][stop:]
        if name in ("generator", "replacement", "ranks"):     # no generator is needed for it that others draw from
            assert [plain(batch) for batch in loader] == whole[2]


@pytest.mark.parametrize("name", ["shuffled", "stream", "all ways"])
def test_processes_resume_too(name):
    options = dict(num_workers=2, multiprocessing_context="fork")
    whole = epochs(LOADERS[name], 1, **options)[0]
    seed_all(1)
    loader = LOADERS[name](**options)
    batches = iter(loader)
    next(batches), next(batches), next(batches)
    state = loader.state_dict()
    del batches
    loader = LOADERS[name](**options)
    loader.load_state_dict(state)
    assert [plain(batch) for batch in loader] == whole[3:]


def test_persistent_workers_resume_in_a_later_epoch():
    options = dict(num_workers=2, worker_type="thread", persistent_workers=True)
    for name in ("shuffled", "stream"):
        whole = epochs(LOADERS[name], 3, **options)
        seed_all(1)
        loader = LOADERS[name](**options)
        list(loader)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        seed_all(3)
        loader = LOADERS[name](**options)
        loader.load_state_dict(state)
        assert [plain(batch) for batch in loader] == whole[1][1:]
        loader.load_state_dict(state)                         # its workers are there already
        assert [plain(batch) for batch in loader] == whole[1][1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_with_a_state_of_its_own_is_not_gone_through_again(workers):
    options = dict(num_workers=workers, multiprocessing_context="fork") if workers else {}
    whole = [plain(batch) for batch in DataLoader(OwnState(), 3, generator=generator(), **options)]
    for stop in (1, 4):
        loader = DataLoader(OwnState(), 3, generator=generator(), **options)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        loader = DataLoader(OwnState(), 3, generator=generator(), **options)
        loader.load_state_dict(state)
        rest = [plain(batch) for batch in loader]
        assert [batch[::2] for batch in rest] == [batch[::2] for batch in whole[stop:]]
        assert min(rest[0][1]) == 1                           # the first sample that this one has made


def test_between_epochs_and_before_the_first():
    whole = epochs(LOADERS["shuffled"], 3)
    seed_all(1)
    loader = LOADERS["shuffled"]()
    for epoch in range(3):
        state = loader.state_dict()
        assert loader.epoch == epoch == state["epoch"] and state["batch"] == 0
        seed = torch.get_rng_state()
        other = LOADERS["shuffled"]()
        torch.manual_seed(9)
        other.load_state_dict(state)
        assert [plain(batch) for batch in other] == whole[epoch]
        torch.set_rng_state(seed)
        assert [plain(batch) for batch in loader] == whole[epoch]


def test_resuming_leaves_the_programs_own_numbers_alone():
    loader = LOADERS["foreign"]()
    next(iter(loader))
    state = loader.state_dict()
    seed_all(4)
    expected = torch.rand(3).tolist(), random.random(), np.random.rand()
    seed_all(4)
    loader.load_state_dict(state)
    list(loader)
    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == expected


def test_a_batch_that_failed_was_given():
    class Fails(Numbers):
        def __getitem__(self, i):
            if i == 5:
                raise KeyError("five")
            return i
    for options in {}, dict(num_workers=2, worker_type="thread"):
        loader = DataLoader(Fails(), 4, **options)
        batches = iter(loader)
        next(batches)
        with pytest.raises(KeyError):
            next(batches)
        assert next(batches).tolist() == [8, 9, 10, 11]
        state = loader.state_dict()
        loader = DataLoader(Fails(), 4, **options)
        loader.load_state_dict(state)
        assert next(iter(loader)).tolist() == [12, 13, 14, 15]


def test_the_state_is_plain_and_can_be_saved(tmp_path):
    loader = LOADERS["foreign"]()
    batches = iter(loader)
    next(batches)
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    expected = [plain(batch) for batch in batches]
    loader.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert [plain(batch) for batch in loader] == expected


def test_states_that_do_not_fit():
    state = DataLoader(Numbers(), 4).state_dict()
    for loader, words in ((DataLoader(Numbers(), 5), "saved with batches of 4, and this DataLoader has 5"),
                          (DataLoader(Subset(Numbers(), range(9)), 4), "a dataset of length 23, and this .* has 9")):
        with pytest.raises(ValueError, match=words):
            loader.load_state_dict(state)
        assert loader.epoch == 0 and len(list(loader)) == len(loader)
    for wrong in ({"epoch": 1}, [1], {**state, "model": 3}):
        with pytest.raises(ValueError, match="this is not the state_dict of a DataLoader"):
            DataLoader(Numbers(), 4).load_state_dict(wrong)
    loader = DataLoader(Stream(), 4)
    next(iter(loader))
    with pytest.raises(ValueError, match="num_workers=0, and this DataLoader has 2"):
        DataLoader(Stream(), 4, num_workers=2).load_state_dict(loader.state_dict())
    with pytest.raises(NotImplementedError, match="in_order=True"):
        DataLoader(Numbers(), 4, num_workers=1, in_order=False).state_dict()


# --- epochs, ranks --------------------------------------------------


def test_epochs_are_counted():
    loader = DataLoader(Numbers(), 4)
    assert loader.epoch == 0
    for epoch in range(2):
        for _ in loader:
            assert loader.epoch == epoch
    assert loader.epoch == 2
    next(iter(loader))
    assert loader.epoch == 2
    next(iter(loader))
    assert loader.epoch == 3


def test_a_split_by_rank_is_distributed_samplers_with_its_epochs_set(monkeypatch):
    for shuffle in False, True:
        loaders = [DataLoader(Numbers(), 4, shuffle=shuffle, split_by_rank=(rank, 3)) for rank in range(3)]
        for epoch in range(2):
            for rank, loader in enumerate(loaders):
                sampler = DistributedSampler(Numbers(), 3, rank, shuffle)
                sampler.set_epoch(epoch)
                assert [i for batch in loader for i in batch.tolist()] == list(sampler)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(DataLoader(Numbers(), split_by_rank=True).sampler) == list(range(1, N, 3))


@pytest.mark.parametrize("options, words", [
    (dict(split_by_rank=(3, 3)), r"0 <= rank < ranks, and got \(3, 3\)"),
    (dict(split_by_rank=2), "pair .rank, ranks. .* got 2"),
    (dict(split_by_rank=True), "RANK and WORLD_SIZE from the environment, .* None and None"),
    (dict(split_by_rank=(0, 2), sampler=range(3)), "makes the sampler"),
    (dict(worker_type="fork"), "worker_type is 'thread', 'process' or None .* got 'fork'"),
    (dict(worker_type="thread", num_workers=1, multiprocessing_context="fork"), "say different things"),
    (dict(worker_type="process", num_workers=1, multiprocessing_context="thread"), "say different things"),
    (dict(randomness="batch"), "randomness is 'worker' .* got 'batch'"),
])
def test_refused(options, words, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match=words):
        DataLoader(Numbers(), **options)
    with pytest.raises(ValueError, match="an IterableDataset has no positions to split"):
        DataLoader(Stream(), split_by_rank=(0, 2))


# --- random numbers of samples --------------------------------------------------


def drawn(ways=WAYS, dataset=None, epochs=2, **options):
    """{(epoch, index): what the sample drew}"""
    loader = DataLoader(dataset or Drawn(*ways), generator=generator(), **options)
    found = {}
    for epoch in range(epochs):
        for batch in loader:
            columns = {name: plain(part) for name, part in batch.items()}
            for row, index in enumerate(columns["index"]):
                found[epoch, index] = {name: column[row] for name, column in columns.items()}
    return found


def test_a_sample_draws_the_same_whoever_makes_it_and_in_whatever_batch():
    seed_all(0)
    expected = drawn(batch_size=4, randomness="sample")
    for way in WAYS:
        assert len({str(each[way]) for each in expected.values()}) == 2 * N
    seed_all(8)
    for options in (dict(batch_size=7), dict(batch_size=5, shuffle=True),
                    dict(batch_size=4, num_workers=2, multiprocessing_context="fork"),
                    dict(batch_size=3, num_workers=3, multiprocessing_context="fork", persistent_workers=True)):
        assert drawn(**options, randomness="sample") == expected
    ours = {key: each["sample"] for key, each in expected.items()}
    for options in dict(batch_size=6), dict(batch_size=4, num_workers=2, worker_type="thread"):
        assert {key: each["sample"] for key, each in drawn(["sample"], **options).items()} == ours


def test_numbers_are_those_of_seed_epoch_and_index():
    loader = DataLoader(Drawn("sample"), 4)
    list(loader)
    seed = loader.state_dict()["seed"]
    for batch in loader:
        numbers = SampleRandom(sample_keys(seed, 1, batch["index"].tolist())).uniform()
        assert batch["sample"].tolist() == numbers[:, 0].tolist()


def test_a_thread_has_generators_of_its_own_seeded_for_each_sample():
    class Own(Numbers):
        def __getitem__(self, i):
            rng = get_worker_info().rng
            return {"index": i, "torch": torch.rand(2, generator=rng.torch_generator),
                    "python": rng.random_generator.random(), "numpy": rng.numpy_generator.random()}
    two = drawn(dataset=Own(), batch_size=4, num_workers=2, worker_type="thread", randomness="sample")
    assert two == drawn(dataset=Own(), batch_size=5, num_workers=1, worker_type="thread", randomness="sample")
    assert len({each["numpy"] for each in two.values()}) == 2 * N


def test_without_workers_the_programs_own_numbers_go_on():
    seed_all(2)
    expected = [(torch.rand(1).item(), random.random(), np.random.rand()) for _ in range(3)]
    loader = DataLoader(Drawn(*WAYS), 8, generator=generator(), randomness="sample")
    seed_all(2)
    found = [(torch.rand(1).item(), random.random(), np.random.rand()) for _ in loader]
    assert found == expected


def test_a_dataset_may_ask_for_it():
    dataset = Drawn("torch")
    dataset.randomness = "sample"
    assert DataLoader(dataset).randomness == "sample"
    assert DataLoader(dataset, randomness="worker").randomness == DataLoader(Numbers()).randomness == "worker"
    found = drawn(dataset=dataset, batch_size=4)
    assert found == drawn(dataset=dataset, batch_size=23, shuffle=True)


def test_wholes_and_parts_draw_alike():
    """`__getitems__` draws for all at once what `__getitem__` draws for each; a Subset goes by its positions."""
    class Whole(Drawn):
        def __getitems__(self, indices):
            numbers = sample_random(len(indices)).uniform()[:, 0].tolist()
            return [{"index": i, "sample": number} for i, number in zip(indices, numbers)]
    assert drawn(["sample"], Whole("sample"), batch_size=4) == drawn(["sample"], batch_size=6)
    part = Subset(Drawn("sample"), list(range(N - 1, -1, -1)))
    found = drawn(dataset=part, batch_size=4)
    expected = drawn(["sample"], batch_size=4)
    assert all(found[epoch, N - 1 - i]["sample"] == expected[epoch, i]["sample"] for epoch, i in expected)


def test_collating_goes_on_with_the_numbers():
    def collate(samples):
        return [sample["sample"] for sample in samples], sample_random(len(samples)).uniform()[:, 0].tolist()
    keys = {}
    for size in 4, 23:
        loader = DataLoader(Drawn("sample"), size, collate_fn=collate, generator=generator())
        flat = [pair for batch in loader for pair in zip(*batch)]
        keys[size] = flat
        assert all(first != second for first, second in flat)
    assert keys[4] == keys[23]


@pytest.mark.filterwarnings("ignore:the dataset keeps a generator")
def test_a_generator_in_a_dataset_is_reported():
    class Keeps(Numbers):
        def __init__(self):
            self.transforms = [None, {"noise": np.random.default_rng(0)}]
            self.rng, self.system = random.Random(3), random.SystemRandom()
            self.inner = TensorDataset(torch.arange(3))
            self.inner.generator, self.me = torch.Generator(), self
    assert sorted(path for path, _ in kept_generators.generators_in(Keeps())) == [
        ".inner.generator", ".rng", ".transforms[1]['noise']"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(Keeps(), 4))                          # as good as any there
    for options, words in ((dict(num_workers=1, worker_type="thread"), "which worker thread draws which number"),
                           (dict(randomness="sample"), "depends on how many were made before")):
        with pytest.warns(UserWarning, match=r"Keeps\.rng \(random\.Random\).*: .*" + words):
            list(DataLoader(Keeps(), 4, **options))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(DataLoader(Keeps(), 4, **options))           # once
        kept_generators._reported.clear()
        torch.watch.clear()


# --- datasets that give batches, waiting, errors --------------------------------------------------


def test_a_dataset_with_batches_is_asked_for_them():
    dataset = WholeBatches()
    loader = DataLoader(dataset, 5, shuffle="block", num_workers=3, drop_last=True, generator=generator())
    assert len(loader) == len(iter(loader)) == 4
    first, second = [plain(batch) for batch in loader], [plain(batch) for batch in loader]
    assert len(first) == 4 and first != second
    asked = dataset.asked[-1]
    assert asked == dict(shuffle="block", seed=loader.state_dict()["seed"], epoch=2, workers=3, start=0, rank=0,
                         ranks=1, drop_last=True)
    assert dataset.asked[-2]["epoch"] == 1 and dataset.asked[-2]["seed"] == asked["seed"]
    before = dataset.closed
    for _ in loader:
        break
    assert dataset.closed == before + 1
    ranks = [DataLoader(dataset, 5, split_by_rank=(rank, 3)) for rank in range(3)]
    assert sorted(i for loader in ranks for batch in loader for i in batch.tolist()) == list(range(N))
    assert [len(loader) for loader in ranks] == [2, 2, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_query_is_read_by_a_loader_and_resumed_with_any_number_of_workers(workers, tmp_path):
    path = str(tmp_path / "table.db")
    with contextlib.closing(sqlite3.connect(path)) as table, table:
        table.execute("create table t (id integer primary key, x real)")
        table.executemany("insert into t values (?, ?)", [(3 * i, i / 2) for i in range(1500)])

    def loader(workers):
        rows = torch.data.sql("select id, x from t", path, key="id")
        return DataLoader(rows, 100, shuffle=True, num_workers=workers, generator=generator())
    whole = loader(0)
    epochs = [[plain(batch) for batch in whole] for _ in range(2)]
    assert len(whole) == len(epochs[0]) == 15 and epochs[0] != epochs[1]
    begun = loader(workers)
    list(begun)
    batches = iter(begun)
    assert [plain(next(batches)) for _ in range(4)] == epochs[1][:4]
    other = loader(2 - workers)
    other.load_state_dict(begun.state_dict())
    assert [plain(batch) for batch in other] == epochs[1][4:]


def test_a_prefetcher_has_given_what_it_gave_out():
    class Ahead(DevicePrefetcher):
        """As on a device that copies ahead."""

        def _moved(self, batch):
            return batch
    loader = DataLoader(Numbers(), 4, shuffle=True, generator=generator())
    batches = Ahead(loader, "cpu", depth=2)
    batches.device = types.SimpleNamespace(backend=types.SimpleNamespace(copies_ahead=True))
    whole = [plain(batch) for batch in DataLoader(Numbers(), 4, shuffle=True, generator=generator())]
    assert batches.state_dict()["batch"] == 0
    given = iter(batches)
    assert [plain(next(given)) for _ in range(2)] == whole[:2] and batches.state_dict()["batch"] == 2
    again = DataLoader(Numbers(), 4, shuffle=True, generator=generator())
    again.load_state_dict(batches.state_dict())
    assert [plain(batch) for batch in again] == whole[2:] == [plain(batch) for batch in given]
    assert batches.state_dict()["epoch"] == 1


def test_a_collate_function_or_a_sampler_takes_positions():
    class Both(WholeBatches):
        def __getitem__(self, i):
            return i
    assert list(DataLoader(Both(), 2, sampler=[3, 4, 5]))[0].tolist() == [3, 4]
    assert list(DataLoader(Both(), 20, collate_fn=sum)) == [190, 63]


def test_waiting_is_measured():
    class Slow(Numbers):
        def __getitem__(self, i):
            time.sleep(0.002)
            return i
    loader = DataLoader(Slow(), 4)
    assert loader.waiting.share == 0.0
    for _ in loader:
        pass
    assert loader.waiting.share > 0.8 and loader.waiting.last > 0.5 and loader.waiting.steps == 6
    loader = DataLoader(TensorDataset(torch.arange(N)), 4)
    list(loader)                                              # whatever has to be loaded first
    for _ in loader:
        time.sleep(0.05)
    assert loader.waiting.share < 0.5 and loader.waiting.last < 0.5
    seconds = loader.waiting.seconds
    time.sleep(0.02)
    assert loader.waiting.seconds == seconds and f"{loader.waiting}".startswith("Waiting(share=0.")


@pytest.mark.parametrize("options", [{}, dict(num_workers=1, worker_type="thread")])
@pytest.mark.parametrize("sample, words", [
    (lambda i: torch.zeros(3, 4 if i == 6 else 5), r"sample 6 \(position 2 of the batch\) has a tensor torch.float32 "
     r"\[3, 4\], where sample 4 has a tensor torch.float32 \[3, 5\]"),
    (lambda i: torch.zeros(4 if i == 4 else 5), r"sample 4 \(position 0 of the batch\) has .* \[4\], where sample 5"),
    (lambda i: {"x": 1.0, "y": (1, "a" if i == 5 else np.zeros(2))}, r"sample 5 .* has a str at \['y'\]\[1\], where "
     r"sample 4 has an array float64 \[2\]"),
    (lambda i: {"x": 1} if i == 7 else {"x": 1, "y": 2}, r"sample 7 .* has a dict with the keys 'x', where sample 4 "
     "has a dict with the keys 'x', 'y'"),
    (lambda i: [1] * (2 if i == 5 else 3), "sample 5 .* has a list of 2, where sample 4 has a list of 3"),
    (lambda i: None if i == 5 else 1.0, r"sample 5 .* has None, where sample 4 has a number \(float\)"),
    (lambda i: object() if i > 3 else 1, "while the samples 4, 5, 6, 7 were put together"),
])
def test_what_cannot_be_put_together_says_which_sample_and_what(sample, words, options):
    class Samples(Numbers):
        def __getitem__(self, i):
            return sample(i)
    batches = iter(DataLoader(Samples(), 4, **options))
    next(batches)
    with pytest.raises((RuntimeError, TypeError, ValueError, KeyError)) as error:
        next(batches)
    assert re.search(words, "\n".join([str(error.value), *getattr(error.value, "__notes__", [])]))


def test_a_bar_has_a_length():
    """What tqdm does: asks for the length, and iterates."""
    tqdm = pytest.importorskip("tqdm")
    loader = DataLoader(Numbers(), 4)
    bar = tqdm.tqdm(loader, file=io.StringIO())
    assert bar.total == 6 and sum(len(batch) for batch in bar) == N and bar.n == 6


def test_a_state_of_another_order_is_refused(tmp_path):
    """A dataset that gives its own batches says by which rule; another rule would give other batches in silence."""
    import sqlite3

    from flambeau.data import sql
    path = str(tmp_path / "numbers.db")
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY, x REAL)")
        con.executemany("INSERT INTO numbers VALUES (?, ?)", [(i, float(i)) for i in range(50)])
    data = sql("SELECT id, x FROM numbers", path, key="id", features=["x"])
    loader = DataLoader(data, batch_size=4, shuffle=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    again = DataLoader(data, batch_size=4, shuffle=True)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == rest
    for other in (state["order"] - 1, None):
        with pytest.raises(ValueError, match="computed by rule"):
            again.load_state_dict({**state, "order": other})
    begun = data.batches(4, "block", seed=0, epoch=0)
    next(begun)
    state = begun.state_dict()
    begun.close()
    with pytest.raises(ValueError, match="computed by rule"):
        data.resume({**state, "order": state["order"] - 1})
    with pytest.raises(ValueError, match="order"):
        data.resume({name: held for name, held in state.items() if name != "order"})
