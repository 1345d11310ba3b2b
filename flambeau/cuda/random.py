"""`torch.cuda.random`: the generators of CUDA devices, one for each.

Seeds are kept for devices that have not been used yet, so that seeding starts nothing.
"""
from ..backends.cpu.random import default_streams as streams
from ..backends.cuda import driver
from ..base.spec import as_device
from ..tensor.generators import Generator
from ._utils import there

__all__ = ["get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
           "set_rng_state", "set_rng_state_all"]


def _generator(device=None):
    """The generator that tensors on a device are drawn from."""
    _, index = there(device, "Invalid device argument", RuntimeError)
    return Generator.over(streams.stream_of(as_device(f"cuda:{index}")))


def generators():
    """The generators of all devices, in order: `torch.cuda.default_generators`."""
    if not driver.is_made():
        return ()
    return tuple(_generator(index) for index in range(driver.current().device_count()))


def manual_seed(seed):
    """Start the generator of the current device over from `seed`; before the first use of a device, those of all."""
    if driver.is_made():
        _generator().manual_seed(int(seed))
    else:
        streams.seed_devices(int(seed))


def manual_seed_all(seed):
    """Start the generators of all devices over from `seed`."""
    streams.seed_devices(int(seed))


def seed():
    """Start the generator of the current device over from a seed that the operating system picks."""
    if driver.is_made():
        _generator().seed()


def seed_all():
    """Start the generators of all devices over from one seed that the operating system picks."""
    if driver.is_made():
        streams.seed_devices(_generator(0).seed())


def initial_seed():
    """The seed that the generator of the current device started from."""
    return _generator().initial_seed()


def get_rng_state(device="cuda"):
    """The state of a device's generator, a tensor of bytes on the CPU."""
    return _generator(device).get_state()


def get_rng_state_all():
    """The states of the generators of all devices; none before CUDA is started where there is none."""
    return [one.get_state() for one in generators()]


def set_rng_state(new_state, device="cuda"):
    """Continue a device's generator from a state that `get_rng_state` gave, here or in PyTorch."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states):
    """Continue the generators of all devices from their states, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
