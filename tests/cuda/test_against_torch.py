"""On the GPU, beside PyTorch on the same GPU: its own samples of every operation, values and gradients.

The samples, the comparisons and the tolerances are those of tests/torch; here both libraries hold their tensors on a
GPU. A result that stands elsewhere than PyTorch's is a failure too: nothing may run on the CPU in silence.
"""
import functools
import warnings

import pytest

from . import peer
from .peer import OURS, THEIRS, devices, flambeau, home, seed, there, there_with, torch

peer.prepare()
pytest.importorskip("expecttest", reason="PyTorch's own tables of samples need the package expecttest")
checks = pytest.importorskip("tests.torch.checks")

from ..thorough import THOROUGH
from ..torch.harness import (
    DTYPES,
    HERE,
    OPS,
    Mismatch,
    Raised,
    Unsupported,
    copy,
    describe,
    function,
    is_pointwise,
    tensors,
    to_fb,
    torch_function,
)
from ..torch.test_amp import OTHERWISE

# How many samples of an operation are tried, by dtype.
VALUES = {torch.float32: 4, torch.float16: 2, torch.bfloat16: 2, torch.int64: 2, torch.float64: 1, torch.bool: 1,
          torch.complex64: 1}
GRADIENTS = {torch.float32: 2, torch.float16: 1, torch.bfloat16: 1}
AUTOCAST = {torch.float16: 1, torch.bfloat16: 1}
if THOROUGH:
    VALUES, GRADIENTS = ({dtype: 8 * count for dtype, count in table.items()} for table in (VALUES, GRADIENTS))

# Without a GPU PyTorch stands on its CPU, whose random numbers are others, and where positions may stand beside data.
OTHERWISE_ON_CPU = set("normal uniform rand_like randn_like randint_like bernoulli exponential geometric cauchy "
                       "log_normal tensor_split".split()) if THEIRS != OURS else set()
GAPS = checks.read_gaps(HERE.parent / "cuda" / "gaps.txt")


def cases(check, table, supported):
    """One parameter for each operation and dtype, expected to fail where gaps.txt says so."""
    found = []
    for op in OPS:
        for dtype in table:
            if dtype in supported(op) and op.name not in OTHERWISE_ON_CPU:
                reason = checks.gap(GAPS, check, op, dtype)
                marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason is not None else []
                found.append(pytest.param(op, dtype, id=checks.case_id(op, dtype), marks=marks))
    return found


def samples(op, dtype, count, requires_grad=False):
    """The first of OpInfo's samples and an even spread of the rest, on the CPU."""
    found = checks.spread(checks.drawn(op.sample_inputs_func(op, "cpu", dtype, requires_grad)), count)
    return [checks.resolved(checks.calm(op, sample)) for sample in found if checks.callable_on(op, sample)
            and str(sample.kwargs.get("device")) != "cpu"]        # which is about another device


def placed(sample):
    """(input, args, kwargs) of a sample on its device."""
    memo = {}
    return [there(part, memo) for part in (sample.input, sample.args, sample.kwargs)]


def attempt(call, input, args, kwargs):
    """The result, or the error as a value; both libraries start from the same seed."""
    seed(42)
    try:
        with peer.on_devices():
            return call(input, *args, **kwargs)
    except Exception as error:
        return Raised(error)


def each(op, dtype, count, compare, requires_grad=False):
    """Compare every sample; the failures of all of them in one message."""
    failures, ran = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(op, dtype, count, requires_grad):
            text = f"{op.full_name}{describe(sample)}"
            try:
                ran += compare(op, dtype, sample) is not False
            except Unsupported:
                continue
            except Exception as error:
                failures.append(f"{text}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
                ran += 1
    assert not failures, f"{len(failures)} of {ran}: " + "\n".join(failures[:4])
    if not ran:
        pytest.skip("PyTorch has none of these samples on its device")


def same_places(got, want):
    """Results stand where PyTorch's stand."""
    mine = [{OURS: THEIRS}.get(device, device) for device in devices(got)]
    if mine != devices(want):
        raise Mismatch(f"results are on {devices(got)}, PyTorch's on {devices(want)}")


# --- values -----------------------------------------------------------------------------------------------------------

def same_value(op, dtype, sample):
    mine, precise = placed(to_fb(sample)), checks.in_double(op, sample)
    want = attempt(torch_function(op), *placed(copy(sample)))
    if isinstance(want, Raised):
        return False
    got = attempt(function(op), *mine)
    if isinstance(got, Raised):
        raise Mismatch(f"raises {got}") from got.error
    same_places(got, want)
    checks.agree(op, dtype, copy(sample), home(got), home(want), is_pointwise(op), precise)
    return True


@pytest.mark.parametrize("op, dtype", cases("values", VALUES, lambda op: op.dtypesIfCUDA))
def test_values(op, dtype):
    each(op, dtype, VALUES[dtype], same_value)


# --- gradients --------------------------------------------------------------------------------------------------------

def same_gradient(op, dtype, sample):
    sample = copy(sample)
    mine, theirs = placed(to_fb(sample)), placed(sample)
    outs = attempt(torch_function(op), *theirs)
    if isinstance(outs, Raised):
        return False
    outs = [t for t in tensors(sample.output_process_fn_grad(outs)) if t.requires_grad]
    mine_outs = attempt(function(op), *mine)
    if isinstance(mine_outs, Raised):
        raise Mismatch(f"raises {mine_outs}") from mine_outs.error
    mine_outs = [t for t in tensors(checks.to_fb(sample.output_process_fn_grad)(mine_outs)) if t.requires_grad]
    if len(outs) != len(mine_outs):
        raise Mismatch(f"{len(mine_outs)} results can be differentiated, of PyTorch's {len(outs)}")
    if op.name in checks.DIM_AT and dtype is not torch.float32:
        return False                                  # many halves are equal, and any order of those is right
    leaves, mine_leaves = ([t for t in tensors(side) if t.requires_grad] for side in (theirs, mine))
    if not outs or not leaves:
        return False
    incoming = checks.cotangents(home(outs), seed=1)
    try:
        want = torch.autograd.grad(outs, leaves, there(incoming), allow_unused=True)
    except Exception:                                 # PyTorch has no gradient of this on its device
        return False
    got = flambeau.autograd.grad(mine_outs, mine_leaves, there(to_fb(incoming)), allow_unused=True)
    same_places(got, want)
    precise = gradients_in_double(op, sample, incoming)
    for k, (a, b) in enumerate(zip(home(got), home(want))):
        checks.assert_same(a, b, op, dtype, values=checks.VALUES.get(op.name, checks.assert_close),
                           precise=lambda k=k: precise()[k], where=f"gradient of input {k}: ", looser=10)
    return True


def gradients_in_double(op, sample, incoming):
    """A function that gives the gradients as PyTorch's CPU computes them in double precision, or None for each."""
    @functools.cache
    def precise():
        def widen(t):
            return t.detach().to(checks.WIDE.get(t.dtype, t.dtype)).requires_grad_(t.requires_grad)
        memo = {}
        wide = [there_with(widen, part, memo) for part in (sample.input, sample.args, sample.kwargs)]
        leaves = [t for t in tensors(wide) if t.requires_grad]
        try:
            outs = torch_function(op)(wide[0], *wide[1], **wide[2])
            outs = [t for t in tensors(sample.output_process_fn_grad(outs)) if t.requires_grad]
            return torch.autograd.grad(outs, leaves, [widen(g) for g in incoming], allow_unused=True)
        except Exception:                             # not a function of doubles
            return [None] * len(leaves)
    return precise


@pytest.mark.parametrize("op, dtype", cases("gradients", GRADIENTS, lambda op: op.supported_backward_dtypes("cuda")
                                            if op.supports_autograd else ()))
def test_gradients(op, dtype):
    each(op, dtype, GRADIENTS[dtype], same_gradient, requires_grad=True)


# --- autocast ---------------------------------------------------------------------------------------------------------

def kinds(x):
    if peer.is_tensor(x):
        return str(x.dtype)
    return tuple(kinds(part) for part in x) if isinstance(x, (tuple, list)) else type(x).__name__


def same_autocast(low):
    def compare(op, dtype, sample):
        def under(lib, device, call):
            def run(input, *args, **kwargs):
                with lib.autocast(device, dtype=getattr(lib, DTYPES[low])):
                    return call(input, *args, **kwargs)
            return run
        mine = placed(to_fb(sample))
        want = attempt(under(torch, THEIRS, torch_function(op)), *placed(copy(sample)))
        if isinstance(want, Raised):
            return False
        got = attempt(under(flambeau, OURS, function(op)), *mine)
        if isinstance(got, Raised):
            raise Mismatch(f"raises {got}, PyTorch gives {kinds(want)}") from got.error
        if kinds(got) != kinds(want):
            raise Mismatch(f"gives {kinds(got)}, PyTorch {kinds(want)}")
        return True
    return compare


@pytest.mark.skipif(THEIRS != OURS, reason="PyTorch's rules of autocast for its CPU are others")
@pytest.mark.parametrize("low", AUTOCAST, ids=DTYPES.get)
@pytest.mark.parametrize("op", [op for op in OPS if torch.float32 in op.dtypesIfCUDA
                                and op.full_name not in OTHERWISE], ids=lambda op: op.full_name)
def test_autocast_gives_the_dtypes_of_pytorch(op, low):
    each(op, torch.float32, AUTOCAST[low], same_autocast(low))
