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
from flambeau.backends.reference import arguments
from flambeau.base.op import REQUIRED, Composite, Op
from flambeau.tensor.forms import OPS_MODULES, declared
from flambeau.trace.recording.record import current

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
    "_hardtanh": [(-0.8, 0.8)], "_hardshrink": [(0.7, 2)], "_softshrink": [(0.7, 2)], "_leaky_relu": [(-2, -0.2)],
    "_prelu_kernel": [(-2, -0.2), (0.1, 0.5)], "_hardsigmoid": [(-2, 2)], "_hardswish": [(-2, 2)],
    "_elu": [(-2, -0.2)], "_celu": [(-2, -0.2)], "lgamma": [(0.5, 4)], "digamma": [(0.5, 4)], "_polygamma_of_order": [(0.5, 4)],
    "_mvlgamma_of_dimension": [(2.5, 5)], "igamma": [(0.5, 3), (0.5, 3)], "igammac": [(0.5, 3), (0.5, 3)], "_zeta": [(2.0, 5), (0.5, 4)],
    "gcd": [(1, 40), (1, 40)], "lcm": [(1, 40), (1, 40)], "bitwise_left_shift": [(0, 9), (0, 3)],
    "bitwise_right_shift": [(0, 99), (0, 3)], "polar": [(0.3, 2), (-2, 2)], "ldexp": [(-2, 2), (-1, 3)], "nextafter": [(0.3, 1), (2, 3)],
    "_where": [None, (-2, 2), (-2, 2)], "_native_dropout": [(-2, 2), None], "_log_ndtr": [(-2, 2)],
    **{f"_chebyshev_polynomial_{kind}": [(-0.9, 0.9), (0, 12)] for kind in "tuvw"},
    **{f"_shifted_chebyshev_polynomial_{kind}": [(0.1, 0.9), (0, 12)] for kind in "tuvw"},
    "_hermite_polynomial_h": [(-2, 2), (0, 9)], "_hermite_polynomial_he": [(-2, 2), (0, 9)], "_laguerre_polynomial_l": [(-2, 2), (0, 9)],
    "_legendre_polynomial_p": [(-2, 2), (0, 9)],
}

def every_other(shape):
    return torch.tensor(np.arange(math.prod(shape)).reshape(shape) % 2 == 0)


# What stands for arguments that are no operands.
GIVEN = {
    "_div_rounded": {"rounding_mode": "floor"}, "_integer_division": {"part": "floor"}, "_pow_number": {"exponent": 2.5},
    "_pow_of_number": {"input": 1.7}, "lerp": {"weight": 0.3}, "_round_decimals": {"decimals": 1}, "_clamp": {"min": -1.0, "max": 1.0},
    "_threshold_backward": {"threshold": 0.1}, "_threshold": {"threshold": 0.1, "value": 5.0},
    "_hardtanh": {"min_val": -1.0, "max_val": 1.0}, "_softshrink": {"lambd": 0.5},
    "_hardshrink": {"lambd": 0.5}, "_leaky_relu": {"negative_slope": 0.1},
    "_elu": {"alpha": 1.2, "scale": 1.1, "input_scale": 0.9}, "_celu": {"alpha": 1.2}, "_polygamma_of_order": {"orders": (1,)},
    "_mvlgamma_of_dimension": {"dimensions": (2,)},
    "_isclose": {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False},
    "_where": {"condition": lambda shape: every_other(shape)},
    "_native_dropout": {"keep": lambda shape: every_other(shape), "scale": 1.25, "slope": 1.25},
}
WHOLE = {"_integer_division"}            # parts of public operations that are handed whole numbers only
NO_NUMBERS = {"_threshold_backward", "_pow"}    # and such as are handed tensors only
INTEGER_SECOND = {"ldexp"}                # operands that only make sense as whole numbers
# Arguments for which PyTorch has no derivative either: asking for it is refused, in words.
WITHOUT = {"_floor_divide": {"input", "other"}, "heaviside": {"input", "values"}, "igamma": {"input"}, "igammac": {"input"},
           "_zeta": {"input"}}


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
    from importlib import import_module
    from pathlib import Path
    there = {path.stem for path in Path(import_module("flambeau.ops").__path__[0]).glob("*.py")} - {"__init__"}
    declaring = {name for name in there if any(op.__module__ == f"flambeau.ops.{name}" for op in declared.values())}
    assert declaring <= set(OPS_MODULES) and len(OPS) > 600


@pytest.mark.parametrize("module", OPS_MODULES)
def test_every_declaration_says_what_the_caller_gets(module):
    for name, op in OPS.items():
        own = {"ref", "of", "view"} & set(vars(type(op)))                # the others only rename the node of what they derive from
        if op.__module__ == f"flambeau.ops.{module}" and own:
            assert op.__doc__, f"{module}.{name} has no docstring"
            if not name.startswith("_"):
                first = op.__doc__.strip().split("\n\n")[0]
                assert first.endswith((".", ":")), f"{name}: {first!r} is no sentence"


def test_headings_are_spelled_right():
    """A rule for an argument that is not there, or a heading nobody reads, is a silent mistake."""
    known = {name for base in (Op, Composite, *[type(op).__mro__[1] for op in OPS.values()]) for name in vars(base)}
    for name, op in OPS.items():
        for heading in vars(type(op)):
            if heading.startswith("d_"):
                assert heading[2:] in op.arg_names, f"{name}.{heading}: no such argument"
            elif not heading.startswith("_"):
                assert heading in known | READ, f"{name}.{heading}: nobody reads it"


READ = {"meta", "ref", "view", "of", "grads", "verify", "holds", "check", "cname", "body", "samples", "names",
        "forms", "node"}


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
            last = current().code[-1]
            entry, params = last.entry, last.params
            arrays = [t.numpy() for t in tensors(args)]
            if entry.casts is not None:
                arrays = [a.astype(c) for a, c in zip(arrays, entry.casts, strict=True)]
            argv, n = arguments(entry, arrays, params), op.n_positional
            with np.errstate(all="ignore"):
                made = op.ref(np, *argv[:n], **dict(zip(op.kwonly, argv[n:])))
            for array, tensor in zip(made if entry.many else (made,), parts(result), strict=True):
                expected = tensor._spec.dtype.np if op.exact else np.dtype(tensor._spec.dtype.compute)
                assert np.shape(array) == tuple(tensor.shape)
                if "float" in dtype or "complex" in dtype:         # whole numbers may take any way to their result
                    assert np.asarray(array).dtype == expected, f"{dtype}: its spec is {tensor._spec}"
                tried += 1
    assert tried >= 5


@every
def test_memory_is_laid_out_as_the_spec_says(name):
    for result in (POINTWISE[name](*draw(name, best(name))), POINTWISE[name](*turned(draw(name, best(name))))):
        for tensor in parts(result):
            array = tensor._storage.value.ready().look(tensor._spec, tensor._offset)
            assert array.dtype == tensor._spec.dtype.np and array.shape == tensor._spec.shape
            assert array.strides == tensor._spec.np_strides and array.flags.writeable


# --- pointwise: every layout gives the same ------------------------------------------------------------------------------------


def turned(args):
    """The same values, laid out column by column."""
    return [a.t().contiguous().t() if isinstance(a, torch.Tensor) and a.dim() == 2 else a for a in args]


def stepped(args):
    """The same values, every other element of something larger."""
    def spread(t):
        wide = torch.zeros(*[2 * n for n in t.shape], dtype=t.dtype)
        view = wide[tuple(slice(None, None, 2) for _ in t.shape)]
        view.copy_(t)
        return view
    return [spread(a) if isinstance(a, torch.Tensor) else a for a in args]


@every
def test_layouts(name):
    op, dtype = POINTWISE[name], best(name)
    args = draw(name, dtype, (4, 3))
    expected = op(*args)
    for other in (turned(args), stepped(args), [turned([a])[0] if k else a for k, a in enumerate(args)]):
        same(op(*other), expected, rtol=1e-13, atol=1e-300)


@every
def test_expanded_and_single_elements(name):
    op, dtype = POINTWISE[name], best(name)
    row = draw(name, dtype, (3,))
    expected = op(*row)
    spread = op(*[a.expand(2, 3) if isinstance(a, torch.Tensor) else a for a in row])
    for part, whole in zip(parts(expected), parts(spread), strict=True):
        same(whole[0], part, rtol=1e-13, atol=1e-300)
        same(whole[1], part, rtol=1e-13, atol=1e-300)
    single = op(*[a[1] if isinstance(a, torch.Tensor) else a for a in row])
    for part, one in zip(parts(expected), parts(single), strict=True):
        assert one.shape == ()
        same(one, part[1], rtol=1e-13, atol=1e-300)


@every
def test_nothing_in_nothing_out(name):
    for shape in ((0,), (2, 0), (0, 3, 1)):
        for part in parts(POINTWISE[name](*draw(name, best(name), shape))):
            assert part.shape == shape and part.tolist() == np.zeros(shape).tolist()


# --- pointwise: an operand becomes a number of the common dtype first ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each(lambda op: sum(op.operand_at) > 1)
def test_operands_beside_sixteen_bits(name, dtype):
    """A number, a tensor without dimensions, whole numbers: as if rounded to the 16-bit dtype by hand before."""
    op = POINTWISE[name]
    if not accepts(name, dtype):
        return
    args = draw(name, dtype, (7,))
    places = [at for at, a in enumerate(args) if isinstance(a, torch.Tensor) and op.operand_at[at]
              and a.dtype is getattr(torch, dtype)]
    for at in places:
        if len(places) < 2:
            continue
        number = args[at][0].item() * (1 + 2 ** -12) + 2 ** -14           # hardly ever one of 16 bits
        others = [torch.tensor(number, dtype=torch.float64), torch.tensor(number)]
        if name not in NO_NUMBERS and (op.numbers is None or op.arg_names[at] in op.numbers.split()):
            others.append(number)
        rounded = torch.full((7,), number, dtype=args[at].dtype)
        for other in others:
            for executor in ("reference", "native"):
                with torch.config.using(executor=executor):
                    if op.arg_names[at] in op.as_given:
                        wide = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
                        expected = op(*wide[:at], number, *wide[at + 1:]).to(args[at].dtype)
                    else:
                        expected = op(*args[:at], rounded, *args[at + 1:])
                    try:
                        given = op(*args[:at], other, *args[at + 1:])
                    except (RuntimeError, TypeError):
                        continue                                         # operands of one dtype only
                    same(given, expected, rtol=0, atol=0)


# --- pointwise: the other forms -------------------------------------------------------------------------------------------------


@each(lambda op: "inplace" in op.forms.split())
def test_in_place(name):
    op, dtype = POINTWISE[name], best(name)
    for change in (lambda args: args, turned, stepped):
        args = change(draw(name, dtype))
        if not isinstance(args[0], torch.Tensor) or name == "_where":
            return                                     # its first argument is no tensor, or not the one that is written
        expected = op(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        x, at = args[0], args[0]._storage
        before = x._version
        fits = torch.can_cast(expected.dtype, x.dtype)
        if not fits:
            with pytest.raises(RuntimeError, match="can't be cast"):
                inplace_form(op)(*args)
            continue
        result = inplace_form(op)(*args)
        assert result is x and x._storage is at and x._version == before + 1
        same(x, expected.to(x.dtype), rtol=1e-13, atol=1e-300)


def inplace_form(op):
    from flambeau.tensor.write import inplace
    return lambda *args: inplace(op, args, {})


@each(lambda op: "out" in op.forms.split())
def test_out(name):
    op, args = POINTWISE[name], draw(name, best(name))
    expected = op(*args)
    outs = tuple(torch.empty(0, dtype=e.dtype) for e in parts(expected))
    given = outs if isinstance(expected, tuple) else outs[0]
    result = op(*args, out=given)
    for out, got, want in zip(outs, parts(result), parts(expected), strict=True):
        assert got is out
        same(out, want, rtol=0)
    ready = tuple(torch.zeros(3, 2, dtype=e.dtype).t() for e in parts(expected))          # keeps its own layout
    op(*args, out=ready if isinstance(expected, tuple) else ready[0])
    for out, want in zip(ready, parts(expected), strict=True):
        assert out.stride() == (1, 2)
        same(out, want, rtol=0)


# --- pointwise: halves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@each(lambda op: not op.exact)
def test_halves_are_float32_rounded(name, half):
    op = POINTWISE[name]
    if not accepts(name, half):
        return
    args = draw(name, half)
    rounded = {at for at, arg in enumerate(op.arg_names) if arg in op.operands and arg not in op.as_given and not op.exact}
    wide = op(*[a.float() if isinstance(a, torch.Tensor) and a.dtype is not torch.bool else
                torch.tensor(a, dtype=getattr(torch, half)).item() if at in rounded and isinstance(a, float) else a
                for at, a in enumerate(args)])
    for ours, float32 in zip(parts(op(*args)), parts(wide), strict=True):
        if ours.dtype.is_floating_point:
            assert ours.dtype is getattr(torch, half)
            same(ours, float32.to(ours.dtype), rtol=0)
        elif not ours.dtype.is_complex:
            same(ours, float32, rtol=0)


# --- pointwise: derivatives -----------------------------------------------------------------------------------------------------


DIFFERENTIABLE = pytest.mark.parametrize("name", [name for name, op in POINTWISE.items() if op.differentiable
                                                  and WITHOUT.get(name) != set(op.operands)])


def leaves(name, args):
    """The arguments, with gradients wanted for all that have one."""
    wanted = [arg not in WITHOUT.get(name, ()) for arg in POINTWISE[name].arg_names]
    return [a.requires_grad_() if want and isinstance(a, torch.Tensor) and (a.is_floating_point() or a.is_complex()) else a
            for a, want in zip(args, wanted)]


def smooth(name):
    """The operation with the results that have no gradient left out."""
    return lambda *args: tuple(r for r in parts(POINTWISE[name](*args)) if r.is_floating_point() or r.is_complex())


@pytest.mark.parametrize("name", WITHOUT)
def test_a_derivative_that_is_not_there_is_refused_with_advice(name):
    for at, arg in enumerate(POINTWISE[name].arg_names):
        if arg in WITHOUT[name]:
            args = draw(name)
            args[at].requires_grad_()
            with pytest.raises(RuntimeError, match="derivative for aten::.* is not implemented; use .*detach"):
                POINTWISE[name](*args).sum().backward()


@DIFFERENTIABLE
def test_derivative(name):
    assert gradcheck(smooth(name), leaves(name, draw(name)), check_grad_dtypes=True)


@DIFFERENTIABLE
def test_derivative_where_operands_broadcast(name):
    args = draw(name, "float64", (2, 3), [(2, 1), (3,), (1, 1)])
    if name == "_where":
        args[0] = torch.tensor([True, False, True])
    assert gradcheck(smooth(name), leaves(name, args), check_grad_dtypes=True)


@DIFFERENTIABLE
def test_second_derivative(name):
    assert gradgradcheck(smooth(name), leaves(name, draw(name, "float64", (3,))), atol=1e-4)


@DIFFERENTIABLE
def test_complex_derivative(name):
    if accepts(name, "complex128"):
        assert gradcheck(smooth(name), leaves(name, draw(name, "complex128", (3,))), atol=1e-4)


@DIFFERENTIABLE
def test_a_gradient_is_like_its_input(name):
    for dtype in ("float16", "bfloat16", "float32"):
        if not accepts(name, dtype):
            continue
        args = leaves(name, draw(name, dtype, (2, 3), [(2, 3), (3,), ()]) if name != "_where" else draw(name, dtype))
        total = sum((r.abs() if r.is_complex() else r).double().sum() for r in smooth(name)(*args))
        if not total.requires_grad:
            continue
        total.backward()
        for a in tensors(args):
            if a.requires_grad and a.grad is not None:
                assert a.grad.dtype is a.dtype and a.grad.shape == a.shape and a.grad.stride() == a.stride()


# --- pointwise: values ----------------------------------------------------------------------------------------------------------
# Oracles spelled differently from the references: the standard library, one number at a time.


def digamma(x, h=1e-5):
    return (math.lgamma(x + h) - math.lgamma(x - h)) / (2 * h)


def bessel(order):
    return lambda x: math.fsum((x / 2) ** (2 * k + order) / (math.factorial(k) * math.factorial(k + order)) for k in range(40))


def normal(x):
    return math.erfc(-x / math.sqrt(2)) / 2


ORACLE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "rsub": lambda a, b: b - a, "neg": lambda a: -a,
    "mul": lambda a, b: a * b, "true_divide": lambda a, b: a / b, "reciprocal": lambda a: 1 / a,
    "_floor_divide": lambda a, b: a // b, "_div_rounded": lambda a, b, _: a // b, "_remainder": lambda a, b: a % b, "_fmod": math.fmod,
    "addcmul": lambda a, b, c: a + b * c, "addcdiv": lambda a, b, c: a + b / c, "lerp": lambda a, b, w: a + w * (b - a),
    "_pow": math.pow, "_pow_number": math.pow, "_pow_of_number": math.pow, "_first_power": lambda a: a,
    "_square": lambda a: a * a, "_cube": lambda a: a ** 3, "ldexp": lambda a, b: a * 2 ** b,
    "gcd": math.gcd, "lcm": math.lcm, "bitwise_not": lambda a: ~a, "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b, "bitwise_left_shift": lambda a, b: a << b,
    "bitwise_right_shift": lambda a, b: a >> b, "_integer_division": lambda a, b, _: a // b,
    "sqrt": math.sqrt, "rsqrt": lambda a: 1 / math.sqrt(a), "exp": math.exp, "exp2": lambda a: 2 ** a, "expm1": math.expm1,
    "log": math.log, "log2": math.log2, "log10": math.log10, "log1p": math.log1p,
    "logaddexp": lambda a, b: math.log(math.exp(a) + math.exp(b)), "logaddexp2": lambda a, b: math.log2(2 ** a + 2 ** b),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)), "logit": lambda a: math.log(a / (1 - a)),
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "atan2": math.atan2, "hypot": math.hypot, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh,
    "acosh": math.acosh, "atanh": math.atanh, "sinc": lambda a: math.sin(math.pi * a) / (math.pi * a),
    "deg2rad": math.radians, "rad2deg": math.degrees, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
    "frac": lambda a: a - math.trunc(a), "_round": round, "_round_decimals": round, "nextafter": math.nextafter,
    "nan_to_num": lambda a: a, "abs_": abs, "_abs_in_place": abs, "sign": lambda a: (a > 0) - (a < 0), "sgn": lambda a: (a > 0) - (a < 0),
    "signbit": lambda a: math.copysign(1, a) < 0, "copysign": math.copysign, "angle": lambda a: 0.0 if a >= 0 else math.pi,
    "_conj": lambda a: a, "_conj_physical": lambda a: a, "complex_": complex, "polar": lambda r, t: r * complex(math.cos(t), math.sin(t)),
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "_isclose": lambda a, b, r, t, _: math.isclose(a, b, rel_tol=r, abs_tol=t),
    "logical_not": lambda a: not a, "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b), "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite,
    "isposinf": lambda a: a == math.inf, "isneginf": lambda a: a == -math.inf, "isreal": lambda a: True,
    "maximum": max, "minimum": min, "fmax": max, "fmin": min, "_clamp": lambda a, low, high: min(max(a, low), high),
    "_clamp_tensor": lambda a, low, high: min(max(a, low), high), "clamp_min": max, "clamp_max": min,
    "heaviside": lambda a, v: v if a == 0 else float(a > 0), "_where": lambda c, a, b: a if c else b,
    "_native_dropout": lambda a, keep, scale, slope: a * keep * scale,
    "relu": lambda a: max(a, 0), "_threshold": lambda a, t, v: a if a > t else v,
    "_threshold_backward": lambda g, a, t: g if a > t else 0.0, "_tanh_backward": lambda g, a: g * (1 - a * a),
    "_hardtanh": lambda a, low, high: min(max(a, low), high),
    "_hardshrink": lambda a, k: a if abs(a) > k else 0.0, "_softshrink": lambda a, k: math.copysign(max(abs(a) - k, 0), a),
    "_leaky_relu": lambda a, s: a if a > 0 else a * s, "_prelu_kernel": lambda a, w: a if a > 0 else a * w,
    "_hardsigmoid": lambda a: min(max(a + 3, 0), 6) / 6, "_hardswish": lambda a: a * min(max(a + 3, 0), 6) / 6,
    "_elu": lambda a, alpha, s, k: s * a if a > 0 else s * alpha * math.expm1(k * a),
    "_celu": lambda a, alpha: max(a, 0) + min(0, alpha * math.expm1(a / alpha)), "_softplus": lambda a: math.log(1 + math.exp(a)),
    "_logsigmoid": lambda a: -math.log(1 + math.exp(-a)), "_silu": lambda a: a / (1 + math.exp(-a)),
    "_mish": lambda a: a * math.tanh(math.log(1 + math.exp(a))), "_gelu": lambda a: a * normal(a),
    "_gelu_slope": lambda a: normal(a) + a * math.exp(-a * a / 2) / math.sqrt(2 * math.pi),
    "erf": math.erf, "erfc": math.erfc, "_erfcx": lambda a: math.exp(a * a) * math.erfc(a), "_ndtr": normal,
    "_log_ndtr": lambda a: math.log(normal(a)), "lgamma": math.lgamma, "digamma": digamma,
    "_polygamma_of_order": lambda a, orders: (digamma(a + 1e-3) - digamma(a - 1e-3)) / 2e-3,
    "_mvlgamma_of_dimension": lambda a, dimensions: math.log(math.pi) / 2 + math.lgamma(a) + math.lgamma(a - 0.5),
    "xlogy": lambda a, b: a * math.log(b), "_xlog1py": lambda a, b: a * math.log1p(b), "_entr": lambda a: -a * math.log(a),
    "i0": bessel(0), "_i0e": lambda a: bessel(0)(a) * math.exp(-abs(a)), "_i1": bessel(1), "_i1e": lambda a: bessel(1)(a) * math.exp(-abs(a)),
    "_zeta": lambda s, q: math.fsum((k + q) ** -s for k in range(2000)) + (2000 + q) ** (1 - s) / (s - 1) + (2000 + q) ** -s / 2,
    "_chebyshev_polynomial_t": lambda x, n: math.cos(int(n) * math.acos(x)),
    "_chebyshev_polynomial_u": lambda x, n: math.sin((int(n) + 1) * math.acos(x)) / math.sin(math.acos(x)),
    "_chebyshev_polynomial_v": lambda x, n: math.cos((int(n) + 0.5) * math.acos(x)) / math.cos(math.acos(x) / 2),
    "_chebyshev_polynomial_w": lambda x, n: math.sin((int(n) + 0.5) * math.acos(x)) / math.sin(math.acos(x) / 2),
    "_shifted_chebyshev_polynomial_t": lambda x, n: math.cos(int(n) * math.acos(2 * x - 1)),
    "_shifted_chebyshev_polynomial_u": lambda x, n: math.sin((int(n) + 1) * math.acos(2 * x - 1)) / math.sin(math.acos(2 * x - 1)),
    "_shifted_chebyshev_polynomial_v": lambda x, n: math.cos((int(n) + 0.5) * math.acos(2 * x - 1)) / math.cos(math.acos(2 * x - 1) / 2),
    "_shifted_chebyshev_polynomial_w": lambda x, n: math.sin((int(n) + 0.5) * math.acos(2 * x - 1)) / math.sin(math.acos(2 * x - 1) / 2),
    "_hermite_polynomial_h": lambda x, n: np.polynomial.Hermite.basis(int(n))(x),
    "_hermite_polynomial_he": lambda x, n: np.polynomial.HermiteE.basis(int(n))(x),
    "_laguerre_polynomial_l": lambda x, n: np.polynomial.Laguerre.basis(int(n))(x),
    "_legendre_polynomial_p": lambda x, n: np.polynomial.Legendre.basis(int(n))(x),
    "_modified_bessel_i0": bessel(0), "_modified_bessel_i1": bessel(1), "_spherical_bessel_j0": lambda x: math.sin(x) / x,
    "frexp": math.frexp,
}
INVERSE = {"erfinv": math.erf, "_ndtri": normal}                    # the operation undoes it
TOLERANCE = {"digamma": 1e-8, "_polygamma_of_order": 1e-4, "_zeta": 1e-7}        # as good as the oracle


def test_every_pointwise_operation_has_an_oracle():
    elsewhere = {"igamma", "igammac"}                               # tests/base/test_special_functions.py
    missing = set(POINTWISE) - set(ORACLE) - set(INVERSE) - elsewhere
    assert not missing, f"no function in ORACLE, above, for {' '.join(sorted(missing))}"
    assert (set(DOMAIN) | set(GIVEN) | set(ORACLE) | set(INVERSE)) <= set(POINTWISE)


@pytest.mark.parametrize("name", ORACLE)
def test_values(name):
    args = draw(name, best(name), (24,))
    ours = [part.tolist() for part in parts(POINTWISE[name](*args))]
    rows = zip(*[a.tolist() if isinstance(a, torch.Tensor) else [a] * 24 for a in args])
    expected = [ORACLE[name](*row) for row in rows]
    expected = [list(column) for column in zip(*expected)] if isinstance(expected[0], tuple) else [expected]
    for mine, theirs in zip(ours, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=TOLERANCE.get(name, 1e-13), atol=1e-15)


@pytest.mark.parametrize("name", INVERSE)
def test_inverse_values(name):
    x, = draw(name, "float64", (24,))
    np.testing.assert_allclose([INVERSE[name](y) for y in POINTWISE[name](x).tolist()], x.tolist(), rtol=1e-13)
