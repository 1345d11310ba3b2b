"""The dtypes that PyTorch has few kernels for (uint16, uint32, uint64, 8-bit floats) beside PyTorch: every conversion,
promotion, files, text, and what every operation of core_ops.txt makes of them."""
import io
import itertools
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fb
from tests.torch import harness
from tests.torch.harness import OPS, Raised, attempt, function, tensors, torch_function

UNSIGNED = ["uint16", "uint32", "uint64"]
FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
FEW = UNSIGNED + FLOAT8
COMMON = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128"]
NAMES_ONLY = ["complex32", "float4_e2m1fn_x2", "quint8", "qint8", "qint32", "quint4x2", "quint2x4", "bits8", "bits16",
              "bits1x8", "bits2x4", "bits4x2", *(f"{kind}{n}" for kind in ("int", "uint") for n in range(1, 8))]

pytestmark = pytest.mark.filterwarnings("ignore:.*(discards the imaginary|ComplexHalf|TypedStorage).*")


def bits_of(tensor, lib):
    """The elements as bytes."""
    if not tensor.numel():
        return np.empty(0, np.uint8)
    return lib.empty(tuple(tensor.shape), dtype=tensor.dtype).copy_(tensor).view(lib.uint8).numpy()


def ours(tensor):
    """A tensor of PyTorch's as one of ours, bit for bit."""
    name = str(tensor.dtype).removeprefix("torch.")
    return fb.tensor(bits_of(tensor.reshape(-1), torch)).view(getattr(fb, name)).reshape(tuple(tensor.shape))


def theirs(tensor):
    name = str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel():
        return torch.empty(tuple(tensor.shape), dtype=getattr(torch, name))
    flat = torch.from_numpy(np.array(bits_of(tensor.detach().reshape(-1), fb)))
    return flat.view(getattr(torch, name)).reshape(tuple(tensor.shape))


def assert_bits(got, want):
    assert str(got.dtype) == str(want.dtype) and tuple(got.shape) == tuple(want.shape)
    assert np.array_equal(bits_of(got, fb), bits_of(want, torch))


# --- conversion -----------------------------------------------------------------------------------------------------


def sources(name):
    """Numbers of a dtype that show how they are converted: all of them, where they have two bytes at the most."""
    dtype = getattr(torch, name)
    if name == "bool":
        return torch.tensor([False, True])
    if dtype.itemsize <= 2:
        words = torch.uint8 if dtype.itemsize == 1 else torch.uint16
        return torch.arange(2 ** (8 * dtype.itemsize)).to(words).view(dtype)
    words = torch.arange(65536, dtype=torch.int32)
    high = torch.cat([words << 16, (words << 16) | 1, (words << 16) | 0x8000, (words << 16) | 0x7fff])
    if dtype.is_floating_point or dtype.is_complex:
        return high.view(torch.float32).to(dtype)
    return torch.cat([words, high, -words]).to(dtype)


PAIRS = [pair for pair in itertools.product(COMMON + FEW, COMMON + FEW)
         if pair[0] != pair[1] and (pair[0] in FEW or pair[1] in FEW)]


@pytest.mark.parametrize("source, target", PAIRS)
def test_conversion(source, target):
    """Element by element the bits of PyTorch's, where C says what they are."""
    given = sources(source)
    if (given.is_floating_point() or given.is_complex()) and "int" in target:
        limits = torch.iinfo(getattr(torch, target))
        real = given.real if given.is_complex() else given
        wide = real.to(torch.float64)
        given = given[(wide >= limits.min) & (wide < float(limits.max))]        # the rest is the processor's choice
    want = given.to(getattr(torch, target))
    got = ours(given).to(getattr(fb, target))
    if want.is_floating_point() or want.is_complex():
        if target in FLOAT8:                        # which of its NaNs PyTorch gives depends on how it was vectorised
            same = np.isnan(got.float().numpy()) == want.float().isnan().numpy()
            assert same.all()
            keep = ~want.float().isnan()
            assert np.array_equal(bits_of(got, fb)[keep.numpy()], bits_of(want, torch)[keep.numpy()])
        else:
            assert np.array_equal(got.to(fb.complex128).numpy(), want.to(torch.complex128).numpy(), equal_nan=True)
    else:
        assert_bits(got, want)


@pytest.mark.parametrize("name", FLOAT8)
def test_all_floats_of_eight_bits(name):
    """float32 to float8, NaNs with their signs too, and back."""
    given = torch.arange(2**16, dtype=torch.int32)
    given = torch.cat([given << 16, (given << 16) | 1]).view(torch.float32)
    assert_bits(ours(given).to(getattr(fb, name)), given.to(getattr(torch, name)))


# --- promotion and facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", COMMON + FEW + NAMES_ONLY)
def test_promotion(a):
    for b in COMMON + FEW + NAMES_ONLY:
        want = attempt(torch.promote_types, getattr(torch, a), getattr(torch, b))
        got = attempt(fb.promote_types, getattr(fb, a), getattr(fb, b))
        packed = any(name in NAMES_ONLY and (name.startswith(("int", "uint", "float4"))) for name in (a, b))
        if packed:                                 # PyTorch's table has holes there: we refuse them all
            assert isinstance(got, Raised) or a == b
        elif isinstance(want, Raised):
            assert isinstance(got, Raised) and type(got.error) is RuntimeError, b
            assert str(got.error).startswith(str(want.error).split(",")[0].split("\n")[0]), b
        else:
            assert str(got) == str(want), b


@pytest.mark.parametrize("a", COMMON + FEW)
def test_can_cast(a):
    for b in COMMON + FEW:
        assert fb.can_cast(getattr(fb, a), getattr(fb, b)) == torch.can_cast(getattr(torch, a), getattr(torch, b)), b


@pytest.mark.parametrize("name", FEW + NAMES_ONLY)
def test_facts(name):
    mine, their = getattr(fb, name), getattr(torch, name)
    assert repr(mine) == repr(their) and mine.itemsize == their.itemsize
    assert mine.is_floating_point == their.is_floating_point and mine.is_complex == their.is_complex
    want = attempt(lambda: their.is_signed)
    got = attempt(lambda: mine.is_signed)
    assert isinstance(got, Raised) if isinstance(want, Raised) else got == want
    assert str(mine.to_real()) == str(their.to_real())
    assert pickle.loads(pickle.dumps(mine)) is mine
    if name in FLOAT8:
        assert repr(fb.finfo(mine)) == repr(torch.finfo(their))
    if name in UNSIGNED:
        assert repr(fb.iinfo(mine)) == repr(torch.iinfo(their)) and fb.iinfo(mine).max == torch.iinfo(their).max


def test_every_dtype_of_pytorch_is_there():
    missing = [name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)
               and not isinstance(getattr(fb, name, None), fb.dtype)]
    assert not missing


@pytest.mark.parametrize("name", NAMES_ONLY)
def test_names_without_tensors(name):
    with pytest.raises(NotImplementedError, match=f"torch.{name}: "):
        fb.empty(2, dtype=getattr(fb, name))
    with pytest.raises(NotImplementedError, match=f"torch.{name}: "):
        fb.ones(4, dtype=fb.uint8).view(getattr(fb, name))


# --- numbers into tensors -------------------------------------------------------------------------------------------


NUMBERS = [0, 1, -1, 255, 256, 65535, 65536, 70000, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64, 1.5, -1.5, 240.0, 241.0,
           448.0, 500.0, 57344.0, 1e5, 1e9, 1e39, float("inf"), float("nan"), True]


@pytest.mark.parametrize("name", FEW)
def test_numbers(name):
    def calls(lib, number):
        dtype = getattr(lib, name)
        return [lambda: lib.tensor([number], dtype=dtype), lambda: lib.full((2,), number, dtype=dtype),
                lambda: lib.ones(2, dtype=dtype).fill_(number)]
    pairs = [pair for n in NUMBERS for pair in zip(calls(fb, n), calls(torch, n), [n] * 3)]
    for mine, their, number in pairs:
        want, got = attempt(their), attempt(mine)
        if isinstance(want, Raised):
            assert isinstance(got, Raised) and type(got.error) is type(want.error), (number, got, want)
        else:
            assert not isinstance(got, Raised), (number, got, want)
            assert_bits(got, want)


# --- text, files, other libraries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW)
def test_text(name):
    for given in (torch.arange(6).to(getattr(torch, name)), torch.zeros(2, 2).to(getattr(torch, name)),
                  torch.tensor(3).to(getattr(torch, name)), torch.empty(0, dtype=getattr(torch, name)),
                  *([torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))] if name in FLOAT8[:4] else [])):
        assert repr(ours(given)) == repr(given)
        assert ours(given).tolist() == given.tolist() or name in FLOAT8
    assert ours(torch.ones(1).to(getattr(torch, name))).item() == 1


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("new", [True, False])
def test_files_of_pytorch(name, new):
    given = torch.arange(6).to(getattr(torch, name))
    file = io.BytesIO()
    torch.save({"all": given, "part": given[2:4]}, file, _use_new_zipfile_serialization=new)
    file.seek(0)
    found = fb.load(file)
    assert_bits(found["all"], given)
    found["all"].fill_(1)
    assert found["part"].float().tolist() == [1, 1]


@pytest.mark.parametrize("name", FEW)
def test_files_of_ours(name):
    given = fb.arange(6).to(getattr(fb, name))
    file = io.BytesIO()
    fb.save({"all": given, "part": given[2:4]}, file)
    file.seek(0)
    found = torch.load(file)
    assert_bits(given, found["all"])
    assert found["part"].data_ptr() == found["all"].data_ptr() + 2 * found["all"].itemsize


@pytest.mark.parametrize("name", FEW)
def test_dlpack(name):
    given = torch.arange(6).to(getattr(torch, name))
    taken = fb.from_dlpack(given)
    assert_bits(taken, given)
    assert taken.data_ptr() == given.data_ptr()
    assert_bits(taken, torch.from_dlpack(taken.clone()))


# --- every operation ------------------------------------------------------------------------------------------------

SAMPLES = 6
UNINITIALISED = ("empty", "empty_like", "new_empty")
# (operation, family) → why it differs
KNOWN = {
    ("addbmm", "float8"): "PyTorch rounds after every matrix of the batch, we once at the end",
    ("bmm.triton_optimized", "float8"): "one column is multiplied, by some processors only in PyTorch",
    ("round.decimals_0", "uint"): "to no decimals it is the operation without them",
    ("aminmax", None): "PyTorch asks for a kernel without dimensions if no dim is named",
    ("nn.functional.dropout", None): "its parts are asked for in another order",
    ("nn.functional.dropout2d", None): "its parts are asked for in another order",
    ("nn.functional.batch_norm", None): "of PyTorch's own making: an internal assertion, or a pass without work",
    ("nn.functional.rms_norm", None): "its parts are asked for in another order",
    ("nn.functional.soft_margin_loss", None): "its parts are asked for in another order",
    ("nn.functional.hardtanh", None): "the limits are looked at before the kernel",
    ("nn.functional.embedding", "uint"): "the norm is asked for another way",
    ("nn.functional.embedding_bag", "float8"): "refused too, as having no kernel",
    ("flip", None): "where nothing is turned round, it is a copy there",
    ("multinomial", "uint"): "refused too, as having no kernel",
    ("linspace", None): "the ends are looked at before the kernel",
    ("linspace.tensor_overload", None): "the ends are looked at before the kernel",
    ("linalg.det", "float8"): "refused too, as having no kernel",
    ("linalg.pinv.singular", None): "refused too, as having no kernel",
    ("linalg.vector_norm", "float8"): "of a point it is the absolute value",
    ("logspace", "float8"): "float8_e8m0fnu has no zero: the ends are looked at",
    ("logspace.tensor_overload", "float8"): "float8_e8m0fnu has no zero: the ends are looked at",
    ("normal", "float8"): "refused too, for the values",
    **{(name, "float8"): "refused too, as having no kernel" for name in ("std", "std.unbiased", "var", "var.unbiased")},
    **{(name, "float8"): "a single element that the dtype does not hold is written without a word there"
       for name in ("full_like", "new_full", "scalar_tensor")},
}


def samples(op, source):
    """PyTorch's own samples of an operation, of a dtype that it takes."""
    use = source if source in op.dtypes else torch.float32 if torch.float32 in op.dtypes else torch.int64
    if use not in op.dtypes:
        return use, []
    return use, list(itertools.islice(op.sample_inputs("cpu", use), SAMPLES))


def converted(thing, use, dtype):
    """A sample with its tensors of dtype `use` in another."""
    if isinstance(thing, torch.Tensor) and thing.dtype is use:
        thing = thing.detach()
        return (thing if dtype.is_floating_point else thing.abs()).to(dtype)
    if isinstance(thing, (list, tuple)) and not isinstance(thing, torch.Size):
        return type(thing)(converted(part, use, dtype) for part in thing)
    if isinstance(thing, dict):
        return {key: converted(part, use, dtype) for key, part in thing.items()}
    return dtype if thing is use else thing


def to_ours(thing):
    if isinstance(thing, torch.Tensor) and str(thing.dtype).removeprefix("torch.") in FLOAT8:
        return ours(thing)
    if isinstance(thing, (list, tuple)) and not isinstance(thing, torch.Size):
        return type(thing)(to_ours(part) for part in thing)
    if isinstance(thing, dict):
        return {key: to_ours(part) for key, part in thing.items()}
    if isinstance(thing, torch.dtype):
        return getattr(fb, str(thing).removeprefix("torch."))
    return harness.to_fb(thing)


def assert_same(got, want):
    if isinstance(want, torch.Tensor):
        assert str(got.dtype) == str(want.dtype) and tuple(got.shape) == tuple(want.shape), (got.dtype, want.dtype)
        got = theirs(got)
        if want.is_floating_point() or want.is_complex():
            got, want = got.to(torch.complex128), want.to(torch.complex128)
            assert torch.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True), (got, want)
        else:
            assert torch.equal(got, want), (got, want)
    elif isinstance(want, (list, tuple)):
        for mine, their in zip(got, want, strict=True):
            assert_same(mine, their)


@pytest.mark.parametrize("op", [op for op in OPS if hasattr(op, "sample_inputs")], ids=lambda op: op.full_name)
def test_operation(op):
    """Taken or refused as there, and with the same values."""
    mine = function(op)
    for source, names in ((torch.int64, UNSIGNED), (torch.float32, FLOAT8)):
        use, drawn = samples(op, source)
        family = "uint" if source is torch.int64 else "float8"
        if (op.full_name, family) in KNOWN or (op.full_name, None) in KNOWN:
            continue
        for name, sample in itertools.product(names, drawn):
            args = converted((sample.input, sample.args, sample.kwargs), use, getattr(torch, name))
            if any(t.numel() == 0 for t in tensors(args)):      # whether a kernel is asked for then is an accident
                continue
            try:
                given = to_ours(args)
            except harness.Unsupported:
                continue
            want = attempt(torch_function(op), args[0], *args[1], **args[2])
            got = attempt(mine, given[0], *given[1], **given[2])
            where = f"{name} {harness.describe(sample)}: {got}, there {want}"
            if isinstance(want, Raised):
                assert isinstance(got, Raised) and isinstance(got.error, type(want.error)), where
                continue
            assert not isinstance(got, Raised), where
            if op.name not in UNINITIALISED:
                assert_same(got, want)
