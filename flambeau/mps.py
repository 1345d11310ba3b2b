"""Apple's GPU, answered honestly: there is none here yet."""
from .base.questions import Question as _Question

__path__: list = []           # what PyTorch has below it can be imported, and is missing


@_Question
def is_available():
    """Whether the Metal device can be used."""
    return False


def device_count():
    """How many Metal devices there are."""
    return 0


def manual_seed(seed):
    """Seed the generator of the Metal device; there is none, so nothing happens, as in PyTorch without one."""


def seed():
    """Seed the generator of the Metal device at random; there is none."""


def _refuse(what):
    def call(*args, **kwargs):
        raise RuntimeError(f"torch.mps.{what}() needs the Metal device, and this Flambeau has none; use the CPU")
    call.__name__ = what
    call.__doc__ = f"`torch.mps.{what}`; refused, since there is no Metal device."
    return call


_NEEDS_METAL = ("synchronize", "empty_cache", "current_allocated_memory", "driver_allocated_memory", "Event",
                "recommended_max_memory", "get_rng_state", "set_rng_state", "set_per_process_memory_fraction",
                "compile_shader")
globals().update({name: _refuse(name) for name in _NEEDS_METAL})
__all__ = ["device_count", "is_available", "manual_seed", "seed", *_NEEDS_METAL]


def __getattr__(name):
    raise AttributeError(f"torch.mps.{name} is not part of Flambeau yet")
