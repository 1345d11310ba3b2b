"""Flambeau and PyTorch in one process: tensors as Python objects behave alike, and memory passes between the two."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau
from tests.torch.compare import same

OBJECTS = """
x.item()
torch.empty(0).item()
torch.tensor([[2.5]]).item(), torch.tensor(3).item(), torch.tensor(True).item(), torch.tensor(1j).item()
torch.tensor(1.1, dtype=torch.bfloat16).item(), torch.tensor(1.1, dtype=torch.float16).item()
x.tolist(), torch.tensor(2).tolist(), torch.zeros(0, 2).tolist(), torch.tensor([1.1], dtype=torch.bfloat16).tolist()
bool(x)
bool(torch.empty(0))
bool(torch.tensor([[2]])), bool(torch.tensor(float('nan'))), bool(torch.tensor(0.)), bool(torch.tensor(0j))
float(x)
int(x)
complex(x)
int(torch.tensor([2.7])), float(torch.tensor(2)), complex(torch.tensor(2)), float(torch.tensor(2 + 0j))
int(torch.tensor(True))
int(torch.tensor(float('inf')))
int(torch.tensor(float('nan')))
int(torch.tensor(2j))
float(torch.tensor(2j))
operator.index(torch.tensor(2)), operator.index(torch.tensor([2])), operator.index(torch.tensor(True))
operator.index(torch.tensor(2.))
operator.index(x)
[1, 2, 3][torch.tensor(1)], list(range(torch.tensor(3))), 'ab' * torch.tensor(2)
float(leaf[0, 0]), leaf[0, 0].item(), int(node[0, 0]), bool(node[0, 0]), node.tolist()
f'{node}'
f'{torch.tensor(1.5):.3f}', format(torch.tensor(3), 'd'), f'{leaf[0, 0]:.2f}', f'{torch.tensor(2)}'
f'{x:.3f}'
repr(x), str(x), repr(i), repr(node), repr(leaf), repr(meta), repr(torch.empty(0))
repr(torch.zeros(2, 0, dtype=torch.int8))
repr(torch.arange(2000)), repr(torch.ones(2, dtype=torch.float64)), repr(torch.tensor([1j])), repr(Sub([1.]))
iter(torch.tensor(1))
list(torch.arange(2)), [row.tolist() for row in x], len(x)
len(torch.tensor(1))
2. in x, torch.tensor(2.) in x, 7 in i, torch.tensor([0., 1, 2]) in x
'a' in x
None in x
x.is_nonzero()
torch.is_nonzero(torch.tensor([0])), torch.is_nonzero(torch.tensor(3.))
torch.empty(0).is_nonzero()
hash(x) == id(x), {x: 1}[x], x is None
x == None
x != None
x == 'a'
x == [1, 2, 3]
x + [1, 2, 3]
x + None
x < 'a'
reversed(torch.arange(3))
x.is_shared(), x.is_pinned(), x.untyped_storage().nbytes(), x.untyped_storage().size(), len(x.untyped_storage())
x.pin_memory()
x.share_memory_()
x.untyped_storage()
x.untyped_storage()[4], x.untyped_storage().tolist()[:8], x.untyped_storage().device
x[1].untyped_storage().data_ptr() == x.data_ptr(), x[1].storage_offset()
x.is_set_to(x), x.is_set_to(x.clone()), x.is_set_to(x.view(2, 3)), x.is_set_to(x.t())
x.is_same_size(x), torch.is_same_size(x, x.T)
torch.typename(x), torch.typename(3), torch.typename('a')
torch.is_tensor(x), torch.is_tensor(3), torch.is_storage(x.untyped_storage()), torch.is_storage(x)
torch.numel(x), torch.is_floating_point(x), torch.is_complex(x), torch.is_floating_point(i)
torch.numel(3)
torch.result_type(x, 1), torch.result_type(i, 1.5), torch.result_type(1, 2), torch.result_type(1, 2.)
torch.result_type(torch.tensor(1), x.half()), torch.result_type(x.half(), torch.ones(2).bfloat16())
torch.result_type(i, 1j)
torch.result_type(torch.tensor(2., dtype=torch.float64), x), torch.result_type(i.bool(), 1)
torch.result_type(np.float64(2), i)
torch.can_cast(torch.float, torch.int), torch.promote_types(torch.int8, torch.uint8), torch.get_default_device()
i.int().apply_(lambda v: v * 2)
x.apply_(lambda v: v + 0.5)
leaf.apply_(lambda v: v)
x.map_(x.clone(), lambda a, b: a + b)
x.map_(torch.ones(2), lambda a, b: a + b)
x.apply_(3)
x[0].apply_(lambda v: 7); x
x.element_size(), x.itemsize, x.nbytes, x.layout, x.is_leaf, x.ndim, x.is_cpu, x.is_cuda, x.get_device()
x.foo
x.foo = 3; x.foo
copy.copy(x).data_ptr() == x.data_ptr()
y = copy.copy(node); y.requires_grad, y.is_leaf, y.data_ptr() == node.data_ptr()
copy.deepcopy(x)
copy.deepcopy(x.t())
copy.deepcopy(node)
copy.deepcopy(leaf)
y = copy.deepcopy([x, x[0], x]); y[0][0, 0] = 9; y, y[0] is y[2], x
leaf.grad = x; copy.deepcopy(leaf).grad
pickle.loads(pickle.dumps(node)), pickle.loads(pickle.dumps(leaf)), pickle.loads(pickle.dumps(x.t()[1:]))
pickle.loads(pickle.dumps(meta)), copy.deepcopy(meta)
pickle.loads(pickle.dumps(torch.float64)), pickle.loads(pickle.dumps(torch.Size([1, 2])))
pickle.loads(pickle.dumps(torch.device('cpu')))
meta[0].item()
meta.tolist()
meta.numpy()
meta.numpy(force=True)
bool(meta[0])
float(meta[0])
operator.index(meta[0])
meta.data_ptr(), meta.untyped_storage().nbytes(), meta.untyped_storage().data_ptr()
np.asarray(meta)
meta.clone(), meta * 2, meta + torch.tensor(1.), meta.sum(), meta.t(), meta[:1], meta.to(torch.float64)
meta.cpu()
meta.to('cpu')
meta + torch.ones(2)
meta.add_(1), meta.fill_(3), meta.zero_(), meta.copy_(torch.ones(2))
x.to('meta'), torch.arange(3, device='meta'), torch.zeros_like(x, device='meta'), torch.randn(2, device='meta')
torch.ones(2).copy_(meta)
leaf.numpy()
node.numpy()
leaf.numpy(force=True).tolist(), x.t().numpy(), i.numpy().dtype
x + np.ones(3), x * np.float64(2), np.float64(2) * x, x + np.float32(2), i * np.float64(2.5), np.int64(2) * x
x @ np.ones(3, np.float32)
np.sin(x).round(decimals=4), np.add(x, 1), np.add(np.ones(3), x), np.add.reduce(x), np.maximum(x, 1), np.power(x, 2)
np.matmul(x, x.T), np.round(x)
np.array(x), np.asarray(x, dtype=np.float64), np.array([x, x]), np.argmax(x), np.clip(x, 0, 1), np.cumsum(x)
np.transpose(x)
np.array(leaf)
np.allclose(x, x), np.ndim(x), np.modf(x), np.divmod(x, 2), np.add.accumulate(x), np.reshape(x, (3, 2))
np.argsort(x)
torch.add(x, np.ones(3))
tuple(map(int, x.__dlpack_device__()))
leaf.__dlpack__()
meta.__dlpack__()
torch.from_dlpack(a), torch.from_dlpack(a.T), torch.from_dlpack(x.t())
torch.from_dlpack(a).data_ptr() == a.ctypes.data
torch.from_dlpack(3)
torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
torch.Tensor.add(x, 1), torch.Tensor.sum(x), torch.Tensor.__len__(x)
torch.inf, torch.nan != torch.nan, torch.pi, torch.e, torch.newaxis
torch.half is torch.float16, torch.float is torch.float32, torch.double is torch.float64
torch.long is torch.int64, torch.int is torch.int32
torch.cfloat, torch.cdouble, torch.short, torch.finfo(torch.float16).max, torch.iinfo(torch.int8).min
Sub(x) + 1, x + Sub(x), Sub(x).sum(), Sub(x)[0], Sub(x).detach(), Sub(x).clone(), Sub(x).to(torch.float64)
torch.zeros_like(Sub(x))
Sub(x).max(0)[0], torch.cat([Sub(x), x]), -Sub(x), Sub(x) == 1, Sub(x).view(6), x.as_subclass(Sub)
torch.nn.Parameter(x)
y = Sub(x); y += 1; y, y.add_(1) is y, y.new_zeros(2), torch.rand_like(y), y.unbind()[0]
y = leaf.as_subclass(Sub); (y * 2).sum().backward(); leaf.grad, y.grad_fn.name(), y.is_leaf
x.as_subclass(int)
torch.nn.Parameter(i)
p = torch.nn.Parameter(x); p, p * 2, p.data, p.detach(), p.view(6), isinstance(p, torch.Tensor), p.is_leaf
p = torch.nn.Parameter(x); copy.deepcopy(p), pickle.loads(pickle.dumps(p))
torch.nn.Parameter(Sub(x)), torch.nn.Parameter(), isinstance(torch.nn.Parameter(Sub(x)), torch.nn.Parameter)
isinstance(x, torch.nn.Parameter)
torch.nn.Parameter(i, requires_grad=False), torch.nn.Parameter(x, False)
""".strip().split("\n")

OWN_WORDS = ("meta + torch.ones", "x + [1", "x + None", "x < 'a'", "torch.add(x, np", "x.map_(torch.ones(2)",
             "Parameter(i)", "from_dlpack(3)",
             "numel(3)", "x.apply_(3)", "pin_memory")


@pytest.mark.parametrize("line", OBJECTS)
def test_as_python_objects(line):
    same(line, words=not any(text in line for text in OWN_WORDS))


# ---- between the two ------------------------------------------------------------------------------

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_reads_our_memory(dtype):
    ours = flambeau.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(flambeau, dtype)).t()
    theirs = torch.from_dlpack(ours)
    assert str(theirs.dtype) == f"torch.{dtype}" and theirs.stride() == ours.stride() == (1, 3)
    theirs[0, 0] = 1
    assert ours[0, 0].item() == 1
    ours[1, 1] = 1
    assert theirs[1, 1].item() == 1 and theirs.data_ptr() == ours.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_read_torchs_memory(dtype):
    theirs = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, dtype)).t()
    ours = flambeau.from_dlpack(theirs)
    assert str(ours.dtype) == f"torch.{dtype}" and theirs.stride() == ours.stride() == (1, 3)
    theirs[0, 0] = 1
    assert ours[0, 0].item() == 1
    ours[1, 1] = 1
    assert theirs[1, 1].item() == 1 and theirs.data_ptr() == ours.data_ptr()


def test_the_old_capsules_pass_too():
    theirs = torch.zeros(3)
    ours = flambeau.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(theirs))
    ours += 1
    assert theirs.tolist() == [1, 1, 1]
    back = torch.from_dlpack(flambeau.utils.dlpack.to_dlpack(ours))
    back += 1
    assert ours.tolist() == [2, 2, 2] and theirs.tolist() == [2, 2, 2]


def test_a_tensor_of_torchs_is_data():
    theirs = torch.arange(4.0).reshape(2, 2)
    copied, looked = flambeau.tensor(theirs), flambeau.as_tensor(theirs)
    theirs[0, 0] = 9
    assert copied[0, 0].item() == 0 and looked[0, 0].item() == 9
    with pytest.raises(BufferError):
        flambeau.from_dlpack(torch.ones(2, requires_grad=True))


def test_memory_outlives_either_side():
    ours = flambeau.arange(5.0)
    theirs = torch.from_dlpack(ours)
    del ours
    assert theirs.tolist() == [0, 1, 2, 3, 4]
    ours = flambeau.from_dlpack(theirs)
    del theirs
    assert (ours + 1).tolist() == [1, 2, 3, 4, 5]


def test_numpy_stands_between():
    array = np.zeros(3, np.float32)
    ours, theirs = flambeau.from_numpy(array), torch.from_numpy(array)
    ours += 1
    theirs *= 3
    assert array.tolist() == [3, 3, 3] and ours.tolist() == [3, 3, 3]


# ---- programs -------------------------------------------------------------------------------------------------------


class Side:
    """One library's share of a random program: tensors and arrays by number."""

    def __init__(self, lib):
        self.lib, self.tensors, self.arrays = lib, [lib.arange(12.0).reshape(3, 4)], []

    def step(self, kind, i, j, k, number):
        tensors, arrays, lib = self.tensors, self.arrays, self.lib
        t = tensors[i % len(tensors)]
        u = tensors[j % len(tensors)]
        a = arrays[j % len(arrays)] if arrays else None
        if kind == "new":
            tensors.append(lib.full((3, 4), number))
        elif kind == "view":
            tensors.append([t.t(), t[1:], t.reshape(-1)[::2], t.detach(), t.view(t.shape), t[..., :2]][k % 6])
        elif kind == "clone":
            tensors.append(t.clone())
        elif kind == "compute":
            tensors.append((t * 0.5 + number).abs())
        elif kind == "combine" and t.shape == u.shape:
            tensors.append(t + u)
        elif kind == "copy" and t.shape == u.shape:
            t.copy_(u)
        elif kind == "write":
            [lambda: t.mul_(0.5), lambda: t.fill_(number), lambda: t.add_(number), lambda: t.zero_()][k % 4]()
        elif kind == "write part" and t.numel():
            t[-1:] = number
        elif kind == "numpy":
            arrays.append(t.numpy())
        elif kind == "slice array" and a is not None:
            arrays.append(a[1:] if k % 2 else a.T)
        elif kind == "write array" and a is not None:
            a[...] = number if k % 2 else a * 0.5
        elif kind == "adopt" and a is not None:
            tensors.append(lib.from_numpy(a))
        elif kind == "adopt new":
            arrays.append(np.full((3, 4), number, np.float32)[:, ::2] if k % 2 else np.full((3, 4), number, np.float32))
            tensors.append(lib.from_numpy(arrays[-1]))
        elif kind == "forget array" and arrays:
            arrays.pop(j % len(arrays))
        elif kind == "forget tensor" and len(tensors) > 1:
            tensors.pop(i % len(tensors))
        elif kind == "look" and t.numel():
            return t.sum().item()
        elif kind == "address":
            t.data_ptr()
        return None

    def contents(self):
        return [np.array(t.detach().numpy()).tolist() for t in self.tensors], [a.tolist() for a in self.arrays]


KINDS = ("new view clone compute combine copy write numpy adopt look address".split()
         + ["write part", "write array", "write array", "slice array", "adopt new", "forget array",
            "forget tensor", "write"])


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_over_shared_memory(seed):
    """Tensors, views, copies and arrays written from both sides in any order: each step leaves what PyTorch leaves."""
    rng = np.random.default_rng(seed)
    ours, theirs = Side(flambeau), Side(torch)
    history = []
    for _ in range(60):
        kind = KINDS[rng.integers(len(KINDS))]
        i, j, k = (int(n) for n in rng.integers(0, 100, 3))
        number = float(rng.integers(-8, 8))
        history.append((kind, i, j, k, number))
        got, want = ours.step(*history[-1]), theirs.step(*history[-1])
        assert got == want, history
        if rng.random() < 0.1:                               # looking itself must not change what follows
            assert ours.contents() == theirs.contents(), history
    assert ours.contents() == theirs.contents(), history
