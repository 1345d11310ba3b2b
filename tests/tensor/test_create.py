"""Making tensors, without PyTorch to compare with: what is recorded, what is copied, what the messages say."""
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau.trace.recording.record import current


def test_sizes_are_recorded_not_allocated():
    current().run()
    kept = torch.zeros(1000, 1000), torch.full((10,), 3.0), torch.arange(5), torch.eye(3), torch.linspace(0, 1, 4)
    assert len(current().code) == len(kept)
    assert kept[1].tolist() == [3.0] * 10 and kept[2].tolist() == [0, 1, 2, 3, 4]


def test_steps_that_are_no_whole_numbers():
    assert torch.arange(0, 1, 0.25).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert torch.arange(1, 0, -0.5).tolist() == [1.0, 0.5]
    assert torch.arange(0.0, 3.0, 1).tolist() == [0.0, 1.0, 2.0]


def test_tensor_copies():
    array = np.zeros(2)
    t = torch.tensor(array)
    array[0] = 1
    source = [1, 2]
    u = torch.tensor(source)
    source[0] = 5
    assert t.tolist() == [0, 0] and u.tolist() == [1, 2]
    x = torch.ones(2)
    with pytest.warns(UserWarning, match="recommended to use sourceTensor.detach"):
        y = torch.tensor(x)
    x[0] = 7
    assert y.tolist() == [1, 1]


def test_large_nested_lists():
    rows = [[float(i * 100 + j) for j in range(100)] for i in range(200)]
    assert torch.tensor(rows).tolist() == rows
    with pytest.raises(ValueError, match=r"expected sequence of length 100 at dim 1 \(got 99\)"):
        torch.tensor([*rows, rows[0][:99]])


def test_as_tensor_keeps_history():
    leaf = torch.ones(2, requires_grad=True)
    assert torch.as_tensor(leaf) is leaf
    torch.as_tensor(leaf * 2, dtype=torch.float64).sum().backward()
    assert leaf.grad.tolist() == [2, 2]


@pytest.mark.parametrize("make, words", [
    (lambda: torch.zeros(2, -1), r"negative dimension -1: \[2, -1\]"),
    (lambda: torch.zeros(2.5), "'size' \\(position 1\\) must be tuple of ints, not float"),
    (lambda: torch.full((2,), 300, dtype=torch.uint8), "cannot be converted to type uint8_t without overflow: 300"),
    (lambda: torch.tensor([1, 300], dtype=torch.uint8), "cannot be converted to type uint8 without overflow: 300"),
    (lambda: torch.tensor([[1, 2], [3]]), r"expected sequence of length 2 at dim 1 \(got 1\)"),
    (lambda: torch.tensor([1, 2 ** 64]), "Overflow when unpacking long long: 18446744073709551616"),
    (lambda: torch.arange(5, 1), "inconsistent with step sign: from 5 to 1 by 1"),
    (lambda: torch.zeros(2, dtype="float"), "argument 'dtype' must be torch.dtype, not str"),
    (lambda: torch.zeros(2, device="cuda"), "not compiled with CUDA.*use device='cpu'"),
    (lambda: torch.zeros(2, layout="strided"), "argument 'layout' must be torch.layout, not str"),
    (lambda: torch.ones(2, dtype=torch.int8, requires_grad=True), "Only Tensors of floating point.*torch.int8"),
    (lambda: torch.from_file("/no/such/file", size=1), "unable to open file </no/such/file> in read-only mode"),
    (lambda: torch.linspace(0, 1), "linspace.*missing 1 required positional argument: 'steps'"),
])
def test_refusals_say_what_and_what_instead(make, words):
    with pytest.raises((RuntimeError, TypeError, ValueError, AssertionError), match=words):
        make()


def test_out_takes_the_result_and_says_the_dtype():
    out = torch.empty(0, dtype=torch.float64)
    assert torch.zeros(2, 2, out=out) is out and out.dtype is torch.float64 and out.shape == (2, 2)
    view = torch.ones(2, 4)[:, ::2]
    torch.arange(4, out=torch.empty(4))
    torch.full((2, 2), 7.0, out=view)
    assert view.tolist() == [[7, 7], [7, 7]]
    with pytest.raises(RuntimeError, match="dtype Float does not match dtype of out parameter"):
        torch.zeros(2, out=out, dtype=torch.float32)
    assert torch.ones(3, out=torch.empty(2)).tolist() == [1, 1, 1]        # without a warning, as in PyTorch
    with pytest.warns(UserWarning, match="was resized"):
        torch.add(torch.ones(3), 1, out=torch.empty(2))


def test_the_meta_device_works_everywhere():
    made = [torch.tensor([1, 2], device="meta"), torch.zeros(2, device="meta"), torch.arange(2, device="meta"),
            torch.rand(2, device="meta"), torch.randint(0, 5, (2,), device="meta"), torch.randperm(2, device="meta"),
            torch.eye(2, device="meta")[0], torch.linspace(0, 1, 2, device="meta"), torch.full((2,), 1, device="meta"),
            torch.as_tensor(np.ones(2), device="meta"), torch.asarray([1, 2], device="meta"),
            torch.empty_strided((2,), (3,), device="meta"), torch.normal(0.0, 1.0, (2,), device="meta"),
            torch.bernoulli(torch.empty(2, device="meta")), torch.zeros_like(torch.ones(2), device="meta"),
            torch.ones(1, device="meta").new_zeros(2), torch.tril_indices(2, 2, device="meta")[0, :2]]
    for t in made:
        assert t.is_meta and t.shape == (2,)
        with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
            t.tolist()
    with torch.device("meta"):
        assert torch.zeros(2).is_meta and torch.tensor([1.0]).is_meta and torch.rand(2).is_meta
    state = torch.get_rng_state()
    torch.rand(100, device="meta")
    assert torch.equal(torch.get_rng_state(), state)


def test_the_default_dtype_and_device():
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.tensor(1.5).dtype is torch.zeros(2).dtype is torch.rand(2).dtype is torch.float64
        assert torch.tensor(1j).dtype is torch.complex128 and torch.Tensor([1]).dtype is torch.float64
        torch.set_default_device("meta")
        assert torch.ones(2).is_meta and torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device("cpu")
    assert torch.ones(2).dtype is torch.float32 and not torch.ones(2).is_meta


def test_draws_happen_at_the_call():
    torch.manual_seed(0)
    first = torch.rand(3)
    state = torch.get_rng_state()
    second = torch.rand(3)
    torch.manual_seed(0)
    assert torch.rand(3).tolist() == first.tolist() and torch.equal(torch.get_rng_state(), state)
    assert torch.rand(3).tolist() == second.tolist()


def test_in_place_draws_have_a_gradient_of_zero():
    leaf = torch.ones(3, requires_grad=True)
    y = leaf * 2
    y.normal_()
    assert y.grad_fn.name() == "NormalBackward0"
    (y + leaf).sum().backward()
    assert leaf.grad.tolist() == [1, 1, 1]
    part = torch.zeros(4) + torch.ones(4, requires_grad=True)
    part[:2].uniform_()
    assert part.requires_grad
    with torch.no_grad():
        leaf.uniform_()
    assert leaf.is_leaf


def test_the_site_of_a_new_tensor_is_the_line_that_asked_for_it():
    made = [torch.tensor([1.0]), torch.zeros(1), torch.rand(1), torch.from_numpy(np.ones(1)), torch.Tensor([1.0]),
            torch.ones(1).new_zeros(1), torch.empty(1).uniform_(), torch.empty_strided((2,), (3,)),
            torch.bernoulli(torch.ones(1)), torch.randperm(2), torch.arange(3),
            torch.frombuffer(b"a", dtype=torch.uint8), torch.as_tensor([1])]
    for t in made:
        code, _ = t._site
        assert code.co_filename == __file__


def test_complex_and_polar_have_gradients():
    a, b = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([0.5, -1.0], requires_grad=True)
    z = torch.complex(a, b)
    (z * z).real.sum().backward()
    assert a.grad.tolist() == [2, 4] and b.grad.tolist() == [-1, 2]
    pair = (a.detach().double().requires_grad_(), b.detach().double().requires_grad_())
    assert torch.autograd.gradcheck(torch.polar, pair)


def test_nothing_warns_where_pytorch_does_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.tensor([1e300], dtype=torch.float16), torch.full((1,), 1e30, dtype=torch.float32)
        torch.tensor(np.array([1e300]), dtype=torch.float32), torch.randn(3, dtype=torch.float16)
        torch.tensor([float("nan")]).tolist(), torch.linspace(0, 1, 3, dtype=torch.complex64).tolist()


@pytest.mark.parametrize("make", [lambda: torch.zeros([1] * 65), lambda: torch.randn([1] * 65),
                                  lambda: torch.ones(2)[(None,) * 64], lambda: torch.ones(1).reshape([1] * 65),
                                  lambda: torch.empty([1] * 65), lambda: torch.ones([1] * 64).unsqueeze(0)])
def test_more_dimensions_than_numpy_has_are_refused_in_words(make):
    with pytest.raises(RuntimeError, match="at most 64 dimensions"):
        make()
    assert torch.ones([1] * 64).sum().item() == 1
