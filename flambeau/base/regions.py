"""Regions of numbers, by name: whether each element, or each vector, of an array or a tensor lies inside.

The constraints of distributions are checked by these. A region is its name and its bounds, so that a check of data can
be repeated without calling anything of the user's.
"""


def _whole(value):
    return getattr(value.dtype, "kind", "") in ("i", "u", "b") or value % 1 == 0     # arrays of whole numbers are known


# name → (how many bounds it has, function of a value and these)
REGIONS = {
    "true": (0, lambda value: value),
    "real": (0, lambda value: value == value),                     # false for nan alone
    "boolean": (0, lambda value: (value == 0) | (value == 1)),
    "greater_than": (1, lambda value, low: low < value),
    "greater_than_eq": (1, lambda value, low: low <= value),
    "less_than": (1, lambda value, high: value < high),
    "interval": (2, lambda value, low, high: (low <= value) & (value <= high)),
    "half_open_interval": (2, lambda value, low, high: (low <= value) & (value < high)),
    "integer_interval": (2, lambda value, low, high: _whole(value) & (low <= value) & (value <= high)),
    "integer_less_than": (1, lambda value, high: _whole(value) & (value <= high)),
    "integer_greater_than": (1, lambda value, low: _whole(value) & (value >= low)),
    "simplex": (0, lambda value: (value >= 0).all(-1) & (abs(value.sum(-1) - 1) < 1e-6)),
    "one_hot": (0, lambda value: ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)),
    "multinomial": (1, lambda value, most: (value >= 0).all(-1) & (value.sum(-1) <= most)),
}


# those that no rounding has a say in: they are asked of arrays or in a native kernel, and the answer is the same
EXACT = REGIONS.keys() - {"simplex", "multinomial"}


def inside(region, value, bounds):
    """Whether each event of `value` lies in the region of that name."""
    return REGIONS[region][1](value, *bounds)
