"""Memory shared with NumPy: who sees what when, what is refused, and when sharing ends."""
import ctypes
import gc
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch
from flambeau.trace.recording.record import current

# ---- arrays to tensors ----------------------------------------------------------------------------


def arrays():
    base = np.arange(24.0).reshape(4, 6)
    return {"whole": base, "row": base[1], "columns": base[:, ::2], "rows": base[1::2], "corner": base[1:3, 2:5],
            "transposed": base.T, "diagonal-like": np.lib.stride_tricks.as_strided(base, (3,), (7 * 8,)),
            "zero-dim": base[1, 1, ...], "empty": base[:0], "one": base[2:3, 3:4], "fortran": np.asfortranarray(base),
            "window": np.lib.stride_tricks.as_strided(base, (3, 2), (8, 8)), "three": base.reshape(2, 2, 6)[:, :, 1:]}


@pytest.mark.parametrize("name", arrays())
def test_from_numpy_looks_at_the_array(name):
    array = arrays()[name]
    t = torch.from_numpy(array)
    assert tuple(t.shape) == array.shape and t.stride() == tuple(s // 8 for s in array.strides)
    assert t.tolist() == array.tolist()
    array += 1
    assert t.tolist() == array.tolist()
    if name != "window":                                    # its elements overlap
        t.mul_(2)
        assert t.tolist() == array.tolist()
        t[...] = 7
        assert (array == 7).all()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
                                   "complex64", "complex128"])
def test_every_dtype_goes_both_ways(dtype):
    array = np.arange(3).astype(dtype)
    t = torch.from_numpy(array)
    assert t.dtype is getattr(torch, dtype) and t.numpy().dtype == array.dtype
    t.numpy()[0] = 1
    assert array[0] == 1


def test_bfloat16_goes_both_ways():
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    t = torch.from_numpy(array)
    assert t.dtype is torch.bfloat16 and t.tolist() == [0.0, 1.0, 2.0]
    t += 1
    assert array.tolist() == [1, 2, 3] and t.numpy().dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("array, kind, words", [
    (np.arange(3)[::-1], ValueError, "At least one stride in the given numpy array is negative"),
    (np.zeros(2, ">f4"), ValueError, "given numpy array has byte order different from the native byte order"),
    (np.zeros(3, [("a", "i1"), ("b", "f4")])["b"], ValueError, "strides not a multiple of the element byte size"),
    (np.array(["a"]), TypeError, "can't convert np.ndarray of type numpy.str_"),
    (np.array([None]), TypeError, "can't convert np.ndarray of type numpy.object_"),
    ([1, 2], TypeError, r"expected np.ndarray \(got list\)"),
    (np.float32(1), TypeError, r"expected np.ndarray \(got numpy.float32\)"),
])
def test_from_numpy_refuses(array, kind, words):
    with pytest.raises(kind, match=words):
        torch.from_numpy(array)


def test_subclasses_of_ndarray_are_read_as_plain_memory():
    assert torch.from_numpy(np.ma.array([1.0, 2.0], mask=[True, False])).tolist() == [1.0, 2.0]
    record = np.arange(3).view(np.recarray)
    t = torch.from_numpy(record)
    t += 1
    assert record.tolist() == [1, 2, 3]


# ---- both sides, at the same moment ---------------------------------------------------------------


def test_what_was_recorded_before_the_export_keeps_its_value():
    t = torch.ones(3)
    before = t + 1
    view = t.numpy()
    view[:] = 5
    assert before.tolist() == [2, 2, 2] and (t + 1).tolist() == [6, 6, 6]


def test_what_is_recorded_between_two_writes_sees_the_first():
    array = np.zeros(3)
    t = torch.from_numpy(array)
    a = t + 1
    array[:] = 10
    b = t + 1
    array[:] = 20
    assert [a.tolist()[0], b.tolist()[0], t.tolist()[0]] == [1, 11, 20]


def test_chains_of_pending_operations_over_exported_memory():
    array = np.ones(4)
    t = torch.from_numpy(array)
    fresh = torch.full((4,), 2.0)
    mixed = (fresh * 3 + t) * fresh              # starts with operations that wait, then reads the array
    array[:] = 100
    assert mixed.tolist() == [14.0] * 4


def test_writes_through_the_tensor_are_there_when_the_call_returns():
    t = torch.zeros(2, 3)
    view = t.numpy()
    writes = [lambda: t.add_(1), lambda: t.__setitem__((0, 1), 5.0), lambda: t.copy_(torch.arange(6.0).reshape(2, 3)),
              lambda: t.t().mul_(2), lambda: t[0].fill_(3), lambda: t.zero_(), lambda: torch.add(t, 4, out=t),
              lambda: t.view(-1)[1::2].sub_(1), lambda: t.uniform_(), lambda: t.detach().neg_(), lambda: t.data.add_(9),
              lambda: t.masked_fill_(t > 8.5, -1), lambda: t.index_fill_(0, torch.tensor([1]), 2.5)]
    for write in writes:
        write()
        assert view.tolist() == t.tolist()
    assert t.data_ptr() == view.ctypes.data


def test_views_share_one_export():
    t = torch.arange(6.0)
    tail, grid = t[2:].numpy(), t.view(2, 3).t().numpy()
    tail[0] = 100
    grid[0, 0] = -1
    assert t.tolist() == [-1, 1, 100, 3, 4, 5]
    t[3] = 7
    assert tail[1] == 7 and grid[0, 1] == 7


def test_a_value_shared_by_two_tensors_is_parted():
    a, b = torch.tensor([1.0, 2.0]), torch.empty(2)
    b.copy_(a)                                   # shares contents until somebody writes
    view = a.numpy()
    view[0] = 50
    assert b.tolist() == [1, 2] and a.tolist() == [50, 2]
    c = b.clone()
    other = b.numpy()
    other[1] = 60
    assert c.tolist() == [1, 2] and b.tolist() == [1, 60] and a.tolist() == [50, 2]


def test_copying_an_exported_tensor_copies():
    a = torch.tensor([1.0, 2.0])
    view = a.numpy()
    b, c = torch.empty(2), a.clone()
    b.copy_(a)
    view[0] = 9
    assert b.tolist() == [1, 2] and c.tolist() == [1, 2]


def test_an_array_of_a_pending_result():
    x = torch.ones(1000)
    for _ in range(5):
        x = x * 2 + 1
    array = x.numpy()
    array[0] = 0
    assert x[0].item() == 0 and x[1].item() == 63


def test_a_write_from_an_overlapping_view_of_the_same_exported_memory():
    array = np.arange(6.0)
    t = torch.from_numpy(array)
    t[1:].copy_(t[:-1].clone())
    assert array.tolist() == [0, 0, 1, 2, 3, 4]
    t[:-1] = t[1:] + 0
    assert array.tolist() == [0, 1, 2, 3, 4, 4]


def test_another_threads_pending_work_is_done_before_memory_is_handed_out():
    t = torch.ones(3)
    made, go, done = [], threading.Event(), threading.Event()

    def work():
        made.append(t + 1)                       # waits in that thread's trace
        go.set()
        done.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    go.wait(10)
    t.numpy()[:] = 5
    done.set()
    thread.join()
    assert made[0].tolist() == [2, 2, 2]


def test_the_address_stays_and_what_is_written_there_is_seen():
    t = torch.tensor([1.0, 2.0, 3.0])
    u = torch.empty(3)
    u.copy_(t)
    address = t.data_ptr()
    t.add_(1)
    t.copy_(torch.tensor([7.0, 8.0, 9.0]))
    assert t.data_ptr() == address and t[1:].data_ptr() == address + 4
    ctypes.c_float.from_address(address).value = 42
    assert t.tolist() == [42, 8, 9] and (t * 1).tolist() == [42, 8, 9] and u.tolist() == [1, 2, 3]


# ---- the end of sharing ---------------------------------------------------------------------------


def waiting():
    return len(current().code)


def is_recorded(t):
    """Whether an operation on `t` waits in the trace for its memory, as it does where nothing outside can see that."""
    current().run()
    kept = t + 1
    return waiting() > 0 and kept is not None and t._storage.value in current().slots


def test_what_reads_little_that_numpy_holds_is_recorded_and_reads_it_as_it_was():
    array = np.arange(6.0, dtype=np.float32)
    t, w = torch.from_numpy(array), torch.ones(3, requires_grad=True)
    current().run()
    seen = []
    for turn in range(5):
        array[:] = np.arange(6) * turn
        seen.append((t[3:] * w + t[:3], t.clone(), t + t))
    assert waiting() >= 20                            # the trace was not cut
    array[:] = -1
    for turn, (y, copied, twice) in enumerate(seen):
        expected = np.arange(6, dtype=np.float32) * turn
        assert copied.tolist() == expected.tolist() and twice.tolist() == (2 * expected).tolist()
        assert y.tolist() == (expected[3:] + expected[:3]).tolist()


def test_what_reads_much_that_numpy_holds_runs_at_the_call():
    array = np.ones(5000, np.float32)
    t = torch.from_numpy(array)
    current().run()
    y = t + 1
    assert waiting() == 0
    array[:] = 5
    assert y.sum().item() == 10000


def test_an_in_place_write_lands_in_the_array_after_it_was_read():
    array = np.ones(4, np.float32)
    t = torch.from_numpy(array)
    before = t * 2
    t.add_(1)
    after = t * 2
    array[0] = 10
    assert before.tolist() == [2, 2, 2, 2] and after.tolist() == [4, 4, 4, 4] and array.tolist() == [10, 2, 2, 2]


def test_an_export_ends_with_its_last_array():
    t = torch.ones(3)
    array = t.numpy()
    part = array[1:]
    assert not is_recorded(t)
    del array
    assert not is_recorded(t)
    part[0] = 5
    del part
    assert is_recorded(t) and t.tolist() == [1, 5, 1]
    again = t.numpy()
    again[0] = 6
    assert t.tolist() == [6, 5, 1]


@pytest.mark.parametrize("make", [lambda: np.ones(3), lambda: np.ones((3, 4))[:, ::2].copy(), lambda: np.asfortranarray(
    np.ones((2, 3))), lambda: np.ones(3).view(np.recarray).copy()])
def test_an_adopted_array_that_nobody_else_holds_is_ours(make):
    array = make()
    t = torch.from_numpy(array)
    assert not is_recorded(t)
    t.add_(0)
    del array
    gc.collect()
    assert is_recorded(t)


def test_an_adopted_array_stays_shared_while_a_view_of_it_lives():
    array = np.ones(4)
    part = array[1:]
    t = torch.from_numpy(array)
    del array
    assert not is_recorded(t)
    part[0] = 8
    assert t.tolist() == [1, 8, 1, 1]
    del part
    assert is_recorded(t)


def test_a_weak_reference_can_bring_an_array_back():
    array = np.ones(2)
    weak = weakref.ref(array)
    t = torch.from_numpy(array)
    del array
    assert not is_recorded(t)
    weak()[0] = 3
    assert t.tolist() == [3, 1]


def test_memory_is_freed_with_its_last_holder():
    array = np.ones(1000)
    gone = weakref.ref(array)
    t = torch.from_numpy(array)
    u = t[10:20]
    del array, t
    assert gone() is not None and u.sum().item() == 10
    del u
    current().run()
    gc.collect()
    assert gone() is None

    t = torch.ones(1000)
    out = t.numpy()
    gone = weakref.ref(t._storage.value.memory.base)
    del t
    assert out.sum() == 1000 and gone() is not None
    del out
    current().run()
    gc.collect()
    assert gone() is None


# ---- read-only ------------------------------------------------------------------------------------

WRITES = """t.add_(1) | t.zero_() | t.fill_(3) | t.copy_(torch.ones(2, 3)) | t.mul_(2) | t.neg_() | t.uniform_()
t.normal_() | t.random_() | t.bernoulli_() | t.exponential_() | t.clamp_(0, 1) | t.masked_fill_(t > 0, 1)
t.__setitem__(0, 1) | t.__setitem__((0, 0), 1) | t.__setitem__(t > 0, 1.0) | torch.add(t, 1, out=t)
torch.sin(torch.ones(2, 3), out=t) | torch.rand(2, 3, out=t) | torch.zeros(2, 3, out=t) | t.__iadd__(1)
t.__imul__(2) | t.index_fill_(0, torch.tensor([0]), 1) | t.index_add_(0, torch.tensor([0]), torch.ones(1, 3))
t.scatter_(0, torch.tensor([[0]]), 1.0) | t.apply_(abs) | t.map_(t, lambda a, b: a) | t.view(2, 3).add_(1)
t[0].add_(1) | t.t().zero_() | t.detach().add_(1) | t.data.add_(1) | t.untyped_storage().fill_(0)
t.untyped_storage().__setitem__(0, 1) | t.untyped_storage().resize_(100) | t.resize_(9) | np.add.at(t, 0, 1)
np.add(t, 1, out=t) | t.tril_() | t.sqrt_() | torch.nn.functional.relu_(t) | t.relu_()
t.fill_diagonal_(1) | t.masked_scatter_(t > 0, torch.ones(6)) | t.index_put_((torch.tensor([0]),), torch.tensor(1.0))
t.lerp_(torch.ones(2, 3), 0.5) | t.addcmul_(t, t) | t.pow_(2) | t.cumsum_(0) | t.squeeze(0).add_(1)
t.unbind()[0].add_(1) | torch.normal(t, 1.0, out=t) | torch.bernoulli(t, out=t)
torch.sort(t, out=(t, torch.empty(2, 3, dtype=torch.int64))) | t.put_(torch.tensor([0]), torch.tensor([1.0]))
t.geometric_(0.5) | t.cauchy_() | t.log_normal_() | t.numpy().__setitem__(0, 1)"""


@pytest.mark.parametrize("line", [line.strip() for line in WRITES.replace("\n", " | ").split("|")])
@pytest.mark.parametrize("source", ["array", "bytes", "broadcast"])
def test_a_read_only_tensor_refuses_every_write(line, source):
    if source == "array":
        array = np.zeros((2, 3), np.float32)
        array.flags.writeable = False
        t = torch.from_numpy(array)
    elif source == "bytes":
        array = np.frombuffer(bytes(24), np.float32)
        t = torch.frombuffer(array.tobytes(), dtype=torch.float32).view(2, 3)
    else:
        array = np.broadcast_to(np.zeros(3, np.float32), (2, 3))
        t = torch.from_numpy(array)
    with pytest.raises((RuntimeError, ValueError), match="read-only|single memory location|not resizable"):
        eval(line, {"t": t, "torch": torch, "np": np})
    assert t.sum().item() == 0 and not array.any()


def test_a_read_only_tensor_says_why_and_can_be_read():
    array = np.arange(3.0)
    array.flags.writeable = False
    t = torch.from_numpy(array)
    with pytest.raises(RuntimeError, match=r"add_[\s\S]*read-only[\s\S]*t is float64\[3\][\s\S]*clone\(\)"):
        t.add_(1)
    assert (t + 1).tolist() == [1, 2, 3] and t.clone().add_(1).tolist() == [1, 2, 3]
    assert not t.numpy().flags.writeable and not np.from_dlpack(t).flags.writeable
    del array
    with pytest.raises(RuntimeError, match="read-only"):
        t.add_(1)


# ---- writes that autograd would not see -----------------------------------------------------------

CHANGED = "modified by an inplace operation[\\s\\S]*shares its memory with a NumPy array"


def test_backward_notices_that_an_input_array_was_written():
    array = np.ones(3, np.float32)
    x, w = torch.from_numpy(array), torch.ones(3, requires_grad=True)
    loss = (x * w).sum()
    array[1] = 5
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_backward_notices_a_write_to_an_array_taken_after_the_forward_pass():
    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    loss = (x * w).sum()
    view = x.numpy()
    view[0] = 2
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_backward_notices_a_write_to_a_parameters_array():
    w = torch.ones(3, requires_grad=True)
    loss = (w * w).sum()
    w.detach().numpy()[0] = 2
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_backward_notices_a_write_to_a_kept_result():
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    loss = y.sum()
    y.detach().numpy()[0] = 2
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_backward_passes_where_nothing_was_written():
    array = np.ones(3, np.float32)
    x, w = torch.from_numpy(array), torch.ones(3, requires_grad=True)
    loss = (x * w).exp().sum()
    seen = [x.numpy().sum(), w.detach().numpy().sum()]
    loss.backward()
    assert seen == [3, 3] and np.allclose(w.grad.numpy(), np.e)


def test_a_write_before_the_forward_pass_or_after_the_backward_is_none_of_its_business():
    array = np.ones(3, np.float32)
    x, w = torch.from_numpy(array), torch.ones(3, requires_grad=True)
    array[0] = 3
    (x * w).sum().backward()
    array[:] = 0
    assert w.grad.tolist() == [3, 1, 1]
    (x * w).sum().backward()
    assert w.grad.tolist() == [3, 1, 1]


def test_a_write_through_data_that_spoils_a_gradient_is_noticed():
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    loss = y.sum()
    y.data[0] = 5
    assert y._version == 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation[\\s\\S]*written through .data"):
        loss.backward()


def test_an_export_between_two_forward_passes():
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    first = (x * w).sum()
    view = x.numpy()
    second = (x * w * w).sum()
    view[0] = 2
    third = (x * w).sum()
    for loss in (first, second):
        with pytest.raises(RuntimeError, match=CHANGED):
            loss.backward()
    third.backward()
    assert w.grad.tolist() == [2, 1, 1]


# ---- tensors to arrays ----------------------------------------------------------------------------


def test_numpy_refuses_what_would_lose_something():
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach\(\)"):
        w.numpy()
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        np.asarray(w * 2)
    assert w.numpy(force=True).tolist() == [1, 1] and (w * 2).numpy(force=True).tolist() == [2, 2]
    double = w * 2
    for mode in (torch.no_grad, torch.inference_mode):          # nothing would be lost where no graph is recorded
        with mode():
            assert w.numpy().tolist() == [1, 1] and np.asarray(double).tolist() == [2, 2]
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        torch.empty(2, device="meta").numpy()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        torch.empty(2, device="meta").numpy(force=True)


def test_array_protocol():
    t = torch.tensor([[1.5, 2.5]])
    assert np.shares_memory(np.asarray(t), t.numpy()) and not np.shares_memory(np.array(t), t.numpy())
    assert np.asarray(t, dtype=np.int32).tolist() == [[1, 2]] and np.asarray(t, copy=True).dtype == np.float32
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(t, dtype=np.float64, copy=False)


# ---- NumPy's functions ----------------------------------------------------------------------------


def grad_of(function, x):
    x = torch.tensor(x, requires_grad=True)
    out = function(x)
    assert isinstance(out, torch.Tensor) and out.requires_grad, out
    out.sum().backward()
    return out.detach().numpy(), x.grad


X = [[0.5, -1.0, 2.0], [0.25, 3.0, -0.125]]


@pytest.mark.parametrize("function, ours", [
    (np.sin, "sin"), (np.exp, "exp"), (np.abs, "abs"), (np.negative, "neg"), (np.square, "square"), (np.tanh, "tanh"),
    (np.arctan, "atan"), (np.expm1, "expm1"), (np.floor, "floor"), (np.sign, "sign"), (np.deg2rad, "deg2rad")])
def test_ufuncs_are_our_functions(function, ours):
    array = np.array(X, np.float32)
    got, g = grad_of(function, X)
    want, h = grad_of(getattr(torch, ours), X)
    np.testing.assert_allclose(got, function(array), rtol=1e-6)
    # the two may run on different executors, which agree to a few units in the last place
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(g.numpy(), h.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("line", """np.add(x, 1) | np.add(1, x) | np.subtract(b, x) | np.multiply(x, b)
np.divide(x, b) | np.maximum(x, 0.1) | np.minimum(0.1, x) | np.power(x, 2) | np.hypot(x, b) | np.add.reduce(x)
np.add.reduce(x, axis=None) | np.add.reduce(x, axis=(0, 1)) | np.add.reduce(x, axis=1, keepdims=True)
np.multiply.reduce(x, axis=1) | np.maximum.reduce(x) | np.add.accumulate(x) | np.multiply.accumulate(x, axis=1)
np.multiply.outer(x, b[0]) | np.sum(x) | np.sum(x, axis=0) | np.sum(x, axis=(0, 1), keepdims=True) | np.mean(x, 1)
np.mean(x) | np.prod(x) | np.prod(x, axis=(0, 1)) | np.max(x) | np.min(x, axis=1) | np.std(x)
np.var(x, axis=1, ddof=1) | np.cumsum(x) | np.cumsum(x, axis=1) | np.cumprod(x, axis=0) | np.concatenate([x, b])
np.concatenate([x, b], axis=1) | np.concatenate([x, b], axis=None) | np.stack([b, x], axis=1) | np.vstack([x, b])
np.hstack([x, b]) | np.where(b > 0, x, 0) | np.where(b > 0, b, x) | np.clip(x, 0, 1) | np.clip(x, None, 1)
np.reshape(x, (3, 2)) | np.transpose(x) | np.transpose(x, (1, 0)) | np.ravel(x) | np.squeeze(x[:1])
np.expand_dims(x, 1) | np.swapaxes(x, 0, 1) | np.moveaxis(x, 0, 1) | np.dot(x, b.T) | np.dot(x[0], x[1])
np.matmul(x, b.T) | np.matmul(b.T, x) | np.outer(x[0], b[0]) | np.inner(x[0], b[0]) | np.einsum('ij,kj->ik', x, b)
np.tensordot(x, b, 2) | np.linalg.norm(x) | np.linalg.norm(x, axis=1) | np.tril(x) | np.triu(x, 1) | np.flip(x)
np.flip(x, 0) | np.diag(x[0]) | np.trace(x[:2, :2]) | np.broadcast_to(x, (2, 2, 3)) | np.copy(x) | np.sort(x, axis=0)
np.linalg.inv(x[:, :2] + e) | np.linalg.det(x[:, :2]) | np.linalg.solve(x[:, :2] + e, b[:, :2]) | np.round(x * 1, 1)
x + b | b + x | x * b | b * x | b - x | x / b | b / x | x @ b.T | b.T @ x | x ** b[0] | np.float64(2) * x
x * np.float32(2)"""
                         .replace("\n", " | ").split("|"))
def test_numpys_functions_keep_the_gradient(line):
    b = np.array([[1.0, 0.5, 2.0], [4.0, 1.0, 3.0]])
    names = {"np": np, "b": b, "e": np.eye(2) * 3}
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    got = eval(line.strip(), {**names, "x": x})
    with np.errstate(all="ignore"):
        want = eval(line.strip(), {**names, "x": np.array(X)})
    assert isinstance(got, torch.Tensor) and got.requires_grad, got
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-12)


def test_numpys_questions_are_answered():
    x = torch.tensor(X, requires_grad=True)
    assert np.shape(x) == (2, 3) and np.ndim(x) == 2 and np.size(x) == 6 and np.size(x, 1) == 3
    assert np.argmax(x).item() == 4 and np.argmin(x, axis=1).tolist() == [1, 2]
    assert np.isnan(x).tolist() == [[False] * 3] * 2 and np.allclose(x, x) and np.array_equal(x, x)
    assert np.zeros_like(x).tolist() == [[0] * 3] * 2 and isinstance(np.ones_like(x), torch.Tensor)
    assert np.count_nonzero(x > 0).item() == 4 and np.any(x > 2).item() and not np.all(x > 2).item()


def test_without_a_counterpart_numpy_computes_but_never_detaches():
    x = torch.tensor([1.5, 2.5])
    assert [part.tolist() for part in np.modf(x)] == [[0.5, 0.5], [1.0, 2.0]]
    assert all(isinstance(part, torch.Tensor) for part in np.modf(x))
    assert np.median(x) == 2.0 and np.pad(x, 1).tolist() == [0, 1.5, 2.5, 0]
    for function in (np.modf, np.median, lambda t: np.pad(t, 1), np.cbrt, np.spacing, np.histogram, np.unique):
        with pytest.raises(TypeError, match=r"requires grad is not detached in silence[\s\S]*detach\(\).numpy\(\)"):
            function(torch.tensor([1.5, 2.5], requires_grad=True))
        if function is not np.histogram:
            with pytest.raises(TypeError, match="meta"):
                function(torch.empty(2, device="meta"))


def test_ufuncs_write_into_out():
    x, array = torch.tensor([1.0, 2.0]), np.zeros(2, np.float32)
    assert np.add(x, 1, out=array) is array and array.tolist() == [2, 3]
    target = torch.zeros(2)
    assert np.add(array, 1, out=target) is target and target.tolist() == [3, 4]
    array += x
    assert isinstance(array, np.ndarray) and array.tolist() == [3, 5]
    address = x.data_ptr()
    x += array
    assert x.tolist() == [4, 7] and x.data_ptr() == address
    with pytest.raises(TypeError, match="requires grad and cannot be written into a NumPy array"):
        array += torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(x, 0)
    version = x._version
    np.add.at(x, [0, 0], 1)
    assert x.tolist() == [6, 7] and x._version == version + 1


# ---- DLPack ---------------------------------------------------------------------------------------


def test_dlpack_shares_memory_with_numpy():
    t = torch.arange(6.0).reshape(2, 3).t()
    array = np.from_dlpack(t)
    assert array.shape == (3, 2) and array.strides == (4, 12)
    array[0, 0] = 9
    t[1, 1] = 8
    assert t[0, 0].item() == 9 and array[1, 1] == 8 and t.__dlpack_device__() == (1, 0)
    source = np.arange(3)
    u = torch.from_dlpack(source)
    u += 1
    assert source.tolist() == [1, 2, 3]
    assert torch.from_dlpack(t).data_ptr() == t.data_ptr()
    del array
    assert t._storage.exported


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
                                   "float64", "complex64", "complex128"])
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_capsules_of_both_forms_carry_every_dtype(dtype, version):
    t = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
    u = torch.from_dlpack(t.__dlpack__(max_version=version))
    assert u.dtype is t.dtype and u.tolist() == t.tolist()
    u[0] = 1
    assert t[0].item() == 1


def test_dlpack_carries_the_read_only_flag():
    array = np.arange(3.0)
    array.flags.writeable = False
    t = torch.from_dlpack(array)
    with pytest.raises(RuntimeError, match="read-only"):
        t.add_(1)
    assert not np.from_dlpack(t).flags.writeable
    with pytest.raises(BufferError):                       # the old form cannot say read-only
        torch.utils.dlpack.to_dlpack(t)


def test_dlpack_refuses():
    with pytest.raises(BufferError, match=r"Can't export tensors that require gradient, use tensor.detach\(\)"):
        np.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="meta"):
        torch.empty(2, device="meta").__dlpack__()
    with pytest.raises(BufferError, match="no device"):
        torch.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="negative"):
        torch.from_dlpack(np.arange(3)[::-1])
    with pytest.raises(RuntimeError, match="invalid capsule"):
        torch.from_dlpack(3)
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(2))
    assert torch.utils.dlpack.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="consumed only once"):
        torch.from_dlpack(capsule)


def test_dlpack_copies_when_asked():
    source = np.arange(3.0)
    t = torch.from_dlpack(source, copy=True)
    t += 1
    assert source.tolist() == [0, 1, 2]
    u = torch.ones(2)
    v = np.from_dlpack(u, copy=True)
    v[0] = 5
    assert u.tolist() == [1, 1] and torch.from_dlpack(source, device="cpu").tolist() == [0, 1, 2]


# ---- buffers --------------------------------------------------------------------------------------


def test_frombuffer():
    memory = bytearray(8)
    t = torch.frombuffer(memory, dtype=torch.int16, count=2, offset=2)
    t.fill_(0x0101)
    assert memory == b"\0\0\1\1\1\1\0\0"
    memory[2] = 2
    assert t[0].item() == 0x0102
    with pytest.raises(RuntimeError, match="read-only"):
        torch.frombuffer(b"abcd", dtype=torch.uint8).add_(1)


def test_a_known_address_costs_backward_nothing_but_an_array_is_still_noticed():
    w = torch.ones(3, requires_grad=True)
    address = w.data_ptr()
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    w.detach().numpy()[0] = 5
    assert ctypes.c_float.from_address(address).value == 5
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_an_out_that_cannot_grow_leaves_the_other_as_it_was():
    array = np.zeros(1, np.int64)
    values, indices = torch.tensor([7.0]), torch.from_numpy(array)
    with pytest.raises(RuntimeError, match="not resizable"), pytest.warns(UserWarning, match="was resized"):
        torch.sort(torch.tensor([3.0, 1.0, 2.0]), out=(values, indices))
    assert values.tolist() == [7.0] and indices.tolist() == [0]
