"""Linear layers, activations, dropout, flattening and tables: values from NumPy, defaults, text and refusals."""
import math

import numpy as np
import pytest
from scipy import special

import flambeau as torch
from flambeau import nn


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def array(tensor):
    return tensor.detach().numpy()


X = np.linspace(-4, 4, 24, dtype=np.float32).reshape(2, 12)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805      # Klambauer et al., 2017
ACTIVATIONS = [
    (nn.ReLU(), lambda x: np.maximum(x, 0), "ReLU()"),
    (nn.ReLU(True), lambda x: np.maximum(x, 0), "ReLU(inplace=True)"),
    (nn.ReLU6(), lambda x: np.clip(x, 0, 6), "ReLU6()"),
    (nn.ReLU6(inplace=True), lambda x: np.clip(x, 0, 6), "ReLU6(inplace=True)"),
    (nn.Hardtanh(), lambda x: np.clip(x, -1, 1), "Hardtanh(min_val=-1.0, max_val=1.0)"),
    (nn.Hardtanh(-2, 0.5, True), lambda x: np.clip(x, -2, 0.5), "Hardtanh(min_val=-2, max_val=0.5, inplace=True)"),
    (nn.Threshold(0.1, 20), lambda x: np.where(x > 0.1, x, 20), "Threshold(threshold=0.1, value=20)"),
    (nn.LeakyReLU(), lambda x: np.where(x > 0, x, 0.01 * x), "LeakyReLU(negative_slope=0.01)"),
    (nn.LeakyReLU(0.2, True), lambda x: np.where(x > 0, x, 0.2 * x), "LeakyReLU(negative_slope=0.2, inplace=True)"),
    (nn.ELU(0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), "ELU(alpha=0.5)"),
    (nn.CELU(0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5)), "CELU(alpha=0.5)"),
    (nn.SELU(), lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(x)), "SELU()"),
    (nn.PReLU(), lambda x: np.where(x > 0, x, 0.25 * x), "PReLU(num_parameters=1)"),
    (nn.PReLU(12, 0.5), lambda x: np.where(x > 0, x, 0.5 * x), "PReLU(num_parameters=12)"),
    (nn.RReLU().eval(), lambda x: np.where(x > 0, x, 11 / 48 * x), "RReLU(lower=0.125, upper=0.3333333333333333)"),
    (nn.Sigmoid(), special.expit, "Sigmoid()"),
    (nn.LogSigmoid(), special.log_expit, "LogSigmoid()"),
    (nn.Hardsigmoid(True), lambda x: np.clip(x / 6 + 0.5, 0, 1), "Hardsigmoid()"),
    (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "Hardswish()"),
    (nn.Tanh(), np.tanh, "Tanh()"),
    (nn.Tanhshrink(), lambda x: x - np.tanh(x), "Tanhshrink()"),
    (nn.SiLU(), lambda x: x * special.expit(x), "SiLU()"),
    (nn.Mish(True), lambda x: x * np.tanh(np.log1p(np.exp(x))), "Mish(inplace=True)"),
    (nn.GELU(), lambda x: x * special.ndtr(x), "GELU(approximate='none')"),
    (nn.GELU("tanh"), lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
     "GELU(approximate='tanh')"),
    (nn.Softplus(), lambda x: np.log1p(np.exp(x)), "Softplus(beta=1.0, threshold=20.0)"),
    (nn.Softplus(2, 3), lambda x: np.where(2 * x > 3, x, np.log1p(np.exp(2 * x)) / 2), "Softplus(beta=2, threshold=3)"),
    (nn.Softsign(), lambda x: x / (1 + abs(x)), "Softsign()"),
    (nn.Hardshrink(0.7), lambda x: np.where(abs(x) > 0.7, x, 0), "Hardshrink(0.7)"),
    (nn.Softshrink(), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0), "Softshrink(0.5)"),
    (nn.GLU(), lambda x: x[:, :6] * special.expit(x[:, 6:]), "GLU(dim=-1)"),
    (nn.Softmax(1), lambda x: softmax(x, 1), "Softmax(dim=1)"),
    (nn.Softmin(0), lambda x: softmax(-x, 0), "Softmin(dim=0)"),
    (nn.LogSoftmax(-1), lambda x: np.log(softmax(x, -1)), "LogSoftmax(dim=-1)"),
]


@pytest.mark.parametrize("layer, formula, text", ACTIVATIONS, ids=[text for *_, text in ACTIVATIONS])
def test_activations(layer, formula, text):
    x = torch.tensor(X)
    out = layer(x)
    np.testing.assert_allclose(array(out), formula(X.astype(np.float64)), rtol=2e-5, atol=1e-6)
    assert repr(layer) == text
    assert (out is x) == bool(getattr(layer, "inplace", False))


def test_softmax_without_a_dimension():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax has been deprecated"):
        out = nn.Softmax()(torch.tensor(X))
    np.testing.assert_allclose(array(out).sum(1), 1, rtol=1e-5)
    assert repr(nn.Softmax()) == "Softmax(dim=None)"


def test_softmax2d():
    x = torch.randn(2, 3, 4, 5)
    np.testing.assert_allclose(array(nn.Softmax2d()(x)), softmax(array(x), 1), rtol=1e-5)
    np.testing.assert_allclose(array(nn.Softmax2d()(x[0])), softmax(array(x[0]), 0), rtol=1e-5)
    with pytest.raises(ValueError, match="expected input to be 3D or 4D, got 2D instead"):
        nn.Softmax2d()(x[0, 0])


def test_rrelu_draws_slopes_in_training():
    layer = nn.RReLU(0.1, 0.3)
    x = torch.tensor(X, requires_grad=True)
    out = layer(x)
    slopes = array(out) / X
    assert (slopes[X > 0] == 1).all() and slopes[X < 0].min() >= 0.1 - 1e-6 and slopes[X < 0].max() <= 0.3 + 1e-6
    assert len(set(slopes[X < 0].tolist())) > 6
    out.sum().backward()
    np.testing.assert_allclose(array(x.grad), slopes, rtol=1e-5)


def test_hardtanh_refuses_and_renames():
    with pytest.raises(AssertionError, match=r"max_val \(1\) must be greater than min_val \(2\)"):
        nn.Hardtanh(2, 1)
    with pytest.warns(FutureWarning, match="`min_value` is deprecated and renamed to `min_val`"):
        assert nn.Hardtanh(min_value=-3.0).min_val == -3.0


def test_prelu_learns():
    layer = nn.PReLU(12)
    layer(torch.tensor(X)).sum().backward()
    np.testing.assert_allclose(array(layer.weight.grad), np.minimum(X, 0).sum(0), rtol=1e-5)


# --- linear -----------------------------------------------------------------------------------------------------------


def test_linear():
    layer = nn.Linear(12, 5)
    assert layer.weight.shape == (5, 12) and layer.bias.shape == (5,)
    w, b, x = array(layer.weight), array(layer.bias), torch.tensor(X, requires_grad=True)
    np.testing.assert_allclose(array(layer(x)), X @ w.T + b, rtol=1e-4, atol=1e-5)
    layer(x).sum().backward()
    np.testing.assert_allclose(array(x.grad), np.tile(w.sum(0), (2, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(array(layer.weight.grad), np.tile(X.sum(0), (5, 1)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(array(layer.bias.grad), np.full(5, 2.0))
    assert repr(layer) == "Linear(in_features=12, out_features=5, bias=True)"
    plain = nn.Linear(12, 5, bias=False)
    assert plain.bias is None and list(plain.state_dict()) == ["weight"] and repr(plain).endswith("bias=False)")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layer(torch.ones(2, 7))


def test_linear_starts_within_its_bound():
    layer = nn.Linear(400, 300)
    for p in layer.parameters():
        assert 0.95 / 20 < array(p).max() <= 1 / 20 and -1 / 20 <= array(p).min() < -0.95 / 20
    assert nn.Linear(3, 2, dtype=torch.float64).weight.dtype is torch.float64
    assert nn.Linear(3, 2, device="meta").weight.is_meta
    before = array(layer.weight).copy()
    layer.reset_parameters()
    assert abs(array(layer.weight) - before).max() > 0.01
    with pytest.warns(UserWarning, match="zero-element"):
        assert nn.Linear(0, 3)(torch.ones(2, 0)).tolist() == [[0.0] * 3] * 2


def test_bilinear():
    layer = nn.Bilinear(3, 4, 5)
    x, y = torch.randn(6, 3), torch.randn(6, 4)
    want = np.einsum("ni,kij,nj->nk", array(x), array(layer.weight), array(y)) + array(layer.bias)
    np.testing.assert_allclose(array(layer(x, y)), want, rtol=1e-4, atol=1e-5)
    assert abs(array(layer.weight)).max() <= 3 ** -0.5
    assert repr(layer) == "Bilinear(in1_features=3, in2_features=4, out_features=5, bias=True)"
    assert nn.Bilinear(3, 4, 5, bias=False).bias is None
    with pytest.raises(ValueError, match=r"in1_features must be > 0, but got \(in1_features=0\)"):
        nn.Bilinear(0, 4, 5)


def test_identity():
    x = torch.ones(1)
    assert nn.Identity(3, unused=True)(x) is x and repr(nn.Identity(3)) == "Identity()"


# --- dropout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, shape", [(nn.Dropout, (40, 50)), (nn.Dropout1d, (20, 30, 7)),
                                         (nn.Dropout2d, (20, 30, 3, 4)), (nn.Dropout3d, (20, 30, 2, 2, 2))])
def test_dropout(kind, shape):
    layer, x = kind(0.3), torch.ones(shape, requires_grad=True)
    out = array(layer(x))
    assert set(np.unique(out)) == {0.0, np.float32(1 / 0.7)}
    channels = out if kind is nn.Dropout else out.reshape(*shape[:2], -1)
    if kind is not nn.Dropout:
        assert (channels == channels[..., :1]).all()                   # a channel goes as a whole
        channels = channels[..., 0]
    assert abs((channels == 0).mean() - 0.3) < 0.1
    assert array(layer.eval()(x)).min() == 1
    assert repr(layer) == f"{kind.__name__}(p=0.3, inplace=False)"
    assert (array(kind(1.0)(x)) == 0).all() and (array(kind(0.0)(x)) == 1).all()


def test_dropout_has_the_gradient_of_its_mask():
    layer, x = nn.Dropout(0.5), torch.full((30,), 3.0, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    np.testing.assert_allclose(array(x.grad), array(out) / 3)
    y = torch.ones(30)
    assert nn.Dropout(0.5, inplace=True)(y) is y and 0 < (array(y) == 0).mean() < 1


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(kind):
    x = torch.randn(400, 300, 2)
    out = array(kind(0.2)(x))
    assert out.mean() == pytest.approx(0, abs=0.02) and out.std() == pytest.approx(1, abs=0.02)
    assert kind(0.2).eval()(x) is x or (array(kind(0.2).eval()(x)) == array(x)).all()


def test_dropout_refuses():
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match=f"dropout probability has to be between 0 and 1, but got {p}"):
            nn.Dropout(p)


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_flatten_and_unflatten():
    x = torch.arange(24).reshape(2, 3, 4)
    assert nn.Flatten()(x).tolist() == array(x).reshape(2, 12).tolist()
    assert nn.Flatten(0, 1)(x).shape == (6, 4) and repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"
    assert nn.Unflatten(1, (3, 4))(nn.Flatten()(x)).tolist() == x.tolist()
    assert nn.Unflatten(-1, [2, -1])(x).shape == (2, 3, 2, 2)
    assert repr(nn.Unflatten(1, (3, 4))) == "Unflatten(dim=1, unflattened_size=(3, 4))"
    with pytest.raises(TypeError, match="must be a tuple of ints, but found type int"):
        nn.Unflatten(1, 3)
    with pytest.raises(TypeError, match="found element of type float at pos 1"):
        nn.Unflatten(1, (3, 4.0))


# --- tables -----------------------------------------------------------------------------------------------------------

INDEX = np.array([[1, 2, 4], [4, 3, 2]])


def test_embedding():
    table = nn.Embedding(6, 3, padding_idx=2)
    w = array(table.weight)
    assert (w[2] == 0).all() and (w[[0, 1, 3]] != 0).all()
    out = table(torch.tensor(INDEX))
    np.testing.assert_allclose(array(out), w[INDEX])
    out.sum().backward()
    np.testing.assert_allclose(array(table.weight.grad)[:, 0], [0, 1, 0, 1, 2, 0])
    assert repr(table) == "Embedding(6, 3, padding_idx=2)" and nn.Embedding(6, 3, padding_idx=-1).padding_idx == 5
    text = "Embedding(6, 3, max_norm=0.5, norm_type=1.0, scale_grad_by_freq=True)"
    assert repr(nn.Embedding(6, 3, None, 0.5, 1.0, True)) == text
    with pytest.raises(IndexError, match="index out of range in self"):
        table(torch.tensor([6]))


def test_embedding_shortens_rows():
    table = nn.Embedding(6, 3, max_norm=0.5)
    before = array(table.weight).copy()
    out = array(table(torch.tensor([1, 4])))
    assert (np.linalg.norm(out, axis=1) <= 0.5 + 1e-6).all()
    np.testing.assert_allclose(array(table.weight)[[0, 2, 3, 5]], before[[0, 2, 3, 5]])
    np.testing.assert_allclose(array(table.weight)[[1, 4]], out)


def test_embedding_from_numbers():
    given = torch.randn(4, 2)
    table = nn.Embedding.from_pretrained(given)
    assert not table.weight.requires_grad and (table.num_embeddings, table.embedding_dim) == (4, 2)
    np.testing.assert_allclose(array(table.weight), array(given))
    assert nn.Embedding.from_pretrained(given, freeze=False, padding_idx=1).weight.requires_grad
    with pytest.raises(AssertionError, match="2-dimensional"):
        nn.Embedding.from_pretrained(torch.ones(3))
    with pytest.raises(AssertionError, match="Shape of weight does not match num_embeddings and embedding_dim"):
        nn.Embedding(5, 2, _weight=given)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_tables_refuse(kind):
    for padding in (4, -5):
        with pytest.raises(AssertionError, match="must be within num_embeddings"):
            kind(4, 2, padding_idx=padding)
    with pytest.raises(NotImplementedError, match="no sparse gradients"):
        kind(4, 2, sparse=True)


@pytest.mark.parametrize("mode, reduce", [("sum", np.sum), ("mean", np.mean), ("max", np.max)])
def test_bags(mode, reduce):
    bags = nn.EmbeddingBag(6, 3, mode=mode)
    w = array(bags.weight)
    flat, offsets = torch.tensor([1, 2, 4, 4, 3]), torch.tensor([0, 2])
    want = np.stack([reduce(w[[1, 2]], axis=0), reduce(w[[4, 4, 3]], axis=0)])
    np.testing.assert_allclose(array(bags(flat, offsets)), want, rtol=1e-6)
    np.testing.assert_allclose(array(bags(torch.tensor(INDEX))), reduce(w[INDEX], axis=1), rtol=1e-6)
    ended = nn.EmbeddingBag.from_pretrained(bags.weight, mode=mode, include_last_offset=True)
    np.testing.assert_allclose(array(ended(flat, torch.tensor([0, 2, 5]))), want, rtol=1e-6)
    assert not ended.weight.requires_grad
    assert repr(bags) == f"EmbeddingBag(6, 3, mode='{mode}')"


def test_bags_with_weights_and_padding():
    bags = nn.EmbeddingBag(6, 3, mode="sum", padding_idx=4)
    w = array(bags.weight)
    assert (w[4] == 0).all() and repr(bags) == "EmbeddingBag(6, 3, mode='sum', padding_idx=4)"
    weights = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    out = bags(torch.tensor(INDEX), per_sample_weights=torch.tensor(weights))
    np.testing.assert_allclose(array(out), (w[INDEX] * weights[..., None]).sum(1), rtol=1e-5)
    out.sum().backward()
    np.testing.assert_allclose(array(bags.weight.grad)[:, 0], [0, 1, 8, 5, 0, 0])


# --- helpers ----------------------------------------------------------------------------------------------------------


def test_helpers():
    utils = nn.modules.utils
    assert utils._pair(3) == (3, 3) and utils._triple([1, 2, 3]) == (1, 2, 3) and utils._single(range(2)) == (0, 1)
    assert utils._quadruple(1) == (1, 1, 1, 1) and utils._pair.__name__ == "_pair"
    assert utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert utils._list_with_default([None, 5], [7, 8, 9]) == [8, 5] and utils._list_with_default(3, [1]) == 3
    with pytest.raises(ValueError, match="Input dimension should be at least 3"):
        utils._list_with_default([1, 2], [7, 8])


def test_a_prefix_is_taken_off():
    state = nn.ModuleDict({"module": nn.Linear(2, 2)}).state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["weight", "bias"] and list(state._metadata) == [""]
    nn.Linear(2, 2).load_state_dict(state)


def test_linear_asks_whoever_stands_in_for_its_parameters():
    x = torch.ones(1, 2)

    class Doubled(nn.Linear):
        def __getattr__(self, name):
            return 2 * super().__getattr__(name) if name == "weight" else super().__getattr__(name)

    class Tripled(nn.Linear):
        is_made = False

        def __getattribute__(self, name):
            if name == "weight" and Tripled.is_made:
                return torch.full((1, 2), 3.0)
            return super().__getattribute__(name)

    for kind, factor in ((nn.Linear, 1), (Doubled, 2), (Tripled, 3)):
        layer = kind(2, 1)
        with torch.no_grad():
            layer._parameters["weight"].fill_(1.0)
            layer._parameters["bias"].fill_(0.5)
        Tripled.is_made = kind is Tripled
        assert layer(x).item() == 2 * factor + 0.5
    layer = nn.Linear(2, 1)
    layer.__dict__["weight"] = torch.full((1, 2), 5.0)
    assert layer(x).item() == pytest.approx(10 + layer.bias.item())
    layer = nn.Linear(2, 1)
    del layer._parameters["bias"]
    layer.bias = None
    assert layer(x).item() == pytest.approx(layer.weight.sum().item())
