"""How random numbers become a tensor, and what can be drawn: checked, in the order of memory, at the call."""
import functools

import numpy as np

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..backends.cpu import host
from ..backends.cpu.memory.allocator import explained as out_of_memory
from ..base import dtypes, limited_dtypes, observers, shapes
from ..base.arguments import C_NAMES, asked, number, options
from ..base.errors import argument_error, need
from ..base.spec import CPU, META, default_device, spec
from ..trace.running.quick import here
from ..trace.value import Storage
from . import attributes, overrides
from .batched import rebatched
from .create import from_array_of
from .find import plain_types
from .forms import declared
from .generators import stream
from .overrides import handle_torch_function, has_torch_function, tensor_types
from .reading import array_of
from .tensor import Tensor, wrap
from .write import assign, before_write, refuse_derivatives

LEAST_LARGEST = 32768            # that every floating point dtype of 16 bits and more holds, and twice that


def overridable(function):
    """Let subclasses among the arguments take the call (see tensor/subclass.py)."""
    @functools.wraps(function)
    def form(*args, **kwargs):
        asks = overrides.modes_active
        for a in args:
            asks = asks or a.__class__ not in tensor_types and a.__class__ not in plain_types
        if asks and has_torch_function(args):
            return handle_torch_function(form, args, *args, **kwargs)
        return function(*args, **kwargs)
    form.op = None            # marks it as ours: its results are fresh
    return form


def order_of(spec):
    """The strides in which a tensor of this spec is filled: its own dimensions' order, densely."""
    return spec.strides if spec.contiguous else shapes.preserved_strides(spec.shape, spec.strides)


def laid(flat, shape, strides):
    """The one-dimensional array `flat` seen with these strides."""
    return host.laid_out(flat, shape, flat.dtype, tuple([s * flat.itemsize for s in strides]))


def in_order(array, shape, strides):
    """The elements of `array`, broadcast to `shape`, in the order in which a tensor of these strides is filled; to be
    read alone, since they may stand where they stood."""
    if array.shape == shape and array.flags.c_contiguous and strides == shapes.contiguous_strides(shape):
        return array.reshape(-1)
    flat = np.empty(shapes.numel(shape), array.dtype)
    laid(flat, shape, strides)[...] = np.broadcast_to(array, shape)
    return flat


class Draw:
    """What is drawn: called with a count, it gives an array of so many numbers on the device of its `source`."""

    __slots__ = ("source", "make")

    def __init__(self, source, make):
        self.source, self.make = source, make

    def __call__(self, count):
        return self.make(count)


def ordered(source, tensor, spec):
    """The elements of `tensor`, broadcast to the shape of `spec`, in the order in which a tensor of that spec is
    filled: an array of the device that `source` draws on."""
    if source.device is CPU:
        return in_order(array_of(tensor), spec.shape, order_of(spec))
    strides, before, modes.grad = order_of(spec), modes.grad, False
    try:
        outermost_first = sorted(range(spec.ndim), key=lambda d: -strides[d])
        flat = tensor.expand(spec.shape).permute(outermost_first).contiguous().view(-1)
    finally:
        modes.grad = before
    return spec.device.backend.look(flat._storage.value.ready().memory, flat._spec, flat._offset)


def fresh(draw, wanted, requires_grad=False):
    """A new tensor of spec `wanted`, filled by `draw`."""
    if wanted.dtype.family == "float8":
        limited_dtypes.refuse("random", wanted.dtype)
    if modes.levels:
        return asked(in_slices(draw, wanted), requires_grad)
    if wanted.device is META:
        return asked(wrap(Storage.of(None, wanted.nbytes, META), wanted), requires_grad)
    if not wanted.contiguous:
        wanted = spec(wanted.dtype, wanted.shape, order_of(wanted), wanted.device)
    out = from_array_of(wanted, filled(draw, wanted), requires_grad)
    if (tell := observers.drew) is not None:
        tell(draw, wanted, out._storage.value)
    return out


def in_slices(draw, wanted):
    """What `fresh` gives inside of `vmap`: for every slice numbers of its own, the same ones, or an error."""
    levels = modes.levels
    if any(level.randomness == "error" for level in levels):
        raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' "
                           "or 'different' randomness flags on vmap or perform the randomness operation out of vmap")
    own = [level for level in levels if level.randomness == "different"]
    whole = spec(wanted.dtype, (*[level.size for level in own], *wanted.shape), None, wanted.device)
    modes.levels = ()
    try:
        drawn = fresh(draw, whole if own else wanted)
    finally:
        modes.levels = levels
    return rebatched(drawn, [level.number for level in own])


def filled(draw, spec):
    """The array of the dense spec `spec`, on its device, that `draw` gives the contents of."""
    try:
        if draw.source.device is not CPU:
            backend = spec.device.backend
            with backend.active():
                return backend.relaid(draw(spec.numel), spec)
        drawn = draw(spec.numel)
        made = drawn.reshape(spec.shape) if spec.contiguous else laid(drawn, spec.shape, spec.strides)
        return made if spec.device is CPU else spec.device.backend.from_host(made, spec)
    except MemoryError as error:
        error.spec, error.site = spec, here()
        raise out_of_memory(error) from None


def fill(self, draw, what, name):
    """Replace the contents of `self` by what `draw` gives; `name` is the operation whose gradient is zero."""
    before_write(self, what)
    own = self._spec
    made = fresh(draw, own if own.contiguous else spec(own.dtype, own.shape, order_of(own), own.device))
    if modes.grad and requires(self):
        made = declared[name](self, made)
    return assign(self, made, what)


def new(size, dtype, layout, device, pin_memory, out, fallback=None):
    """The spec of a new tensor from the arguments that every function here takes; `out` says dtype and device."""
    if out is not None:
        fallback, dtype = the_out(out).dtype, dtypes.given(dtype, out.dtype)
        need(dtype is fallback, f"dtype {dtype.cname} does not match dtype of out parameter ({fallback.cname})")
        device = out.device if device is None else device
    dtype, where = options(dtype, fallback or dtypes.get_default_dtype(), device, layout, pin_memory)
    need(out is None or where is out.device,
         f"device type {where.type} does not match device type of the out parameter")
    return spec(dtype, size, None, where)


def known_kind(sizes, dtype=None):
    """The spec of a new tensor on the CPU of the default dtype, or that one; None if `sizes` are not plainly ints."""
    if type(sizes) is not tuple or default_device() is not CPU:
        return None
    for n in sizes:
        if type(n) is not int or n < 0:
            return None
    return spec(dtype or dtypes.default, sizes, None, CPU) if sizes else None


def made(out, spec, draw, requires_grad, name):
    """A new tensor of spec `spec` filled by `draw`; or `out`, resized and filled."""
    if out is None:
        return fresh(draw, spec, requires_grad)
    return fill(resized(out, spec.shape, name), draw, "out=", name)


def the_out(out):
    if not isinstance(out, Tensor):
        raise argument_error(f"argument 'out' must be Tensor, not {type(out).__name__}")
    return out


def resized(out, shape, name):
    """`out` ready to be written, in the shape of the result."""
    refuse_derivatives(name.removeprefix("_"), (the_out(out),))
    if tuple(out.shape) != tuple(shape):
        before_write(out, "out=")
        attributes.resized(out, tuple(shape), shapes.contiguous_strides(shape))
    return out


# --- what to draw --------------------------------------------------


def spoken(given, named, **defaults):
    """Arguments by position or by name; a name may be a Python keyword (`from`)."""
    names = list(defaults)
    if len(given) > len(names):
        raise TypeError(f"takes {len(names)} positional arguments ({', '.join(names)}) but {len(given)} were given")
    values = dict(zip(names, given, strict=False))
    for name, value in named.items():
        if name not in defaults:
            raise TypeError(f"got an unexpected keyword argument '{name}'; its arguments are ({', '.join(names)})")
        if name in values:
            raise TypeError(f"got multiple values for argument '{name}'")
        values[name] = value
    return [values.get(name, default) for name, default in defaults.items()]


def filling(name, spec, holds):
    """Refuse the dtype of what the kernel `name` fills, unless it `holds` or, as in PyTorch, nothing is filled."""
    need(holds or not spec.numel, f"\"{name}\" not implemented for '{spec.dtype.cname}'", NotImplementedError)


def uniform(spec, low, high, generator):
    dtype = spec.dtype
    if dtype.category < 2:
        need(False, f"\"check_uniform_bounds\" not implemented for '{dtype.cname}'", NotImplementedError)
    if not -LEAST_LARGEST <= low <= high <= LEAST_LARGEST / 2 or dtype.itemsize < 2:
        top = dtypes.finfo(dtype).max
        for name, n in (("from", low), ("to", high)):
            need(-top <= n <= top, f"{name} is out of bounds for {C_NAMES[dtype.to_real().name]}: {n}")
        need(low <= high, f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
        need(high - low <= top, f"uniform_ expects to-from <= std::numeric_limits<{dtype.cname}>::max(), but found "
                                f"to={high} and from={low} which result in to-from to exceed the limit")
    source = stream(generator, spec.device)
    return Draw(source, lambda n: source.uniform(n, dtype.np, low, high))


def gaussian(spec, mean, std, contiguous, generator):
    dtype = spec.dtype
    if not std >= 0 or dtype.category < 2:
        need(std >= 0, f"normal expects std >= 0.0, but found std {std}")
        filling("normal_kernel_cpu", spec, False)
    source = stream(generator, spec.device)
    return Draw(source, lambda n: source.normal(n, dtype.np, mean, std, contiguous))


def integers(spec, low, high, generator):
    dtype = spec.dtype
    check_integers(low, high, dtype)
    source = stream(generator, spec.device)
    return Draw(source, lambda n: source.integers(low, high, n, dtype.np))


def check_integers(low, high, dtype):
    """Refuse a range of integers that is empty or that `dtype` cannot hold."""
    need(not dtype.is_complex, "check_random_bounds handles only integral, floating-point and boolean types")
    for n in (low, high or 0):
        need(-2**63 <= n < 2**63, f"Overflow when unpacking long long: {n}", ValueError)
    if high is not None:
        need(low < high, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype is dtypes.int64 or dtype.category == 2 and dtype.itemsize > 1 and high is not None \
            and -LEAST_LARGEST <= low and high <= LEAST_LARGEST:
        return
    if dtype.category == 2:
        bottom, top = -dtypes.finfo(dtype).max, dtypes.finfo(dtype).max
    else:
        bottom, top = (0, 1) if dtype is dtypes.bool else (dtypes.iinfo(dtype).min, dtypes.iinfo(dtype).max)
    name = {"uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int",
            "uint16": "short unsigned int", "uint32": "unsigned int", "uint64": "long unsigned int"}.get(dtype.name)
    name = name or C_NAMES.get(dtype.name, dtype.name)
    need(bottom <= low <= top, f"from is out of bounds for {name}, got {low}")
    need(high is None or bottom <= high - 1 <= top, f"to - 1 is out of bounds for {name}, got to={high}")


def at_odds(p, spec, source):
    """A draw of zeros and ones for each probability in the tensor `p`, broadcast to the spec `spec`."""
    need(p._spec.dtype.category == 2 or not spec.numel,
         f"\"bernoulli_tensor_cpu_p_\" not implemented for '{p._spec.dtype.cname}'", NotImplementedError)
    if p._spec.shape != spec.shape:
        with_grad, modes.grad = modes.grad, False
        try:
            p = p.expand(spec.shape)
        finally:
            modes.grad = with_grad
    return Draw(source, lambda n: source.bernoulli(ordered(source, p, spec), n, spec.dtype.np))


def coins(p, spec, generator):
    dtype, source = spec.dtype, stream(generator, spec.device)
    limited_dtypes.refuse_random("bernoulli", dtype)
    filling("bernoulli_tensor_cpu_self_", spec, not dtype.is_complex)
    if isinstance(p, Tensor):
        return at_odds(p, spec, source)
    p = number(p, "p")
    need(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return Draw(source, lambda n: source.bernoulli(p, n, dtype.np))
