"""Random numbers of a GPU: held against what PyTorch 2.11 drew on an H200, and against the same rules said in NumPy.

`torch_random_h200.jsonl.gz` has PyTorch's numbers: for each call the generator's state before and after, and of each
result the first and last few elements and a checksum of all, as bits. On simulated devices the small ones are drawn;
functions are the processor's there, so what goes through logarithms and sines is compared up to their last places, and
on a GPU bit by bit.
"""
import gzip
import json
import pathlib
import re

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu.random import default_streams as streams
from flambeau.backends.cpu.random.random_stream import DEFAULT_SEED
from flambeau.backends.cuda import driver, nvrtc, random_kernels

from ..thorough import sample
from .philox import Stream, words
from .simulated import compiler, simulating

FOLDER = pathlib.Path(__file__).parent
ABOUT, *CALLS = [json.loads(line) for line in
                 gzip.decompress((FOLDER / "torch_random_h200.jsonl.gz").read_bytes()).decode().splitlines()]
H200 = {"multi_processor_count": int(ABOUT["multi_processor_count"]),
        "max_threads_per_multi_processor": int(ABOUT["max_threads_per_multi_processor"])}
SIMULATED_ELEMENTS = 4097                # the most that are drawn on a simulated device, thread by thread
TINY = {"multi_processor_count": 2, "max_threads_per_multi_processor": 512}        # 1024 threads at once: many turns
WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
OTHER_FUNCTIONS = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 2e-5, "float64": 1e-12}
FLOAT_NORMALS = ("_standard_gamma", "_sample_dirichlet")      # of float64 too, by way of float32


@pytest.fixture(scope="module")
def h200():
    """A GPU with an H200's threads, a real one or a simulated one; gives whether it is simulated."""
    if torch.cuda.is_available():
        found = driver.current().properties(0)
        if any(getattr(found, name) != value for name, value in H200.items()):
            pytest.skip(f"PyTorch's numbers are those of an H200, and this is a {found.name}")
        yield False
        return
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=2) as made:
        like(made, H200)
        yield True


@pytest.fixture
def tiny():
    """A simulated GPU with few threads, and the Stream that says what it draws, from a seed."""
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=2) as made:
        like(made, TINY)
        yield lambda seed, offset=0: Stream(seed, offset, 2, 512)


def like(simulated, properties):
    whole = simulated.properties
    simulated.properties = lambda index: whole(index)._replace(**properties)


def state_of(device="cuda:0"):
    return torch.cuda.get_rng_state(device).numpy().tobytes().hex()


def bits(tensor):
    array = tensor.cpu().contiguous().view(-1)
    array = array.view(torch.uint8) if array.dtype is not torch.bool else array.to(torch.uint8)
    return array.numpy().view(WORD[tensor.dtype.itemsize])


def checksum(words):
    with np.errstate(over="ignore"):
        weights = np.arange(len(words), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        return int((words.astype(np.uint64) * weights).sum(dtype=np.uint64))


# --- Philox itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counter, key, expected", [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1")])
def test_known_answers(counter, key, expected, tiny):
    """The test vectors that the authors of Philox publish with Random123 (kat_vectors, philox4x32 with 10 rounds)."""
    c, k, given = ([int(w, 16) for w in text.split()] for text in (counter, key, expected))
    turn, thread, seed = c[0] | c[1] << 32, c[2] | c[3] << 32, k[0] | k[1] << 32
    assert words(seed, np.array([thread], np.uint64), np.array([turn], np.uint64))[:, 0].tolist() == given

    source = random_kernels.PHILOX + """
struct Params { u64 out, seed, thread, turn; };
extern "C" __global__ void draw(const Params p) {
    const Words w = philox(p.seed, p.thread, p.turn);
    for (int j = 0; j < 4; j++) ((u32 *)p.out)[j] = w.x[j];
}
"""
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    stream = streams.stream_of(out.device)
    stream._launch(source, 1, (out.data_ptr(),), (seed, thread, turn))
    assert bits(out).tolist() == given


SOURCES = {
    **{f"{rule} {type}": random_kernels.real_source(rule, type) for rule in random_kernels.RULES
       for type in ("bf16", "f16", "f32", "f64")},
    **{f"{rule} {type}": random_kernels.integer_source(rule, type) for rule in random_kernels.INTEGER_RULES
       for type in ("int64", "uint8", "bf16", "f64")},
    **{f"coins {type}": random_kernels.coins_source(type) for type in ("f16", "bf16", "f64", "bool", "int64")},
    **{f"keep {real} {width}": random_kernels.keep_source(real, width) for real, width in
       (("float", 1), ("float", 2), ("float", 4), ("float", 8), ("double", 2))},
    **{f"{name} {real}": random_kernels.each_source(name, operands, real, each, stride) for real in ("float", "double")
       for name, operands, each, stride in (("poisson", 1, 1, 1), ("gamma_", 1, 1, 1), ("binomial", 2, 8, 128))},
    "shuffled equals": random_kernels.SHUFFLE_EQUALS, "units of samples": random_kernels.SAMPLE_UNITS}


@pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", sample(SOURCES, 4))
def test_kernels_compile(name):
    for architecture in ("sm_80", "sm_90"):
        assert nvrtc.compile(SOURCES[name], architecture, ("--fmad=false",))


# --- PyTorch's numbers ------------------------------------------------------------------------------------------------

def blank(dtype, n):
    return torch.empty(n, dtype=dtype, device="cuda")


def ramp(low, high, n, dtype):
    """What torch.linspace gives in float32 on a GPU, as `dtype`."""
    return torch.from_numpy(np.linspace(low, high, n, dtype=np.float32)).to(dtype).to("cuda")


def call_of(key):
    """(a function that makes the call, how its result compares), or None.

    "bits"; "functions", to the bit on a GPU, and otherwise as close as other functions are; "close" where the operand
    was rounded otherwise there; "first" and "offset" alone."""
    found = re.fullmatch(r"(?:consecutive \d+ )?(\S+?)(?:\((.*)\))?(?: (double|train|p=\S+|aligned\+\d+|values))?"
                         r"(?: (float\d+|bfloat16|u?int\d+|bool|torch\.\w+))? (\d+)", key)
    if found is None:
        return None
    name, given, how, dtype, n = found.groups()
    n, dtype = int(n), getattr(torch, (dtype or "float32").removeprefix("torch."))
    numbers = [] if not given or "t" in given else [eval(a, {"min": -2**63}) for a in given.split(",")]
    if key.startswith("consecutive"):
        return {"rand": (lambda: torch.rand(n, device="cuda"), "bits"),
                "randn": (lambda: torch.randn(n, device="cuda", dtype=torch.float64 if how else None), "functions"),
                "randint": (lambda: torch.randint(0, 10, (n,), device="cuda"), "bits"),
                "randint64": (lambda: torch.randint(0, 2**40, (n,), device="cuda"), "bits"),
                "dropout": (lambda: torch.nn.functional.dropout(torch.ones(n, device="cuda"), 0.3), "bits"),
                "randperm": (lambda: torch.randperm(min(n, 100_000), device="cuda"), "bits"),
                "bernoulli": (lambda: torch.bernoulli(torch.full((n,), 0.4, device="cuda")), "bits")}[name]
    if name in ("rand", "randn"):
        return lambda: getattr(torch, name)(n, dtype=dtype, device="cuda"), "bits" if name == "rand" else "functions"
    if name == "randint":
        return lambda: torch.randint(*numbers, (n,), dtype=dtype, device="cuda"), "bits"
    if name == "randperm":
        return lambda: torch.randperm(n, dtype=dtype, device="cuda"), "bits"
    if name == "native_dropout":
        return lambda: torch.nn.functional.dropout(torch.ones(n, dtype=dtype, device="cuda"), float(how[2:])), "bits"
    if name == "dropout" and how == "values":
        return lambda: torch.nn.functional.dropout(ramp(-3, 3, n, dtype), 0.3), "offset"
    if name == "dropout" and how and how.startswith("aligned"):
        shift = int(how[8:])
        counted = torch.arange(1, 4200).to(dtype)
        return lambda: torch.nn.functional.dropout(counted.to("cuda")[shift:shift + n], 0.3), "bits"
    if name == "bernoulli_" and given and given.startswith("t "):
        kind = getattr(torch, given.removeprefix("t torch."))
        return lambda: blank(dtype, n).bernoulli_(ramp(0, 1, n, torch.float32).to(kind)), "bits"
    if name in ("random_", "uniform_", "bernoulli_") and given != "t":
        return lambda: getattr(blank(dtype, n), name)(*numbers), "bits"
    if name in ("normal_", "exponential_", "cauchy_", "log_normal_", "geometric_"):
        return lambda: getattr(blank(dtype, n), name)(*numbers), "functions" if name != "geometric_" else "bits"
    if name in ("bernoulli", "poisson", "_standard_gamma") and given == "t":
        ends, compared = {"bernoulli": ((0, 1), "bits"), "poisson": ((0, 90), "first"),      # others above a rate of 64
                          "_standard_gamma": ((0.1, 5), "close")}[name]
        return lambda: getattr(torch, name)(ramp(*ends, n, dtype)), compared
    if name == "rrelu":                                    # of numbers that are rounded otherwise there
        return lambda: torch.nn.functional.rrelu(ramp(-1, 1, n, dtype), training=True), "close"
    if name == "binomial":
        return lambda: torch.binomial(torch.full((n,), 20.0, dtype=dtype, device="cuda"), ramp(0, 1, n, dtype)), "bits"
    if name == "_sample_dirichlet":
        return lambda: torch._sample_dirichlet(ramp(0.1, 5, 3 * n, dtype).view(n, 3)), "close"
    return None


SEEN = [(key, before, after, outs) for key, before, after, outs in CALLS if call_of(key)]


def test_most_calls_are_known():
    assert len(SEEN) > 900 and {"uniform_", "randperm", "poisson", "native_dropout", "consecutive"} <= {
        re.split(r"[ (]", key)[0] for key, *_ in SEEN}


@pytest.mark.parametrize("what", sorted({re.sub(r"( \d+)*$", "", re.sub(r"consecutive \d+", "consecutive", key))
                                         for key, *_ in SEEN}))
def test_numbers_are_pytorchs(what, h200):
    """Values and the state afterwards, of every size that was drawn."""
    for key, before, after, outs in SEEN:
        if re.sub(r"( \d+)*$", "", re.sub(r"consecutive \d+", "consecutive", key)) != what:
            continue
        if h200 and outs[0][1] > SIMULATED_ELEMENTS:
            continue
        call, compared = call_of(key)
        torch.cuda.set_rng_state(torch.tensor(list(bytes.fromhex(before)), dtype=torch.uint8))
        result = call()
        assert state_of() == after, key
        if compared == "offset":
            continue
        dtype, n, check, first, last = outs[0]
        assert str(result.dtype) == f"torch.{dtype}" and result.numel() == n, key
        drawn = bits(result)
        expected = np.array([int(w, 16) for w in (*first, *last)], drawn.dtype)
        ends = np.concatenate([drawn[:4], drawn[-3:]])
        if compared == "first":
            assert ends[:4].tolist() == expected[:4].tolist() or n < 100, key
        elif compared == "bits" or compared == "functions" and not h200:
            assert ends.tolist() == expected.tolist() and checksum(drawn) == int(check, 16), key
        else:
            there, here = (torch.from_numpy(w.view({2: np.int16, 4: np.int32, 8: np.int64}[w.itemsize]).copy())
                           .view(result.dtype).double() for w in (expected, ends))
            digits = OTHER_FUNCTIONS["float32" if key.startswith(FLOAT_NORMALS) else dtype]
            torch.testing.assert_close(here, there, rtol=digits, atol=digits)


def written(t, view, call):
    call(view(t))
    return t


ON = {"t()": ((40, 60), lambda t: t.t()), "[:, ::2]": ((40, 60), lambda t: t[:, ::2]),
      "permute(2,0,1)": ((7, 11, 13), lambda t: t.permute(2, 0, 1)), "channels_last": ((2, 5, 7, 9), lambda t: t)}
FILLS = {"uniform_": lambda t: t.uniform_(), "normal_": lambda t: t.normal_(),
         "bernoulli_(0.4)": lambda t: t.bernoulli_(0.4), "random_(1000)": lambda t: t.random_(1000)}


def zeros(shape, name):
    t = torch.zeros(shape, device="cuda")
    return t.contiguous(memory_format=torch.channels_last) if name == "channels_last" else t


LAYOUTS = {f"{fill} on {name}": (lambda shape=shape, view=view, name=name, fill=fill:
                                 written(zeros(shape, name), view, FILLS[fill]))
           for name, (shape, view) in ON.items() for fill in FILLS}
LAYOUTS |= {
    "rand_like channels_last": lambda: torch.rand_like(zeros((2, 5, 7, 9), "channels_last")),
    "dropout channels_last":
        lambda: torch.nn.functional.dropout(zeros((2, 5, 7, 9), "channels_last").fill_(1), 0.3),
    "rand complex64 1001": lambda: torch.rand(1001, dtype=torch.complex64, device="cuda"),
    "randn complex64 1001": lambda: torch.randn(1001, dtype=torch.complex64, device="cuda"),
    "randn complex128 1001": lambda: torch.randn(1001, dtype=torch.complex128, device="cuda"),
    **{f"torch.manual_seed({seed})": (lambda seed=seed: torch.manual_seed(seed) and torch.rand(8, device="cuda"))
       for seed in (0, 1, -1, 2**31, 2**32 + 5, 2**63 - 1, -2**63, 67280421310721)}}
MASKS = {"transposed": ((64, 100), lambda m: m.t(), 0.4), "sliced": ((64, 100), lambda m: m[:, :50], 0.4),
         "strided": ((64, 100), lambda m: m[:, ::2], 0.4), "3d": ((4, 8, 200), lambda m: m, 0.25),
         "permuted": ((4, 8, 200), lambda m: m.permute(2, 0, 1), 0.25)}


@pytest.mark.parametrize("key", LAYOUTS)
def test_numbers_in_other_layouts_are_pytorchs(key, h200):
    ((_, before, after, outs),) = [call for call in CALLS if call[0] == key]
    torch.cuda.set_rng_state(torch.tensor(list(bytes.fromhex(before)), dtype=torch.uint8))
    result = LAYOUTS[key]()
    assert state_of() == after
    result = torch.view_as_real(result) if result.is_complex() else result
    dtype, n, check, first, last = outs[0]
    drawn = bits(result)
    expected = np.array([int(w, 16) for w in (*first, *last)], drawn.dtype)
    if "norm" in key or "randn" in key:
        ends = np.concatenate([drawn[:4], drawn[-3:]])
        real = np.float64 if drawn.itemsize == 8 else np.float32
        np.testing.assert_allclose(ends.view(real), expected.view(real), rtol=1e-4, atol=1e-6)
    else:
        assert [*drawn[:4], *drawn[-3:]] == expected.tolist() and checksum(drawn) == int(check, 16)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", MASKS)
def test_dropouts_in_other_layouts_are_pytorchs(name, dtype, h200):
    """Masks go by memory where PyTorch's kernel reads several neighbours at a time, else by position."""
    ((_, before, after, outs),) = [call for call in CALLS if re.match(rf"dropout {name} {dtype}\b", call[0])]
    shape, view, p = MASKS[name]
    torch.cuda.set_rng_state(torch.tensor(list(bytes.fromhex(before)), dtype=torch.uint8))
    kept = torch.nn.functional.dropout(view(torch.ones(shape, dtype=getattr(torch, dtype), device="cuda")), p) != 0
    assert state_of() == after
    drawn = bits(kept)
    _, n, check, first, last = outs[-1]
    assert [f"{w:x}" for w in (*drawn[:4], *drawn[-3:])] == [*first, *last] and checksum(drawn) == int(check, 16)


@pytest.mark.parametrize("key", [call[0] for call in CALLS if call[0].startswith("multinomial")])
def test_multinomials_are_pytorchs(key, h200):
    """Without replacement, or of one sample, every one; with replacement sums are rounded otherwise, so nearly all."""
    ((_, before, after, outs),) = [call for call in CALLS if call[0] == key]
    rows, n, samples, replacement = re.fullmatch(r"multinomial (3x)?(\d+) (\d+) (True|False)", key).groups()
    if h200 and int(n) > SIMULATED_ELEMENTS:
        pytest.skip("too many for a simulated device")
    weights = ramp(0.1, 1, int(n), torch.float32)
    weights = torch.stack([weights, weights.flip(0), weights * weights]) if rows else weights
    torch.cuda.set_rng_state(torch.tensor(list(bytes.fromhex(before)), dtype=torch.uint8))
    drawn = bits(torch.multinomial(weights, int(samples), replacement == "True"))
    assert state_of() == after
    _, count, check, first, last = outs[0]
    ends = [*drawn[:4].tolist(), *drawn[-3:].tolist()]
    assert len(drawn) == count
    if replacement == "False" or samples == "1":
        assert ends == [int(w, 16) for w in (*first, *last)] and checksum(drawn) == int(check, 16)
    else:
        assert max(abs(a - int(w, 16)) for a, w in zip(ends, (*first, *last), strict=True)) <= 1


# --- the same rules for another GPU -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", sample([5000, 1, 1023, 1024, 1025, 4096, 9001], 4))
def test_several_turns(n, tiny):
    """A GPU with 1024 threads at once draws several times for each."""
    torch.manual_seed(n)
    there = tiny(n)
    cuda = {"device": "cuda"}
    assert torch.rand(n, **cuda).tolist() == (there.unit(n) % 1).tolist()
    assert torch.rand(n, dtype=torch.float64, **cuda).tolist() == (there.unit(n, True) % 1).tolist()
    np.testing.assert_allclose(torch.randn(n, **cuda).tolist(), there.normal(n), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(torch.randn(n, dtype=torch.float64, **cuda).tolist(), there.normal(n, True), rtol=1e-11,
                               atol=1e-13)
    assert torch.randint(-5, 1000, (n,), **cuda).tolist() == there.integers(-5, 1000, n).tolist()
    assert torch.randint(-2**62, 2**62, (n,), **cuda).tolist() == there.integers(-2**62, 2**62, n).tolist()
    assert torch.empty(n, dtype=torch.int64, **cuda).random_(-2**63, None).tolist() == there.whole(n).tolist()
    assert torch.randperm(n, **cuda).tolist() == there.permutation(n).tolist()
    for dtype, width in ((torch.float64, 2), (torch.float32, 4), (torch.bfloat16, 8)):
        while n % width:
            width //= 2
        kept = torch.nn.functional.dropout(torch.ones(n, dtype=dtype, **cuda), 0.3) != 0
        assert kept.tolist() == there.keep(n, 0.3, width, np.float64 if width == 2 else np.float32).tolist()
    assert torch.cuda.default_generators[0].get_offset() == there.offset


def test_permutations_with_equal_keys(tiny):
    """With keys of few bits there are equal ones, whose order is drawn once more."""
    for seed in range(20):
        torch.manual_seed(seed)
        assert torch.randperm(300, device="cuda").tolist() == tiny(seed).permutation(300).tolist()


def test_parts_of_what_is_large(tiny):
    """What PyTorch cannot address with 32 bits it draws in halves, after it has moved the offset on for the whole."""
    stream = streams.stream_of(torch.zeros(1, device="cuda").device)
    stream.manual_seed(0)
    assert stream._parts(2**29 - 1, 4, 4) == [(0, 2**29 - 1)] and stream.get_offset() == 0
    n = 2**29 + 2
    assert stream._parts(n, 4, 4) == [(0, n // 2), (n // 2, n - n // 2)]
    assert stream.get_offset() == 4 * ((n - 1) // (1024 * 4) + 1)
    assert [count for _, count in stream._parts(3 * 2**29, 4, 4)] == [3 * 2**27] * 4


# --- in distribution --------------------------------------------------------------------------------------------------


def near(values, mean, variance):
    n = values.numel()
    assert abs(values.mean().item() - mean) < 5 * (variance / n) ** 0.5 + 1e-6
    assert abs(values.var().item() / variance - 1) < 0.25


@pytest.mark.parametrize("rate", [0.5, 7.0, 30.0])
def test_samplers_follow_their_distributions(rate, tiny):
    torch.manual_seed(int(rate))
    full = torch.full((4000,), rate, device="cuda")
    near(torch.poisson(full).cpu(), rate, rate)
    near(torch._standard_gamma(full).cpu(), rate, rate)
    near(torch.binomial(torch.full((4000,), 40.0, device="cuda"), full / 60).cpu(), 40 * rate / 60,
         40 * rate / 60 * (1 - rate / 60))
    points = torch._sample_dirichlet(torch.full((1000, 3), rate, device="cuda")).cpu()
    torch.testing.assert_close(points.sum(-1), torch.ones(1000))
    near(points[:, 0], 1 / 3, 2 / 9 / (3 * rate + 1))


def test_multinomial(tiny):
    torch.manual_seed(0)
    weights = torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]], device="cuda")
    drawn = torch.multinomial(weights, 4000, replacement=True).cpu()
    assert drawn.shape == (2, 4000) and drawn.dtype is torch.int64
    shares = torch.stack([(drawn == i).double().mean(1) for i in range(3)], 1)
    torch.testing.assert_close(shares, torch.tensor([[0.25, 0, 0.75], [0.5, 0.5, 0]]).double(), rtol=0, atol=0.04)
    assert sorted(torch.multinomial(weights[0], 2).tolist()) == [0, 2]
    assert torch.multinomial(weights, 1).cpu().shape == (2, 1)
    with pytest.raises(RuntimeError, match="inf"):
        torch.multinomial(torch.tensor([1.0, float("nan")], device="cuda"), 1)


# --- generators -------------------------------------------------------------------------------------------------------


def test_generators(tiny):
    g = torch.Generator(device="cuda")
    assert g.device == torch.device("cuda:0") and g.initial_seed() == DEFAULT_SEED and g.get_offset() == 0
    assert g.manual_seed(5) is g
    first = torch.rand(10, device="cuda", generator=g)
    assert g.get_state().tolist() == [5, *[0] * 7, 4, *[0] * 7]           # the seed and the offset
    twin, state = g.clone_state(), g.get_state()
    second = torch.rand(10, device="cuda", generator=g)
    assert torch.equal(torch.rand(10, device="cuda", generator=twin), second)
    assert torch.equal(torch.rand(10, device="cuda", generator=g.set_state(state)), second)
    g.set_offset(0)
    assert torch.equal(torch.rand(10, device="cuda", generator=g), first)
    with pytest.raises(RuntimeError, match="multiple of 4"):
        g.set_offset(3)
    with pytest.raises(RuntimeError, match="wrong size: 5056"):
        g.set_state(torch.get_rng_state())
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(3, device="cuda", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.rand(3, generator=g)
    with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
        torch.Generator().get_offset()


def test_a_seed_reaches_all_devices(tiny):
    torch.manual_seed(3)
    both = [torch.rand(5, device=f"cuda:{i}").tolist() for i in range(2)]
    assert both[0] == both[1] == (tiny(3).unit(5) % 1).tolist()
    torch.cuda.manual_seed(4)                            # the current device alone
    assert torch.rand(5, device="cuda:0").tolist() == (tiny(4).unit(5) % 1).tolist()
    assert torch.rand(5, device="cuda:1").tolist() == (tiny(3, 4).unit(5) % 1).tolist()
    g = torch.Generator("cuda:1").manual_seed(9)         # lent to another device
    assert torch.rand(5, device="cuda:0", generator=g).device.index == 0 and g.get_offset() == 4


def test_forks_and_checkpoints_leave_the_stream_of_a_device(tiny):
    torch.manual_seed(1)
    with torch.random.fork_rng():
        inside = torch.rand(4, device="cuda").tolist()
    assert torch.rand(4, device="cuda").tolist() == inside
    x = torch.ones(100, device="cuda", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: torch.nn.functional.dropout(x, 0.5) * x, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), 2 * y.detach().cpu())


def test_a_compiled_function_draws_anew(tiny):
    @torch.compile
    def f(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(8, device="cuda")

    x = torch.ones(8, device="cuda")
    for seed in range(4):
        torch.manual_seed(seed)
        there = tiny(seed)
        expected = there.keep(8, 0.5, 4) * 2 + there.unit(8) % 1
        assert f(x).tolist() == expected.astype(np.float32).tolist()


def test_dropout_has_pytorchs_gradient(tiny):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64, device="cuda", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.3)
    assert type(y.grad_fn).__name__ == "NativeDropoutBackward0"
    y.backward(torch.full((64,), 3.0, device="cuda"))
    kept = torch.from_numpy(tiny(0).keep(64, 0.3, 4))
    torch.testing.assert_close(x.grad.cpu(), kept * torch.tensor(1 / 0.7) * 3.0, rtol=1e-6, atol=0)


def test_pickling_a_generator_keeps_its_place(tiny):
    import pickle
    g = torch.Generator("cuda").manual_seed(2)
    torch.rand(3, device="cuda", generator=g)
    twin = pickle.loads(pickle.dumps(g))
    assert twin.device == g.device and twin.get_state().tolist() == g.get_state().tolist()
