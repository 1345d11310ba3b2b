"""Activation functions: `nn.functional`'s non-linearities, element by element.

Each primitive has its closed-form derivative; the public function in front of it takes PyTorch's `inplace` flag.
"""
import math

from ..base import shapes, special_functions
from ..base.errors import need
from ..base.op import Composite, Op, Pointwise, door
from ..base.shapes import wrap_dim
from ..base.spec import spec
from ..base.special_functions import SQRT_HALF
from .pieces import cat

SQRT_TAU = math.sqrt(2 * math.pi)
GELU_INNER, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def run(op, inplace, input, *args):
    """The operation, written into `input` where `inplace` asks for it."""
    return door.inplace(op, (input, *args), {}) if inplace else op(input, *args)


def number(xp, value, like):
    """A number in the dtype of an array, so that integer arrays stay integer."""
    return xp.asarray(value).astype(like.dtype)


class Activation(Pointwise):
    """A primitive of one operand; its other arguments are numbers that take no part in promotion."""

    forms = "function inplace out"
    operands = "input"
    refuses = "bool int complex"


# --- exponential ------------------------------------------------------------------------------------------------------


class _elu(Activation):
    """`scale` times: `input` where positive, else `alpha (exp(input * input_scale) - 1)`."""

    node = "EluBackward0"
    must_fit = {"alpha": "compute", "scale": "compute", "input_scale": "compute"}

    def ref(xp, input, alpha, scale, input_scale):
        low = alpha * scale * xp.expm1(xp.minimum(input, 0) * input_scale)
        return xp.where(input < 0, low, input * scale).astype(input.dtype)

    def d_input(g, input, alpha, scale, input_scale):
        low = g * (input.clamp(max=0) * input_scale).exp() * (alpha * scale * input_scale)
        return (g * scale).where(input > 0, low)

    def body(k, input, alpha, scale, input_scale):
        low = alpha * scale * k.expm1(k.minimum(input, 0) * input_scale)
        return k.where(input < 0, low, input * scale)


class _elu_front(Composite):
    """`input` where it is positive, else `alpha (exp(input) - 1)`."""

    names = "nn.functional.elu"
    forms = "function inplace"

    def of(input, alpha=1.0, inplace=False): return run(_elu, inplace, input, alpha, 1, 1)


class _selu_front(Composite):
    """The self-normalising exponential unit."""

    names = "nn.functional.selu selu"
    forms = "function inplace"

    def of(input, inplace=False): return run(_elu, inplace, input, SELU_ALPHA, SELU_SCALE, 1)


class _celu(Activation):
    """`input` where it is positive, else `alpha (exp(input / alpha) - 1)`."""

    node = "CeluBackward0"
    must_fit = {"alpha": "compute"}

    def ref(xp, input, alpha):    return _elu.ref(xp, input, alpha, 1, 1 / alpha)
    def d_input(g, input, alpha): return _elu.d_input(g, input, alpha, 1, 1 / alpha)
    def body(k, input, alpha):    return _elu.body(k, input, alpha, 1, 1 / alpha)


class _celu_front(Composite):
    """`input` where it is positive, else `alpha (exp(input / alpha) - 1)`."""

    names = "nn.functional.celu celu"
    forms = "function inplace"

    def of(input, alpha=1.0, inplace=False):
        need(alpha != 0, "ZeroDivisionError: alpha cannot be 0 for CELU")
        return run(_celu, inplace, input, alpha)


def softplus_body(k, x):
    """log(1 + exp(x)) in expressions, without overflow."""
    return k.maximum(x, 0) + k.log1p(k.exp(-k.abs(x)))


class _softplus(Activation):
    """`log(1 + exp(beta input)) / beta`, linear above `threshold`."""

    node = "SoftplusBackward0"
    names = "nn.functional.softplus"
    must_fit = {"beta": "compute", "threshold": "compute"}
    forms = "function out"
    strict_out = True

    def ref(xp, input, beta=1, threshold=20):
        x = input * beta
        return xp.where(x > threshold, input, xp.logaddexp(x, 0) / beta).astype(input.dtype)

    def d_input(g, input, beta, threshold):
        x = input * beta
        return g.where(x > threshold, g * x.sigmoid())

    def body(k, input, beta, threshold):
        x = input * beta
        return k.where(x > threshold, input, softplus_body(k, x) / beta)


class _logsigmoid(Activation):
    """The logarithm of the sigmoid of `input`, steady at both ends."""

    node = "LogSigmoidBackward0"
    names = "nn.functional.logsigmoid"
    forms = "function out"
    strict_out = row_major = True
    no_overlap = False

    def ref(xp, input):     return -xp.logaddexp(-input, 0)
    def d_input(g, input):  return g * (-input).sigmoid()
    def body(k, input):     return -softplus_body(k, -input)


class _silu(Activation):
    """`input` times its sigmoid."""

    refuses = "bool int"
    node = "SiluBackward0"

    def ref(xp, input): return input / (1 + xp.exp(-input))

    def d_input(g, input):
        s = input.sigmoid()
        slope = s * (1 + input * (1 - s))
        return g * (slope.conj() if slope.is_complex() else slope)

    def body(k, input): return input * k.sigmoid(input)


class _silu_front(Composite):
    """`input` times its sigmoid."""

    names = "nn.functional.silu"
    forms = "function inplace"

    def of(input, inplace=False): return run(_silu, inplace, input)


class _mish(Activation):
    """`input` times the tanh of its softplus."""

    node = "MishBackward0"

    def ref(xp, input): return input * xp.tanh(xp.logaddexp(input, 0))

    def d_input(g, input):
        t, s = _softplus(input).tanh(), input.sigmoid()
        return g * (t + input * s * (1 - t * t))

    def body(k, input):
        n = k.exp(k.minimum(input, 20))                    # tanh(log(1 + n)) without its logarithm; beyond, it is 1
        w = n * (n + 2)
        return input * (w / (w + 2))


class _mish_front(Composite):
    """`input` times the tanh of its softplus."""

    names = "nn.functional.mish"
    forms = "function inplace"

    def of(input, inplace=False): return run(_mish, inplace, input)


class _gelu_slope(Activation):
    """The derivative of `input` times the normal distribution function of it."""

    def ref(xp, input):
        cdf = 0.5 * (1 + special_functions.erf(xp, input * SQRT_HALF))
        return cdf + input * xp.exp(-0.5 * input * input) / SQRT_TAU

    def d_input(g, input): return g * (2 - input * input) * (-0.5 * input * input).exp() / SQRT_TAU

    def body(k, input):
        return 0.5 * (1 + k.erf(input * SQRT_HALF)) + input * k.exp(-0.5 * input * input) * (1 / SQRT_TAU)


class _gelu(Activation):
    """`input` times the normal distribution function of it, exactly or by the tanh formula."""

    node = "GeluBackward0"

    def ref(xp, input, approximate="none"):
        if approximate == "tanh":
            return 0.5 * input * (1 + xp.tanh(GELU_INNER * (input + GELU_CUBE * input ** 3)))
        return 0.5 * input * (1 + special_functions.erf(xp, input * SQRT_HALF))

    def d_input(g, input, approximate):
        if approximate == "tanh":
            t = (GELU_INNER * (input + GELU_CUBE * input ** 3)).tanh()
            inner = GELU_INNER * (1 + 3 * GELU_CUBE * input * input)
            return g * (0.5 * (1 + t) + 0.5 * input * (1 - t * t) * inner)
        return g * _gelu_slope(input)

    def body(k, input, approximate):
        if approximate == "tanh":                          # (1 + tanh(u)) / 2 is the sigmoid of 2 u
            return input * k.sigmoid(2 * GELU_INNER * (input + GELU_CUBE * input * input * input))
        return 0.5 * input * (1 + k.erf(input * SQRT_HALF))


class _gelu_front(Composite):
    """`input` times the normal distribution function of it; `approximate="tanh"` for the older formula."""

    names = "nn.functional.gelu"
    forms = "function out"
    strict_out = no_overlap = True

    def of(input, approximate="none"):
        need(approximate in ("none", "tanh"), f"approximate argument must be either none or tanh, got {approximate!r}.")
        return _gelu(input, approximate)


# --- built from others ------------------------------------------------------------------------------------------------


class _softsign(Composite):
    """`input / (1 + |input|)`."""

    names = "nn.functional.softsign"

    def of(input): return input / (input.abs() + 1)


class _tanhshrink(Composite):
    """`input` minus its tanh."""

    names = "nn.functional.tanhshrink"

    def of(input): return input - input.tanh()


class _sigmoid_front(Composite):
    """One over one plus e to the minus `input`."""

    names = "nn.functional.sigmoid"

    def of(input): return input.sigmoid()


class _tanh_front(Composite):
    """The hyperbolic tangent of `input`."""

    names = "nn.functional.tanh"

    def of(input): return input.tanh()


class _glu(Op):
    """The first half of `input` along `dim` times the sigmoid of the second."""

    names = "nn.functional.glu"
    forms = "function"
    node = "GluBackward0"

    def meta(input, dim=-1):
        need(input.ndim > 0, "glu does not support 0-dimensional tensors")
        at = wrap_dim(dim, input.ndim)
        size = input.shape[at]
        need(size % 2 == 0, f"Halving dimension must be even, but dimension {at} is size {size}")
        need(input.dtype.is_floating_point, "\"glu_cpu\" not implemented for "
                                            f"'{input.dtype.cname}'", NotImplementedError)
        shape = (*input.shape[:at], size // 2, *input.shape[at + 1:])
        strides = shapes.elementwise_strides(shape, [(shape, input.strides)] * 2)      # as of the product of two halves
        return spec(input.dtype, shape, strides, input.device)

    def ref(xp, input, dim=-1):
        a, b = xp.split(input, 2, dim)
        return a / (1 + xp.exp(-b))

    def d_input(g, input, dim):
        a, b = input.chunk(2, dim)
        s = b.sigmoid()
        return _join(g * s, g * a * s * (1 - s), dim)

    def body(k, input, dim):
        at = wrap_dim(dim, len(input.shape))
        shape = list(input.shape)
        shape[at:at + 1] = 2, shape[at] // 2
        halves, first = k.reshape(input, shape), k.index(at, [1] * len(shape))
        out = k.gather(halves, at, first) * k.sigmoid(k.gather(halves, at, first + 1))
        return k.reshape(out, shape[:at] + shape[at + 1:])


def _join(a, b, dim):
    return cat((a, b), dim)
