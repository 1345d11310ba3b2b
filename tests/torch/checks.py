"""The conformance checks: what must hold of an operation for it to count as PyTorch's.

Each check is a generator over (sample, case): calling `case()` runs that sample through both libraries and raises
Mismatch where they differ. `run` runs a whole check and keeps the failures. pytest (test_ops.py) and the command
line (report.py) both come through here.
"""
import functools
import math
import os
import random
import time
import types
import warnings

import numpy as np
import torch
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo import core

from tests.torch.harness import (
    DTYPES,
    HERE,
    OPS,
    TOLERANCES,
    Mismatch,
    Raised,
    Unsupported,
    assert_close,
    assert_same,
    assert_same_error,
    assert_same_fields,
    attempt,
    copy,
    describe,
    fb,
    function,
    is_pointwise,
    reading_only,
    tensors,
    to_fb,
    to_torch,
    torch_function,
    variant,
)
from tests.torch.machines import CONVERSIONS

VALUE_DTYPES = [dtype for dtype, name in DTYPES.items() if name not in ("uint16", "uint32", "uint64")]
DTYPES_OF = {"values": VALUE_DTYPES,
             "variants": [torch.float32, torch.int64, torch.bool],
             "out": [torch.float32, torch.int64],
             "noncontiguous": [torch.float32, torch.int64, torch.complex64],
             "gradients": [torch.float64, torch.complex128],
             "second_gradients": [torch.float64],
             "errors": [None]}
CHECKS = list(DTYPES_OF)

# How many samples of each (op, dtype) a check looks at; FLAMBEAU_CONFORMANCE_SAMPLES caps or raises them all.
SAMPLES = {"values": 30, "variants": 8, "out": 5, "noncontiguous": 10, "gradients": 20, "second_gradients": 10,
           "errors": 1000}
EXTRA_SAMPLES = 60                                      # reference inputs: special values, broadcasts, odd strides
EXTRA_DTYPES = {torch.float32, torch.int64, torch.bool, torch.complex64}
if os.environ.get("FLAMBEAU_CONFORMANCE_SAMPLES"):
    EXTRA_SAMPLES = int(os.environ["FLAMBEAU_CONFORMANCE_SAMPLES"])
    SAMPLES = dict.fromkeys(SAMPLES, EXTRA_SAMPLES)
LARGE, LARGE_SIDE = 5000, 37                            # elements of an input, and what a side is then cut to


# ---- which checks an operation has, and its samples ---------------------------------------------------------------

def dtypes_for(check, op):
    """The dtypes that `check` is run with on `op`: none where it does not apply."""
    if check == "errors":
        return [None] if op.error_inputs_func is not None else []
    supported = op.dtypes
    if check == "out" and not op.supports_out:
        return []
    if check == "variants" and not has_variants(op):
        return []
    if check in ("gradients", "second_gradients"):
        if not (op.supports_autograd if check == "gradients" else op.supports_gradgrad):
            return []
        supported = op.supported_backward_dtypes("cpu")
    chosen = [dtype for dtype in DTYPES_OF[check] if dtype in supported]
    if not chosen and check in ("variants", "out", "noncontiguous"):
        chosen = [dtype for dtype in VALUE_DTYPES if dtype in supported][:1]
    return chosen


def has_variants(op):
    return not op.is_factory_function


def samples(op, dtype, check, requires_grad=False):
    """The first of OpInfo's samples and an even spread of the rest, `SAMPLES[check]` in all."""
    found = spread(drawn(op.sample_inputs_func(op, "cpu", dtype, requires_grad)), SAMPLES[check])
    if check == "values" and dtype in EXTRA_DTYPES and op.reference_inputs_func is not None:
        extra = [sample for sample in drawn(op.reference_inputs_func(op, "cpu", dtype, False)) if welcome(sample)]
        found += spread(extra, EXTRA_SAMPLES)
    return [resolved(calm(op, sample)) for sample in found if callable_on(op, sample)]


def callable_on(op, sample):
    """Python calls __radd__ on tensors only; OpInfo also on numbers."""
    return isinstance(sample.input, torch.Tensor) or not op.name.startswith("__")


def drawn(source):
    """All of `source`, each drawn from the same seed, as OpInfo's own iterator does (it walks the stack besides)."""
    found, source = [], iter(source)
    while True:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        sample = next(source, None)
        if sample is None:
            return found
        found.append(sample)


def small_tensor(*shape, **kwargs):
    """make_tensor, for reference inputs of a size to run thousands of."""
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if math.prod(shape) > LARGE:
        shape = tuple(min(size, LARGE_SIDE) for size in shape)
    return torch.testing.make_tensor(shape, **kwargs)


core.make_tensor = small_tensor


def resolved(sample):
    """No lazy conjugates on PyTorch's side either: its baddbmm with complex alpha, for one, is wrong on them."""
    def plain(t):
        return t.detach().resolve_conj().resolve_neg().requires_grad_(t.requires_grad) if lazy(t) else t

    def lazy(t):
        return isinstance(t, torch.Tensor) and (t.is_conj() or t.is_neg())
    return sample.transform(plain) if any(map(lazy, tensors(sample))) else sample


def spread(found, limit):
    if len(found) <= limit:
        return found
    head = limit // 2
    rest, wanted = found[head:], limit - head
    return found[:head] + [rest[k * len(rest) // wanted] for k in range(wanted)]


def welcome(sample):
    """Complex numbers at the edges have no agreed answers (zero to the zero, large or infinite parts: C99, NumPy and
    PyTorch each differ), and the large grids are made of such numbers."""
    return all(t.numel() < LARGE and t.isfinite().all() and t.abs().max() < 100
               for t in tensors(sample) if t.is_complex() and t.numel())


def calm(op, sample):
    """Attention without its dropout, conversions without what the processor decides: the rest is compared exactly."""
    if op.name == "nn.functional.scaled_dot_product_attention":
        sample.kwargs = {**sample.kwargs, "dropout_p": 0.0}
    if op.name == "nn.functional.multi_head_attention_forward":
        sample.args = sample.args[:9] + (0.0,) + sample.args[10:]
    if op.name in CONVERSIONS and sample.input.is_floating_point():
        most = min(CONVERSIONS[op.name], torch.finfo(sample.input.dtype).max)
        if not (sample.input.abs() <= most).all():
            sample.input = sample.input.nan_to_num(0.0).clamp(-most, most)
    return sample


# ---- comparisons that a few operations need -----------------------------------------------------------------------

def any_values(got, want, rtol, atol, precise=None):
    """Uninitialised memory: the shape and dtype were all there was to compare."""


def kept_values(got, want, rtol, atol, precise=None):
    """Dropout: which elements fall differs, what happens to the others does not."""
    both = (got != 0) & (want != 0)
    assert_close(got[both], want[both], rtol, atol)


def draws(got, want, rtol, atol, precise=None):
    """Other draws from the same outcomes."""
    if want.numel() and not bool(((got >= 0) & (got == got.floor())).all()):
        raise Mismatch(f"drew {got.min().item()} .. {got.max().item()}")


VALUES = {"empty": any_values, "empty_like": any_values, "new_empty": any_values,
          "nn.functional.dropout": kept_values, "nn.functional.dropout2d": kept_values,
          "bernoulli": draws, "multinomial": draws}


def same_factors(op, sample, got, want, **how):
    """Singular and eigenvectors are free in sign or phase: compare what they multiply to, and that they are unitary."""
    if not isinstance(want, tuple) or not isinstance(got, tuple):
        return assert_same(got, want, op, **how)
    vectors = (0, 2) if op.name == "linalg.svd" else (1,)
    for k, (mine, theirs) in enumerate(zip(got, want)):
        free = any_values if k in vectors and theirs.dim() >= 2 else assert_close
        assert_same(mine, theirs, op, values=free, where=f"result {k}: ", **{**how, "precise": None})
    wide = torch.complex128 if any(t.is_complex() for t in want) else torch.float64
    mine, theirs = ([to_torch(t).to(wide) for t in got], [t.detach().to(wide) for t in want])
    rtol = 1e-4 if want[0].dtype in (torch.float32, torch.complex64) else 1e-8
    pairs = [("product of the factors", factors_product(mine), factors_product(theirs))]
    for k in vectors:
        Q = mine[k] if k < 2 else mine[k].mH
        unit = torch.eye(Q.shape[-1], dtype=wide).expand(*Q.shape[:-2], -1, -1)
        pairs.append((f"result {k}: Q^H Q", Q.mH @ Q, unit))
    for what, left, right in pairs:
        try:
            assert_close(left, right, rtol, rtol * 10)
        except Mismatch as error:
            raise Mismatch(f"{what}: {error}") from None
    return None


def factors_product(factors):
    """U S V^H of a singular value decomposition, Q L Q^H of an eigendecomposition."""
    if len(factors) == 2:
        L, Q = factors
        return (Q * L[..., None, :]) @ Q.mH
    U, S, Vh = factors
    rank = S.shape[-1]
    return (U[..., :rank] * S[..., None, :]) @ Vh[..., :rank, :]


DIM_AT = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "mode": 0}     # where `dim` is among args


def same_order(op, sample, got, want, **how):
    """Equal elements may come in either order, unless stable: an index is right if it points to the right value."""
    pair = isinstance(want, tuple)
    if not pair and op.name != "argsort" or sample.kwargs.get("stable"):
        return assert_same(got, want, op, **how)
    if pair:
        assert_same(got[0], want[0], op, where="values: ", **how)
    mine, theirs = (got[1], want[1]) if pair else (got, want)
    assert_same(mine, theirs, op, values=any_values, where="indices: ", **{**how, "precise": None})
    at = DIM_AT[op.name]
    dim = sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)
    mine, input = to_torch(mine), sample.input.detach()
    if mine.shape != input.shape and mine.dim() == input.dim() - 1:                      # keepdim was not asked for
        mine, theirs = mine.unsqueeze(dim), theirs.unsqueeze(dim)
    if input.numel() and input.dim():
        if mine.numel() and not bool(((mine >= 0) & (mine < input.shape[dim])).all()):
            raise Mismatch(f"indices: {mine.min().item()} .. {mine.max().item()} for {input.shape[dim]} elements")
        assert_same(to_fb(input.gather(dim, mine)), input.gather(dim, theirs), op, where="indices: values there: ")
    return None


COMPARE = {"linalg.svd": same_factors, "linalg.eigh": same_factors, **dict.fromkeys(DIM_AT, same_order)}


def agree(op, dtype, sample, got, want, check_strides=False, precise=None):
    """`got` is what `want` is, results or errors, by the standard that fits `op`."""
    if isinstance(want, Raised):
        return assert_same_error(got, want)
    if isinstance(got, Raised):
        raise Mismatch(f"raises {got}") from got.error
    if isinstance(want, tuple):
        assert_same_fields(got, want)
    how = dict(dtype=dtype, check_strides=check_strides, precise=precise)
    if op.name in COMPARE:
        return COMPARE[op.name](op, sample, got, want, **how)
    return assert_same(got, want, op, values=VALUES.get(op.name, assert_close), **how)


WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
        torch.complex64: torch.complex128}


def in_double(op, sample):
    """A function that runs `sample` through PyTorch in double precision, or gives None where that is refused."""
    if not any(t.dtype in WIDE for t in tensors(sample)):
        return None
    original = copy(sample)

    @functools.cache
    def precise():
        wide = original.transform(lambda t: t.to(WIDE.get(t.dtype, t.dtype)) if isinstance(t, torch.Tensor) else t)
        out = attempt(torch_function(op), wide.input, *wide.args, **wide.kwargs)
        return None if isinstance(out, Raised) else out
    return precise


def call(f, sample):
    return attempt(f, sample.input, *sample.args, **sample.kwargs)


def both(op, dtype, sample, check_strides=False):
    """Run `sample` through the function form of each library and compare. PyTorch's result, for what follows."""
    mine, precise = to_fb(sample), in_double(op, sample)
    original = copy(sample) if op.name in COMPARE else sample
    want = call(torch_function(op), sample)
    agree(op, dtype, original, call(function(op), mine), want, check_strides, precise)
    return want


# ---- the checks ---------------------------------------------------------------------------------------------------

def values(op, dtype):
    """The function form gives PyTorch's values, dtype and shape; pointwise operations its strides too."""
    for sample in samples(op, dtype, "values"):
        yield sample, lambda: both(op, dtype, sample, is_pointwise(op))


def variants(op, dtype):
    """Methods, in-place forms, operators and aliases do what the function does; views are views."""
    forms = [("method", op.method_variant), ("operator", op.operator_variant)]
    forms += [(f"alias {alias.name}", alias) for alias in op.aliases if "." not in alias.name]
    writers = [("in-place", op.inplace_variant), ("in-place operator", op.inplace_operator_variant)]
    for nth, sample in enumerate(samples(op, dtype, "variants")):
        yield sample, lambda: aliasing(op, dtype, sample)
        if not isinstance(sample.input, torch.Tensor):
            continue
        for name, form in forms:
            if form is not None and fits(name, form, sample) and (nth < 2 or "alias" not in name):
                yield (name, sample), lambda: one_form(op, dtype, sample, name, form)
        if op.supports_varargs and sample.args and isinstance(sample.args[0], (tuple, list)) and op.method_variant:
            loose = copy(sample)
            loose.args = (*sample.args[0], *sample.args[1:])
            yield ("varargs", loose), lambda: one_form(op, dtype, loose, "method", op.method_variant)
        for name, form in writers:
            if form is not None and fits(name, form, sample):
                yield (name, sample), lambda: in_place(op, dtype, sample, form)
        if op.inplace_variant and nth == 0 and dtype.is_floating_point:
            yield ("in-place on a leaf", sample), lambda: in_place(op, dtype, sample, op.inplace_variant, leaf=True)


def fits(name, form, sample):
    """Operators take one or two operands and nothing else."""
    return "operator" not in name or not sample.kwargs and len(sample.args) <= 1


def one_form(op, dtype, sample, name, form):
    mine, precise, original = to_fb(sample), in_double(op, sample), copy(sample)
    if "alias" in name:
        twin = types.SimpleNamespace(name=form.name, op=form.op)
        agree(op, dtype, original, call(function(twin), mine), call(form.op, sample), precise=precise)
        if form.method_variant is not None:
            one_form(op, dtype, original, "method", form.method_variant)
        if form.inplace_variant is not None and op.inplace_variant is not None:
            in_place(op, dtype, original, form.inplace_variant)
        return
    agree(op, dtype, original, call(variant(form), mine), call(form, sample), precise=precise)


def in_place(op, dtype, sample, form, leaf=False):
    """The in-place form writes the same values into the tensor it was given, returns it and raises its version."""
    theirs = copy(sample)
    if not leaf:
        theirs.input = theirs.input.detach().clone()          # an expanded input cannot be written to
    else:
        theirs.input.requires_grad_()
    mine, precise = to_fb(theirs), in_double(op, theirs)
    original = copy(theirs)
    before, before_theirs = mine.input._version, theirs.input._version
    want, got = call(form, theirs), call(variant(form), mine)
    agree(op, dtype, original, got, want, check_strides=True, precise=precise)
    if isinstance(want, Raised):
        if not leaf:
            agree(op, dtype, original, mine.input, theirs.input)
        return
    if want is theirs.input and got is not mine.input:
        raise Mismatch("does not return the tensor it was called on")
    if theirs.input._version > before_theirs and mine.input._version <= before:
        raise Mismatch(f"_version stays {before}")


def aliasing(op, dtype, sample):
    """Inputs are left alone where PyTorch leaves them alone, and what is a view there is a view here."""
    theirs = copy(sample)
    mine, original = to_fb(theirs), copy(sample)
    with reading_only():
        want, got = call(torch_function(op), theirs), call(function(op), mine)
        agree(op, dtype, original, got, want)
        if isinstance(want, Raised) or op.name in VALUES:
            return
        inputs = list(zip(tensors(mine), tensors(theirs)))
        for k, (a, b) in enumerate(inputs):
            assert_same(a, b, op, dtype, where=f"input {k} after the call: ")
            if (want is b) != (got is a):
                raise Mismatch(f"the result {'is not' if want is b else 'is'} input {k} itself, unlike torch's")
        if op.name in COMPARE:
            return                                            # no views among them, and their answers are not unique
        shared = {t.untyped_storage().data_ptr() for _, t in inputs if t.numel()}
        for k, (a, b) in enumerate(zip(tensors(got), tensors(want))):
            if b.numel() and b.untyped_storage().data_ptr() in shared:
                assert_same(a, b, op, dtype, check_strides=True, where=f"view {k}: ")
                if a.storage_offset() != b.storage_offset():
                    raise Mismatch(f"view {k}: storage offset {a.storage_offset()}, want {b.storage_offset()}")
        for k, (a, b) in enumerate(inputs):
            if b.dtype is dtype and not isinstance(attempt(b.fill_, 1), Raised):        # or overlapping: not writable
                a.fill_(1)
                for a, b in zip(tensors(got), tensors(want)):
                    assert_same(a, b, op, dtype, looser=10, where=f"result after a write to input {k}: ")


def out(op, dtype):
    """`out=` of the right, no, another and a wrong kind, each treated as PyTorch treats it."""
    for sample in samples(op, dtype, "out"):
        want = call(torch_function(op), copy(sample))
        if isinstance(want, Raised) or not tensors(want) or len(tensors(want)) != len(flat(want)):
            continue
        for style in OUT_STYLES:
            if style == "requires grad" and not (op.supports_autograd and dtype.is_floating_point):
                continue
            if style != "other shape" or all(t.numel() for t in tensors(want)):      # empty: not another size yet
                yield (f"out {style}", sample), lambda: one_out(op, dtype, sample, want, style)


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def garbage(shape, dtype):
    return torch.full(tuple(shape), float("nan") if dtype.is_floating_point or dtype.is_complex else 1, dtype=dtype)


OUT_STYLES = {
    "right":         lambda t: garbage(t.shape, t.dtype),
    "empty":         lambda t: garbage((0,), t.dtype),
    "strided":       lambda t: noncontiguous_like(garbage(t.shape, t.dtype)),
    "transposed":    lambda t: garbage(t.shape[::-1], t.dtype).permute(tuple(reversed(range(t.dim())))),
    "other shape":   lambda t: garbage((*t.shape, 2), t.dtype),
    "other dtype":   lambda t: garbage(t.shape, torch.int64 if t.dtype in TOLERANCES else torch.float32),
    "wider dtype":   lambda t: garbage(t.shape, torch.complex128),
    "requires grad": lambda t: garbage(t.shape, t.dtype).requires_grad_(t.is_floating_point()),
}


def one_out(op, dtype, sample, result, style):
    outs = [OUT_STYLES[style](t) for t in flat(result)]
    before = [t.stride() for t in outs]
    theirs = copy(sample)
    theirs.kwargs = {**theirs.kwargs, "out": tuple(outs) if isinstance(result, (tuple, list)) else outs[0]}
    mine, precise, original = to_fb(theirs), in_double(op, sample), copy(sample)
    want, got = call(torch_function(op), theirs), call(function(op), mine)
    if isinstance(want, Raised) and style in ("wider dtype", "strided", "transposed"):
        return                                                # a refusal by quirk of one kernel's, not by rule
    made = flat(result)[0].dtype                              # integers compute in float32: its tolerance applies
    dtype = made if made in TOLERANCES else dtype
    agree(op, dtype, original, got, want, precise=precise if "dtype" not in style else None)
    if isinstance(want, Raised):
        return
    for k, (a, b, mine_out, their_out) in enumerate(zip(flat(got), flat(want), flat(mine.kwargs["out"]), outs)):
        if b is their_out and a is not mine_out:
            raise Mismatch(f"does not return out {k} itself")
        # A few of PyTorch's kernels restride what they were given; keeping it is as good.
        strides = tuple(mine_out.stride())
        if style in ("right", "strided", "transposed") and strides not in (before[k], their_out.stride()):
            raise Mismatch(f"out {k}: strides {before[k]} become {strides}")
        assert_same(mine_out, their_out, op, dtype, values=any_values, where=f"out {k}: ")
        if op.name not in COMPARE and op.name not in VALUES and b is not their_out:
            assert_same(mine_out, their_out, op, dtype, where=f"out {k}: ")


def noncontiguous(op, dtype):
    """The answers do not depend on how the inputs lie in memory; empty inputs have answers too."""
    layouts = {"strided": noncontiguous_like, "transposed": transposed, "expanded": expanded, "zero-size": emptied}
    for sample in samples(op, dtype, "noncontiguous"):
        for name, layout in layouts.items():
            laid = copy(sample).transform(lambda t: layout(t) if isinstance(t, torch.Tensor) else t)
            if describe(laid) != describe(sample) and (name, op.name) not in NO_ORACLE \
                    and not (name == "expanded" and makes_singular(op, sample)):
                yield (name, laid), lambda: laid_out(op, dtype, laid, strict=name in ("strided", "transposed"))


NO_ORACLE = {
    ("zero-size", "nn.functional.multi_margin_loss"),                # PyTorch returns uninitialised memory
    ("zero-size", "nn.functional.scaled_dot_product_attention"),     # PyTorch broadcasts 0 against 4
    ("expanded", "median"),                                          # PyTorch reads past the one element
    ("expanded", "nn.functional.batch_norm"),                        # PyTorch writes statistics through the expansion
    ("expanded", "nn.functional.instance_norm"),
}


def makes_singular(op, sample):
    """Whether `expanded` turns a matrix into copies of its first row, which factorisations answer with noise."""
    return op.name.startswith("linalg.") and any(t.dim() == 2 for t in tensors(sample))


def transposed(t):
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t


def expanded(t):
    return t[:1].expand_as(t) if t.dim() > 0 and t.shape[0] > 1 else t


def emptied(t):
    return t[:0] if t.dim() > 0 else t


def laid_out(op, dtype, sample, strict):
    mine, precise, original = to_fb(sample), in_double(op, sample), copy(sample)
    want = call(torch_function(op), sample)
    if isinstance(want, Raised) and not strict:
        return                                                # the layout changed the question: no answer is due
    agree(op, dtype, original, call(function(op), mine), want, is_pointwise(op), precise)


def gradients(op, dtype):
    """A backward pass from the same gradients leaves the same gradients on every input."""
    for nth, sample in enumerate(samples(op, dtype, "gradients", requires_grad=True)):
        yield sample, lambda: one_gradient(op, dtype, sample, torch_function(op), function(op))
        if nth < 3:
            laid = copy(sample)
            for part in ("input", "args", "kwargs"):
                setattr(laid, part, laid_like(getattr(laid, part)))
            yield ("strided", laid), lambda: one_gradient(op, dtype, laid, torch_function(op), function(op))
        if nth < 5 and op.inplace_variant and op.supports_inplace_autograd and isinstance(sample.input, torch.Tensor) \
                and not sample.broadcasts_input:
            yield ("in-place", sample), lambda: one_gradient(op, dtype, sample, cloned(op.inplace_variant),
                                                             cloned(variant(op.inplace_variant)))


def cloned(form):
    return lambda input, *args, **kwargs: form(input.clone(), *args, **kwargs)


def laid_like(x):
    if isinstance(x, torch.Tensor):
        return noncontiguous_like(x.detach()).requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)):
        return type(x)(laid_like(part) for part in x)
    if isinstance(x, dict):
        return {key: laid_like(part) for key, part in x.items()}
    return x


def leaves_of(sample):
    return [t for t in tensors(sample) if t.requires_grad]


def forward(f, sample):
    """The differentiable outputs of `f` on `sample`, as OpInfo wants them looked at."""
    def whole(*args, **kwargs):
        return sample.output_process_fn_grad(f(*args, **kwargs))
    result = call(whole, sample)
    return result if isinstance(result, Raised) else tensors(result)


def cotangents(outs, seed):
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, dtype=t.dtype, generator=source) for t in outs]


def grad_outputs(sample, f, mine, f_mine):
    """Run both forwards: each side's leaves and differentiable outputs, or None where PyTorch has no gradient."""
    leaves, mine_leaves = leaves_of(sample), leaves_of(mine)
    for leaf in leaves:
        leaf.grad = None                                      # OpInfo reuses tensors between samples
    outs = forward(f, sample)
    if isinstance(outs, Raised):
        return None
    mine_outs = forward(f_mine, mine)
    if isinstance(mine_outs, Raised):
        raise Mismatch(f"raises {mine_outs}") from mine_outs.error
    flags, mine_flags = ([t.requires_grad for t in side] for side in (outs, mine_outs))
    if flags != mine_flags:
        raise Mismatch(f"requires_grad of the results is {mine_flags}, want {flags}")
    outs, mine_outs = ([t for t in side if t.requires_grad] for side in (outs, mine_outs))
    return (leaves, outs, mine_leaves, mine_outs) if outs else None


def one_gradient(op, dtype, sample, f, f_mine):
    sample = copy(sample)
    found = grad_outputs(sample, f, to_fb(sample), f_mine)
    if found is None:
        return
    leaves, outs, mine_leaves, mine_outs = found
    cots = cotangents(outs, seed=1)
    if isinstance(attempt(torch.autograd.backward, outs, cots), Raised):
        return
    done = attempt(fb.autograd.backward, mine_outs, to_fb(cots))
    if isinstance(done, Raised):
        raise Mismatch(f"backward raises {done}") from done.error
    for k, (a, b) in enumerate(zip(mine_leaves, leaves)):
        assert_same(a.grad, b.grad, op, dtype, values=VALUES.get(op.name, assert_close), where=f"grad of input {k}: ",
                    looser=10)


def second_gradients(op, dtype):
    """Gradients of the gradients, in the inputs and in the incoming gradient; None counts as zero."""
    for sample in samples(op, dtype, "second_gradients", requires_grad=True):
        yield sample, lambda: one_second_gradient(op, dtype, sample)


def one_second_gradient(op, dtype, sample):
    sample = copy(sample)
    found = grad_outputs(sample, torch_function(op), to_fb(sample), function(op))
    if found is None:
        return
    leaves, outs, mine_leaves, mine_outs = found
    cots = [t.requires_grad_() for t in cotangents(outs, seed=1)]
    seeds = cotangents(leaves, seed=2)
    want = attempt(twice, torch, outs, leaves, cots, seeds)
    if isinstance(want, Raised):
        return
    got = attempt(twice, fb, mine_outs, mine_leaves, to_fb(cots), to_fb(seeds))
    if isinstance(got, Raised):
        raise Mismatch(f"raises {got}") from got.error
    for name, mine, theirs in zip(("grad of", "second grad of"), got, want):
        for k, (a, b) in enumerate(zip(mine, theirs)):
            what = f"input {k}" if k < len(leaves) else f"incoming gradient {k - len(leaves)}"
            if a is None or b is None:
                if any(t is not None and bool((t != 0).any()) for t in (a, b)):
                    raise Mismatch(f"{name} {what}: got {describe(a)}, want {describe(b)}")
            else:
                assert_same(a, b, op, dtype, values=VALUES.get(op.name, where_known), where=f"{name} {what}: ",
                            looser=10)


def where_known(got, want, rtol, atol, precise=None):
    """Second derivatives that PyTorch has no number for (of a norm at zero, say) may be anything."""
    assert_close(got[~want.isnan()], want[~want.isnan()], rtol, atol)


def twice(lib, outs, leaves, cots, seeds):
    first = lib.autograd.grad(outs, leaves, cots, create_graph=True, allow_unused=True)
    live = [(g, seed) for g, seed in zip(first, seeds) if g is not None and g.requires_grad]
    if not live:
        return first, [None] * (len(leaves) + len(cots))
    second = lib.autograd.grad([g for g, _ in live], [*leaves, *cots], [seed for _, seed in live], allow_unused=True)
    return first, second


def errors(op, dtype=None):
    """What PyTorch refuses is refused, with an exception of the same type."""
    for error in drawn(op.error_inputs_func(op, "cpu")):
        sample = error.sample_input
        if callable_on(op, sample):
            yield sample, lambda: one_error(op, sample)


def one_error(op, sample):
    mine = to_fb(sample)
    want = call(torch_function(op), sample)
    if isinstance(want, Raised):
        assert_same_error(call(function(op), mine), want)


# ---- running ------------------------------------------------------------------------------------------------------

class Outcome:
    """What came of one check on one (op, dtype): how many cases ran, and those that failed."""

    def __init__(self):
        self.ran, self.failures, self.seconds = 0, [], 0.0

    def first(self):
        """The first failure: what was called, and on one line what went wrong and how often."""
        label, error = self.failures[0]
        text = " ".join(str(error).split()) if isinstance(error, Mismatch) else str(Raised(error))
        return label, text + f"  [{len(self.failures)} of {self.ran} cases]" * (self.ran > 1)


def run(check, op, dtype=None):
    """Every case of `check` on `op` with inputs of `dtype`."""
    outcome, start = Outcome(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, case in globals()[check](op, dtype):
            name, sample = label if isinstance(label, tuple) else ("", label)
            text = f"{name} {op.full_name}{describe(sample)}".strip()     # before an in-place form changes it
            try:
                case()
            except Unsupported:
                continue
            except Exception as error:
                outcome.failures.append((text, error))
            outcome.ran += 1
    outcome.seconds = time.perf_counter() - start
    return outcome


def case_id(op, dtype):
    return op.full_name if dtype is None else f"{op.full_name}-{DTYPES[dtype]}"


def everything(check):
    """All (op, dtype) that `check` is run on."""
    return [(op, dtype) for op in OPS for dtype in dtypes_for(check, op)]


def read_gaps(path=HERE / "gaps.txt"):
    """{(test name, op or op-dtype): reason} from lines of `test_name  op[-dtype]  reason`."""
    lines = (line.split("#")[0].split(None, 2) for line in path.read_text().splitlines())
    return {(words[0], words[1]): words[2] if len(words) > 2 else "" for words in lines if words}


def gap(gaps, check, op, dtype):
    """The reason why `check` is known to fail on (op, dtype), or None."""
    for name in (case_id(op, dtype), op.full_name):
        if (f"test_{check}", name) in gaps:
            return gaps[f"test_{check}", name]
    return None
