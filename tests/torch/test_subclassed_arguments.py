"""Arguments of classes derived from int, float, str, tuple and list, members of enums, NumPy's scalars, and objects
that stand for a number, in every kind of place, beside PyTorch's: they count as what they are made of."""
import collections
import enum
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fb


class Whole(enum.IntEnum):
    ONE = 1


class Word(str, enum.Enum):  # noqa: UP042
    MEAN, CONSTANT, FLOOR = "mean", "constant", "floor"


class Index:
    def __index__(self):
        return 1


class Float:
    def __float__(self):
        return 1.5


class Sizes(tuple):
    __slots__ = ()


class Names(str):
    __slots__ = ()


Pair = collections.namedtuple("Pair", "first second")
NUMBERS = {"IntEnum": Whole.ONE, "int": type("I", (int,), {})(1),
           "float": type("F", (float,), {})(1.5), "float64": np.float64(1.5),
           "int64": np.int64(1), "float32": np.float32(1.5),
           "__index__": Index(), "__float__": Float()}

# Expressions over a library L, its F, tensors x [2, 3] and i (of integers), and the argument v.
PLACES = """
x + v
v + x
x - v
v * x
x / v
x // v
v - i
i + v
i * v
i == v
x > v
x ** v
v ** x
x % v
i << v
i & v
x.add_(v)
i.mul_(v)
x.__iadd__(v)
L.add(x, v)
L.add(x, other=v)
L.add(x, x, alpha=v)
L.sub(i, i, alpha=v)
L.mul(i, v)
x.eq(v)
L.pow(v, x)
L.where(x > 1, x, v)
L.where(x > 1, v, 0)
L.clamp(x, v)
L.clamp(x, max=v)
x.fill_(v)
i.fill_(v)
x.masked_fill(x > 1, v)
L.full((2,), v)
L.full_like(x, v)
x.new_full((2,), v)
L.arange(v)
L.arange(0, v, 0.5)
L.linspace(0, v, 3)
L.linspace(0, 1, v)
L.zeros(v)
L.zeros(v, 2)
L.zeros((v, 2))
L.zeros([2, v])
L.zeros(size=(v,))
L.empty(v, v).shape
L.eye(v)
L.tensor(v)
L.tensor([v, 2])
L.as_tensor(v)
x.sum(v)
x.sum(dim=v)
x.sum((v,))
x.sum([0, v])
x.sum(0, keepdim=v)
x.mean(v)
x.amax(v)
x.max(v)
x.softmax(v)
x.softmax(dim=v)
x.cumsum(v)
x.sort(v)
x.topk(v)
x.argmax(v)
x.std(correction=v)
x.std(v)
x.norm(v)
x.logsumexp(v)
x.unsqueeze(v)
x.squeeze(v)
x.transpose(0, v)
x.permute(v, 0)
x.permute((v, 0))
x.reshape(v, 6)
x.reshape((v, 6))
x.view(v, -1)
x.view([v, -1])
x.expand(v, 2, 3)
x.expand((v, 2, 3))
x.repeat(v, v)
x.repeat((v, 2))
x.tile((v, 2))
x.flip(v)
x.flip((v,))
x.roll(v)
x.roll(v, v)
x.split(v)
x.split((v, 1))
x.chunk(v)
x.narrow(0, v, v)
x.select(0, v)
x.diagonal(v)
x.tril(v)
x.triu(diagonal=v)
x.flatten(v)
x.unflatten(v, (3, v))
x.movedim(0, v)
x.index_select(v, L.tensor([0]))
x.gather(v, L.zeros(2, 1, dtype=L.int64))
x.scatter(v, L.zeros(2, 1, dtype=L.int64), v)
x.unfold(v, 2, v)
x.repeat_interleave(v)
x.repeat_interleave(2, v)
x.as_strided((v, 2), (v, 1))
x.diff(v)
x[v]
x[v, 0]
x[:v]
x[v:]
x[:, ::v]
x[[v, 0]]
x.__setitem__(0, v)
x.__setitem__(v, 5.0)
x.__setitem__((0, v), v)
x.size(v)
x.stride(v)
x.unbind(v)
L.cat([x, x], v)
L.cat([x, x], dim=v)
L.stack([x, x], v)
L.tensor_split(x, v)
L.roll(x, (v,), (0,))
L.tensordot(x, x.t(), v)
L.addmm(x @ x.t(), x, x.t(), beta=v, alpha=v)
L.lerp(x, x + 1, v)
L.isclose(x, x, v)
L.allclose(x, x, v)
L.nan_to_num(x, v)
L.histc(x, v)
L.bincount(i.view(-1), minlength=v)
L.one_hot(i, v + 9)
L.quantile(x, 0.5, v)
L.renorm(x, 2, v, v)
L.cdist(x, x, v)
L.rot90(x, v)
L.vander(x[0], v)
L.fft.fft(x, dim=v)
L.fft.fft(x, v)
L.linalg.norm(x, v)
L.linalg.vector_norm(x, v)
L.linalg.matrix_power(x @ x.t(), v)
L.nn.functional.relu(x, v)
F.leaky_relu(x, v)
F.elu(x, v)
F.softplus(x, v)
F.threshold(x, v, v)
F.hardtanh(x, 0, v)
F.dropout(x, v, False)
F.layer_norm(x, (3,), eps=v)
F.layer_norm(x, (v + 2,))
F.group_norm(x, v)
F.normalize(x, v)
F.normalize(x, 2, v)
F.pad(x, (v, v))
F.pad(x, (1, 1), value=v)
F.conv1d(x[None], L.ones(1, 2, 2), padding=v)
F.conv1d(x[None], L.ones(1, 2, 2), stride=(v,))
F.conv2d(x[None, None], L.ones(1, 1, 1, 1), padding=(v, 0))
F.max_pool1d(x, v)
F.max_pool2d(x[None], (v, 2))
F.avg_pool1d(x, v)
F.avg_pool2d(x[None], 2, v)
F.adaptive_avg_pool1d(x, v)
F.adaptive_avg_pool2d(x[None], (v, 2))
F.interpolate(x[None], size=v)
F.interpolate(x[None], scale_factor=v)
F.interpolate(x[None, None], size=(v, 2))
F.pixel_shuffle(x[None, :, :], v)
F.cross_entropy(x, L.tensor([0, 1]), label_smoothing=v)
F.cross_entropy(x, L.tensor([0, 1]), ignore_index=v)
F.smooth_l1_loss(x, x + 1, beta=v)
F.huber_loss(x, x + 1, delta=v)
F.glu(L.cat([x, x], 1), v)
F.cosine_similarity(x, x, v)
F.one_hot(i, v + 9)
F.embedding(i, L.ones(9, 2), v)
F.unfold(x[None, None], v)
F.log_softmax(x, v)
F.softmax(x, dim=v)
L.nn.Linear(v, 2).weight.shape
L.nn.Conv1d(2, v, v).weight.shape
L.nn.Flatten(v)(x)
L.nn.LayerNorm(v).weight
L.nn.Embedding(v, 2).weight.shape
L.nn.Softmax(v)(x)
L.nn.LeakyReLU(v)(x)
L.nn.MaxPool1d(v)(x)
L.nn.BatchNorm1d(v).weight
""".strip().splitlines()

GROUPS = {"Size": None, "namedtuple": Pair(3, 2), "tuple": Sizes((3, 2)), "list": type("L", (list,), {})([3, 2]),
          "IntEnums": (3, Whole.ONE), "range": range(3, 1, -1),
          "array": np.array([3, 2]), "deque": collections.deque([3, 2])}
GROUP_PLACES = """
L.zeros(v)
L.zeros(*v)
L.full(v, 1.0)
x.reshape(v)
x.reshape(*v)
x.view(v)
x[0, :1].expand(v)
x.repeat(v)
x.repeat(*v)
x.new_zeros(v)
x.resize_(v)
L.randn(v).shape
L.empty(size=v).shape
x.sum([n - 2 for n in v])
F.pad(x, v)
F.interpolate(x[None, None], v)
F.adaptive_avg_pool2d(x[None], v)
F.max_pool2d(x[None].repeat(1, 3, 3), v)
L.ones(6).unflatten(0, v)
L.broadcast_to(x[0, :1], v)
x.tile(v)
L.ones(v).permute(0, 1)
F.layer_norm(L.ones(v), v)
L.nn.LayerNorm(v).weight
L.nn.Conv2d(1, 1, v).weight.shape
""".strip().splitlines()

WORDS = """
F.mse_loss(x, x + 1, reduction=v(Word.MEAN))
F.cross_entropy(x, L.tensor([0, 1]), reduction=v(Word.MEAN))
F.pad(x, (1, 1), v(Word.CONSTANT))
L.div(x, 2, rounding_mode=v(Word.FLOOR))
x.div_(2, rounding_mode=v(Word.FLOOR))
L.nn.MSELoss(reduction=v(Word.MEAN))(x, x + 1)
L.einsum(v("ij->ji"), x)
L.linalg.norm(x, v("fro"))
x.to(v("cpu"))
L.zeros(2, device=v("cpu"))
L.device(v("cpu")).type
L.scatter_reduce(x, 0, i[:1] * 0, x, v("sum"))
L.nn.functional.gelu(x, approximate=v("tanh"))
L.meshgrid(x[0], x[0], indexing=v("ij"))[0]
""".strip().splitlines()


# What PyTorch takes and is refused here: an object with __index__ alone, other than among sizes and dimensions, and
# sizes that are neither a tuple nor a list. NumPy's bools are floats in PyTorch's arithmetic, which is an accident.
REFUSED = {("__index__", "x.narrow(0, v, v)"), ("__index__", "x.select(0, v)"), ("__index__", "L.fft.fft(x, v)"),
           ("range", "F.adaptive_avg_pool2d(x[None], v)"), ("array", "F.adaptive_avg_pool2d(x[None], v)"),
           ("deque", "F.adaptive_avg_pool2d(x[None], v)"), ("array", "L.nn.LayerNorm(v).weight")}


def told(lib, place, v):
    """The result and the tensors it was made of as plain data, or what kind of refusal there is."""
    lib.manual_seed(0)
    x = lib.arange(6.0).reshape(2, 3)
    i = lib.arange(6).reshape(2, 3)
    around = {"L": lib, "F": lib.nn.functional, "x": x, "i": i, "v": v, "Word": Word}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(lib, [eval(place, around), x, i])
        except Exception as error:
            return type(error).__name__


def plain(lib, made):
    if isinstance(made, lib.Tensor):
        return str(made.dtype), list(made.shape), made.detach().tolist()
    return [plain(lib, one) for one in made] if isinstance(made, (list, tuple)) else made


def same(theirs, mine):
    if isinstance(theirs, (list, tuple)):
        return isinstance(mine, (list, tuple)) and len(theirs) == len(mine) and all(map(same, theirs, mine))
    return mine == pytest.approx(theirs, rel=1e-5, nan_ok=True) if isinstance(theirs, float) else theirs == mine


def differing(name, places, of):
    """The places where PyTorch takes what `of(lib)` gives, and Flambeau does not, or with another result."""
    answers = {place: (told(torch, place, of(torch)), told(fb, place, of(fb))) for place in places}
    return {place: answer for place, answer in answers.items() if not isinstance(answer[0], str)
            and not same(*answer) and (name, place) not in REFUSED}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    assert not differing(name, PLACES, lambda lib: NUMBERS[name])


@pytest.mark.parametrize("name", GROUPS)
def test_sizes(name):
    assert not differing(name, GROUP_PLACES, lambda lib: lib.Size((3, 2)) if name == "Size" else GROUPS[name])


@pytest.mark.parametrize("as_word", [lambda word: word, lambda word: Names(getattr(word, "value", word))],
                         ids=["enum", "str"])
def test_words(as_word):
    assert not differing("", WORDS, lambda lib: as_word)
