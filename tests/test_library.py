"""`torch.library` and `torch.ops` by themselves; tests/torch/test_library.py holds them against PyTorch's."""
import copy
import pickle

import numpy as np
import pytest

import flambeau as torch
from flambeau.compat._library import aten
from flambeau.compat._library.schema import parse


@torch.library.custom_op("ours::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.square(x.numpy(force=True)))


@square.register_fake
def _(x):
    return torch.empty_like(x)


square.register_autograd(lambda ctx, g: g * 2 * ctx.saved_tensors[0],
                         setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


def test_it_is_an_operation_like_others():
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.equal(square(x), x * x)
    assert torch.autograd.gradcheck(square, x) and torch.autograd.gradgradcheck(square, x)
    assert square(torch.empty(3, 4, device="meta")).shape == (3, 4)
    rows = x.detach().expand(2, 3)
    assert torch.equal(torch.vmap(square)(rows), rows ** 2)
    assert torch.library.opcheck(square, (x,)) == dict.fromkeys(torch.library.CHECKS, "SUCCESS")


def test_defining_again_replaces():
    def define(k):
        @torch.library.custom_op("ours::again", mutates_args=())
        def f(x: torch.Tensor) -> torch.Tensor:
            return x + k
    define(1)
    define(2)
    assert torch.ops.ours.again(torch.zeros(1)).item() == 2


def test_autocast_casts_what_it_is_told_to():
    seen = []

    @torch.library.custom_op("ours::cast", mutates_args=())
    def f(x: torch.Tensor, k: int) -> torch.Tensor:
        seen.append(x.dtype)
        return x * k
    torch.library.register_autocast("ours::cast", "cpu", torch.bfloat16)
    with torch.autocast("cpu"):
        f(torch.ones(1), 2)
    f(torch.ones(1), 2)
    assert seen == [torch.bfloat16, torch.float32]


def test_overloads_are_found_again_by_pickle_and_copies():
    op = torch.ops.ours.square
    assert copy.deepcopy(op) is op and pickle.loads(pickle.dumps(op.default)) is op.default
    assert pickle.loads(pickle.dumps(torch.ops.aten.mm.default)) is torch.ops.aten.mm.default


def test_subclasses_are_asked_about_operators():
    class Loud(torch.Tensor):
        calls = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func)
            return super().__torch_function__(func, types, args, kwargs)
    square(torch.ones(2).as_subclass(Loud))
    assert torch.ops.ours.square.default in Loud.calls


def test_every_aten_name_can_be_named_and_those_we_lack_say_so():
    reached = 0
    for name in aten.names():
        op = getattr(getattr(torch.ops.aten, name), aten.names()[name][0])
        try:
            assert callable(op.function())
            reached += 1
        except NotImplementedError as error:
            assert f"torch.ops.aten.{name}" in str(error)
    assert reached > 700, reached


def test_an_operator_over_triton_runs_what_is_registered_for_the_cpu():
    """Packages declare such operators when they are imported, also where there is no GPU."""
    @torch.library.triton_op("tests::grown", mutates_args=())
    def grown(x: torch.Tensor) -> torch.Tensor:
        return torch.library.wrap_triton(None)[(1,)](x) if x.is_cuda else x + 1

    @torch.library.triton_op("tests::on_gpus", mutates_args=())
    def on_gpus(x: torch.Tensor) -> torch.Tensor:
        return torch.library.wrap_triton(None)[(1,)](x)

    assert torch.ops.tests.grown(torch.zeros(2)).tolist() == [1, 1] == grown(torch.zeros(2)).tolist()
    with pytest.raises(NotImplementedError, match="wrap_triton: Flambeau runs no Triton kernels"):
        on_gpus(torch.zeros(2))
    on_gpus.register_kernel("cpu")(lambda x: x + 2)
    assert on_gpus(torch.zeros(2)).tolist() == [2, 2]


@pytest.mark.parametrize("call, words", [
    (lambda: torch.library.wrap_triton(None), "custom_op"),
    (lambda: torch.library.Library("aten", "IMPL").impl("sin", torch.sin, "CPU"), "namespace of your own"),
    (lambda: torch.library.Library("a", "FRAGMENT").impl("f", torch.sin, with_keyset=True), "register_autograd"),
    (lambda: torch.library.Library("_", "IMPL").fallback(torch.sin, "CPU"), "TorchFunctionMode"),
    (lambda: torch.ops.aten.mm.default._schema, "documented arguments"),
    (lambda: torch.ops.aten.miopen_rnn(), "lacks"),
])
def test_what_is_not_here_says_what_to_do_instead(call, words):
    with pytest.raises(NotImplementedError, match=words):
        call()


def test_a_schema_is_printed_as_it_is_read():
    for text in ("f(Tensor(a!) x, int[2] y=[1, 2], *, float? z=None) -> (Tensor, Tensor[])", "g.out(Tensor? x=None) -> "
                                                                                             "()"):
        assert str(parse(text)) == text and str(parse(str(parse(text)))) == text
