"""The streams that are drawn from where no generator is named: the CPU's, and those of devices."""
from ....base.locks import new_lock
from ....base.spec import CPU
from .draws import MersenneTwister
from .random_stream import DEFAULT_SEED

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
