"""Operators that programs define: the same programs on both libraries give the same results, schemas and refusals."""
import itertools

import numpy as np
import pytest
import torch

import flambeau

count = itertools.count()


def both(program):
    """What a program gives on each library, each under a namespace that was never used."""
    ns = f"both{next(count)}"
    return program(flambeau, ns), program(torch, ns)


def same(program):
    ours, theirs = both(program)
    assert ours == theirs, f"{ours}\n{theirs}"


def said(call, *args, **kwargs):
    """The type of the error of a call, and its first words."""
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return caught.type.__name__, str(caught.value).partition("\n")[0][:60]


def test_a_function_with_a_gradient():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::mul_add", mutates_args=())
        def mul_add(x: m.Tensor, y: m.Tensor, k: float = 2.0) -> m.Tensor:
            return m.from_numpy(x.numpy(force=True) * y.numpy(force=True) * k)

        def setup(ctx, inputs, output):
            x, y, ctx.k = inputs
            ctx.save_for_backward(x, y)

        def backward(ctx, g):
            x, y = ctx.saved_tensors
            assert ctx.needs_input_grad[0]
            return g * y * ctx.k, g * x * ctx.k, None
        mul_add.register_autograd(backward, setup_context=setup)
        mul_add.register_fake(lambda x, y, k=2.0: m.empty_like(x))
        x = m.arange(3.0, dtype=m.float64).requires_grad_()
        y = m.ones(3, dtype=m.float64) * 2
        out = mul_add(x, y, 3.0)
        out.sum().backward()
        op = getattr(m.ops, ns).mul_add
        assert m.autograd.gradcheck(op, (x, y))
        faked = op(m.empty(2, 5, device="meta"), m.empty(2, 5, device="meta"))
        return (out.tolist(), x.grad.tolist(), type(out.grad_fn).__name__, str(op.default._schema), str(op),
                repr(op.default),
                tuple(faked.shape), faked.device.type, op.overloads(), op.default.name())
    same(program)


def test_lists_of_tensors_in_and_out():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::both", mutates_args=())
        def both(xs: list[m.Tensor], weights: list[float]) -> tuple[m.Tensor, list[m.Tensor]]:
            return sum(x * w for x, w in zip(xs, weights)), [x * 2 for x in xs]

        def setup(ctx, inputs, output):
            ctx.weights = inputs[1]

        def backward(ctx, g, gs):
            return [g * w + 2 * h for w, h in zip(ctx.weights, gs)], None
        both.register_autograd(backward, setup_context=setup)
        xs = [m.ones(2, requires_grad=True), m.ones(2), m.ones(2, requires_grad=True)]
        total, doubled = both(xs, [1.0, 2.0, 3.0])
        (total.sum() + doubled[2].sum()).backward()
        return total.tolist(), [d.tolist() for d in doubled], xs[0].grad.tolist(), xs[1].grad, xs[2].grad.tolist()
    same(program)


def test_writing_an_argument_counts_as_a_write():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::fill", mutates_args={"x"})
        def fill(x: m.Tensor, value: float = 2.0) -> None:
            x.numpy()[:] = value
        x = m.zeros(2)
        assert fill(x) is None
        return x.tolist(), x._version, str(fill._opoverload._schema), fill._opoverload._schema.is_mutable
    same(program)


def test_a_written_tensor_is_noticed_at_backward():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::fill", mutates_args={"x"})
        def fill(x: m.Tensor) -> None:
            x.numpy()[:] = 5
        a = m.ones(2, requires_grad=True)
        b = m.ones(2)
        product = a * b
        fill(b)
        return said(product.sum().backward)
    same(program)


def test_kernels_for_devices():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::where", mutates_args=())
        def where(x: m.Tensor) -> m.Tensor:
            return x + 1

        @where.register_kernel("cpu")
        def _(x):
            return x + 10
        x = m.zeros(1)
        with where.set_kernel_enabled("cpu", False):
            any_device = where(x).item()
        return where(x).item(), any_device, said(where, m.empty(1, device="meta"))[0]
    same(program)


def test_a_library_by_schemas():
    def program(m, ns):
        lib = m.library.Library(ns, "FRAGMENT")
        made = lib.define("scale(Tensor x, int k=3, *, float s=1.0) -> Tensor")
        lib.impl("scale", lambda x, k=3, s=1.0: x * k * s, "CPU")
        lib.define("scale.pair(Tensor x, Tensor y) -> (Tensor, Tensor)")
        lib.impl("scale.pair", lambda x, y: (x * 2, y * 3), "CompositeImplicitAutograd")
        scale = getattr(m.ops, ns).scale
        x = m.ones(2, requires_grad=True)
        a, b = scale(x, x)
        a.sum().backward()
        with m.no_grad():
            return (made, scale(x).tolist(), scale(x, 2, s=0.5).tolist(), b.tolist(), x.grad.tolist(),
                    scale.overloads(),
                    str(scale.default._schema), str(scale.pair._schema), said(scale.default, 1), said(scale.default),
                    said(scale.default, x, q=1), said(getattr, scale, "nope"), said(lib.define, "scale(Tensor x) -> "
                                                                                                "Tensor"),
                    said(getattr, getattr(m.ops, ns), "nope"))
    same(program)


def test_kernels_given_before_the_definition():
    def program(m, ns):
        lib = m.library.Library(ns, "FRAGMENT")
        early = said(m.library.register_fake, f"{ns}::late", lambda x: m.empty(x.shape[0], device=x.device), lib=lib)
        lib.impl("late", lambda x: x.sum(1), "CPU")
        lib.define("late(Tensor x) -> Tensor")
        late = getattr(m.ops, ns).late
        m.library.register_fake(f"{ns}::late", lambda x: m.empty(x.shape[0], device=x.device), lib=lib)
        return early[0], late(m.ones(2, 3)).tolist(), tuple(late(m.empty(4, 2, device="meta")).shape)
    same(program)


def test_operators_go_with_their_library():
    def program(m, ns):
        with m.library._scoped_library(ns, "FRAGMENT") as lib:
            lib.define("f(Tensor x) -> Tensor")
            there = hasattr(getattr(m.ops, ns), "f")
        return there, hasattr(getattr(m.ops, ns), "f")
    same(program)


@pytest.mark.parametrize("schema", [
    "f(Tensor x) -> Tensor", "f(Tensor(a!) x, int[2] y=[1, 2], *, float? z=None, str s='a') -> (Tensor, Tensor[])",
    "f.out(Tensor? x=None, bool[] b=[], *, Tensor(a!) out) -> Tensor(a!)", "f(SymInt[]? size=None, float x=1e-3) -> ()",
    "f(Tensor[] xs, Scalar s=2, Device? d=None, ScalarType? t=None) -> (Tensor a, int b)", "f(Tensor?[] i) -> Tensor[]",
    "f(Tensor x, Tensor! out, *, Tensor![] more) -> ()",
])
def test_schemas_are_read_alike(schema):
    from flambeau.compat._library.schema import parse
    ours, theirs = parse(schema), torch._C.parse_schema(schema)
    for a, b in zip((*ours.arguments, *ours.returns), (*theirs.arguments, *theirs.returns), strict=True):
        assert (a.name, a.kwarg_only, a.has_default_value(), a.default_value) == \
            (b.name, b.kwarg_only, b.has_default_value(), b.default_value)
        assert (a.alias_info and a.alias_info.is_write) == (b.alias_info and b.alias_info.is_write)
    assert ours.is_mutable == theirs.is_mutable and ours.overload_name == theirs.overload_name
    if "1e-3" not in schema:                             # C++ writes the digits of a float its own way
        assert str(ours) == str(theirs)


@pytest.mark.parametrize("schema", ["f(Tensor x", "f(Tenso x) -> Tensor", "f(Tensor) -> Tensor", "f",
                                    "f(Tensor x) Tensor",
                                    "f(Tensor x) -> Tensor Tensor x", "f(Tensor x,, int y) -> Tensor"])
def test_schemas_that_cannot_be_read(schema):
    from flambeau.compat._library.schema import parse
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(schema)
    with pytest.raises(RuntimeError):
        parse(schema)


def prototypes(m):
    from collections.abc import Sequence
    from typing import List  # noqa: UP035  (older programs write these)
    T = m.Tensor

    def plain(x: T, n: int, p: float, flag: bool = False, name: str = "a") -> T: ...
    def optional(x: T | None, n: int | None = None, sizes: list[int] | None = None) -> tuple[T, T]: ...
    def lists(xs: List[T], ys: Sequence[T], zs: list[T | None]) -> List[T]: ...  # noqa: UP006
    def modern(x: T | None, *, n: int | None = 3, sizes: Sequence[int] = None) -> None: ...
    def things(dtype: m.dtype, device: m.device, s: m.types.Number, d: m.dtype = m.float32) -> tuple[T, int, float]: ...
    def in_words(x: "T", y: "m.Tensor" = None) -> "T": ...
    def one(x: T) -> tuple[T]: ...
    def no_annotation(x, y: int) -> T: ...
    def no_result(x: T): ...
    def varargs(*xs: T) -> T: ...
    def a_tuple(x: tuple[int, int]) -> T: ...
    def wrong_result(x: T) -> str: ...
    def union(x: int | str) -> T: ...
    return [f for f in locals().values() if callable(f) and getattr(f, "__module__", "") == __name__]


@pytest.mark.parametrize("at", range(13))
@pytest.mark.parametrize("mutates", [(), ("x",), "unknown"])
def test_schemas_of_annotations(at, mutates):
    def program(m):
        f = prototypes(m)[at]
        f.__globals__["T"], f.__globals__["m"] = m.Tensor, m
        try:
            return m.library.infer_schema(f, mutates_args=mutates)
        except ValueError as error:
            return str(error)[:70].partition(" has unsupported")[0]
    assert program(flambeau) == program(torch)


def test_aten_has_the_names_and_overloads_that_pytorch_has():
    wanted = {}
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::"):
            name, _, overload = full.removeprefix("aten::").partition(".")
            wanted.setdefault(name, set()).add(overload or "default")
    from flambeau.compat._library import aten
    found = {name: set(overloads) for name, overloads in aten.names().items()}
    assert found == wanted


SAMPLES = [
    ("add.Tensor", lambda m, x: (x, x)), ("add.Scalar", lambda m, x: (x, 2)), ("mm.default", lambda m, x: (x, x)),
    ("sum.dim_IntList", lambda m, x: (x, [0], True)), ("slice.Tensor", lambda m, x: (x, 1, 0, 2)),
    ("view.default", lambda m, x: (x, [9])), ("permute.default", lambda m, x: (x, [1, 0])),
    ("select.int", lambda m, x: (x, 0, 1)), ("index.Tensor", lambda m, x: (x, [None, m.tensor([0, 2])])),
    ("_softmax.default", lambda m, x: (x, 1, False)), ("_log_softmax.default", lambda m, x: (x, 1, False)),
    ("addmm.default", lambda m, x: (x[0], x, x)), ("linalg_vector_norm.default", lambda m, x: (x,)),
    ("gelu.default", lambda m, x: (x,)), ("relu.default", lambda m, x: (x,)), ("expand.default", lambda m,
                                                                               x: (x[:1], [3, 3])),
    ("_to_copy.default", lambda m, x: (x,)), ("clone.default", lambda m, x: (x,)), ("special_erfcx.default", lambda m,
                                                                                    x: (x,)),
    ("full.default", lambda m, x: ([2, 2], 3.0)), ("cat.default", lambda m, x: ([x, x], 1)),
    ("native_layer_norm.default", lambda m, x: (x, [3], None, None, 1e-5)), ("sym_size.int", lambda m, x: (x, 0)),
    ("topk.default", lambda m, x: (x, 2)), ("where.self", lambda m, x: (x > 1, x, x * 0)), ("t.default", lambda m,
                                                                                            x: (x,)),
]


@pytest.mark.parametrize("name, args", SAMPLES, ids=[name for name, _ in SAMPLES])
def test_aten_operators_give_what_pytorch_gives(name, args):
    def program(m):
        packet, overload = name.split(".")
        made = getattr(getattr(m.ops.aten, packet), overload)(*args(m, m.arange(9.0).reshape(3, 3) / 3))
        return [np.asarray(t).tolist() for t in (made if isinstance(made, tuple) else (made,))]
    np.testing.assert_allclose(program(flambeau)[0], program(torch)[0], rtol=1e-6)


def test_what_a_library_cannot_be_loaded_from():
    def program(m, ns):
        return (said(m.ops.load_library, "/nowhere/lib.so"), sorted(m.ops.loaded_libraries), m.library.get_ctx(),
                said(m.library.Library, ns, "NEW"), said(getattr, m.ops.aten,
                                                         "nope"), str(m.ops.aten.mm), m.ops.__name__,
                said(m.library.define, f"{ns}:f", "(Tensor x) -> Tensor")[0],
                said(m.library.define, f"{ns}::f", "f(Tensor x) -> Tensor")[0])
    same(program)


def test_results_that_are_arguments_are_refused():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::same", mutates_args=())
        def same(x: m.Tensor) -> m.Tensor:
            return x
        return said(same, m.ones(1))[0]
    same(program)


def test_without_a_formula_backward_is_refused():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::f", mutates_args=())
        def f(x: m.Tensor) -> m.Tensor:
            return x * 2
        out = f(m.ones(1, requires_grad=True))
        return out.requires_grad, said(out.sum().backward)[0]
    same(program)


def test_opcheck():
    def program(m, ns):
        @m.library.custom_op(f"{ns}::right", mutates_args=())
        def right(x: m.Tensor) -> m.Tensor:
            return x.clone()
        right.register_fake(lambda x: m.empty_like(x))

        @m.library.custom_op(f"{ns}::wrong", mutates_args=())
        def wrong(x: m.Tensor) -> m.Tensor:
            return x.clone()
        wrong.register_fake(lambda x: m.empty_like(x)[1:])
        found = m.library.opcheck(right, (m.ones(3),), test_utils=("test_schema", "test_faketensor"))
        bad = m.library.opcheck(wrong, (m.ones(3),), test_utils="test_faketensor", raise_exception=False)
        return found, bad["test_faketensor"] == "SUCCESS"
    same(program)
