"""Operations told to do nothing (pad by nothing, roll by zero, repeat once), beside PyTorch's: strides, what memory is
shared, and whether the very tensor comes back. Those of a dimension of size 1 mean nothing, and are left out."""
import math

import pytest

torch = pytest.importorskip("torch")

import flambeau as fb

SHAPES = [(4,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 4, 3)]


def numbers(lib, shape):
    return lib.arange(float(math.prod(shape))).reshape(shape)


def channels_last(lib, shape):
    formats = {4: lib.channels_last, 5: lib.channels_last_3d}
    return numbers(lib, shape).contiguous(memory_format=formats.get(len(shape), lib.contiguous_format))


LAYOUTS = {
    "row-major": numbers,
    "transposed": lambda lib, shape: numbers(lib, shape[::-1]).permute(*range(len(shape))[::-1]),
    "with gaps": lambda lib, shape: numbers(lib, (*shape[:-1], 2 * shape[-1]))[..., ::2],
    "expanded": lambda lib, shape: numbers(lib, (1, *shape[1:])).expand(shape),
    "channels last": channels_last,
    "in the middle": lambda lib, shape: numbers(lib, (shape[0] + 1, *shape[1:]))[1:],
}

# Each is an expression over a library `L`, its `F` and a tensor `x`.
CALLS = """
x.repeat(*[1] * nd(x))
x.repeat(*[1] * (nd(x) + 1))
x.tile(1)
x.tile(())
x.tile([1] * nd(x))
x.repeat_interleave(1)
x.repeat_interleave(1, 0)
x.roll(0)
x.roll(0, 0)
x.roll((0, 0), (0, -1))
x.flip(())
x.flip(0)
x.fliplr()
x.rot90(0)
x.rot90(4)
x.expand(x.shape)
x.expand(*[-1] * nd(x))
x.expand_as(x)
L.broadcast_to(x, x.shape)
x.clone()
x.clone(memory_format=L.contiguous_format)
x.contiguous()
x.to(x.dtype)
x.to("cpu")
x.to(x.dtype, copy=True)
x.to(L.float64)
x.float()
x.cpu()
x.type(L.float32)
x.type_as(x)
x.to(x)
x.to(memory_format=L.channels_last)
x.to(memory_format=L.contiguous_format)
x.real
x.conj()
x.resolve_conj()
+x
x.conj_physical()
x.detach()
x.view(x.shape)
x.reshape(x.shape)
x.reshape(-1, *x.shape[1:])
x.view_as(x)
x.flatten(0, 0)
x.flatten(-1)
x.ravel()
x.unflatten(0, (x.shape[0],))
x.squeeze()
x.squeeze(())
x.permute(*range(nd(x)))
x.transpose(0, 0)
x.movedim(0, 0)
x.swapaxes(-1, -1)
x[:]
x[...]
x.narrow(0, 0, x.shape[0])
x[L.arange(x.shape[0])]
x.index_select(0, L.arange(x.shape[0]))
x.index_select(-1, L.arange(x.shape[-1]))
x.take_along_dim(L.arange(x.shape[-1]).expand(x.shape), -1)
x.gather(-1, L.arange(x.shape[-1]).expand(x.shape))
x.masked_fill(L.zeros(x.shape, dtype=L.bool), 1.0)
x.where(L.tensor(True), x)
L.where(L.tensor(True), x, 0.0)
F.dropout(x, 0.0)
F.dropout(x, 0.5, False)
F.alpha_dropout(x, 0.0, True)
F.feature_alpha_dropout(x, 0.5)
F.dropout2d(x, 0.0)
F.dropout1d(x, 0.0)
F.dropout3d(x, 0.0)
L.nn.Identity()(x)
F.interpolate(x, size=x.shape[2:])
F.interpolate(x, scale_factor=1)
F.interpolate(x, size=x.shape[2:], mode={3: "linear", 4: "bilinear", 5: "trilinear"}[nd(x)])
F.interpolate(x, size=x.shape[2:], mode="bicubic")
F.interpolate(x, size=x.shape[2:], mode="area")
F.interpolate(x, size=x.shape[2:], mode="nearest-exact")
getattr(L.nn.functional, f"avg_pool{nd(x) - 2}d")(x, 1)
getattr(L.nn.functional, f"adaptive_avg_pool{nd(x) - 2}d")(x, x.shape[2:])
getattr(L.nn.functional, f"adaptive_max_pool{nd(x) - 2}d")(x, x.shape[2:])
F.channel_shuffle(x, 1)
F.unfold(x, 1)
L.cat([x])
L.cat([x, L.empty(0)])
L.stack([x])
x.split(x.shape[0])[0]
x.chunk(1)[0]
x.tensor_split(1)[0]
L.atleast_1d(x)
L.atleast_3d(x)
L.broadcast_tensors(x, x)[0]
L.meshgrid(x, indexing="ij")[0]
x.sum(())
x.unsqueeze(0).sum(0)
x.unsqueeze(0).mean(0)
x.unsqueeze(0).amax(0)
x.unsqueeze(0).max(0)[0]
x.unsqueeze(-1).prod(-1)
x.unsqueeze(0).cumsum(0)[0]
x.sort(-1)[0]
x.sort(0)[0]
x.topk(x.shape[-1])[0]
x.topk(x.shape[0], 0)[0]
x.msort()
x.diff(n=0)
x.tril(99)
x.triu(-99)
x.round()
x.floor()
x.abs()
x + 0
x * 1
x ** 1
x.pow(L.tensor(1.0))
x / 1
x.cumprod(0)
x.cummax(0)[0]
x.logcumsumexp(-1)
x.softmax(-1)
x.softmax(0)
x.log_softmax(0)
F.normalize(x, dim=0)
F.layer_norm(x, x.shape[-1:])
F.instance_norm(x)
F.group_norm(x, 1)
F.glu(L.cat([x, x], -1))
F.prelu(x, L.tensor([1.0]))
F.threshold(x, -1.0, 0.0)
F.rrelu(x)
L.zeros_like(x)
x.new_zeros(x.shape)
x.clone().detach()
L.asarray(x)
L.as_tensor(x)
L.tensor(x)
x.diagonal()
x.unbind()[0]
x.unfold(0, x.shape[0], 1)
x.index_add(0, L.arange(x.shape[0]), L.zeros(x.shape))
x.index_copy(0, L.tensor([], dtype=L.int64), L.zeros((0,) + tuple(x.shape[1:])))
x.index_fill(0, L.tensor([], dtype=L.int64), 1.0)
x.scatter(0, L.zeros((0,) * nd(x), dtype=L.int64), 1.0)
x.masked_scatter(L.zeros(x.shape, dtype=L.bool), L.zeros(0))
x.index_put((L.arange(x.shape[0]),), L.zeros(()))
x.put(L.zeros(0, dtype=L.int64), L.zeros(0))
x.renorm(2, 0, 1000000000.0)
x.bucketize(L.tensor([1.0]))
x.lerp(x, 0.0)
x @ L.eye(x.shape[-1])
F.linear(x, L.eye(x.shape[-1]))
L.einsum("...->...", x)
L.einsum("ij->ij", x)
L.tensordot(x, L.eye(x.shape[-1]), 1)
L.addcmul(x, x, x, value=0)
L.complex(x, x)
L.fft.fftshift(x)
F.one_hot(x.long())
F.silu(x)
L.cov(x)
L.block_diag(x)
L.cartesian_prod(x)
L.hstack([x])
L.vstack([x])
L.dstack([x])
L.column_stack([x])
x.unsqueeze(0).logsumexp(0)
L.std_mean(L.stack([x, x]), 0)[1]
x.unsqueeze(0).median(0)[0]
x.unsqueeze(0).mode(0)[0]
x.unsqueeze(0).kthvalue(1, 0)[0]
F.embedding(L.arange(x.shape[0]), x)
""".strip().splitlines()
CALLS += [f"F.pad(x, (0, 0) * {n}, {mode!r})" for n in range(1, 5)
          for mode in ("constant", "reflect", "replicate", "circular")]
CALLS += [f"L.nn.{kind}Pad{n}d({'0, 0.0' if kind == 'Constant' else 0})(x)" for n in (1, 2, 3)
          for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular")]
CALLS += ["F.pad(x, ())", "F.pad(x, (0, 0), value=3)", "F.pad(x, (0, -1))", "F.pad(x, (0, 1))",
          "F.pad(x, (0, -1, 1, 0))", "x.roll(1, 0)", "x.roll((1, 0), (0, -1))", "x.roll(x.shape[0], 0)"]


def told(lib, call, layout, shape):
    """What there is to say of the result: where it lies, and what it has of the tensor it was made of."""
    x = LAYOUTS[layout](lib, shape)
    try:
        y = eval(call, {"L": lib, "F": lib.nn.functional, "x": x, "math": math})
    except Exception as error:
        return type(error).__name__
    strides = [stride for n, stride in zip(y.shape, y.stride(), strict=True) if n != 1]
    shares = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    return list(y.shape), strides, y.storage_offset(), y is x, shares, y._is_view()


@pytest.mark.parametrize("call", CALLS)
def test_doing_nothing(call):
    cases = [(layout, shape) for layout in LAYOUTS for shape in SHAPES]
    differ = {(layout, shape): (mine, theirs) for layout, shape in cases
              if (mine := told(fb, call, layout, shape)) != (theirs := told(torch, call, layout, shape))}
    assert not differ
