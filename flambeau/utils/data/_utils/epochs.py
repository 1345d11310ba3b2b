"""What a loader knows of an epoch: its number, how far it has come, and how to come there again in another run.

The order of an epoch follows from the generators as they were when it began. So its state is how many batches were
given, and those generators; to resume, the order is drawn again and the first entries are passed over. The samples of a
map dataset are not made again for it. A stream is: each worker goes through its part again, unless the dataset has a
state of its own (`state_dict` and `load_state_dict`, of it or of its iterator).
"""
from contextlib import nullcontext

from ....base.public_names import home
from ....tensor.generators import Generator
from ..dataset import IterableDataset
from ..sampler import Sampler
from . import global_generators

STATE_KEYS = {"epoch", "batch", "seed", "base_seed", "drew_base_seed", "batch_size", "length", "num_workers", "workers",
              "turn", "generators", "order"}


class Epoch:
    """One epoch: `number`, the `seed` of its samples' random numbers, and how many batches were `given`."""

    def __init__(self, number, seed):
        self.number, self.seed = number, seed
        self.given = 0                        # batches, those of the runs before this one with it
        self.finished = False
        self.generators = None                # as they were when it began
        self.workers = []                     # of a stream, a WorkerProgress for each worker (one, without workers)
        self.turn = 0                         # of a stream, which worker's batch is next
        self.base_seed = None                 # what its workers were seeded from
        self.drew_base_seed = False           # and whether that was drawn when it began
        self.resumed = False

    def replaying(self, loader):
        """While the order of the epoch is drawn: generators are as they were when it began."""
        if not self.resumed or self.generators is None:
            return nullcontext()
        return global_generators.as_they_were(self.generators, generators_of(loader))


class WorkerProgress:
    """How far the stream of one worker has come: batches, samples, and the dataset's own word for it, if it has one."""

    def __init__(self, batches=0, samples=0, state=None):
        self.batches, self.samples, self.state = batches, samples, state

    def as_dict(self):
        return {"batches": self.batches, "samples": self.samples, "state": self.state}


def samplers_of(loader):
    batches = loader.batch_sampler
    return {"sampler": loader.sampler, "batch_sampler": batches,
            "batch_sampler.sampler": getattr(batches, "sampler", None)}


def generators_of(loader):
    """{name: Generator} of those that a loader and its samplers hold."""
    found, seen = {}, set()
    for name, holder in {"loader": loader, **samplers_of(loader)}.items():
        generator = getattr(holder, "generator", None)
        if isinstance(generator, Generator) and id(generator) not in seen:
            seen.add(id(generator))
            found[name] = generator
    return found


def states_now(loader):
    """The generators that the order of an epoch which began now would follow from."""
    return global_generators.states(generators_of(loader), with_python=not drawn_by_us(loader))


def drawn_by_us(loader):
    """Whether the order comes from samplers of this package, which draw from torch's generators alone."""
    ours = home(Sampler).rpartition(".")[0] + "."
    return not isinstance(loader.dataset, IterableDataset) \
        and all(one is None or home(type(one)).startswith(ours) for one in samplers_of(loader).values())


# --- the state of a loader --------------------------------------------------


def state_of(loader, epoch, length):
    """The state of `loader`, whose dataset has `length` samples, in `epoch`; of a stream, with how far workers are."""
    state = {"epoch": epoch.number, "batch": epoch.given, "seed": epoch.seed, "base_seed": epoch.base_seed,
             "drew_base_seed": epoch.drew_base_seed, "batch_size": batch_size_of(loader), "length": length,
             "generators": epoch.generators}
    if (order := order_version_of(loader)) is not None:
        state["order"] = order
    if epoch.workers and epoch.given:
        state.update(num_workers=loader.num_workers, turn=epoch.turn,
                     workers=[progress.as_dict() for progress in epoch.workers])
    return state


def order_version_of(loader):
    """By which rule a dataset that gives its own batches orders them; None where the loader does."""
    return getattr(loader.dataset, "order_version", None)


def refuse_other_order(saved, own):
    """Refuse a state that was `saved` where another rule ordered the batches than the dataset's own."""
    if saved != own:
        raise ValueError(f"the state is of an epoch whose order was computed by rule {saved!r}, and this dataset has "
                         f"rule {own!r}: the batches left would be others. Finish the epoch with the version of "
                         "Flambeau that began it, or begin a new one")


def batch_size_of(loader):
    return getattr(loader.batch_sampler, "batch_size", None) if loader.batch_size is None else loader.batch_size


def epoch_from(state, loader, length):
    """The epoch that `state` says, to be resumed by `loader`, whose dataset has `length` samples; ValueError if it is
    the state of another loader."""
    if not isinstance(state, dict) or not {"epoch", "batch", "seed"} <= state.keys() <= STATE_KEYS:
        told = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"this is not the state_dict of a DataLoader: {told}")
    for name, own in (("batch_size", batch_size_of(loader)), ("length", length)):
        if state.get(name, own) != own:
            what = "batches of" if name == "batch_size" else "a dataset of length"
            raise ValueError(f"the state was saved with {what} {state[name]}, and this DataLoader has {own}: it would "
                             "give other batches")
    refuse_other_order(state.get("order"), order_version_of(loader))
    epoch = Epoch(state["epoch"], state["seed"])
    epoch.given, epoch.generators, epoch.resumed = state["batch"], state.get("generators"), True
    epoch.base_seed, epoch.drew_base_seed = state.get("base_seed"), state.get("drew_base_seed", False)
    if "workers" in state:
        if state["num_workers"] != loader.num_workers:
            raise ValueError(f"the state was saved with num_workers={state['num_workers']}, and this DataLoader "
                             f"has {loader.num_workers}: a stream is dealt out to workers, so that it can only be "
                             "resumed with as many")
        epoch.workers = [WorkerProgress(**progress) for progress in state["workers"]]
        epoch.turn = state["turn"]
    return epoch
