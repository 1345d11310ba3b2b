"""How losses are reduced: PyTorch's names for it, and what its two old flags meant."""
from ..base.errors import warn

_ENUM = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction):
    """The number that PyTorch's C++ side knows `reduction` by."""
    if reduction not in _ENUM:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _ENUM[reduction]


def legacy_get_string(size_average, reduce, emit_warning=True):
    """The reduction that the flags `size_average` and `reduce` ask for."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    made = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warn(f"size_average and reduce args will be deprecated, please use reduction='{made}' instead.")
    return made


def legacy_get_enum(size_average, reduce, emit_warning=True):
    """`legacy_get_string` as a number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
