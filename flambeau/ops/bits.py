"""The bits of integers, and common divisors, element by element."""
from ..base.bounds import joined_bits, shared_bits
from ..base.op import Pointwise


class gcd(Pointwise):
    """The greatest common divisor of `input` and `other`, elementwise."""

    numbers = ""
    refuses = "bool float complex"

    def ref(xp, input, other): return xp.gcd(input, other)


class lcm(Pointwise):
    """The least common multiple of `input` and `other`, elementwise."""

    numbers = ""
    refuses = "bool float complex"

    def ref(xp, input, other): return xp.lcm(input, other)


class bitwise_not(Pointwise):
    """The bits of `input` inverted; of a bool its negation."""

    refuses = "float complex"
    strict_out = True

    def ref(xp, input): return xp.invert(input)
    def body(k, input): return ~input


class bitwise_and(Pointwise):
    """The bits that `input` and `other` share."""

    refuses = "float complex"

    def ref(xp, input, other): return xp.bitwise_and(input, other)

    def bounds(input, other): return shared_bits(input, other)

    def body(k, input, other): return input & other


class bitwise_or(Pointwise):
    """The bits that `input` or `other` has."""

    refuses = "float complex"

    def ref(xp, input, other): return xp.bitwise_or(input, other)
    def bounds(input, other): return joined_bits(input, other)
    def body(k, input, other): return input | other


class bitwise_xor(Pointwise):
    """The bits in which `input` and `other` differ."""

    refuses = "float complex"

    def ref(xp, input, other): return xp.bitwise_xor(input, other)
    def bounds(input, other): return joined_bits(input, other)
    def body(k, input, other): return input ^ other


class bitwise_left_shift(Pointwise):
    """`input` with its bits moved up by `other`: 0 where that is negative or as wide as the number."""

    refuses = "bool float complex"
    cname = "lshift"

    def ref(xp, input, other):
        width = 8 * xp.result_type(input, other).itemsize
        out = (other < 0) | (other >= width)
        return xp.where(out, 0, xp.left_shift(input, xp.where(out, 0, other)))

    def body(k, input, other):
        out = (other < 0) | (other >= 8 * input.dtype.itemsize)
        return k.where(out, 0, input << k.where(out, 0, other))


class bitwise_right_shift(Pointwise):
    """`input` with its bits moved down by `other`, the sign drawn in; all of them where that is negative or too far."""

    refuses = "bool float complex"
    cname = "rshift"

    def ref(xp, input, other):
        dtype = xp.result_type(input, other)
        last = 8 * dtype.itemsize - (dtype.kind == "i")
        far = (other < 0) | (other >= last)
        shifted = xp.right_shift(input, xp.where(far, 0, other))
        return xp.where(far, xp.where(input < 0, -1, 0) if dtype.kind == "i" else 0, shifted)

    def body(k, input, other):
        last = 8 * input.dtype.itemsize - 1                         # by so many, nothing but signs is left
        far = (other < 0) | (other > last)
        shifted = input >> k.where(far, last, other)
        return shifted if input.dtype.is_signed else k.where(far, 0, shifted)
