"""Switches of PyTorch's own that programs set: they are kept and answered. What each means here stands with it."""
from ..backends import library_switches
from ..base import settings
from ..base.errors import warn
from ..base.questions import Question as _Question

__all__ = ["are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi", "get_deterministic_debug_mode",
           "get_float32_matmul_precision", "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled",
           "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal", "set_warn_always",
           "use_deterministic_algorithms"]

_warn_only, _warn_always, _precision = False, False, "highest"


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Ask for results that are the same every time. They are so here anyway: no operation depends on timing, on the
    number of threads, or on what it is computed together with. Where memory runs short, though, an operation that the
    reference executor has room for and native code has not runs there, with other last digits; with this it raises."""
    global _warn_only
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms(): argument 'mode' must be bool, not {type(mode).__name__}")
    settings.deterministic, _warn_only = mode, bool(warn_only)


@_Question
def are_deterministic_algorithms_enabled():
    """Whether `use_deterministic_algorithms` was asked for."""
    return settings.deterministic


def is_deterministic_algorithms_warn_only_enabled():
    """Whether it was asked for with `warn_only`."""
    return _warn_only


_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode):
    """`use_deterministic_algorithms` by number or name: 0 "default", 1 "warn", 2 "error"."""
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, got "
                               f"{debug_mode}")
        debug_mode = _MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode():
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return 0 if not settings.deterministic else 1 if _warn_only else 2


def set_float32_matmul_precision(precision):
    """Say how exact products of float32 matrices must be: "highest", "high" or "medium".

    On CUDA, the last two are TF32, as `torch.backends.cuda.matmul.allow_tf32` is; on the CPU they are always exact.
    """
    global _precision
    if precision not in ("highest", "high", "medium"):
        warn(f"{precision} is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call "
             "has no effect.")
        return
    _precision = precision
    library_switches.cuda.matmul.allow_tf32 = precision != "highest"


def get_float32_matmul_precision():
    """How exact products of float32 matrices must be: what was asked for last, by whatever name."""
    global _precision
    tf32 = library_switches.cuda.matmul.allow_tf32
    if tf32 is not (_precision != "highest"):
        _precision = "high" if tf32 else "highest"
    return _precision


def set_warn_always(b):
    """Whether a warning that is meant to be seen once is said every time. Warnings here go by Python's filters."""
    global _warn_always
    _warn_always = bool(b)


def is_warn_always_enabled():
    """What `set_warn_always` was asked for."""
    return _warn_always


def set_flush_denormal(mode):
    """Ask that denormal numbers become zero; False, since they never do here."""
    return False


def compiled_with_cxx11_abi():
    """Whether PyTorch was compiled with the C++11 ABI; nothing was compiled here, so extensions have nothing to fit."""
    return True


def set_vital(vital, attr, value):
    """Note a word about the program for a log of PyTorch's; False, since there is none. torchdata."""
    return False
