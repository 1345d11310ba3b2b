"""Random tensors: PyTorch's numbers for PyTorch's seeds.

The numbers come from a generator (backends/cpu/random/draws.py), at the call; a device that has a stream of its own
draws them in its own memory, and there is no wait for it. A tensor that is not contiguous is filled in the order of its
memory, the dimension with the largest stride outermost, as PyTorch's iterator walks it.
"""
import functools
from contextlib import contextmanager

import numpy as np

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..backends.cpu import host
from ..backends.cpu.memory.allocator import explained as out_of_memory
from ..backends.cpu.random import draws as streams
from ..base import dtypes, limited_dtypes, observers, shapes
from ..base.arguments import C_NAMES, asked, fitting, like, number, options, shape_of
from ..base.errors import argument_error, need
from ..base.spec import CPU, META, as_device, default_device, device as make_device, spec
from ..trace.running.quick import here
from ..trace.value import Storage
from . import attributes, overrides
from .batched import rebatched
from .create import from_array, from_array_of, from_value
from .find import plain_types
from .forms import declared
from .movement import pinnable
from .overrides import handle_torch_function, has_torch_function, or_overridden, tensor_types
from .reading import array_of
from .sample_indices import drawn_indices
from .tensor import Tensor, wrap
from .write import assign, before_write, refuse_derivatives, warn_of_resize

LEAST_LARGEST = 32768            # that every floating point dtype of 16 bits and more holds, and twice that
PUBLIC = ("Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state",
          "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
          "multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet")


# --- generators --------------------------------------------------


class Generator:
    """A stream of random numbers with a seed and a state of its own; the same numbers as `torch.Generator`.

    >>> g = torch.Generator().manual_seed(0)
    >>> torch.randint(10, (3,), generator=g)
    tensor([4, 9, 3])
    """

    def __init__(self, device="cpu"):
        where = as_device(device)
        if where.backend is None:
            raise RuntimeError(f"Cannot get a generator for device '{where}': no numbers are drawn there. Make a "
                               "torch.Generator() without a device")
        self._stream = where.backend.new_random_stream() or streams.MersenneTwister(where)
        self._stream.manual_seed(streams.DEFAULT_SEED)

    @classmethod
    def over(cls, source):
        """The generator of a RandomStream that is there."""
        made = cls.__new__(cls)
        made._stream = source
        return made

    @property
    def device(self):
        return self._stream.device

    def manual_seed(self, seed):
        """Start over from `seed`, an integer in [-2**63, 2**64); a negative one counts from 2**64."""
        self._stream.manual_seed(seed)
        return self

    def seed(self):
        """Start over from a seed that the operating system picks, and return it."""
        return self._stream.seed()

    def initial_seed(self):
        """The seed that it started from."""
        return self._stream.initial_seed()

    def get_state(self):
        """The state as a tensor of bytes on the CPU, laid out as PyTorch's."""
        return from_array(self._stream.get_state())

    def set_state(self, new_state):
        """Continue from a state that `get_state` gave, here or in PyTorch."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not dtypes.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor, got "
                            + (repr(new_state.dtype) if isinstance(new_state, Tensor) else type(new_state).__name__))
        self._stream.set_state(array_of(new_state))
        return self

    def get_offset(self):
        """How many words a thread of the device has drawn since the seed; of a CUDA generator."""
        return self._with_offset().get_offset()

    def set_offset(self, offset):
        """Continue as after `offset` words, a multiple of 4; of a CUDA generator."""
        self._with_offset().set_offset(offset)
        return self

    def _with_offset(self):
        need(hasattr(self._stream, "get_offset"), f"{self.device.type.upper()} Generator does not use offset")
        return self._stream

    def clone_state(self):
        """Another generator that will draw the same numbers as this one."""
        return Generator.over(self._stream.clone_state())

    def __reduce__(self):
        """What PyTorch's pickles hold, so that files go both ways."""
        offset = self.get_offset() if hasattr(self._stream, "get_offset") else None
        return Generator, (self.device,), (self.initial_seed(), offset, self.get_state())

    def __setstate__(self, kept):
        seed, offset, state = kept
        self.manual_seed(seed)
        if offset is not None:
            self.set_offset(offset)
        self.set_state(state)


default_generator = Generator.over(streams.stream_of(CPU))


def manual_seed(seed):
    """Start the default generators of all devices over from `seed`, and give the CPU's.

    >>> first = torch.manual_seed(1), torch.rand(2)
    >>> second = torch.manual_seed(1), torch.rand(2)
    >>> torch.equal(first[1], second[1])
    True
    """
    default_generator.manual_seed(int(seed))
    streams.seed_devices(int(seed))
    return default_generator


def seed():
    """Start the default generators over from a seed that the operating system picks, and return it."""
    made = default_generator.seed()
    streams.seed_devices(made)
    return made


def initial_seed():
    """The seed that the default generator started from."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of the default generator, a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Continue the default generator from `new_state`."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """Inside, draws leave the states of the default generators as they are outside, those of all devices."""
    make_device(device_type)                      # or it is refused
    before = streams.Positions() if enabled else None
    try:
        yield
    finally:
        if enabled:
            before.restore()


def stream(generator, device=CPU):
    """The RandomStream to draw from for a tensor on `device`."""
    own = streams.stream_of(device)
    if generator is None:
        return own
    if not isinstance(generator, Generator):
        raise argument_error(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    source = generator._stream
    ours = type(source) is type(own) and source.device.type in ("cpu", device.type)
    need(ours or device is META, f"Expected a '{device.type}' device type for generator but found "
                                 f"'{source.device.type}'")
    return source.on(device)


# --- how a draw becomes a tensor --------------------------------------------------


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


# --- in place --------------------------------------------------


@overridable
def uniform_(self, *args, generator=None, **named):
    """Fill with numbers uniform over [from, to)."""
    low, high = (number(n, "from") for n in spoken(args, named, **{"from": 0.0, "to": 1.0}))
    return fill(self, uniform(self._spec, low, high, generator), "uniform_", "_uniform")


@overridable
def normal_(self, mean=0, std=1, *, generator=None):
    """Fill with normal numbers around `mean` with standard deviation `std`."""
    draw = gaussian(self._spec, number(mean, "mean"), number(std, "std"), self._spec.contiguous, generator)
    return fill(self, draw, "normal_", "_normal")


@overridable
def random_(self, *args, generator=None, **named):
    """Fill with integers from [from, to); without bounds, from all that the dtype counts through."""
    low, high = spoken(args, named, **{"from": None, "to": None})
    if high is None and len(args) == 1 and "to" not in named:
        low, high = 0, low                                 # random_(to)
    dtype, source = self._spec.dtype, stream(generator, self._spec.device)
    if not args and not named:
        limited_dtypes.refuse_random("random_kernel", dtype)
        need(not dtype.is_complex, "random_ handles only integral, floating-point and boolean types")
        return fill(self, Draw(source, lambda n: source.random_(n, dtype.np)), "random_", "_random")
    low, high = (None if n is None else integer(n, name) for n, name in ((low, "from"), (high, "to")))
    draw = integers(self._spec, low or 0, high, generator)
    return fill(self, draw, "random_", "_random")


@overridable
def bernoulli_(self, p=0.5, *, generator=None):
    """Fill with ones of probability `p` (a number, or a tensor of probabilities) and zeros."""
    draw = coins(p, self._spec, generator)
    return fill(self, draw, "bernoulli_", "_bernoulli_at" if isinstance(p, Tensor) else "_bernoulli_p")


@overridable
def exponential_(self, lambd=1, *, generator=None):
    """Fill with exponential numbers of rate `lambd`."""
    lambd, dtype, source = number(lambd, "lambd"), self._spec.dtype, stream(generator, self._spec.device)
    need(dtype.category >= 2 or not self._spec.numel,
         "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
         f"specified {dtype.cname}")
    need(lambd > 0, f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    filling("exponential_cpu", self._spec, dtype.category == 2)
    return fill(self, Draw(source, lambda n: source.exponential(n, dtype.np, lambd)), "exponential_", "_exponential")


@overridable
def geometric_(self, p, *, generator=None):
    """Fill with the number of trials up to the first success of probability `p`."""
    p, dtype, source = number(p, "p"), self._spec.dtype, stream(generator, self._spec.device)
    need(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")
    limited_dtypes.refuse_random("geometric", dtype)
    filling("geometric_cpu", self._spec, dtype.category in (1, 2))
    return fill(self, Draw(source, lambda n: source.geometric(n, dtype.np, p)), "geometric_", "_geometric")


@overridable
def cauchy_(self, median=0, sigma=1, *, generator=None):
    """Fill with Cauchy numbers around `median` with scale `sigma`."""
    median, sigma = number(median, "median"), number(sigma, "sigma")
    dtype, source = self._spec.dtype, stream(generator, self._spec.device)
    need(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    need(dtype.category >= 2, "Cauchy distribution is a continuous probability distribution. dtype must be a floating "
                              f"point but you specified {dtype.name}")
    need(dtype.category == 2, f"\"cauchy_cpu\" not implemented for '{dtype.cname}'", NotImplementedError)
    return fill(self, Draw(source, lambda n: source.cauchy(n, dtype.np, median, sigma)), "cauchy_", "_cauchy")


@overridable
def log_normal_(self, mean=1, std=2, *, generator=None):
    """Fill with numbers whose logarithms are normal around `mean` with standard deviation `std`."""
    mean, std, dtype = number(mean, "mean"), number(std, "std"), self._spec.dtype
    source = stream(generator, self._spec.device)
    need(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")
    filling("log_normal_cpu", self._spec, dtype.category == 2)
    return fill(self, Draw(source, lambda n: source.log_normal(n, dtype.np, mean, std)), "log_normal_", "_log_normal")


IN_PLACE_METHODS = (uniform_, normal_, random_, bernoulli_, exponential_, geometric_, cauchy_, log_normal_)


# --- new tensors --------------------------------------------------


@or_overridden
@pinnable
def rand(*sizes, size=None, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
         pin_memory=False):
    """Numbers uniform over [0, 1).

    >>> torch.rand(2, 3).shape
    torch.Size([2, 3])
    """
    spec = known_kind(sizes) if size is out is dtype is layout is device is None and not pin_memory else None
    if spec is None:
        spec = new(shape_of(sizes, size), dtype, layout, device, pin_memory, out)
    return made(out, spec, uniform(spec, 0.0, 1.0, generator), requires_grad, "_uniform")


@or_overridden
@pinnable
def randn(*sizes, size=None, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
          pin_memory=False):
    """Normal numbers of mean 0 and standard deviation 1.

    >>> torch.randn(2, 3).shape
    torch.Size([2, 3])
    """
    spec = known_kind(sizes) if size is out is dtype is layout is device is None and not pin_memory else None
    if spec is None:
        spec = new(shape_of(sizes, size), dtype, layout, device, pin_memory, out)
    return made(out, spec, gaussian(spec, 0.0, 1.0, fills_contiguous(out, spec), generator), requires_grad, "_normal")


def fills_contiguous(out, spec):
    """Whether what is drawn for a new tensor of `spec`, or into `out`, fills a contiguous one."""
    return out is None or out._spec.shape != spec.shape or out._spec.contiguous


def integer_range(args, low, high):
    """(low, high, what follows) of `(high, …)` or `(low, high, …)`, by position or by name."""
    numbers = []
    while args and len(numbers) < 2 and not isinstance(args[0], (tuple, list)):
        numbers.append(integer(args[0], "high"))
        args = args[1:]
    low, high = (None if n is None else integer(n, name) for n, name in ((low, "low"), (high, "high")))
    if len(numbers) == 2:
        low, high = numbers
    elif numbers:
        low, high = (0 if low is None else low, numbers[0]) if high is None else (numbers[0], high)
    if high is None:
        raise TypeError('missing 1 required positional arguments: "high"')
    return low or 0, high, args


def integer(n, name, position=None):
    """The int that the argument `name` is; a bool is none, and a tensor of one element is."""
    if isinstance(n, (bool, float)) or not hasattr(n, "__index__"):
        at = "" if position is None else f" (position {position})"
        raise argument_error(f"argument '{name}'{at} must be int, not {type(n).__name__}")
    return n.__index__()


@or_overridden
@pinnable
def randint(*args, low=None, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
            requires_grad=False, pin_memory=False):
    """Integers uniform over [low, high): `randint(high, size)` or `randint(low, high, size)`.

    >>> _ = torch.manual_seed(0)
    >>> torch.randint(0, 10, (3,))
    tensor([4, 9, 3])
    """
    low, high, rest = integer_range(args, low, high)
    if rest and size is None:
        size, rest = rest[0], rest[1:]
    if rest or not isinstance(size, (tuple, list)):
        raise argument_error("argument 'size' must be tuple of ints, not " + type(rest[0] if rest else size).__name__)
    spec = known_kind(size, dtypes.int64) if out is dtype is layout is device is None and not pin_memory else None
    if spec is None:
        spec = new(shape_of((size,)), dtype, layout, device, pin_memory, out, dtypes.int64)
    return made(out, spec, integers(spec, low, high, generator), requires_grad, "_random")


@or_overridden
@pinnable
def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
             pin_memory=False):
    """The integers from 0 to n - 1 in random order.

    >>> torch.randperm(4).sort().values
    tensor([0, 1, 2, 3])
    """
    spec = new(shape_of((n,)), dtype, layout, device, pin_memory, out, dtypes.int64)
    count, dtype, source = spec.numel, spec.dtype, stream(generator, spec.device)
    limited_dtypes.refuse_random("randperm", dtype)
    need(dtype.category in (1, 2), f"\"randperm\" not implemented for '{dtype.cname}'", NotImplementedError)
    if dtype.category == 2:
        most = 2 ** streams.SIGNIFICAND_BITS[dtype.name] + 1
        need(count <= most, f"n cannot be greater than {most} for {dtype.cname} type, got {count}")
    else:
        fitting(count, dtype)
    return made(out, spec, Draw(source, lambda n: source.permutation(n, dtype.np)), requires_grad, "_random")


@overridable
@pinnable
def rand_like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
              memory_format=None):
    """Numbers uniform over [0, 1), in the shape, layout and dtype of `input`.

    >>> torch.rand_like(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """
    spec = like(input, dtype, device, layout, memory_format, pin_memory)
    return fresh(uniform(spec, 0.0, 1.0, generator), spec, requires_grad)


@overridable
@pinnable
def randn_like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
               memory_format=None):
    """Standard normal numbers in the shape, layout and dtype of `input`.

    >>> torch.randn_like(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """
    spec = like(input, dtype, device, layout, memory_format, pin_memory)
    return fresh(gaussian(spec, 0.0, 1.0, spec.contiguous, generator), spec, requires_grad)


@overridable
@pinnable
def randint_like(input, *args, low=None, high=None, generator=None, dtype=None, layout=None, device=None,
                 requires_grad=False, pin_memory=False, memory_format=None):
    """Integers uniform over [low, high) in the shape, layout and dtype of `input`.

    >>> torch.randint_like(torch.ones(2), 5).dtype
    torch.float32
    """
    low, high, rest = integer_range(args, low, high)
    if rest:
        raise TypeError(f"takes input, low and high by position, got {len(args) + 1} arguments")
    spec = like(input, dtype, device, layout, memory_format, pin_memory)
    return fresh(integers(spec, low, high, generator), spec, requires_grad)


@overridable
@pinnable
def normal(mean=None, std=None, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None,
           pin_memory=False, requires_grad=False):
    """Normal numbers: of given `size` for two numbers; of the tensors' shape where `mean` or `std` is a tensor.

    >>> torch.normal(0.0, torch.ones(3)).shape
    torch.Size([3])
    """
    if size is not None:                                       # a tensor without dimensions is a number there
        mean, std = (t.item() if isinstance(t, Tensor) and not t.dim() and not t.requires_grad else t
                     for t in (mean, std))
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if tensors and size is not None:
        raise TypeError("normal() received an invalid combination of arguments: a size goes with numbers for mean and "
                        "std; expand() the tensors instead")
    if not tensors:
        if size is None:
            raise TypeError("received an invalid combination of arguments: with numbers for mean and std, give a size")
        wanted = new(shape_of((size,)), dtype, layout, device, pin_memory, out)
        mean, std = number(0.0 if mean is None else mean, "mean"), number(1.0 if std is None else std, "std")
        draw = gaussian(wanted, mean, std, fills_contiguous(out, wanted), generator)
        return made(out, wanted, draw, requires_grad, "_normal")
    if isinstance(std, Tensor):
        need(not std.is_complex(), "normal expects standard deviation to be non-complex")
        if std._spec.device is not META and std._spec.numel:
            need(bool((array_of(std) >= 0).all()), "normal expects all elements of std >= 0.0")
    if out is not None:
        refuse_derivatives("normal", (*tensors, the_out(out)))
    first = tensors[0]._spec
    wanted = spec(first.dtype, shapes.broadcast(*[t._spec.shape for t in tensors]), None, first.device)
    before, modes.grad = modes.grad, False
    try:
        drawn = normal_around(mean, std, wanted, generator, out)
    finally:
        modes.grad = before
    if out is None and modes.grad and any(map(requires, tensors)):
        if len(tensors) == 2:
            return declared["_normal_both"](mean, std, drawn)
        return declared["_normal_mean" if isinstance(mean, Tensor) else "_normal_std"](tensors[0], drawn)
    return drawn


def normal_around(mean, std, wanted, generator, out):
    """Normal numbers where `mean`, `std` or both are tensors: new ones of spec `wanted`, or in `out`."""
    spread = isinstance(std, Tensor)
    own_dtype = all(not isinstance(t, Tensor) or t._spec.dtype is wanted.dtype for t in (mean, std))
    if out is None and own_dtype and not modes.levels:
        scale = 1.0 if std is None or spread else number(std, "std")
        drawn = fresh(gaussian(wanted, 0.0, scale, True, generator), wanted)
        return (drawn * std if spread else drawn) + (0 if mean is None else mean)
    if out is None:
        out = declared["empty"](wanted.shape, dtype=wanted.dtype, device=wanted.device)
    else:                                                  # PyTorch does not resize where `std` is a number
        if spread and out._spec.numel and out._spec.shape != wanted.shape:
            warn_of_resize(out._spec.shape, wanted.shape)
        out = resized(out, wanted.shape if spread else out.shape, "normal")
    if spread:
        return normal_(out, 0, 1, generator=generator).mul_(std).add_(0 if mean is None else mean)
    return normal_(out, 0, 1.0 if std is None else std, generator=generator).add_(mean)


@overridable
def bernoulli(input, p=None, *, generator=None, out=None):
    """Ones with the probabilities in `input` (or all with `p`), else zeros.

    >>> torch.bernoulli(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    wanted = spec(input._spec.dtype, input._spec.shape, None, input._spec.device)
    if out is not None:
        return bernoulli_(resized(out, wanted.shape, "bernoulli"), input if p is None else p, generator=generator)
    drawn = fresh(coins(input if p is None else p, wanted, generator), wanted)
    return declared["_bernoulli"](input, drawn) if modes.grad and requires(input) else drawn


@overridable
def poisson(input, generator=None):
    """A Poisson count for each rate in `input`.

    >>> torch.poisson(torch.zeros(3))
    tensor([0., 0., 0.])
    """
    wanted, source = input._spec, stream(generator, input._spec.device)
    need(wanted.dtype.category == 2, f"\"poisson_cpu\" not implemented for '{wanted.dtype.cname}'", NotImplementedError)
    wanted = spec(wanted.dtype, wanted.shape, None, wanted.device)
    drawn = fresh(Draw(source, lambda n: source.poisson(ordered(source, input, wanted))), wanted)
    return declared["_poisson"](input, drawn) if modes.grad and requires(input) else drawn


@overridable
def binomial(count, prob, generator=None):
    """The number of successes in `count` trials of probability `prob`, for each pair of the two tensors.

    >>> torch.binomial(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor([3.])
    """
    own, source = count._spec, stream(generator, count._spec.device)
    need(own.dtype.category == 2, f"binomial only supports floating-point dtypes for count, got: {own.dtype.cname}",
         ValueError)
    need(prob._spec.dtype is own.dtype,
         f"Found dtype {prob._spec.dtype.cname} for prob but expected {own.dtype.cname}")
    need(own.dtype.itemsize > 2, f"\"binomial_cpu\" not implemented for '{own.dtype.cname}'", NotImplementedError)
    own = spec(own.dtype, shapes.broadcast(own.shape, prob._spec.shape), None, own.device)
    return fresh(Draw(source, lambda n: source.binomial(*[ordered(source, t, own) for t in (count, prob)])), own)


@overridable
def _standard_gamma(input, generator=None):
    """A gamma number of scale 1 for each shape parameter in `input`; it has a gradient."""
    spec, source = real_parameter(input, "gamma_cpu"), stream(generator, input._spec.device)
    drawn = fresh(Draw(source, lambda n: source.standard_gamma(ordered(source, input, spec))), spec)
    return declared["_standard_gamma"](input, drawn) if modes.grad and requires(input) else drawn


@overridable
def _sample_dirichlet(input, generator=None):
    """A point of the simplex for each row of concentrations in `input`; it has a gradient."""
    spec, source = real_parameter(input, "dirichlet"), stream(generator, input._spec.device)
    drawn = fresh(Draw(source, lambda n: source.dirichlet(ordered(source, input, spec), spec.shape[-1])), spec)
    return declared["_sample_dirichlet"](input, drawn) if modes.grad and requires(input) else drawn


def real_parameter(input, name):
    """The spec of a draw for each number in `input`, which the sampler `name` has to take as it is."""
    own = input._spec
    need(own.dtype.category == 2 and own.dtype.itemsize > 2, f"\"{name}\" not implemented for '{own.dtype.cname}'",
         NotImplementedError)
    return spec(own.dtype, own.shape, None, own.device)


@overridable
def multinomial(input, num_samples, replacement=False, *, generator=None, out=None):
    """`num_samples` indices per row of `input`, drawn in proportion to its weights.

    >>> torch.multinomial(torch.tensor([0.0, 1.0, 0.0]), 1)
    tensor([1])
    """
    own, source = input._spec, stream(generator, input._spec.device)
    if num_samples.__class__ is int and num_samples == 1 and out is None and 1 <= own.ndim <= 2:
        drawn = one_each(input, spec(dtypes.int64, (*own.shape[:-1], 1), None, own.device), source)
        if drawn is not None:
            return drawn
    limited_dtypes.refuse_random("multinomial", own.dtype)
    n = integer(num_samples, "num_samples", 2)
    need(own.dtype.category == 2, "multinomial only supports floating-point dtypes for input, got: "
         f"{own.dtype.cname}")
    need(1 <= own.ndim <= 2, f"prob_dist must be 1 or 2 dim, got shape {list(own.shape)}")
    need(n > 0, f"cannot sample n_sample <= 0 samples, got {n}")
    need(replacement or n <= own.shape[-1], "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
                                            f"{n} of {own.shape[-1]}")
    picked = spec(dtypes.int64, (*own.shape[:-1], n), None, own.device)
    whole = spec(own.dtype, own.shape, None, own.device)
    drawn = fresh(Draw(source, lambda _: source.multinomial(ordered(source, input, whole).reshape(own.shape), n,
                                                            replacement).reshape(-1)), picked)
    if out is None:
        return drawn
    if out.dtype is not dtypes.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype.cname}")
    before_write(resized(out, picked.shape, "multinomial"), "multinomial(out=)")
    return assign(out, drawn, "multinomial(out=)")


def one_each(weights, spec, source):
    """An index for each row of `weights`, in a tensor of `spec`; None where none is drawn (sample_indices.py)."""
    if observers.drew is not None:                        # who repeats draws is told of them as of all others
        return None
    drawn = drawn_indices(weights, spec, source)
    return None if drawn is None else from_value(spec, drawn)


ONE_INDEX = spec(dtypes.int64, ())


def index_of(weights):
    """What `multinomial(weights, 1)[0]` is for a vector of weights; None where that is how to find it."""
    if weights.__class__ not in tensor_types or overrides.regions or weights._spec.device is not CPU:
        return None
    return one_each(weights, ONE_INDEX, streams.stream_of(CPU))


# --- dropout --------------------------------------------------


def _dropout_mask(self, p):
    """Which elements a dropout of `self` keeps, a tensor of bools, by the rule that the device's stream has for it;
    None where it has none, and dropout is what it says it is: a product with coins."""
    source, own = stream(None, self._spec.device), self._spec
    if not hasattr(source, "keep"):
        return None
    width = source.dropout_width(own, self._offset)
    strides = None if width == 1 else own.strides
    return fresh(Draw(source, lambda n: source.keep(n, p, own.dtype.np, width)),
                 spec(dtypes.bool, own.shape, strides, own.device))


def _coins(self, p):
    """Ones with probability `p`, else zeros, of the spec of `self`, in whose order in memory they are drawn."""
    spec = self._spec
    return fresh(coins(p, spec, None), spec)


def _is_drawn_there(self):
    """Whether random numbers for tensors like this are drawn on their own device, by its own rules."""
    return stream(None, self._spec.device).device is not CPU


Tensor._dropout_mask, Tensor._coins, Tensor._is_drawn_there = _dropout_mask, _coins, _is_drawn_there
for form in IN_PLACE_METHODS:
    setattr(Tensor, form.__name__, form)
for form in (bernoulli, multinomial):
    setattr(Tensor, form.__name__, form)
del form
