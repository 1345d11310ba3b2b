"""Apple's GPU, answered honestly: there is none here yet."""


def is_available():
    """Whether the Metal device can be used."""
    return False


def device_count():
    """How many Metal devices there are."""
    return 0


def __getattr__(name):
    if name in ("synchronize", "manual_seed", "empty_cache", "current_allocated_memory", "driver_allocated_memory"):
        raise RuntimeError(f"torch.mps.{name}() needs the Metal device, and this Flambeau has none; use the CPU")
    raise AttributeError(f"torch.mps.{name} is not part of Flambeau yet")
