"""Walk the declarations: what holds for every operation is tested here once, on inputs drawn from its domain.

Pointwise operations say enough about themselves to be called automatically. `DOMAIN` and `GIVEN` hold what they do not say:
where an operand must lie, and values for arguments that are not operands. The other families are in tests/ops.
"""
import math
import zlib

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.backends.backend import arguments
from flambeau.base.op import REQUIRED, Composite, Op
from flambeau.tensor.forms import MODULES, declared
from flambeau.trace.record import current

# An interval for each operand. Kinks and poles are left out, and ranges kept where second differences are still exact.
DOMAIN = {
    "sqrt": [(0.3, 3)], "rsqrt": [(0.3, 3)], "log": [(0.3, 3)], "log2": [(0.3, 3)], "log10": [(0.3, 3)],
    "log1p": [(-0.6, 3)], "acosh": [(1.3, 3)], "asin": [(-0.8, 0.8)], "acos": [(-0.8, 0.8)], "atanh": [(-0.8, 0.8)],
    "logit": [(0.2, 0.8)], "erfinv": [(-0.8, 0.8)], "_ndtri": [(0.2, 0.8)], "_entr": [(0.2, 2)], "tan": [(-1.2, 1.2)],
    "reciprocal": [(0.5, 3)], "true_divide": [(-2, 2), (0.5, 3)], "_div_rounded": [(2.1, 2.9), (0.5, 0.6)],
    "_floor_divide": [(2.1, 2.9), (0.5, 0.6)], "_remainder": [(2.1, 2.4), (0.9, 1.0)], "_fmod": [(2.1, 2.4), (0.9, 1.0)],
    "_integer_division": [(2, 9), (1, 4)], "addcdiv": [(-2, 2), (-2, 2), (0.5, 3)],
    "_pow": [(0.3, 2), (-2, 2)], "_pow_number": [(0.3, 2)], "_pow_of_number": [None, (-2, 2)],
    "floor": [(0.1, 0.9)], "ceil": [(0.1, 0.9)], "trunc": [(0.1, 0.9)], "frac": [(0.1, 0.9)], "_round": [(0.6, 1.4)],
    "_round_decimals": [(0.51, 0.54)], "abs_": [(0.3, 2)], "_abs_in_place": [(0.3, 2)], "sign": [(0.3, 2)], "sgn": [(0.3, 2)],
    "angle": [(0.3, 2)], "copysign": [(0.3, 2), (0.3, 2)], "heaviside": [(0.3, 2), (-2, 2)], "xlogy": [(-2, 2), (0.3, 2)],
    "_xlog1py": [(-2, 2), (-0.5, 2)], "hypot": [(0.5, 2), (0.5, 2)], "atan2": [(0.5, 2), (-2, 2)],
    "_clamp": [(-0.8, 0.8)], "maximum": [(-2, 0), (0.1, 2)], "minimum": [(-2, 0), (0.1, 2)], "fmax": [(-2, 0), (0.1, 2)],
    "fmin": [(-2, 0), (0.1, 2)], "_clamp_tensor": [(0.1, 0.9), (-1, 0), (1.0, 2)], "clamp_min": [(0.1, 2), (-1, 0)],
    "clamp_max": [(0.1, 0.9), (1, 2)], "relu": [(0.2, 2)], "_threshold": [(0.2, 2)], "_threshold_backward": [(-2, 2), (0.2, 2)],
    "_hardtanh": [(-0.8, 0.8)], "hardshrink": [(0.7, 2)], "_softshrink": [(0.7, 2)], "_leaky_relu": [(-2, -0.2)],
    "_prelu_kernel": [(-2, -0.2), (0.1, 0.5)], "_hardsigmoid": [(-2, 2)], "_hardswish": [(-2, 2)],
    "_elu": [(-2, -0.2)], "_celu": [(-2, -0.2)], "lgamma": [(0.5, 4)], "digamma": [(0.5, 4)], "_polygamma": [(0.5, 4)],
    "mvlgamma": [(2.5, 5)], "igamma": [(0.5, 3), (0.5, 3)], "igammac": [(0.5, 3), (0.5, 3)], "_zeta": [(2.0, 5), (0.5, 4)],
    "gcd": [(1, 40), (1, 40)], "lcm": [(1, 40), (1, 40)], "bitwise_left_shift": [(0, 9), (0, 3)],
    "bitwise_right_shift": [(0, 99), (0, 3)], "polar": [(0.3, 2), (-2, 2)], "ldexp": [(-2, 2), (-1, 3)], "nextafter": [(0.3, 1), (2, 3)],
    "_where": [None, (-2, 2), (-2, 2)], "_log_ndtr": [(-2, 2)],
}

# What stands for arguments that are no operands.
GIVEN = {
    "_div_rounded": {"rounding_mode": "floor"}, "_integer_division": {"part": "floor"}, "_pow_number": {"exponent": 2.5},
    "_pow_of_number": {"input": 1.7}, "lerp": {"weight": 0.3}, "_round_decimals": {"decimals": 1}, "_clamp": {"min": -1.0, "max": 1.0},
    "_threshold_backward": {"threshold": 0.1}, "_threshold": {"threshold": 0.1, "value": 5.0},
    "_hardtanh": {"min_val": -1.0, "max_val": 1.0}, "_softshrink": {"lambd": 0.5}, "_leaky_relu": {"negative_slope": 0.1},
    "_elu": {"alpha": 1.2, "scale": 1.1, "input_scale": 0.9}, "_celu": {"alpha": 1.2}, "_polygamma": {"n": 1}, "mvlgamma": {"p": 2},
    "_isclose": {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False},
    "_where": {"condition": lambda shape: torch.tensor(np.arange(math.prod(shape)).reshape(shape) % 2 == 0)},
}
WHOLE = {"_integer_division"}            # parts of public operations that are handed whole numbers only
INTEGER_SECOND = {"ldexp"}                # operands that only make sense as whole numbers
NO_SECOND = {"_polygamma", "_zeta"}      # second derivatives that PyTorch has not either, or not here


def concrete(op):
    """Whether `op` is an operation, and not what several declarations share."""
    return hasattr(op, "ref") or op.is_view or (op.composite and op.of is not Composite.of)


OPS = {name: op for name, op in declared.items() if concrete(op)}
POINTWISE = {name: op for name, op in OPS.items() if op.pointwise}
for _op in OPS.values():
    if not _op.prepared:
        _op.prepare()
each = lambda which: pytest.mark.parametrize("name", [name for name, op in POINTWISE.items() if which(op)])
every = each(lambda op: True)


# --- declarations ---------------------------------------------------------------------------------------------------------


def test_every_module_of_declarations_is_read():
    from pathlib import Path

    import flambeau.ops
    there = {path.stem for path in Path(flambeau.ops.__path__[0]).glob("*.py")} - {"__init__"}
    declaring = {name for name in there if any(op.__module__ == f"flambeau.ops.{name}" for op in declared.values())}
    assert declaring <= set(MODULES) and len(OPS) > 600


@pytest.mark.parametrize("module", MODULES)
def test_every_declaration_says_what_the_caller_gets(module):
    for name, op in OPS.items():
        own = {"ref", "of", "view"} & set(vars(op))                # the others only rename the node of what they derive from
        if op.__module__ == f"flambeau.ops.{module}" and own:
            assert op.__doc__, f"{module}.{name} has no docstring"
            text = op.__doc__.strip()
            assert text[0].isupper() or text[0] in "`0123456789", f"{name}: {text!r}"
            assert text.split("\n")[0].rstrip().endswith((".", ":")), f"{name}: {text!r}"


def test_headings_are_spelled_right():
    """A rule for an argument that is not there, or a heading nobody reads, is a silent mistake."""
    known = {name for base in (Op, Composite, *[op.__mro__[1] for op in OPS.values()]) for name in vars(base)}
    for name, op in OPS.items():
        for heading in vars(op):
            if heading.startswith("d_"):
                assert heading[2:] in op.arg_names, f"{name}.{heading}: no such argument"
            elif not heading.startswith("_"):
                assert heading in known | READ, f"{name}.{heading}: nobody reads it"


READ = {"meta", "ref", "view", "of", "grads", "verify", "prepared", "arg_names", "n_positional", "kwonly", "defaults", "required",
        "scalar_at", "rules", "joint", "differentiable", "saves", "node_name", "operands", "operand_at", "result_type", "check",
        "cname", "body", "samples", "names", "forms", "node"}


def test_rules_ask_for_what_there_is():
    for name, op in OPS.items():
        asked = [(f"d_{op.arg_names[at]}", names) for at, (_, names) in op.rules.items()]
        asked += [("grads", op.joint[1])] if op.joint else []
        for rule, names in asked:
            for wanted in names:
                stem = wanted.removesuffix("_spec")
                fine = wanted in op.arg_names or stem in op.arg_names or wanted == "out" or wanted[:3] == "out" and wanted[3:].isdigit()
                assert fine, f"{name}.{rule} asks for {wanted!r}"


def test_public_names_lead_to_their_forms():
    for op in OPS.values():
        forms = op.forms.split()
        for public in op.names.split():
            prefix, _, last = public.rpartition(".")
            if prefix == "Tensor":
                assert callable(getattr(torch.Tensor, last))
            elif "function" in forms:
                home = torch
                for part in prefix.split(".") if prefix else ():
                    home = getattr(home, part)
                assert callable(getattr(home, last)), public


# --- inputs ---------------------------------------------------------------------------------------------------------------


NUMPY = {"bool": np.bool_, "bfloat16": ml_dtypes.bfloat16}


def numpy_type(dtype):
    return np.dtype(NUMPY.get(dtype, dtype))


def draw(name, dtype="float64", shape=(2, 3), shapes=None):
    """Arguments for an operation, drawn from its domain; numbers where it takes numbers."""
    op = POINTWISE[name]
    rng = np.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
    args, at = [], 0
    for arg, default in zip(op.arg_names, op.defaults):
        given = GIVEN.get(name, {})
        if arg in given:
            args.append(given[arg](shape) if callable(given[arg]) else given[arg])
            at += arg in op.operands and len(DOMAIN.get(name, [])) > 1
        elif default is REQUIRED or name == "_clamp_tensor":
            intervals = [i for i in DOMAIN.get(name, []) if i is not None]
            low, high = intervals[min(at, len(intervals) - 1)] if intervals else (-2, 2)
            whole = at == 1 and name in INTEGER_SECOND
            at += 1
            own = shape if shapes is None else shapes[(at - 1) % len(shapes)]
            args.append(array(rng, dtype, own, low, high, whole))
        else:
            break
    return [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args]


def array(rng, dtype, shape, low, high, whole=False):
    kind = numpy_type(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")) or whole:
        start = 0 if dtype.startswith("uint") and low < 0 else math.ceil(low)
        return np.asarray(rng.integers(start, max(math.floor(high), start + 2) + 1, shape)).astype(kind)
    values = rng.uniform(low, high, shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.uniform(0.2, 0.7, shape)
    return np.asarray(values).astype(kind)


def accepts(name, dtype):
    """Whether the operation takes this dtype, as it says itself at the call."""
    if name in WHOLE and dtype not in ("uint8", "int16", "int64"):
        return False
    try:
        POINTWISE[name](*draw(name, dtype))
        return True
    except (RuntimeError, NotImplementedError, TypeError):
        return False


def best(name):
    """A dtype that the operation takes: the widest floating one if it can."""
    return next(d for d in ("float64", "int64", "bool", "complex128") if accepts(name, d))


def tensors(args):
    return [a for a in args if isinstance(a, torch.Tensor)]


def parts(result):
    return result if isinstance(result, tuple) else (result,)


def same(ours, expected, **tolerance):
    for a, b in zip(parts(ours), parts(expected), strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        half = a.dtype in (torch.float16, torch.bfloat16)
        a, b = (t.detach().float().numpy() if half else t.detach().numpy() for t in (a, b))
        np.testing.assert_allclose(a, b, **tolerance)


# --- pointwise: the result is what its spec says ------------------------------------------------------------------------------


@every
def test_meta_against_reference(name):
    """The reference, run as it stands, gives the shape that was predicted and a dtype of the same kind and width."""
    op, tried = POINTWISE[name], 0
    for dtype in "bool uint8 int16 int64 float16 bfloat16 float32 float64 complex64".split():
        if not accepts(name, dtype):
            continue
        for shapes in ([(2, 3)], [(2, 3), (3,), (2, 1)], [(2, 1), (3,), ()], [()], [(0, 3)]):
            args = draw(name, dtype, shapes[0], shapes)
            if name == "_where":
                args[0] = torch.tensor(True)
            result = op(*args)
            entry, *_, params, _ = current().code[-1]
            arrays = [t.numpy() for t in tensors(args)]
            if entry.casts is not None:
                arrays = [a.astype(c) for a, c in zip(arrays, entry.casts, strict=True)]
            argv, n = arguments(entry, arrays, params), op.n_positional
            with np.errstate(all="ignore"):
                made = op.ref(np, *argv[:n], **dict(zip(op.kwonly, argv[n:])))
            for array, tensor in zip(made if entry.many else (made,), parts(result), strict=True):
                expected = tensor.spec.dtype.np if op.exact else np.dtype(tensor.spec.dtype.compute)
                assert np.shape(array) == tuple(tensor.shape)
                if "float" in dtype or "complex" in dtype:         # whole numbers may take any way to their result
                    assert np.asarray(array).dtype == expected, f"{dtype}: its spec is {tensor.spec}"
                tried += 1
    assert tried >= 5
