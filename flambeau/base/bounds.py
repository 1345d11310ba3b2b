"""Bounds of whole numbers: the least and the largest that the elements of a tensor can be.

An operation says under `bounds` (op.py) what its results can be, as pairs (least, largest), in Python's numbers, which
do not overflow. Here are the words for that, and what stands in a check for data that need not be looked at. See Note
[Known bounds] in trace/bounds.py.
"""
FEW_ELEMENTS = 32             # Python is done with them before NumPy has begun


class NotKnown(Exception):
    """Bounds do not do: the data has to say."""


class Bounds:
    """All that is known of a tensor of whole numbers, in the place of its array where a check is made without a look.
    The rest of an array is not here."""

    __slots__ = ("low", "high", "shape", "size", "dtype")

    def __init__(self, low, high, shape, size, dtype):
        self.low, self.high, self.shape, self.size, self.dtype = low, high, shape, size, dtype


def outside(values, low, high):
    """The first of `values` that does not lie from `low` to `high`; None where all do. Of Bounds that is all there is:
    that one of them may lie outside raises NotKnown."""
    if not values.size:
        return None
    if values.__class__ is Bounds:
        if low <= values.low and values.high <= high:
            return None
        raise NotKnown
    if values.size <= FEW_ELEMENTS:
        found = values.reshape(-1).tolist()
        inside = low <= min(found) and max(found) <= high
    elif low or high < 0 or values.dtype.kind != "i":
        inside = low <= values.min() and values.max() <= high
    else:                                                 # in one pass: without a sign, less than 0 is more than all
        inside = values.view(f"u{values.itemsize}").max() <= high
    return None if inside else values[(values < low) | (values > high)][0]


def among(number, values):
    """Whether `number` is one of `values`, an array or a number. Of Bounds: that it may be raises NotKnown."""
    if values.__class__ is not Bounds:
        found = values == number
        return found if found.__class__ is bool else bool(found.any())
    if values.size and values.low <= number <= values.high:
        raise NotKnown
    return False


# --- pairs, of which None is one that nothing is known of -------------------------------------------------------------


def positions(spec, dim=None):
    """Of the positions along `dim` of a tensor of `spec`; without one, of those counted through all of it."""
    size = spec.numel if dim is None else spec.shape[dim] if spec.ndim else 1
    return 0, max(size - 1, 0)


def hull(*pairs):
    """Of numbers that are each of one of `pairs`."""
    if None in pairs:
        return None
    return min([low for low, _ in pairs]), max([high for _, high in pairs])


def added(one, other):
    """Of sums."""
    return None if one is None or other is None else (one[0] + other[0], one[1] + other[1])


def scaled(pair, factor):
    """Of the products with a whole number."""
    if pair is None or factor.__class__ not in (int, bool):
        return None
    return tuple(sorted((pair[0] * factor, pair[1] * factor)))


def multiplied(one, other):
    """Of products."""
    if one is None or other is None:
        return None
    corners = [a * b for a in one for b in other]
    return min(corners), max(corners)


def summed(pair, least, most):
    """Of sums of `least` to `most` numbers that are each of `pair`."""
    return None if pair is None else hull(scaled(pair, least), scaled(pair, most))


def number(value):
    """Of a number that is given."""
    return (int(value), int(value)) if value.__class__ in (int, bool) else None


def highest(one, other):
    """Of the larger ones of two."""
    return None if one is None or other is None else (max(one[0], other[0]), max(one[1], other[1]))


def lowest(one, other):
    """Of the smaller ones of two."""
    return None if one is None or other is None else (min(one[0], other[0]), min(one[1], other[1]))


def shared_bits(one, other):
    """Of the bits that two numbers share: no more than either has, if it is not negative."""
    tops = [pair[1] for pair in (one, other) if pair is not None and pair[0] >= 0]
    return (0, min(tops)) if tops else None


def joined_bits(one, other):
    """Of bits that either of two numbers has, or one alone."""
    return None if one is None or other is None or min(one[0], other[0]) < 0 \
        else (0, (1 << max(one[1], other[1]).bit_length()) - 1)


def divided(one, other, part):
    """Of quotients and remainders by what is not 0: "floor", "trunc", "remainder" (has the sign of the divisor), "fmod"
    (that of the dividend)."""
    if one is None or other is None:
        return None
    (low, high), (least, most) = one, other
    if part == "remainder":
        return min(least + 1, 0), min(max(most - 1, 0), high) if low >= 0 and least > 0 else max(most - 1, 0)
    if part == "fmod":
        farthest = max(abs(least), abs(most)) - 1
        return max(min(low, 0), -farthest), min(max(high, 0), farthest)
    if least <= 0:
        return None
    corners = [a // b if part == "floor" or a >= 0 else -(-a // b) for a in one for b in other]
    return min(corners), max(corners)
