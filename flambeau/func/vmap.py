"""`vmap`: a function of single things, made into one of batches.

It is called once for each slice, and the results are stacked. So it means what PyTorch's means, and what PyTorch's
refuses (looking at values, `if` on a tensor) works as well; for many slices a function written for batches is faster.
"""
import functools

from ..autograd.modes import modes, no_grad
from ..backends.cpu.random import draws as streams
from ..base.pytree import broadcast_prefix, tree_flatten, tree_structure, tree_unflatten
from ..tensor.forms import namespace
from ..tensor.tensor import Tensor

stack, equal = namespace[""]["stack"], namespace[""]["equal"]


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """`func` over the slices of its arguments along `in_dims`, with its results stacked along `out_dims`.

    Both are a dimension, or nested as the arguments and results are; None stands for what has no such dimension.
    `randomness` says what random numbers inside `func` are: an "error", "different" or the "same" in every slice.

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
    def batched(*args, **kwargs):
        if not args:
            raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                             "trying to vmap over a function with no inputs. The latter is unsupported.")
        flat, spec = tree_flatten(args)
        dims = _dims_of(flat, spec, in_dims, name)
        size = _size_of(flat, dims)
        # what a slice takes of each argument: a function of its number, or the argument itself
        parts = [(lambda i, t=t, dim=dim: t.select(dim, i)) if dim is not None else (lambda i, t=t: t)
                 for t, dim in zip(flat, dims, strict=True)]
        if size:
            calls = [lambda i=i: func(*tree_unflatten([part(i) for part in parts], spec), **kwargs)
                     for i in range(size)]
            made = _run(calls, randomness, [t for t, dim in zip(flat, dims, strict=True)
                                            if dim is None and isinstance(t, Tensor)])
        else:
            made = [_on_nothing(func, flat, dims, spec, kwargs)]
        return _stacked(made, size, out_dims, name)
    return batched


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


def _on_nothing(func, flat, dims, spec, kwargs):
    """What the function gives for a slice of zeros: there is no slice, but results have the shapes of one."""
    args = [t if dim is None else t.new_zeros([n for d, n in enumerate(t.shape) if d != dim % t.dim()])
            for t, dim in zip(flat, dims, strict=True)]
    with no_grad():
        return func(*tree_unflatten(args, spec), **kwargs)


def _stacked(made, size, out_dims, name):
    """The results of all slices, stacked along `out_dims`."""
    spec = tree_structure(made[0])
    columns = list(zip(*[tree_flatten(each)[0] for each in made], strict=True))
    if out_dims is not None and not isinstance(out_dims, (int, tuple, list, dict)):
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                         "collection of ints representing where in the outputs the vmapped dimension should appear.")
    dims = broadcast_prefix(out_dims, spec)
    if dims is None:
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the "
                         f"structure of `outputs`. out_dims has structure {tree_structure(out_dims)} but outputs has "
                         f"structure {spec}.")
    return tree_unflatten([_joined(column, dim, size, name) for column, dim in zip(columns, dims, strict=True)], spec)


def _joined(column, dim, size, name):
    """One result of all slices as one tensor."""
    first = column[0]
    if dim is None:
        if any(part is not first and not (isinstance(part, Tensor) and part.shape == first.shape and equal(part, first))
               for part in column[1:]):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return first
    if not isinstance(first, Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(first)}. Did you mean "
                         "to set out_dims= to None for output?")
    if not size:
        return first.new_zeros(()).expand(first.shape).unsqueeze(dim).narrow(dim, 0, 0).clone()
    return stack(column, dim)
