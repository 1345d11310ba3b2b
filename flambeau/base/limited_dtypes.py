"""Which operations take the dtypes that PyTorch has few kernels for: see Note [Dtypes of limited support] in dtypes.py.

Views take every dtype, and so do those in `PASS_WITHOUT_DIMENSIONS` on a tensor without dimensions, where there is
nothing to do. What computes in a floating dtype (`exp` of uint16) is no matter of this table.
tests/torch/test_limited_dtypes.py compares it with PyTorch, operation by operation.
"""
from .errors import need
from .spec import Spec

_COPIES = frozenset("""
    _block_diag _diagonal_copy _empty _flip _full _logspace _pad_circular _repeat _roll _spread _to_copy _unsafe_view
    _where all any cat clone constant_pad_nd count_nonzero diag_embed embedding eq index isfinite isinf isnan mul ne
    rot90 stack
    """.split())
_PRODUCTS = ("_affine", "abs", "addbmm", "addmm", "_index_put", "_index_put_add", "mm")

OPERATIONS_BY_FAMILY = {
    "unsigned": _COPIES | frozenset("""
        _isclose _isin _prod _prod_dim _round _sum _sum_dim _unique2 _unique_consecutive bitwise_and bitwise_or
        bitwise_xor ceil cumprod cumsum floor logsumexp nan_to_num nansum signbit sort trunc
        """.split()),
    "float8": _COPIES | frozenset("_eye _linspace bmm index_select masked_select".split()) | {*_PRODUCTS},
}
PASS_WITHOUT_DIMENSIONS = frozenset(
    "_flip _max_dim _min_dim aminmax cummax cummin cumprod cumsum mode vector_norm".split())

# operation → whether it takes a dtype of its family in this call; by the dtype, the arguments, the tensors, the results
_CONDITIONS = {
    "isinf": lambda dtype, args, specs, outs: dtype.family == "unsigned" or dtype.name == "float8_e5m2",
    "isfinite": lambda dtype, args, specs, outs: dtype.family == "unsigned"
        or dtype.name in ("float8_e5m2", "float8_e8m0fnu"),
    # with a dtype of their own for the result, they convert first
    **dict.fromkeys(("_prod", "_prod_dim", "_sum", "_sum_dim", "cumprod", "cumsum", "nansum"),
                    lambda dtype, args, specs, outs: outs[0].dtype is not dtype),
    "count_nonzero": lambda dtype, args, specs, outs: bool(args[1] or args[1] == 0),     # a sum over a comparison
    "_flip": lambda dtype, args, specs, outs: not args[1],                               # of no dimension: a copy
    "_linspace": lambda dtype, args, specs, outs: args[2] <= 1,
    # many are looked for in a sorted row, few are compared one by one
    "_isin": lambda dtype, args, specs, outs: len(specs) < 2 or specs[1].numel >= 10 * specs[0].numel ** 0.145,
    # a float8 tensor times one element goes to a kernel for the 16-bit floats alone
    "mul": lambda dtype, args, specs, outs: dtype.family == "unsigned" or len(specs) == 2 and specs[1].numel != 1,
    # a small batch is multiplied by a kernel that float8 has none of, a large one as matrices
    "bmm": lambda dtype, args, specs, outs: specs[0].shape[1] * specs[0].shape[2] * specs[1].shape[2] >= 400
        and dtype.name != "float8_e8m0fnu",
    **dict.fromkeys(_PRODUCTS, lambda dtype, args, specs, outs: dtype.name != "float8_e8m0fnu"),
}


def check(op, args, specs, out, common):
    """Refuse a call of `op` whose dtype of computation, or tensors where it has none, PyTorch has no kernel for.

    `args`: all arguments, tensors by their Specs; `specs`: those Specs; `out`: what the result is declared to be.
    """
    outs = out if out.__class__ in (tuple, list) else (out,)
    if common is not None:
        used = {common}
    else:
        used = {spec.dtype if spec.__class__ is Spec else spec for spec in (*specs, *outs)} - {None}
    name = op.__name__
    for dtype in used:
        if dtype.family is not None and not (name in PASS_WITHOUT_DIMENSIONS and not specs[0].ndim):
            condition = _CONDITIONS.get(name)
            takes = (name in OPERATIONS_BY_FAMILY[dtype.family]
                     and (condition is None or condition(dtype, args, specs, outs)))
            if not takes:
                refuse(getattr(op, "cname", None) or name.strip("_"), dtype)


def refuse(kernel, dtype):
    """Say that there is no such kernel for the dtype, in PyTorch's words."""
    need(False, f"\"{kernel}_cpu\" not implemented for '{dtype.cname}'", NotImplementedError)


def refuse_random(kernel, dtype):
    """Refuse to draw numbers of a dtype that PyTorch draws none of."""
    if dtype.family is not None:
        refuse(kernel, dtype)
