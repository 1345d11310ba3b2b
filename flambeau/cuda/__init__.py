"""CUDA, answered honestly: there is none here yet. Questions get an answer, requests a refusal that says what to do."""


def is_available():
    """Whether a CUDA device can be used."""
    return False


def device_count():
    """How many CUDA devices there are."""
    return 0


def is_initialized():
    """Whether CUDA has been started."""
    return False


def is_bf16_supported(including_emulation=True):
    """Whether the current device computes in bfloat16."""
    return False


def manual_seed(seed):
    """Seed the generators of CUDA devices; there are none, so nothing happens, as in PyTorch without a GPU."""


def manual_seed_all(seed):
    """Seed the generators of all CUDA devices; there are none."""


def empty_cache():
    """Give cached device memory back; there is none."""


def _refuse(what):
    def call(*args, **kwargs):
        raise AssertionError(f"Torch not compiled with CUDA enabled: torch.cuda.{what}() needs a CUDA device, and this "
                             "Flambeau has none. Ask torch.cuda.is_available() first, or use the CPU.")
    call.__name__ = what
    call.__doc__ = f"`torch.cuda.{what}`; refused, since there is no CUDA device."
    return call


def __getattr__(name):
    if name in ("current_device", "synchronize", "set_device", "get_device_name", "get_device_properties",
                "get_device_capability", "memory_allocated", "max_memory_allocated", "memory_reserved",
                "reset_peak_memory_stats", "memory_summary", "current_stream", "Stream", "Event", "stream", "device"):
        return _refuse(name)
    raise AttributeError(f"torch.cuda.{name} is not part of Flambeau yet")
