"""Fronts of pointwise operations, conversions, and comparisons of whole tensors."""
import math

import numpy as np

import flambeau as torch

from .rows import numbers, row

X, Y, P = numbers((3, 4)), numbers((3, 4), 0.4, 2.2, seed=1), numbers((3, 4), 0.3, 2, seed=2)
N, D = np.array([7, -7, 7, -7, 0]), np.array([2, 2, -2, -2, 3])
Z = X + 1j * Y

row("positive", lambda x: +x, lambda x: x, X)
row("div", lambda x, y: x / y, np.divide, X, Y)
row("div floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), np.floor_divide, X, Y)
row("div trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), lambda x, y: np.trunc(x / y), X, Y)
row("div of integers", lambda n, d: n / d, lambda n, d: (n / d).astype(np.float32), N, D, grad=False, tol=1e-6)
row("div of integers floor", lambda n, d: torch.div(n, d, rounding_mode="floor"), np.floor_divide, N, D, grad=False)
row("div of integers trunc", lambda n, d: torch.div(n, d, rounding_mode="trunc"), lambda n, d: np.array([3, -3, -3, 3, 0]), N, D, grad=False)
row("floor_divide", lambda n, d: n // d, np.floor_divide, N, D, grad=False)
row("remainder", lambda x, y: x % y, np.mod, X, Y, still=(1,))
row("remainder of integers", lambda n, d: n % d, np.mod, N, D, grad=False)
row("fmod", lambda x, y: torch.fmod(x, y), np.fmod, X, Y, still=(1,))
row("fmod of integers", lambda n, d: torch.fmod(n, d), np.fmod, N, D, grad=False)
row("__rdiv__", lambda y: 3 / y, lambda y: 3 / y, Y)
row("pow", lambda p, x: p ** x, np.power, P, X)
row("pow number", lambda x: x ** 3, lambda x: x ** 3, X)
row("pow of number", lambda x: 2.5 ** x, lambda x: 2.5 ** x, X)
row("pow half", lambda p: p ** 0.5, np.sqrt, P)
row("pow of integers", lambda n: n ** 3, lambda n: n ** 3, N, grad=False)
row("square", lambda x: x.square(), np.square, X)
row("float_power", lambda p: torch.float_power(p, 1.5).to(p.dtype), lambda p: p ** 1.5, P)
row("float_power_", lambda p: (p * 1).double().float_power_(2).to(p.dtype), lambda p: p ** 2, P, grad="first")
row("round", lambda x: x.round(), np.round, X)
row("round decimals", lambda x: torch.round(x, decimals=1), lambda x: np.round(x, 1), X)
row("round halves to even", lambda x: x.round(), lambda x: np.array([0.0, 2, 2, -0.0, -2]), np.array([0.5, 1.5, 2.5, -0.5, -1.5]), grad=False)
row("conj", lambda z: (z.conj() * z).real, lambda z: np.abs(z) ** 2, Z, grad=False)
row("conj_physical", lambda z: z.conj_physical(), np.conj, Z, grad=False)
row("resolve_conj", lambda z: z.conj().resolve_conj(), np.conj, Z, grad=False)
row("resolve_neg", lambda x: x.resolve_neg(), lambda x: x, X)
row("is_conj", lambda x: x.is_conj(), lambda x: False, X, grad=False)
row("is_neg", lambda x: x.is_neg(), lambda x: False, X, grad=False)
row("isclose", lambda x, y: torch.isclose(x, y, rtol=0.3, atol=0.1), lambda x, y: np.isclose(x, y, 0.3, 0.1), X, Y, grad=False)
row("allclose", lambda x: (torch.allclose(x, x + 1e-9), torch.allclose(x, x + 1)), lambda x: (True, False), X, grad=False, meta=False)
row("equal", lambda x, y: (torch.equal(x, x), torch.equal(x, y), torch.equal(x, x[:1])), lambda x, y: (True, False, False), X, Y, grad=False, meta=False)
row("clamp", lambda x: x.clamp(-0.55, 0.8), lambda x: np.clip(x, -0.55, 0.8), X)
row("clamp min", lambda x: x.clamp(min=0.05), lambda x: np.maximum(x, 0.05), X)
row("clamp tensors", lambda x, y: x.clamp(-y, y), lambda x, y: np.clip(x, -y, y), X, Y)
row("lerp weights", lambda x, y, w: torch.lerp(x, y, w), lambda x, y, w: x + w * (y - x), X, Y, P)
row("fill in place", lambda x, y: (x * 1).fill_(y[0, 0]), lambda x, y: np.full((3, 4), y[0, 0]), X, Y, grad="first")
row("polygamma", lambda p: torch.polygamma(1, p), lambda p: sum(1 / (p + k) ** 2 for k in range(4000)) + 1 / (p + 4000 - 0.5), P, tol=1e-8)
row("mvlgamma", lambda p: torch.special.multigammaln(p + 1, 3),
    lambda p: 1.5 * np.log(np.pi) + sum(np.vectorize(math.lgamma)(p + 1 - i / 2) for i in range(3)), P, tol=1e-8)
row("copy", lambda x, y: (x * 1).copy_(y), lambda x, y: y, X, Y, grad="first")
row("copy broadcast", lambda x, y: (x * 1).copy_(y[0]), lambda x, y: np.broadcast_to(y[0], (3, 4)), X, Y, grad="first")
row("fill", lambda x: (x * 1).fill_(3.0), lambda x: np.full((3, 4), 3.0), X, grad="first")
row("fill tensor", lambda x, y: torch.fill(x, y[0, 0]), lambda x, y: np.full((3, 4), y[0, 0]), X, Y, grad="first")
row("zero", lambda x: (x * 1).zero_(), np.zeros_like, X, grad="first")
for _name, _type in {"bool": bool, "byte": np.uint8, "char": np.int8, "short": np.int16, "int": np.int32, "long": np.int64}.items():
    row(_name, lambda n, name=_name: getattr(n, name)(), lambda n, kind=_type: n.astype(kind), np.array([0, 1, 5, 100]), grad=False)
for _name, _type in {"half": np.float16, "float": np.float32, "double": np.float64, "cfloat": np.complex64, "cdouble": np.complex128}.items():
    row(_name, lambda n, name=_name: getattr(n, name)(), lambda n, kind=_type: n.astype(kind), np.array([0, 1, 5, 100]), grad=False)
row("bfloat16", lambda n: n.bfloat16().float(), lambda n: np.array([0.0, 1, 5, 256]), np.array([0, 1, 5, 257]), grad=False)      # 8 bits of precision
row("type", lambda n: n.type(torch.float64), lambda n: n.astype(float), N, grad=False)
row("cpu", lambda x: x.cpu(), lambda x: x, X, meta=False)
