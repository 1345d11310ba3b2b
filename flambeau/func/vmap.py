"""`vmap`: a function of single things, made into one of batches.

The function is called once, with batched tensors (Note [Batched tensors] in tensor/batched.py), and what it calls is
done to all slices at once. Where it does what cannot be (it looks at a number, or a result's shape depends on data) it
is called once for each slice, from its start, and the results are stacked; `watch` is told so. That is done only where
nothing was written yet that would be written again.
"""
import functools

from ..autograd.modes import modes, no_grad
from ..backends.cpu.random import default_streams as streams
from ..base.op import door
from ..base.pytree import broadcast_prefix, tree_flatten, tree_structure, tree_unflatten
from ..tensor.batched import Batched, Unbatchable, batched, levels_of
from ..tensor.forms import namespace
from ..tensor.tensor import Tensor
from . import batched_grad, index_rules, layer_rules  # noqa: F401  # they hang up their rules

stack, equal, cat = (namespace[""][name] for name in ("stack", "equal", "cat"))


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """`func` over the slices of its arguments along `in_dims`, with its results stacked along `out_dims`.

    Both are a dimension, or nested as the arguments and results are; None stands for what has no such dimension.
    `randomness` says what random numbers inside `func` are: an "error", "different" or the "same" in every slice.
    `chunk_size` slices are done at once, all of them if it is None.

    >>> dot = torch.func.vmap(torch.dot, in_dims=(0, None))
    >>> dot(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError("Only allowed values for randomness are 'error', 'different', or 'same'. Got " + randomness)
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = getattr(func, "__name__", None) or repr(func)

    @functools.wraps(func)
    def mapped(*args, **kwargs):
        if not args:
            raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                             "trying to vmap over a function with no inputs. The latter is unsupported.")
        flat, spec = tree_flatten(args)
        dims = _dims_of(flat, spec, in_dims, name)
        size = _size_of(flat, dims)
        whole = _MappedCall(func, name, flat, spec, dims, kwargs, size, randomness, out_dims)
        if not size:
            return whole.on_nothing()
        return whole.run() if chunk_size is None or chunk_size >= size else whole.in_chunks(chunk_size)
    return mapped


def _dims_of(flat, spec, in_dims, name):
    """The mapped dimension of each argument, None where there is none."""
    start = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(start + "expected `in_dims` to be int or a (potentially nested) tuple matching the structure "
                                 f"of inputs, got: {type(in_dims)}.")
    dims = broadcast_prefix(in_dims, spec)
    if dims is None:
        raise ValueError(start + "in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                                 f"{tree_structure(in_dims)} but inputs has structure {spec}.")
    for t, dim in zip(flat, dims, strict=True):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(start + f"Got in_dim={dim} for an input but in_dim must be either an integer dimension or "
                                     "None.")
        if not isinstance(t, Tensor):
            raise ValueError(start + f"Got in_dim={dim} for an input but the input is of type {type(t)}. We cannot "
                                     "vmap over non-Tensor arguments, please use None as the respective in_dim")
        if not -t.dim() <= dim < t.dim():
            raise ValueError(start + f"Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                                     f"{t.dim()} so expected in_dim to satisfy -{t.dim()} <= in_dim < {t.dim()}.")
    return dims


def _size_of(flat, dims):
    """How many slices there are."""
    sizes = [t.shape[dim] for t, dim in zip(flat, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                         f"{sizes} for the mapped dimension")
    return sizes[0]


class _MappedCall:
    """One call of a function that is mapped."""

    def __init__(self, func, name, flat, spec, dims, kwargs, size, randomness, out_dims):
        self.func, self.name, self.flat, self.spec, self.dims = func, name, flat, spec, dims
        self.kwargs, self.size, self.randomness, self.out_dims = kwargs, size, randomness, out_dims

    def call(self, arguments):
        """What the function gives for these, in the place of the arguments."""
        return self.func(*tree_unflatten(arguments, self.spec), **self.kwargs)

    # --- all slices at once -------------------------------------------------------------------------------------------

    def run(self):
        """The results over all slices."""
        before = streams.Positions() if self.randomness != "error" else None
        levels = levels_of(self.size, self.randomness)
        try:
            return self.at_once(levels)
        except Unbatchable as error:
            why = error.with_traceback(None)              # and what the function held is gone
            if levels.something_stays():
                raise
        if before is not None:
            before.restore()
        door.noticed("vmap_by_slices", self.name, self.size, str(why))
        return self.stacked(self.one_by_one())

    def at_once(self, levels):
        with levels as level:
            made = self.call([t if dim is None else batched(t if dim == 0 else t.movedim(dim, 0), level.number)
                              for t, dim in zip(self.flat, self.dims, strict=True)])
        flat, spec = tree_flatten(made)
        return tree_unflatten([self.opened(out, dim, level.number)
                               for out, dim in zip(flat, self.out_dims_of(spec), strict=True)], spec)

    def opened(self, out, dim, number):
        """A result, with the dimension of the slices where it should be."""
        own = out.__class__ is Batched and out._level == number
        if dim is None:
            if own:
                self.refuse_batched()
            return out
        if not isinstance(out, Tensor):
            self.refuse_result(out)
        if own:
            return out._value if dim == 0 else out._value.movedim(0, dim)
        return out.unsqueeze(dim).expand([self.size if d == dim % (out.dim() + 1) else n for d, n in
                                          enumerate(out.unsqueeze(dim).shape)])

    def in_chunks(self, chunk_size):
        """The results over so many slices at a time, put together."""
        parts = [[t] if dim is None else t.split(chunk_size, dim)
                 for t, dim in zip(self.flat, self.dims, strict=True)]
        made = []
        for nth in range(-(-self.size // chunk_size)):
            flat = [part[0] if dim is None else part[nth] for part, dim in zip(parts, self.dims, strict=True)]
            size = min(chunk_size, self.size - nth * chunk_size)
            made.append(tree_flatten(_MappedCall(self.func, self.name, flat, self.spec, self.dims, self.kwargs, size,
                                           self.randomness, self.out_dims).run()))
        spec = made[0][1]
        columns = zip(*[flat for flat, _ in made], strict=True)
        return tree_unflatten([column[0] if dim is None else cat(column, dim)
                               for column, dim in zip(columns, self.out_dims_of(spec), strict=True)], spec)

    # --- slice by slice -----------------------------------------------------------------------------------------------

    def one_by_one(self):
        """What the function gives for each slice, one after the other."""
        # what a slice takes of each argument: a function of its number, or the argument itself
        parts = [(lambda i, t=t, dim=dim: t.select(dim, i)) if dim is not None else (lambda i, t=t: t)
                 for t, dim in zip(self.flat, self.dims, strict=True)]
        calls = [lambda i=i: self.call([part(i) for part in parts]) for i in range(self.size)]
        return _run(calls, self.randomness, [t for t, dim in zip(self.flat, self.dims, strict=True)
                                             if dim is None and isinstance(t, Tensor)])

    def on_nothing(self):
        """What the function gives for a slice of zeros: there is no slice, but results have the shapes of one."""
        args = [t if dim is None else t.new_zeros([n for d, n in enumerate(t.shape) if d != dim % t.dim()])
                for t, dim in zip(self.flat, self.dims, strict=True)]
        with no_grad():
            return self.stacked([self.call(args)])

    def stacked(self, made):
        """The results of all slices, stacked along `out_dims`."""
        spec = tree_structure(made[0])
        columns = list(zip(*[tree_flatten(each)[0] for each in made], strict=True))
        return tree_unflatten([self.joined(column, dim)
                               for column, dim in zip(columns, self.out_dims_of(spec), strict=True)], spec)

    def joined(self, column, dim):
        """One result of all slices as one tensor."""
        first = column[0]
        if dim is None:
            if any(part is not first and not (isinstance(part, Tensor) and part.shape == first.shape
                                              and equal(part, first)) for part in column[1:]):
                self.refuse_batched()
            return first
        if not isinstance(first, Tensor):
            self.refuse_result(first)
        if not self.size:
            return first.new_zeros(()).expand(first.shape).unsqueeze(dim).narrow(dim, 0, 0).clone()
        return stack(column, dim)

    # --- results ------------------------------------------------------------------------------------------------------

    def out_dims_of(self, spec):
        """Where the slices go in each result."""
        out_dims = self.out_dims
        if out_dims is not None and not isinstance(out_dims, (int, tuple, list, dict)):
            raise ValueError(f"vmap({self.name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a "
                             "python collection of ints representing where in the outputs the vmapped dimension should "
                             "appear.")
        dims = broadcast_prefix(out_dims, spec)
        if dims is None:
            raise ValueError(f"vmap({self.name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with "
                             f"the structure of `outputs`. out_dims has structure {tree_structure(out_dims)} but "
                             f"outputs has structure {spec}.")
        return dims

    def refuse_batched(self):
        raise ValueError(f"vmap({self.name}, ...): `{self.name}` can not return a BatchedTensor when out_dim is None")

    def refuse_result(self, out):
        raise ValueError(f"vmap({self.name}, ...): `{self.name}` must only return Tensors, got type {type(out)}. Did "
                         "you mean to set out_dims= to None for output?")


def _run(calls, randomness, whole):
    """What the calls give, one after the other. `whole`: the arguments that have no slices."""
    made: list = []
    start = streams.Positions() if randomness == "same" else None
    before = _positions()
    versions = [t._storage.version for t in whole]
    for call in calls:
        if made and randomness == "same":
            start.restore()
        made.append(_one_of(calls, call))
        if randomness == "error" and len(made) == 1 and before != _positions():
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the "
                               "'same' or 'different' randomness flags on vmap or perform the randomness operation out "
                               "of vmap")
        if versions != [t._storage.version for t in whole]:       # it would be written once for each slice
            raise RuntimeError("vmap: an argument that is not mapped over (its in_dim is None) was written in place "
                               "inside. Use the out-of-place form, or map over it.")
    return made


def _one_of(calls, call):
    """What the call for a slice gives; a graph that it goes back through is kept for the slices that follow."""
    before = modes.other_slices
    modes.other_slices = before or call is not calls[-1]
    try:
        return call()
    finally:
        modes.other_slices = before


def _positions():
    """What is different after every draw, on whichever device."""
    return [one.position() for one in streams.default_streams()]
