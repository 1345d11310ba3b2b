"""torch.func beside PyTorch's: the same values and structure, and the same kind of refusal."""
import re
import warnings

import pytest

torch = pytest.importorskip("torch")

import flambeau

SETUP = """
import collections
from torch.func import *
torch.manual_seed(0)
x, y, m = (torch.randn(*size, dtype=torch.float64) for size in ((3,), (3,), (2, 3)))
w = torch.randn(3, dtype=torch.float64, requires_grad=True)
f = lambda t: (t.sin() * t.flip(0)).cumsum(0)
s = lambda t: f(t).square().sum()
Pair = collections.namedtuple("Pair", "a b")
nn = torch.nn
"""
LINES = """
grad(s)(x)
grad(grad(lambda t: t.sin().sum() if t.dim() else t.sin()))(x[0])
grad(s, argnums=(0,))(x)
grad(lambda a, b: (a * b).sum(), argnums=(1, 0))(x, y)
grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [y]})
grad(s)(w)
grad(lambda t: (t * w).square().sum())(x)
grad(lambda t: (s(t), t * 2), has_aux=True)(x)
grad_and_value(s)(x)
grad_and_value(lambda t: (s(t), {"t": t}), has_aux=True)(x)
vjp(f, x)[0]
vjp(f, x)[1](y)
vjp(lambda a, b: (a * b, {"s": a + b}), x, y)[1]((x, {"s": y}))
vjp(f, w)[0]
vjp(f, w)[1](y)
jvp(f, (x,), (y,))
jvp(lambda a, b: (a * b, a), (x, y), (y, x))
jvp(lambda t: y * 1, (x,), (y,))
jvp(f, (w,), (y,))
jvp(lambda t: jvp(f, (t,), (y,))[1], (x,), (x,))
jvp(grad(s), (x,), (y,))
grad(lambda t: jvp(s, (t,), (y,))[1])(x)
jacrev(f)(x)
jacfwd(f)(x)
jacrev(lambda t: t @ t.t())(m)
jacfwd(lambda t: t @ t.t())(m)
jacrev(f)(w)
jacrev(lambda a, b: {"p": a * b, "q": a}, argnums=(0, 1))(x, y)
jacfwd(lambda a, b: (a * b, a), argnums=1)(x, y)
jacrev(lambda d: d["a"] * 2)({"a": x})
jacrev(lambda t: (f(t), t), has_aux=True)(x)
jacrev(f, chunk_size=2)(x)
hessian(s)(x)
hessian(lambda a, b: (a * b).prod(), argnums=(0, 1))(x, y)
jacfwd(jacfwd(s))(x)
jacrev(jacrev(s))(x)
jacrev(lambda t: t * 1)(torch.ones(0))
jacfwd(lambda t: t.sum())(torch.ones(0))
grad(lambda t, *, k: (t * k).sum())(x, k=2)
linearize(f, x)[0]
linearize(f, x)[1](y)
linearize(lambda a, b: a * b, x, y)[1](y, x)
vmap(torch.dot)(m, m)
vmap(f)(m)
vmap(f, in_dims=1)(m)
vmap(f, out_dims=1)(m)
vmap(torch.mul, in_dims=(0, None))(m, x)
vmap(vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(x, y)
vmap(lambda t: {"a": t, "b": (t.sum(), t)})(m)
vmap(lambda p: Pair(p.a + p.b, p.a), in_dims=(Pair(0, None),))(Pair(m, x))
vmap(lambda t: (t, t.sum()), out_dims=(1, 0))(m)
vmap(jacrev(f))(m)
vmap(grad(s))(m)
vmap(lambda t: t.sum(0, keepdim=True))(torch.ones(0, 3))
jacrev(vmap(f))(m)
vmap(lambda t, k: t * k, in_dims=(0, None))(m, 3)
vmap(lambda t: torch.ones(2))(m)
vmap(f, chunk_size=1)(m)
vmap(f)(w[None])
vmap(lambda t: t.add_(1))(m.clone())
functionalize(lambda t: t.clone().add_(1))(x)
torch.vmap(torch.sum)(m)
functional_call(nn.Linear(3, 1).double(), {"weight": x[None], "bias": y[:1]}, (m,))
functional_call(nn.Linear(3, 1), {}, 3)
functional_call(nn.Sequential(nn.Linear(3, 1)).double(), ({"0.weight": x[None]}, {"0.bias": y[:1]}), (m,))
functional_call(3, {}, 3)
functional_call(replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(3, affine=False))), {}, (m,))
grad(f)(x)
grad(lambda t: 3.0)(x)
grad(s, argnums=1)(x)
grad(s, argnums=())(x)
grad(s, argnums="a")(x)
grad(s)(3.0)
grad(s, has_aux=True)(x)
grad(lambda t: t.sum())(torch.arange(3))
vjp(lambda t: 3, x)
vjp(f, x)[1](m)
vjp(f, x)[1]((x, x))
jvp(f, x, y)
jvp(f, (x,), (y, y))
jvp(f, (x,), (m,))
jvp(lambda t: 3, (x,), (y,))
jvp(lambda t: y, (x,), (y,), strict=True)
jacrev(lambda t: 3)(x)
jacfwd(lambda t: 3)(x)
jacrev(f, chunk_size=0)(x)
vmap(f, in_dims=None)(m)
vmap(f, in_dims=(None,))(m)
vmap(lambda: 3)()
vmap(torch.add)(m, x)
vmap(torch.add, in_dims=(0,))(m, m)
vmap(f, in_dims=2)(m)
vmap(f, in_dims=(0.5,))(m)
vmap(torch.add)(m, 3)
vmap(lambda t: 3)(m)
vmap(lambda t: None)(m)
vmap(f, out_dims=(0, 0))(m)
vmap(f, out_dims=3)(m)
vmap(f, out_dims="a")(m)
vmap(f, out_dims=None)(m)
vmap(lambda t: torch.rand(2))(m)
vmap(f, randomness="x")(m)
vmap(f, chunk_size=0)(m)
stack_module_state([])
stack_module_state([nn.Linear(1, 1), nn.Linear(1, 1).eval()])
functionalize(f, remove="x")(x)
"""

def outcome(line, lib):
    names = {"torch": lib}
    setup = SETUP.replace("from torch.func import *", "globals().update({n: getattr(torch.func, n) for n in "
                                                      "torch.func.__all__})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(setup, names)
        try:
            return eval(line, names)
        except Exception as error:
            return error


def plain(x):
    """A result as nested lists that compare; tensors as (dtype, shape, requires_grad)."""
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        return str(x.dtype), tuple(x.shape), x.requires_grad
    if isinstance(x, dict):
        return {key: plain(held) for key, held in x.items()}
    if isinstance(x, (tuple, list)):
        return [type(x).__name__, *map(plain, x)]
    return type(x).__name__


def values(x):
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        return x.detach().reshape(-1).tolist()
    return [n for held in (x.values() if isinstance(x, dict) else x) for n in values(held)]


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_line(line):
    want, got = outcome(line, torch), outcome(line, flambeau)
    if isinstance(want, Exception):
        assert isinstance(got, type(want)), got
        return
    if isinstance(got, Exception):
        raise got
    assert plain(got) == plain(want)
    assert values(got) == pytest.approx(values(want), rel=1e-6, abs=1e-9)


def test_the_names():
    public = {name for name in dir(torch.func) if not name.startswith("_")}
    assert public - set(flambeau.func.__all__) == {"debug_unwrap", "rearrange"}
    unsaid = [name for name in public & set(flambeau.func.__all__) if not re.search(rf"\b{name}\(", LINES)]
    assert not unsaid, f"LINES, above, has no call of {', '.join(sorted(unsaid))}"
