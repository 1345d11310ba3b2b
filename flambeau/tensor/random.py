"""Random tensors: PyTorch's numbers for PyTorch's seeds.

The numbers come from a generator (backends/cpu/random/draws.py), at the call; a device that has a stream of its own
draws them in its own memory, and there is no wait for it. A tensor that is not contiguous is filled in the order of its
memory, the dimension with the largest stride outermost, as PyTorch's iterator walks it.
"""


from ..autograd.edges import requires
from ..autograd.modes import modes
from ..backends.cpu.random import default_streams as streams
from ..backends.cpu.random.arithmetic import SIGNIFICAND_BITS
from ..base import dtypes, limited_dtypes, observers, shapes
from ..base.arguments import fitting, like, number, shape_of
from ..base.errors import argument_error, need
from ..base.spec import CPU, META, spec
from ..trace.bounds import declare
from . import overrides
from .create import from_value
from .drawing import (
    Draw,
    coins,
    fill,
    filling,
    fresh,
    gaussian,
    integers,
    known_kind,
    made,
    new,
    ordered,
    overridable,
    resized,
    spoken,
    the_out,
    uniform,
)
from .forms import declared
from .generators import stream
from .movement import pinnable
from .overrides import or_overridden, tensor_types
from .reading import array_of
from .sample_indices import drawn_indices
from .tensor import Tensor
from .write import assign, before_write, refuse_derivatives, warn_of_resize

PUBLIC = ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
          "multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet")


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
    drawn = made(out, spec, integers(spec, low, high, generator), requires_grad, "_random")
    if out is None:
        declare(drawn, low, high - 1)
    return drawn


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
        most = 2 ** SIGNIFICAND_BITS[dtype.name] + 1
        need(count <= most, f"n cannot be greater than {most} for {dtype.cname} type, got {count}")
    else:
        fitting(count, dtype)
    drawn = made(out, spec, Draw(source, lambda n: source.permutation(n, dtype.np)), requires_grad, "_random")
    if out is None:
        declare(drawn, 0, max(count - 1, 0))
    return drawn


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
