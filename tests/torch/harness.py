"""Carry PyTorch's samples over to Flambeau, and hold Flambeau's answers against PyTorch's.

`to_fb` copies anything a sample holds (tensors with their strides, dtypes, containers, functions), `function` and
`variant` find the Flambeau spelling of an OpInfo's callables, `assert_same` compares one answer with another, and
`describe` writes a call on one line. With FLAMBEAU_CONFORMANCE_SELF=1 PyTorch stands in for Flambeau, so that
whatever fails then is the harness's own mistake.
"""
import contextlib
import functools
import importlib
import math
import os
import pathlib
import types

import numpy as np
import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, SampleInput, UnaryUfuncInfo

from tests.torch.machines import FUNCTIONS_ATOL

torch.set_num_threads(1)
# torch.manual_seed formats a stack trace for each device type that is not there; OpInfo calls it before every sample.
torch.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))

SELF = os.environ.get("FLAMBEAU_CONFORMANCE_SELF") == "1"
fb = torch if SELF else importlib.import_module("flambeau")

HERE = pathlib.Path(__file__).parent
NAMES = [name for line in (HERE / "core_ops.txt").read_text().splitlines() if not line.startswith("#")
         for name in line.split()]
OPS = [op for op in op_db if op.name in set(NAMES) and op.dtypes]      # no dtypes: an op for other devices

DTYPE_NAMES = ("float32 float64 bfloat16 float16 int64 int32 uint8 int8 int16 bool complex64 complex128 "
               "uint16 uint32 uint64").split()
DTYPES = {getattr(torch, name): name for name in DTYPE_NAMES}
SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c", "bool": "b"}


class Mismatch(AssertionError):
    """Flambeau and PyTorch disagree; the text says on what."""


class Unsupported(Exception):
    """A sample that is no business of ours: another device, a sparse layout, a dtype nobody asked for."""


# ---- PyTorch to Flambeau ------------------------------------------------------------------------------------------

def fb_dtype(dtype):
    if dtype not in DTYPES:
        raise Unsupported(f"dtype {dtype}")
    return getattr(fb, DTYPES[dtype])


def flat_storage(t):
    """The whole storage under `t` as a flat NumPy copy, bfloat16 as the int16 of the same bits."""
    flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()).clone()
    return (flat.view(torch.int16) if t.dtype is torch.bfloat16 else flat).numpy()


def to_fb_tensor(t, memo):
    """`t` over a copy of its storage, with its strides and offset; tensors that share memory go on sharing it."""
    if t.layout is not torch.strided or t.device.type != "cpu" or t.dim() > 64:      # NumPy's own limit
        raise Unsupported(f"{t.layout} on {t.device} with {t.dim()} dimensions")
    dtype = fb_dtype(t.dtype)
    plain = t.detach().resolve_conj().resolve_neg()
    storage = plain.untyped_storage()
    key = ("storage", storage.data_ptr(), t.dtype)
    if storage.nbytes() and key in memo:
        out = memo[key].detach()
    else:
        whole = plain.is_contiguous() and storage.nbytes() == plain.numel() * plain.itemsize
        array = flat_storage(plain)
        out = fb.tensor(array.reshape(plain.shape) if whole else array)     # the common case is a view of nothing
        out = memo[key] = out.view(dtype) if t.dtype is torch.bfloat16 else out
    place = (tuple(plain.shape), plain.stride(), plain.storage_offset())
    if (tuple(out.shape), tuple(out.stride()), out.storage_offset()) != place:
        out = out.as_strided(*place)
    return out.requires_grad_() if t.requires_grad else out


def to_fb(x, memo=None):
    """`x` with everything of PyTorch's in it replaced by Flambeau's; one tensor met twice stays one tensor."""
    memo = {} if memo is None else memo
    if isinstance(x, torch.Tensor):
        if id(x) not in memo:
            memo[id(x)] = to_fb_tensor(x, memo)
        return memo[id(x)]
    if isinstance(x, torch.Size):
        return fb.Size(x)
    if isinstance(x, (list, tuple)):
        parts = [to_fb(part, memo) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, dict):
        return {key: to_fb(part, memo) for key, part in x.items()}
    if isinstance(x, slice):
        return slice(to_fb(x.start, memo), to_fb(x.stop, memo), to_fb(x.step, memo))
    if isinstance(x, SampleInput):
        return SampleInput(to_fb(x.input, memo), args=to_fb(x.args, memo), kwargs=to_fb(x.kwargs, memo),
                           output_process_fn_grad=refit(x.output_process_fn_grad), name=x.name,
                           broadcasts_input=x.broadcasts_input)
    if isinstance(x, torch.dtype):
        return fb_dtype(x)
    if isinstance(x, torch.device):
        return fb.device(str(x))
    if isinstance(x, (torch.memory_format, torch.layout)):
        return getattr(fb, str(x).removeprefix("torch."))
    if isinstance(x, torch.Generator):
        return fb.Generator().manual_seed(x.initial_seed())
    if isinstance(x, (types.FunctionType, functools.partial)):
        return refit(x)
    return x


def copy(x, memo=None):
    """A sample of PyTorch's own that may be written to: the same strides over fresh storages. No conjugate views."""
    memo = {} if memo is None else memo
    if isinstance(x, torch.Tensor):
        if id(x) not in memo:
            key = ("storage", x.untyped_storage().data_ptr())
            fresh = memo[key] = memo.get(key) or x.detach().untyped_storage().clone()
            twin = torch.empty(0, dtype=x.dtype).set_(fresh, x.storage_offset(), x.shape, x.stride())
            memo[id(x)] = twin.requires_grad_(x.requires_grad)
        return memo[id(x)]
    if isinstance(x, SampleInput):
        return SampleInput(copy(x.input, memo), args=copy(x.args, memo), kwargs=copy(x.kwargs, memo), name=x.name,
                           output_process_fn_grad=x.output_process_fn_grad, broadcasts_input=x.broadcasts_input)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)([copy(part, memo) for part in x])
    if isinstance(x, dict):
        return {key: copy(part, memo) for key, part in x.items()}
    return x


def tensors(*parts):
    """Every distinct tensor of either library in nested `parts`, in the order met."""
    found, stack = {}, list(reversed(parts))
    while stack:
        x = stack.pop()
        if isinstance(x, (torch.Tensor, fb.Tensor)):
            found.setdefault(id(x), x)
        elif isinstance(x, SampleInput):
            stack += [x.kwargs, x.args, x.input]
        elif isinstance(x, dict):
            stack += reversed(list(x.values()))
        elif isinstance(x, (list, tuple)):
            stack += reversed(x)
    return list(found.values())


# ---- callables ----------------------------------------------------------------------------------------------------

def seeded(call, *args, **kwargs):
    """What torch.testing's wrapper_set_seed does, for Flambeau's generator."""
    fb.manual_seed(42)
    return call(*args, **kwargs)


def refit(call):
    """A function of torch.testing's (a lambda of an OpInfo, say) over Flambeau: same code, other globals."""
    if isinstance(call, functools.partial):
        return functools.partial(refit(call.func), *to_fb(call.args), **to_fb(call.keywords))
    if not isinstance(call, types.FunctionType):
        return call
    if not call.__module__.startswith("torch.testing"):
        return by_path(f"{call.__module__}.{call.__name__}") if call.__module__.startswith("torch") else call
    cells = None if call.__closure__ is None else tuple(types.CellType(to_fb(cell.cell_contents))
                                                        for cell in call.__closure__)
    scope = {**call.__globals__, "torch": fb, "wrapper_set_seed": seeded}
    twin = types.FunctionType(call.__code__, scope, call.__name__, to_fb(call.__defaults__), cells)
    twin.__kwdefaults__ = to_fb(call.__kwdefaults__)
    return twin


def by_path(path):
    """`nn.functional.relu`, with or without the `torch.` in front, of Flambeau."""
    found = fb
    for name in path.removeprefix("torch.").split("."):
        if not hasattr(found, name):
            raise AttributeError(f"no {path.removeprefix('torch.')} in {fb.__name__}")
        found = getattr(found, name)
    return found


def of_tensor(name):
    if not hasattr(fb.Tensor, name):
        raise AttributeError(f"no Tensor.{name}")
    return getattr(fb.Tensor, name)


# OpInfo's rand_like calls randn_like, so we say what we mean ourselves.
OWN_CALLS = {"rand_like": lambda lib: lambda input, **kwargs: lib.rand_like(input, **kwargs)}


def torch_function(op):
    return OWN_CALLS[op.name](torch) if op.name in OWN_CALLS else op.op


def function(op):
    """The function form of `op` in Flambeau."""
    if op.name in OWN_CALLS:
        return OWN_CALLS[op.name](fb)
    if isinstance(op.op, types.FunctionType) and op.op.__module__.startswith("torch.testing"):
        return refit(op.op)
    if op.name.startswith("__"):
        return of_tensor(op.name)
    return by_path(op.name)


def variant(call):
    """The Flambeau spelling of a method, in-place or operator form as OpInfo gives it."""
    written = isinstance(call, types.FunctionType) and "Tensor." not in call.__qualname__     # a lambda, F.relu
    if written or isinstance(call, functools.partial):
        return refit(call)
    if getattr(call, "__module__", None) == "_operator" or call is abs:
        return call
    return of_tensor(call.__name__)


# ---- what a call came to ------------------------------------------------------------------------------------------

class Raised:
    def __init__(self, error):
        self.error = error

    def __str__(self):
        text = str(self.error).strip().split("\n")[0]
        return f"{type(self.error).__name__}: {text[:160]}"


def attempt(call, *args, **kwargs):
    """The result, or the error as a value. Both libraries start from the same seed."""
    torch.manual_seed(42)
    if not SELF and hasattr(fb, "manual_seed"):
        fb.manual_seed(42)
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return Raised(error)


def assert_same_error(got, want):
    """`got` must be raised too, with `want`'s type or one derived from it."""
    if not isinstance(got, Raised):
        raise Mismatch(f"gives {describe(got)}, torch raises {want}")
    fits = isinstance(got.error, type(want.error))
    for vague in (NotImplementedError, RecursionError):      # RuntimeErrors by descent, but no refusals
        fits &= isinstance(want.error, vague) or not isinstance(got.error, vague)
    if not fits:
        raise Mismatch(f"raises {got}, torch raises {want}") from got.error


# ---- comparison ---------------------------------------------------------------------------------------------------

TOLERANCES = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5),
              torch.float64: (1e-7, 1e-7), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7)}
# Factorisations amplify rounding by the matrix's condition, whatever the library.
LOOSER = {"linalg.": {torch.float32: (1e-4, 1e-4), torch.complex64: (1e-4, 1e-4),
                      torch.float64: (1e-6, 1e-6), torch.complex128: (1e-6, 1e-6)},
          # Sums of hundreds of numbers in float32, in the order that a library for the processor takes.
          "fft.hfft2": {torch.float32: (2e-5, 2e-5)}, "fft.rfft2": {torch.complex64: (2e-5, 2e-5)},
          "fft.fft2": {torch.complex64: (2e-5, 2e-5)},
          # Logits in the hundreds, rounded to half precision, then exponentiated: one rounding moves the result by 5%.
          "nn.functional.multi_head_attention_forward": {torch.float16: (5e-2, 5e-2), torch.bfloat16: (1e-1, 1e-1)}}


def tolerance(op, dtype):
    """(rtol, atol) for results of `dtype`: torch.testing's, or OpInfo's own where that is wider."""
    key = (op and op.full_name, dtype)
    if key not in SETTLED:
        SETTLED[key] = find_tolerance(op, dtype)
    return SETTLED[key]


SETTLED = {}


def find_tolerance(op, dtype):
    rtol, atol = TOLERANCES.get(dtype, (0, 0))
    for prefix, wider in LOOSER.items():
        if op is not None and op.name.startswith(prefix) and dtype in wider:
            rtol, atol = max(rtol, wider[dtype][0]), max(atol, wider[dtype][1])
    for info in getattr(op, "decorators", None) or ():
        if getattr(info, "device_type", None) not in (None, "cpu"):
            continue
        for decorator in getattr(info, "decorators", (info,)):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                rtol, atol = max(rtol, decorator.d[dtype].rtol), max(atol, decorator.d[dtype].atol)
    return rtol, atol


def to_torch(x):
    """A tensor of Flambeau's as one of PyTorch's, values only."""
    if SELF:
        return x.detach().resolve_conj().resolve_neg()
    x = x.detach()
    name = fb_dtype_name(x.dtype)
    array = (x.view(fb.int16) if name == "bfloat16" else x).numpy()
    out = torch.from_numpy(np.array(array))                             # a copy: never share memory across
    out = out.view(torch.bfloat16) if name == "bfloat16" else out
    if DTYPES.get(out.dtype) != name:
        raise Mismatch(f"dtype says {name}, numpy() gives {array.dtype}")
    return out


def fb_dtype_name(dtype):
    for name in DTYPE_NAMES:
        if getattr(fb, name, None) == dtype:
            return name
    return str(dtype)


def close(got, want, rtol, atol):
    """Elementwise; nan equals nan, infinities equal themselves."""
    if got.is_complex():                                     # torch.isclose takes an infinite part for no match
        return close(got.real, want.real, rtol, atol) & close(got.imag, want.imag, rtol, atol) \
            | torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    atol = max(atol, FUNCTIONS_ATOL) if got.dtype is torch.float32 else atol
    return torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)


def assert_close(got, want, rtol, atol, precise=None):
    """Values of two PyTorch tensors. `precise()`, if given, computes the same in float64: an element is right too if it
    is as near to that as the tolerance asks, or no further from it than PyTorch's own elements stray."""
    ok = close(got, want, rtol, atol) if want.is_floating_point() or want.is_complex() else got == want
    if not ok.all() and precise is not None:
        truth = precise()
        if truth is not None and truth.shape == want.shape and truth.dtype.is_complex == want.dtype.is_complex:
            wide = torch.complex128 if want.is_complex() else torch.float64
            ok |= close(got.to(wide), truth.to(want.dtype).to(wide), rtol, atol)
            strays = (want.to(wide) - truth).abs()
            strays = float(strays[strays.isfinite()].max()) if strays.isfinite().any() else 0.0
            largest = float(want[want.isfinite()].abs().max()) if want.isfinite().any() else 0.0
            ok |= (got.to(wide) - truth).abs() <= min(2 * strays, 10 * rtol * largest)
    if ok.all():
        return
    wide = torch.complex128 if want.is_complex() else torch.float64
    off = (got.to(wide) - want.to(wide)).abs().masked_fill(ok, -1.0)
    off = torch.where(off.isnan(), torch.inf, off)
    at = np.unravel_index(int(off.argmax()), off.shape) if off.dim() else ()
    place = f" at {[int(i) for i in at]}" if at else ""
    raise Mismatch(f"{int((~ok).sum())} of {ok.numel()} values differ, worst{place}: "
                   f"got {got[at].item()!r}, want {want[at].item()!r}")


def assert_same(got, want, op=None, dtype=None, check_strides=False, precise=None, values=assert_close, where="",
                looser=1):
    """`got` of Flambeau is what PyTorch's `want` is: structure, dtype, shape, values and, if asked, strides.

    `dtype` is that of the inputs: its tolerance applies where it is wider than the result's. `precise` is a function
    giving the same result in double precision, see assert_close. `values` is the comparison of two tensors' values.
    """
    if isinstance(want, torch.Tensor):
        if not isinstance(got, fb.Tensor):
            raise Mismatch(f"{where}got {type(got).__name__} {got!r:.60}, want a tensor")
        assert_same_spec(got, want, check_strides, where)
        pairs = [tolerance(op, want.dtype), tolerance(op, dtype)]
        rtol, atol = (looser * max(pair[k] for pair in pairs) for k in (0, 1))
        try:
            values(to_torch(got), to_torch_plain(want), rtol, atol, precise)
        except Mismatch as error:
            raise Mismatch(f"{where}{error}") from None
    elif isinstance(want, torch.Size):
        if not isinstance(got, fb.Size) or tuple(got) != tuple(want):
            raise Mismatch(f"{where}got {got!r}, want {want!r}")
    elif isinstance(want, (list, tuple)):
        # chunk gives a tuple and split a tuple, but whether a list or a tuple comes is nothing to fail over
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            raise Mismatch(f"{where}got {describe(got)}, want {describe(want)}")
        assert_same_fields(got, want)
        for k, part in enumerate(want):
            nth = (lambda k=k: (precise() or [None] * len(want))[k]) if precise else None
            assert_same(got[k], part, op, dtype, check_strides, nth, values, f"{where}result {k}: ", looser)
    elif isinstance(want, (float, complex)) and isinstance(got, type(want)):
        rtol, atol = tolerance(op, dtype)
        if not close(torch.tensor(got), torch.tensor(want), rtol, atol):
            raise Mismatch(f"{where}got {got!r}, want {want!r}")
    elif isinstance(want, torch.dtype):
        if got != fb_dtype(want):
            raise Mismatch(f"{where}got {got!r}, want {want!r}")
    elif type(got) is not type(want) or got != want:
        raise Mismatch(f"{where}got {got!r:.80}, want {want!r:.80}")


def assert_same_fields(got, want):
    """The parts of a named result go by the same names."""
    for field in getattr(type(want), "__match_args__", ()):
        if not hasattr(got, field):
            raise Mismatch(f"the result has no field .{field}")


def to_torch_plain(t):
    return t.detach().resolve_conj().resolve_neg()


def assert_same_spec(got, want, check_strides=False, where=""):
    """dtype and shape, and strides where a dimension has more than one step to take."""
    if got.dtype != fb_dtype(want.dtype):
        raise Mismatch(f"{where}dtype is {fb_dtype_name(got.dtype)}, want {DTYPES[want.dtype]}")
    if tuple(got.shape) != tuple(want.shape):
        raise Mismatch(f"{where}shape is {list(got.shape)}, want {list(want.shape)}")
    if check_strides and want.numel():
        mine, theirs = ([step for step, size in zip(t.stride(), want.shape) if size > 1] for t in (got, want))
        if mine != theirs:
            raise Mismatch(f"{where}strides of {list(want.shape)} are {tuple(got.stride())}, want {want.stride()}")


# ---- words --------------------------------------------------------------------------------------------------------

def short_dtype(name):
    kind = name.rstrip("0123456789")
    return SHORT.get(kind, kind) + name[len(kind):]


def describe(x):
    """`f32[5, 3]` for a tensor, with its strides if they are not the plain ones; the rest in brief."""
    if isinstance(x, SampleInput):
        parts = [describe(x.input), *map(describe, x.args), *(f"{k}={describe(v)}" for k, v in x.kwargs.items())]
        return f"({', '.join(parts)})"
    if isinstance(x, (torch.Tensor, fb.Tensor)):
        name = DTYPES.get(x.dtype, str(x.dtype)) if isinstance(x, torch.Tensor) else fb_dtype_name(x.dtype)
        text = short_dtype(name) + str(list(x.shape)).replace(" ", "")
        return text if x.is_contiguous() else f"{text}@{tuple(x.stride())}".replace(" ", "")
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        parts = ", ".join(describe(part) for part in x[:6]) + (", ..." if len(x) > 6 else "")
        return f"[{parts}]" if isinstance(x, list) else f"({parts})"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in x.items()) + "}"
    if isinstance(x, float):
        return "nan" if math.isnan(x) else f"{x:.6g}"
    return f"{x!r:.80}".removeprefix("torch.")


def is_pointwise(op):
    return isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)) or op.name in POINTWISE


POINTWISE = set("where clamp lerp addcmul addcdiv clone contiguous to zeros_like ones_like full_like empty_like "
                "rand_like randn_like nn.functional.dropout nn.functional.gelu nn.functional.softplus".split())


@contextlib.contextmanager
def reading_only():
    """No gradients on either side."""
    with torch.no_grad(), fb.no_grad():
        yield
