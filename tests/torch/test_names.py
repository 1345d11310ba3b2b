"""Arguments as PyTorch takes them: by all of its names, in its old orders, of dtypes that only some losses have, and
the small refusals that no sample of an operation shows. Each program runs in both libraries."""
import inspect
import math
import warnings

import numpy as np
import pytest
import torch

import flambeau
from flambeau.backends.cuda.chain import Broken
from flambeau.base.op import Op
from flambeau.compat.missing import Missing

# ---- names ---------------------------------------------------------------------------------------------------------

SPACES = {"": (torch, ""), "special": (torch.special, "special_"), "linalg": (torch.linalg, "linalg_")}
SCRIPTS = ("t", "b", "a", "l", "n", "list", "idx", "reverse", "i")     # of TorchScript's overloads for Python's types
NOT_TAKEN = {"group_norm": "cudnn_enabled", "rrelu": "generator", "rrelu_": "generator", "orgqr": "input2",
             "tensor_split": "tensor_indices_or_sections", "mm": "out_dtype", "bmm": "out_dtype", "addmm": "out_dtype",
             "baddbmm": "out_dtype", "detach": "input", "detach_": "input", "resize_as_": "input"}


def schemas(name):
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        schema = getattr(packet, overload)._schema
        if "out" not in overload and not any("Dimname" in str(a.type) for a in schema.arguments):
            yield [("input" if a.name == "self" else a.name) for a in schema.arguments if not a.is_out]


def ours(space):
    found = flambeau
    for part in space.split(".") if space else ():
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("space", SPACES)
def test_every_name_of_an_argument(space):
    """What PyTorch's schemas call an argument is a name for it here."""
    module, prefix = SPACES[space]
    missing = []
    for name in dir(module):
        op = getattr(ours(space), name, None)
        if isinstance(op, Missing):
            continue
        op = op if isinstance(op, Op) or inspect.ismodule(op) else getattr(op, "op", None)
        if name.startswith("_") or not isinstance(op, Op) or inspect.isfunction(getattr(module, name)):
            continue
        if not op.prepared:
            op.prepare()
        if op.n_positional == 0 and not op.arg_names:
            continue                                            # it looks at its arguments itself
        for names in schemas(prefix + name):
            if names and names[0] in SCRIPTS or len(names) > 1 and names[1] in SCRIPTS:
                continue
            unknown = [n for n in names if n not in op.arg_names and op.given_name(n) not in op.arg_names]
            missing += [f"{name}({n}=)" for n in unknown if NOT_TAKEN.get(name) != n]
    assert not missing, missing


def test_every_name_of_a_python_function():
    """The same for what PyTorch writes in Python, at the top."""
    later = {"compile": {"name", "recompile_limit", "isolate_recompiles", "shapes_spec"},
             "norm": {"out"}, "tensordot": {"out"}, "chain_matmul": {"out"}}        # `out` is taken by every operation
    missing = []
    for name in torch.__all__:
        theirs, mine = getattr(torch, name), getattr(flambeau, name, None)
        if not inspect.isfunction(theirs) or mine is None:
            continue
        parameters = inspect.signature(mine).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            continue
        asked = {p.name for p in inspect.signature(theirs).parameters.values()
                 if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and not p.name.startswith("_")}
        unknown = asked - {p.name for p in parameters} - later.get(name, set())
        missing += [f"{name}({n}=)" for n in sorted(unknown)]
    assert not missing, missing


# ---- programs ------------------------------------------------------------------------------------------------------


def shown(x):
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        return str(x.dtype), tuple(x.shape), x.tolist()
    return tuple(map(shown, x)) if isinstance(x, (tuple, list)) else x


def outcome(lib, program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return shown(program(lib))
        except Exception as error:
            return AssertionError if isinstance(error, Broken) else type(error)      # it is a RuntimeError, too


def vector(t): return t.tensor([1.0, 2.0])
def matrix(t): return t.tensor([[1.0, 2.0], [3.0, 4.0]])
def batch(t):  return matrix(t).unsqueeze(0)


def resized(t, make, out):
    make(out)
    return out._version, out.stride(), tuple(out.shape)


def registered(t):
    class P:
        pass

    class Q:
        pass
    t.distributions.kl.register_kl(P, Q)(lambda p, q: 3)
    return t.distributions.kl_divergence(P(), Q())


def default_device(t):
    t.set_default_device(device="meta")
    try:
        return str(t.zeros(1).device)
    finally:
        t.set_default_device(device=None)


ARRAYS = {n: np.zeros(n, np.float32) for n in (2, 5)}

PROGRAMS = {
    "add(input, alpha, other)": lambda t: t.add(vector(t), 2, vector(t)),
    "add(bools)": lambda t: t.add(t.tensor([True, False]), True, t.tensor([True, True])),
    "add(input, alpha, number)": lambda t: t.add(vector(t), 2, 3),
    "x.add_(alpha, other)": lambda t: vector(t).add_(2, vector(t)),
    "sub(input, alpha, other)": lambda t: t.sub(vector(t), 2, vector(t)),
    "addcmul": lambda t: t.addcmul(vector(t), 2, vector(t), vector(t)),
    "addcdiv_": lambda t: vector(t).addcdiv_(2, vector(t), vector(t)),
    "addmm, five": lambda t: t.addmm(2, matrix(t), 3, matrix(t), matrix(t)),
    "addmm, four": lambda t: t.addmm(2, matrix(t), matrix(t), matrix(t)),
    "addmm_": lambda t: matrix(t).addmm_(2, 3, matrix(t), matrix(t)),
    "addmv": lambda t: t.addmv(2, vector(t), 3, matrix(t), vector(t)),
    "addr": lambda t: t.addr(2, matrix(t), 3, vector(t), vector(t)),
    "addbmm": lambda t: t.addbmm(2, matrix(t), 3, batch(t), batch(t)),
    "baddbmm": lambda t: t.baddbmm(2, batch(t), 3, batch(t), batch(t)),
    "mm(out_dtype)": lambda t: t.mm(matrix(t), matrix(t), out_dtype=t.float32),
    "bmm(out_dtype)": lambda t: t.bmm(batch(t), batch(t), out_dtype=t.float32),
    "addmm(out_dtype)": lambda t: t.addmm(matrix(t), matrix(t), matrix(t), out_dtype=t.float32),
    "baddbmm(out_dtype)": lambda t: t.baddbmm(batch(t), batch(t), batch(t), out_dtype=t.float32),
    "sum(out=int64)": lambda t: t.sum(t.tensor([1.5, 2.5]), dim=0, out=t.zeros((), dtype=t.int64)),
    "sum(int8, out=int8)": lambda t: t.sum(t.tensor([99, 99], dtype=t.int8), dim=0, out=t.zeros((), dtype=t.int8)),
    "pow(bool, False)": lambda t: t.pow(t.tensor([True, False]), False),
    "bool ** True": lambda t: t.tensor([True, False]) ** True,
    "conv_transpose1d, empty": lambda t: t.nn.functional.conv_transpose1d(t.ones(1, 1, 1), t.ones(1, 1, 2), padding=1),
    "conv_transpose2d, empty": lambda t: t.nn.functional.conv_transpose2d(t.ones(1, 1, 1, 3), t.ones(1, 1, 2, 2),
                                                                          padding=(1, 0)),
    "cumsum_(bool)": lambda t: t.zeros(2, dtype=t.bool).cumsum_(0),
    "cumsum_(no bool)": lambda t: t.zeros(0, dtype=t.bool).cumsum_(0),
    "cumprod_(int8)": lambda t: t.tensor([100, 2, 2], dtype=t.int8).cumprod_(0),
    "cummin(no complex)": lambda t: t.zeros(0, dtype=t.complex64).cummin(0),
    "cummax(complex)": lambda t: t.zeros(2, dtype=t.complex64).cummax(0),
    "log_softmax(no complex)": lambda t: t.zeros(0, dtype=t.complex64).log_softmax(0),
    "softmax(no int)": lambda t: t.zeros(0, 3, dtype=t.int64).softmax(0),
    "out= of a transposed": lambda t: resized(t, lambda out: t.add(t.ones(2, 3).t(), 1, out=out), t.empty(0)),
    "out= of another shape": lambda t: resized(t, lambda out: t.add(t.ones(2, 3).t(), 1, out=out), t.empty(5)),
    "out= of NumPy's": lambda t: t.add(t.ones(3), 1, out=t.from_numpy(ARRAYS[2])),
    "out= of NumPy's, smaller": lambda t: t.add(t.ones(3), 1, out=t.from_numpy(ARRAYS[5])),
    "tensor(tensors)": lambda t: t.tensor([t.ones(2), t.ones(2)]),
    "tensor(int tensors)": lambda t: t.tensor([t.ones(2, dtype=t.int64), t.ones(2, dtype=t.int64)]),
    "tensor(single elements)": lambda t: t.tensor([t.ones(1, 1), t.ones(1, 1)]),
    "LinAlgError": lambda t: issubclass(t.linalg.LinAlgError, RuntimeError),
    "LinAlgError, raised": lambda t: t.linalg.inv(t.zeros(2, 2)) if t is None else pytest.raises(
        t.linalg.LinAlgError, t.linalg.inv, t.zeros(2, 2)) is not None,
    "Tensor(device)": lambda t: t.Tensor([1.0], device="cuda"),
    "FloatTensor(device)": lambda t: t.FloatTensor(2, device="cuda:1"),
    "cuda()": lambda t: t.ones(1).cuda(), "cuda(1)": lambda t: t.ones(1).cuda(1),
    "Module.cuda(1)": lambda t: t.nn.Linear(1, 1).cuda(1),
    "register_kl": registered, "register_kl(3)": lambda t: t.distributions.kl.register_kl(3, 4),
    "set_default_device": default_device,
    "result_type": lambda t: str(t.result_type(tensor=t.tensor([1]), other=1.5)),
    "cholesky_solve": lambda t: t.cholesky_solve(input=matrix(t), input2=matrix(t).tril()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    want, got = outcome(torch, PROGRAMS[name]), outcome(flambeau, PROGRAMS[name])
    assert got == want


LOSSES = ("smooth_l1_loss binary_cross_entropy kl_div soft_margin_loss mse_loss l1_loss huber_loss poisson_nll_loss "
          "binary_cross_entropy_with_logits").split()


@pytest.mark.parametrize("name", LOSSES)
def test_dtypes_of_losses(name):
    values = {"int64": [1, 0], "float32": [0.5, 0.25], "complex64": [1 + 1j, 2], "bool": [True, False],
              "float64": [0.75, 0.5]}
    for a in values:
        for b in values:
            program = lambda t, a=a, b=b: getattr(t.nn.functional, name)(
                t.tensor(values[a], dtype=getattr(t, a)), t.tensor(values[b], dtype=getattr(t, b)))
            want, got = outcome(torch, program), outcome(flambeau, program)
            if isinstance(want, type) or isinstance(got, type):
                assert isinstance(want, type) and isinstance(got, type), (a, b, got, want)
            else:
                # PyTorch multiplies the logits into one minus the targets, whose dtype then stays.
                assert got[:2] == want[:2] or name == "binary_cross_entropy_with_logits" and a != b, (a, b)
                assert math.isclose(abs(got[2] - want[2]), 0, abs_tol=1e-5), (a, b)
