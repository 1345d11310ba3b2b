"""Random numbers against NumPy's own Mersenne twister, which draws the same words from the same seed."""
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings as trying, strategies as st

import flambeau as torch
from flambeau.backends.cpu import compile_thread
from flambeau.backends.cpu.random import box_muller, draws, mersenne_twister
from flambeau.backends.cpu.random.default_streams import stream_of
from flambeau.backends.cpu.random.fma import multiply_add, multiply_add32
from flambeau.base.spec import CPU
from tests.patience import PATIENCE


def words(seed, n):
    """The first `n` 32-bit words of MT19937 seeded with `seed`."""
    return np.random.RandomState(seed).randint(0, 2**32, n, dtype=np.uint32)


@pytest.mark.parametrize("seed", [0, 1, 1729, 2**31])
def test_uniforms_are_24_bits_of_a_word(seed):
    torch.manual_seed(seed)
    assert torch.rand(1000).tolist() == ((words(seed, 1000) & 0xFFFFFF) / 2**24).tolist()


def test_double_uniforms_are_53_bits_of_two_words():
    torch.manual_seed(5)
    high, low = words(5, 200).astype(np.uint64).reshape(100, 2).T
    bits = (high << np.uint64(32) | low) & np.uint64(2**53 - 1)
    assert torch.rand(100, dtype=torch.float64).tolist() == (bits / 2**53).tolist()


def test_integers_are_words_modulo_the_range():
    torch.manual_seed(3)
    assert torch.randint(10, 20, (500,)).tolist() == (words(3, 500) % 10 + 10).tolist()


def test_permutations_are_fisher_yates_over_words():
    torch.manual_seed(8)
    n, w = 20, words(8, 20)
    places = list(range(n))
    for i in range(n - 1):
        j = i + int(w[i]) % (n - i)
        places[i], places[j] = places[j], places[i]
    assert torch.randperm(n).tolist() == places


def test_short_normals_are_box_muller_of_double_uniforms():
    """Below 16 samples PyTorch draws pairs: radius from the second uniform, angle from the first."""
    torch.manual_seed(2)
    u = torch.rand(4, dtype=torch.float64).tolist()
    torch.manual_seed(2)
    ours = torch.randn(2, dtype=torch.float64).tolist()
    radius, angle = np.sqrt(-2 * np.log1p(-u[1])), 2 * np.pi * u[0]
    assert ours == pytest.approx([radius * np.cos(angle), radius * np.sin(angle)], rel=1e-12)


def test_bernoulli_follows_its_chances():
    torch.manual_seed(0)
    p = torch.linspace(0, 1, 11).expand(20_000, 11)
    share = torch.bernoulli(p).mean(0)
    np.testing.assert_allclose(share.numpy(), np.linspace(0, 1, 11), atol=0.02)
    assert share[0] == 0 and share[10] == 1


@pytest.mark.parametrize("draw, mean, std", [
    (lambda n: torch.rand(n), 0.5, 12 ** -0.5), (lambda n: torch.randn(n), 0, 1),
    (lambda n: torch.normal(3.0, 2.0, (n,)), 3, 2), (lambda n: torch.empty(n).exponential_(2.0), 0.5, 0.5),
    (lambda n: torch.empty(n).uniform_(-1, 3), 1, 4 / 12 ** 0.5),
    (lambda n: torch.empty(n).geometric_(0.25), 4, 12 ** 0.5),
    (lambda n: torch.poisson(torch.full((n,), 5.0)), 5, 5 ** 0.5),
    (lambda n: torch.empty(n).log_normal_(0.0, 0.5), np.exp(0.125), np.sqrt((np.exp(0.25) - 1) * np.exp(0.25)))],
    ids="uniform normal normal3 exponential uniform4 geometric poisson log_normal".split())
def test_moments(draw, mean, std):
    torch.manual_seed(11)
    x = draw(40_000).double()
    assert x.mean().item() == pytest.approx(mean, abs=6 * std / 200) and x.std().item() == pytest.approx(std, rel=0.05)


def test_multinomial_draws_by_weight():
    torch.manual_seed(4)
    counts = torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), 20_000, replacement=True).bincount(minlength=3)
    assert counts[1] == 0 and counts[2].item() == pytest.approx(15_000, abs=400)
    assert sorted(torch.multinomial(torch.ones(5), 5).tolist()) == [0, 1, 2, 3, 4]


# --- generators -----------------------------------------------------------------------------------------------------


def test_a_generator_is_a_stream_of_its_own():
    g = torch.Generator().manual_seed(7)
    torch.manual_seed(0)
    mine = torch.rand(3, generator=g).tolist()
    assert torch.rand(2).tolist() == ((words(0, 2) & 0xFFFFFF) / 2**24).tolist()         # the default one did not move
    assert mine == ((words(7, 3) & 0xFFFFFF) / 2**24).tolist() and g.initial_seed() == 7


def test_states_can_be_kept_and_put_back():
    torch.manual_seed(1)
    torch.randn(3)
    state = torch.get_rng_state()
    first = torch.randn(7).tolist()
    torch.set_rng_state(state)
    assert torch.randn(7).tolist() == first and state.dtype is torch.uint8 and state.shape == (5056,)
    g = torch.Generator().manual_seed(1)
    torch.rand(5, generator=g)
    twin = pickle.loads(pickle.dumps(g)) if hasattr(g, "__getstate__") else g
    assert torch.rand(5, generator=twin).tolist() == torch.rand(5, generator=g).tolist()


def test_fork_leaves_the_stream_where_it_was():
    torch.manual_seed(1)
    expected = torch.rand(4).tolist()
    torch.manual_seed(1)
    with torch.random.fork_rng():
        torch.rand(100)
        torch.manual_seed(99)
    assert torch.rand(4).tolist() == expected


def test_a_stream_that_is_started_over_begins_at_its_seed():
    """One of NumPy's generators serves every seed of a stream; what was set aside keeps its own."""
    one = stream_of(CPU)
    for seed in (3, 4, 3, -1, 2**32 + 3):
        torch.manual_seed(seed)
        assert (torch.rand(700) * 2**24).tolist() == (words(seed & 0xFFFFFFFF, 700) & 0xFFFFFF).tolist()
        torch.manual_seed(seed)
        before = torch.get_rng_state()                    # by the recurrence
        torch.set_rng_state(before)
        assert (torch.rand(700) * 2**24).tolist() == (words(seed & 0xFFFFFFFF, 700) & 0xFFFFFF).tolist()
    first = torch.rand(3).tolist()
    standing = one.set_aside()
    torch.manual_seed(3)
    torch.rand(3)
    torch.manual_seed(4)
    other = torch.rand(3).tolist()
    one.put_back(standing)
    after = torch.rand(3).tolist()
    torch.manual_seed(2**32 + 3)
    torch.rand(700)
    assert [torch.rand(3).tolist(), torch.rand(3).tolist()] == [first, after]
    torch.manual_seed(4)
    assert torch.rand(3).tolist() == other


def test_drawing_from_several_threads_loses_nothing():
    """Every word is drawn once, whoever draws it."""
    import threading
    torch.manual_seed(6)
    got = []
    work = lambda: got.extend(torch.rand(50).tolist() for _ in range(20))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert sorted(v for part in got for v in part) == sorted(((words(6, 4000) & 0xFFFFFF) / 2**24).tolist())


# --- the arithmetic ---

def nearest(exact, real):
    """The float of type `real` next to a Fraction; of two as near the even one."""
    near = real(float(exact))
    around = [np.nextafter(near, real(-np.inf)), near, np.nextafter(near, real(np.inf))]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(f"i{near.itemsize}")) & 1))


@pytest.mark.parametrize("real, digits", [(np.float32, 24), (np.float64, 53)])
def test_multiply_add_rounds_once(real, digits):
    rng = np.random.default_rng(0)
    for scale, low in ((0.3, -0.15), (2.0, -1.0), (1e-25, -3e-26), (5.5, 2**20 + 1), (0.7, 0.0), (1.7, -1e-12)):
        scale, low = float(real(scale)), float(real(low))
        units = (rng.integers(0, 2**digits, 300) * 2.0**-digits).astype(real)
        made = multiply_add(units, scale, low)
        assert made.dtype == real
        for unit, found in zip(units, made, strict=True):
            assert found == nearest(Fraction(float(unit)) * Fraction(scale) + Fraction(low), real)


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_multiply_add_of_numbers_of_every_size_rounds_once(real):
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(300) * 2.0**rng.integers(-20, 50, 300)).astype(real)
    for scale, low in ((2.7, 1.3), (-0.3, 1e8), (1e-6, 100.0)):
        scale, low = float(real(scale)), float(real(low))
        for value, found in zip(values, multiply_add(values, scale, low), strict=True):
            assert found == nearest(Fraction(float(value)) * Fraction(scale) + Fraction(low), real)


def test_multiply_add_of_three_arrays_rounds_once():
    """Short numbers among them, whose exact results lie between two float32."""
    rng = np.random.default_rng(2)
    a, b, c = (np.concatenate([rng.standard_normal(300), rng.integers(-2**13, 2**13, 300) / 8]).astype(np.float32)
               for _ in range(3))
    c[300:] *= np.float32(2.0**25)
    for at, found in enumerate(multiply_add32(a, b, c)):
        assert found == nearest(Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at])), np.float32)


def test_a_sum_that_rounds_to_the_middle_is_not_rounded_again():
    """In float64 this sum is exactly between two float32; only what was lost says to which it belongs."""
    scale, low = float.fromhex("0x1.64497ep+0"), float.fromhex("0x1.4510bep+11")
    unit = np.array([9498742 * 2.0**-24], np.float32)
    exact = Fraction(float(unit[0])) * Fraction(scale) + Fraction(low)
    assert np.float32(float(unit[0]) * scale + low) != nearest(exact, np.float32) == multiply_add(unit, scale, low)[0]


# --- compiled code that draws -----------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch):
    """Compiled code draws from the first word on."""
    compile_thread.undisturbed(mersenne_twister.make_ready)
    monkeypatch.setattr(mersenne_twister, "_asked", True)
    monkeypatch.setattr(mersenne_twister, "MIN_NATIVE_WORDS", 0)
    return mersenne_twister._functions


@pytest.mark.pinned
@trying(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.tuples(st.sampled_from(("words", "coins")), st.integers(0, 2000),
                                                     st.floats(0, 1)), max_size=8))
def test_compiled_code_draws_numpys_words_and_leaves_its_state(seed, draws):
    compile_thread.undisturbed(mersenne_twister.make_ready)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mersenne_twister, "_asked", True)
        patch.setattr(mersenne_twister, "MIN_NATIVE_WORDS", 0)
        ours, theirs = np.random.MT19937(seed), np.random.MT19937(seed)
        for what, count, p in draws:
            if what == "words":
                assert mersenne_twister.words(ours, count).tolist() == [theirs.random_raw() for _ in range(count)]
            else:
                pairs = [(theirs.random_raw(), theirs.random_raw()) for _ in range(count)]
                units = [Fraction((high << 32 | low) % 2**53, 2**53) for high, low in pairs]
                assert mersenne_twister.coins(ours, p, count).tolist() == [float(u < Fraction(p)) for u in units]
            one, other = ours.state["state"], theirs.state["state"]
            assert one["pos"] == other["pos"] and np.array_equal(one["key"], other["key"])


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("p", [0.0, 2.0**-53, 1 / 3, 0.9, 1 - 2.0**-53, 1.0])
def test_every_draw_is_the_same_with_and_without_compiled_code(compiled, monkeypatch, p, vectors):
    def drawn():
        torch.manual_seed(3)
        out = [torch.rand(5000), torch.empty(70, 80).bernoulli_(p), torch.rand(3000, dtype=torch.float64),
               torch.empty(40).bernoulli_(p), torch.randn(1000), torch.randint(7, (2000,)), torch.randperm(50),
               torch.empty(0).bernoulli_(p), torch.empty(300, dtype=torch.bool).bernoulli_(p)]
        for dtype in torch.float32, torch.float64, torch.bfloat16:
            for shape in (16,), (50, 41), (17_000,):
                x = torch.empty(shape, dtype=dtype)
                out += [x.clone().normal_(p, 3), x.t().clone().t().normal_(p, 3), x.clone().uniform_(-p, 1.7),
                        x.clone().exponential_(2.3), x.clone().cauchy_(p, 0.7), x.clone().log_normal_(p, 0.3),
                        x.clone().geometric_(0.3)]
        return [t.tolist() for t in out], torch.get_rng_state().tolist()
    assert compiled
    monkeypatch.setattr(box_muller, "has_vectors", lambda: vectors)
    native = drawn()
    monkeypatch.setattr(mersenne_twister, "_functions", {})
    assert drawn() == native


SAMPLERS = {
    "gamma": lambda a: torch._standard_gamma(torch.cat([torch.tensor([0.0, 1e-30, 1e10]), 5 * a])),
    "gamma in float64": lambda a: torch._standard_gamma(3 * a.double()),
    "poisson": lambda a: torch.poisson(torch.cat([torch.tensor([0.0, 10.0, 1e9]), 40 * a])),
    "binomial": lambda a: torch.binomial((90 * a).floor(), torch.cat([torch.tensor([0.0, 1.0, 1e-7]), a[3:].flip(0)])),
    "dirichlet": lambda a: torch._sample_dirichlet(a.reshape(-1, 3)),
    "multinomial": lambda a: torch.multinomial(a.reshape(3, -1), 70, replacement=True),
    "permutation": lambda a: torch.randperm(700), "long permutation": lambda a: torch.randperm(6000),
}


@pytest.mark.pinned
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_draw_the_same_with_and_without_compiled_code(compiled, monkeypatch, name):
    """Samples, the words that were taken for them, and the normal sample that is kept for the next call."""
    given = torch.rand(603, generator=torch.Generator().manual_seed(1)) + 1e-3

    def drawn():
        torch.manual_seed(3)
        first = torch.randn(3, dtype=torch.float64)               # one is left over
        made = SAMPLERS[name](given.clone().clamp(max=1))
        return first.tolist(), made.tolist(), torch.get_rng_state().tolist()

    assert compiled
    with torch.config.using(executor="native"):
        native = drawn()
    monkeypatch.setattr(mersenne_twister, "native", lambda name, count: None)
    assert drawn() == native


@pytest.mark.pinned
def test_nobody_waits_for_the_code_that_draws(monkeypatch):
    asked = []
    monkeypatch.setattr(mersenne_twister, "_functions", {})
    monkeypatch.setattr(mersenne_twister, "_asked", False)
    monkeypatch.setattr(compile_thread, "beforehand", lambda *work: asked.append(work))
    torch.manual_seed(1)
    short, long = torch.rand(100), torch.rand(20_000)
    assert asked == [(mersenne_twister.make_ready,)] and len(short) + len(long) == 20_100
    with torch.config.using(executor="reference"):
        monkeypatch.setattr(mersenne_twister, "_asked", False)
        torch.rand(20_000)
    assert len(asked) == 1


def test_a_state_that_is_laid_out_otherwise_is_left_to_numpy(monkeypatch):
    monkeypatch.setattr(mersenne_twister, "_functions", {})
    real = mersenne_twister._address
    other = np.random.MT19937(99)
    monkeypatch.setattr(mersenne_twister, "_address", lambda stream: real(other))
    compile_thread.undisturbed(mersenne_twister.make_ready)
    assert not mersenne_twister._functions


# --- a few samples, in C ----------------------------------------------------------------------------------------------

FEW = {
    "uniform": lambda s, n, d: s.uniform(n, d), "a range": lambda s, n, d: s.uniform(n, d, -3.3, 7.1),
    "a tiny range": lambda s, n, d: s.uniform(n, d, -1e-40, 1e-39),
    "normal": lambda s, n, d: s.normal(n, d, 0.3, 1.7), "rows": lambda s, n, d: s.normal(n, d, 0.3, 1.7, False),
    "integers": lambda s, n, d: s.integers(-7, 1 << 11, n, d), "coins": lambda s, n, d: s.bernoulli(0.3, n, d),
    "odds": lambda s, n, d: s.bernoulli(np.linspace(0, 1, n, dtype=np.float32), n, d),
    "exponential": lambda s, n, d: s.exponential(n, d, 0.7), "geometric": lambda s, n, d: s.geometric(n, d, 0.2),
    "cauchy": lambda s, n, d: s.cauchy(n, d, 0.3, 1.7), "log normal": lambda s, n, d: s.log_normal(n, d, 0.3, 0.8),
    "wide integers": lambda s, n, d: s.integers(-7, 1 << 40, n, np.dtype(np.int64)),
    "permutation": lambda s, n, d: s.permutation(n, np.dtype(np.int64)),
    "words": lambda s, n, d: s.random_(n, np.dtype(np.int32))}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", FEW)
def test_few_samples_are_those_of_numpy(name, dtype, monkeypatch):
    """Where the core is compiled, C makes them: the same bits, and the same state is left."""
    made, states = [], []
    for by_numpy in (False, True):
        if by_numpy:
            monkeypatch.setattr(draws.few, "drawn", lambda *what: None)
        stream = draws.MersenneTwister()
        stream.manual_seed(7)
        made.append([FEW[name](stream, n, np.dtype(dtype)).tobytes() for n in (1, 2, 15, 3, 16, 700, 1, 1025, 0, 5)])
        states.append(stream.get_state().tobytes())
    assert made[0] == made[1] and states[0] == states[1]


def test_few_odds_are_refused_like_many():
    for odds in ([0.5, 1.5], [-0.1], [math.nan]):
        stream = draws.MersenneTwister()
        before = stream.get_state().tobytes()
        with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):
            stream.bernoulli(np.array(odds, np.float32), len(odds), np.dtype(np.float32))
        assert stream.get_state().tobytes() == before
