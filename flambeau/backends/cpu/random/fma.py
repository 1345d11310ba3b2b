"""`a * b + c` rounded once, as a processor's fma does it, in NumPy, which has none."""
import math

import numpy as np

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
MIDDLE = -2**63
SPLIT = 2.0**27 + 1                     # times this, and back: the upper half of a float64's digits (Veltkamp)


def multiply_add(values, scale, low):
    """`values * scale + low`, of an array and two numbers."""
    real = values.dtype.type
    fraction, exponent = math.frexp(scale)
    if low == 0 or abs(fraction) == 0.5:    # nothing to round in one of the two steps
        return values * real(scale) + real(low)
    if real is np.float32:
        return multiply_add32(values, scale, low, normal=exponent > -64)
    if exponent > 1000:                     # the parts of such a number may be too large to be numbers themselves
        return multiply_add(values, scale / 16, low / 16) * 16
    # The product as an unrounded pair, from halves of the digits; then Boldo and Melquiond's sum.
    scale_high = math.ldexp(round(fraction * 2**26), exponent - 26)
    scale_low = scale - scale_high
    high = values * SPLIT
    high -= high - values
    rest = values - high
    product = values * scale
    rest = high * scale_high - product + high * scale_low + rest * scale_high + rest * scale_low
    small, lost = two_sum(rest, low)
    large, lost_again = two_sum(product, small)
    return large + sum_to_odd(lost_again, lost)


def multiply_add32(a, b, c, normal=True):
    """`a * b + c` of float32, arrays or numbers; `normal`: no result lies between zero and the least normal number."""
    total = np.multiply(a, b, dtype=FLOAT64)                # exact
    if not normal:
        return sum_to_odd(total, np.asarray(c, FLOAT64)).astype(FLOAT32)
    total += c
    # Rounding the sum again goes wrong only where it has become the middle between two float32.
    beyond = total.view(np.int64) << 35                     # the 29 digits that float32 has no room for
    if total.size and beyond.min() == MIDDLE:
        middle = np.nonzero(beyond == MIDDLE)
        a, b, c = (np.broadcast_to(one, total.shape)[middle].astype(FLOAT64) for one in (a, b, c))
        total[middle] = sum_to_odd(a * b, c)
    return total.astype(FLOAT32)


def two_sum(a, b):
    """The rounded sum and what the rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def sum_to_odd(a, b):
    """`a + b` in float64 with an inexact result made odd, so that rounding it again cannot go wrong."""
    total, lost = two_sum(a, b)
    bits = total.view(np.int64)
    even = (lost != 0) & (bits & 1 == 0)
    bits += even * np.where((lost > 0) == (total > 0), 1, -1)
    return total
