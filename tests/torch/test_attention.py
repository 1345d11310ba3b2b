"""Attention and transformers beside PyTorch's: initial weights, outputs, gradients, masks, dropout, refusals."""
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.attention.bias")             # PyTorch does not import it itself

from .pairs import agree, both_refuse, both_warn, total, trained

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

# --- scaled_dot_product_attention -------------------------------------------------------------------------------------

SHAPES = {
    "heads": ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 7)),
    "batch": ((4, 5, 8), (4, 6, 8), (4, 6, 8)),
    "one": ((5, 8), (6, 8), (6, 7)),
    "broadcast": ((2, 4, 5, 8), (1, 4, 6, 8), (2, 1, 6, 7)),
    "grouped": ((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 7)),
    "grouped apart": ((2, 4, 5, 8), (2, 2, 6, 8), (2, 4, 6, 7)),
    "five": ((2, 3, 4, 5, 8), (2, 3, 2, 6, 8), (2, 3, 2, 6, 7)),
}
MASKS = {
    "none": (),
    "bool": ((5, 6), "bool"),
    "numbers": ((5, 6), "numbers"),
    "padding": ((2, 1, 1, 6), "bool"),
    "full": ((2, 4, 5, 6), "numbers"),
}
CASES = [(shapes, mask, options) for shapes in ("heads", "batch", "one", "grouped", "five")
         for mask, options in (("none", {}), ("none", dict(is_causal=True)), ("none", dict(dropout_p=0.4)),
                               ("bool", {}), ("numbers", dict(scale=0.3)), ("numbers", dict(dropout_p=0.4)))]
CASES += [(shapes, mask, {}) for shapes in ("heads", "broadcast", "grouped", "grouped apart")
          for mask in ("padding", "full")]
CASES += [("heads", "none", dict(scale=-0.5)), ("heads", "none", dict(dropout_p=1.0)), ("broadcast", "none", {})]


def attention(lib, shapes, mask, options, dtype="float32"):
    """(result, the leaves it came from)"""
    dtype = getattr(lib, dtype)
    leaves = [lib.randn(shape, dtype=dtype, requires_grad=True) for shape in SHAPES[shapes]]
    given = None
    if MASKS[mask]:
        shape, kind = MASKS[mask]
        if kind == "bool":
            given = lib.rand(shape) > 0.4
            given[..., 1:2, :] = False                     # a query that sees nothing gets zeros
        else:
            given = lib.randn(shape, dtype=dtype, requires_grad=True)
            leaves.append(given)
    gqa = dict(enable_gqa=True) if shapes.startswith(("grouped", "five")) else {}
    return lib.nn.functional.scaled_dot_product_attention(*leaves[:3], given, **options, **gqa), leaves


@pytest.mark.parametrize("shapes, mask, options", CASES)
def test_attention(shapes, mask, options):
    def program(lib):
        out, leaves = attention(lib, shapes, mask, options)
        return [out, lib.autograd.grad(total(out), leaves)]
    agree(program, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shapes, mask, options", [
    ("heads", "none", {}), ("heads", "none", dict(is_causal=True)), ("one", "numbers", dict(dropout_p=0.4)),
    ("grouped", "full", {}), ("broadcast", "padding", {})])
def test_second_gradient(shapes, mask, options):
    def program(lib):
        # PyTorch's flash kernel has no second derivative
        with lib.nn.attention.sdpa_kernel(lib.nn.attention.SDPBackend.MATH):
            out, leaves = attention(lib, shapes, mask, options, "float64")
        first = lib.autograd.grad(total(out), leaves, create_graph=True)
        return lib.autograd.grad(total(*first), leaves)
    agree(program, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 2e-2), ("float16", 3e-3)])
@pytest.mark.parametrize("options", [{}, dict(is_causal=True), dict(dropout_p=0.4)])
def test_half(dtype, tolerance, options):
    def program(lib):
        q, k, v = [lib.randn(2, 4, 6, 8).to(getattr(lib, dtype)).requires_grad_() for _ in range(3)]
        out = lib.nn.functional.scaled_dot_product_attention(q, k, v, **options)
        mask = lib.zeros(6, 6).triu_(1)                    # float32 beside half
        return [out, lib.autograd.grad(out.float().sum(), (q, k, v)),
                lib.nn.functional.scaled_dot_product_attention(q, k, v, mask)]
    agree(program, rtol=tolerance, atol=tolerance)


def test_nothing_to_attend_to():
    def program(lib):
        f = lib.nn.functional.scaled_dot_product_attention
        q, k = lib.randn(2, 3, 4), lib.randn(2, 5, 4)
        return [f(q[:, :0], k, k), f(q, k[:, :0], k[:, :0]), f(q[..., :0], k[..., :0], k)]
    agree(program)


def test_causal_biases():
    def program(lib):
        q, k = lib.randn(2, 3, 8), lib.randn(2, 5, 8)
        bias = lib.nn.attention.bias
        f = lib.nn.functional.scaled_dot_product_attention
        # PyTorch's own class shows its mask, but does not compute with it; so the plain mask is compared too
        lower, upper = bias.causal_lower_right(3, 5), bias.causal_upper_left(3, 5)
        return [repr(lower), lower._materialize(), upper._materialize(), f(q, k, k, lower), f(q, k, k, upper),
                lower.seq_len_q, lower.variant]
    agree(program)


# --- multi-head attention ---------------------------------------------------------------------------------------------

HEADS = {
    "plain": {}, "batch first": dict(batch_first=True), "no bias": dict(bias=False), "sizes": dict(kdim=6, vdim=10),
    "extra": dict(add_bias_kv=True, add_zero_attn=True), "dropout": dict(dropout=0.5, batch_first=True),
    "all": dict(dropout=0.3, add_bias_kv=True, add_zero_attn=True, kdim=6, vdim=10, bias=False),
}


def masks(lib, attn, padding, kind):
    """(attention mask, padding mask) for 5 queries, 7 keys, 3 samples, 2 heads; None for what is not asked."""
    made = []
    for shape in ({"": None, "2": (5, 7), "3": (6, 5, 7)}[attn], (3, 7) if padding else None):
        mask = None
        if shape is not None:
            mask = lib.rand(shape) > 0.6
            mask[..., 0] = False
            if kind == "numbers":
                mask = lib.randn(shape).masked_fill(mask, -float("inf"))
        made.append(mask)
    return made


@pytest.mark.parametrize("options", HEADS)
@pytest.mark.parametrize("attn, padding, kind", [("", False, "bool"), ("2", True, "bool"), ("3", False, "numbers"),
                                                 ("3", True, "numbers"), ("", True, "bool")])
def test_heads(options, attn, padding, kind):
    def program(lib):
        module = lib.nn.MultiheadAttention(8, 2, **HEADS[options])
        shape = lambda steps, width: (3, steps, width) if module.batch_first else (steps, 3, width)
        q, k = lib.randn(shape(5, 8), requires_grad=True), lib.randn(shape(7, module.kdim), requires_grad=True)
        v = lib.randn(shape(7, module.vdim), requires_grad=True)
        attn_mask, padding_mask = masks(lib, attn, padding, kind)
        given = dict(attn_mask=attn_mask, key_padding_mask=padding_mask)
        out, weights = module(q, k, v, **given)
        each = module(q, k, v, average_attn_weights=False, **given)
        alone, none = module(q, k, v, need_weights=False, **given)
        grads = trained(lib, module, total(out, weights, alone), q, k, v)
        return [repr(module), dict(module.state_dict()), out, weights, each, alone, none, grads]
    agree(program, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("batch_first", [False, True])
def test_heads_over_one_tensor(batch_first):
    """Self-attention, and keys that are the values, go through one product each."""
    def program(lib):
        module = lib.nn.MultiheadAttention(8, 2, batch_first=batch_first)
        x, y = lib.randn(5, 5, 8, requires_grad=True), lib.randn(5, 5, 8, requires_grad=True)
        hidden = lib.ones(5, 5, dtype=lib.bool).triu(1)
        out, weights = module(x, x, x, attn_mask=hidden)
        across, _ = module(x, y, y)
        hinted, _ = module(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)
        one, shown = module(x[0], x[0], x[0])
        one_masked, _ = module(x[0], y[0], y[0], key_padding_mask=hidden[3], attn_mask=hidden.expand(2, 5, 5))
        grads = trained(lib, module, total(out, weights, across, hinted, one), x, y)
        return [out, weights, across, hinted, one, shown, one_masked, grads]
    agree(program, rtol=2e-4, atol=2e-5)


def test_queries_that_see_nothing():
    """NaN where the weights are wanted, zeros where they are not: PyTorch's two ways."""
    def program(lib):
        module = lib.nn.MultiheadAttention(8, 2)
        x = lib.randn(3, 2, 8)
        hidden = lib.ones(2, 3, dtype=lib.bool)
        return [module(x, x, x, key_padding_mask=hidden), module(x, x, x, key_padding_mask=hidden, need_weights=False)]
    agree(program)


def test_merge_masks():
    def program(lib):
        module, x = lib.nn.MultiheadAttention(8, 2), lib.zeros(3, 4, 8)
        attn, padding = lib.rand(4, 4) > 0.5, lib.rand(3, 4) > 0.5
        wide = lib.rand(6, 4, 4)
        cases = (None, None), (attn, None), (None, padding), (attn, padding), (wide, None)
        return [module.merge_masks(*given, x) for given in cases]
    agree(program)


# --- transformers -----------------------------------------------------------------------------------------------------

LAYERS = {
    "plain": {}, "norm first": dict(norm_first=True, batch_first=True), "gelu": dict(activation="gelu", bias=False),
    "dropout": dict(dropout=0.4, batch_first=True), "callable": dict(activation=lambda x: x * 0.5, layer_norm_eps=1e-2),
}


def layer_options(lib, options):
    given = dict(dropout=0.0, dim_feedforward=16)
    given.update(LAYERS[options])
    return given


@pytest.mark.parametrize("options", LAYERS)
def test_encoder_layer(options):
    def program(lib):
        layer = lib.nn.TransformerEncoderLayer(8, 2, **layer_options(lib, options))
        x = lib.randn(3, 3, 8, requires_grad=True)
        hidden = lib.nn.Transformer.generate_square_subsequent_mask(3)
        padding = lib.tensor([[False, False, True]] * 3)
        outs = [layer(x), layer(x, hidden), layer(x, hidden, is_causal=True), layer(x, src_key_padding_mask=padding),
                layer(x[0])]
        layer.eval()
        with lib.no_grad():
            outs.append(layer(x, src_key_padding_mask=padding))
        return [repr(layer), dict(layer.state_dict()), hidden, outs, trained(lib, layer, total(*outs[:4]), x)]
    agree(program, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("options", LAYERS)
def test_decoder_layer(options):
    def program(lib):
        layer = lib.nn.TransformerDecoderLayer(8, 2, **layer_options(lib, options))
        x, memory = lib.randn(3, 3, 8, requires_grad=True), lib.randn(3, 3, 8, requires_grad=True)
        hidden = lib.nn.Transformer.generate_square_subsequent_mask(3)
        padding = lib.tensor([[False, False, True]] * 3)
        less = padding.float() * -9.0
        outs = [layer(x, memory), layer(x, memory, hidden, tgt_is_causal=True),
                layer(x, memory, hidden, hidden, less, less), layer(x[0], memory[0])]
        return [repr(layer), dict(layer.state_dict()), outs, trained(lib, layer, total(*outs), x, memory)]
    agree(program, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("batch_first", [False, True])
def test_stacks(batch_first):
    def program(lib):
        layer = lib.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=batch_first)
        encoder = lib.nn.TransformerEncoder(layer, 2, lib.nn.LayerNorm(8), enable_nested_tensor=False)
        decoder = lib.nn.TransformerDecoder(lib.nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=batch_first), 2)
        x = lib.randn(4, 4, 8, requires_grad=True)
        hidden = lib.nn.Transformer.generate_square_subsequent_mask(4)
        memory = encoder(x, hidden)
        out = decoder(x, memory, hidden)
        same = encoder(x, hidden, is_causal=True), decoder(x, memory, hidden, tgt_is_causal=True)
        grads = trained(lib, lib.nn.ModuleList([encoder, decoder]), total(memory, out), x)
        return [repr(encoder), repr(decoder), memory, out, same, grads]
    agree(program, rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize("padding", [[[0, 0, 1, 1], [0, 0, 0, 0]], [[0, 1, 0, 1], [0, 0, 0, 1]]])
def test_padding_without_gradients(padding):
    """PyTorch runs nested tensors here, and leaves zeros at the padded places if they come last."""
    def program(lib):
        layer = lib.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        stacks = [lib.nn.TransformerEncoder(layer, 2).eval(),
                  lib.nn.TransformerEncoder(layer, 1, lib.nn.LayerNorm(8)).eval()]
        x, hidden = lib.randn(2, 4, 8), lib.tensor(padding).bool()
        with lib.no_grad():
            outs = [stack(x, src_key_padding_mask=hidden) for stack in stacks]
            outs.append(stacks[0](x, lib.zeros(4, 4, dtype=lib.bool), hidden))
        return [outs, stacks[0](x, src_key_padding_mask=hidden)]
    agree(program, rtol=2e-4, atol=2e-5)


def test_transformer():
    def program(lib):
        model = lib.nn.Transformer(8, 2, 2, 1, 16, 0.2, batch_first=True, norm_first=True)
        src, tgt = lib.randn(3, 5, 8, requires_grad=True), lib.randn(3, 4, 8, requires_grad=True)
        hidden = model.generate_square_subsequent_mask(4)
        padding = lib.zeros(3, 5, dtype=lib.bool)
        padding[:, 3:] = True
        out = model(src, tgt, tgt_mask=hidden, src_key_padding_mask=padding, memory_key_padding_mask=padding)
        made = [repr(model), dict(model.state_dict()), out, trained(lib, model, total(out), src, tgt),
                model.eval()(src[0], tgt[0])]
        custom = lib.nn.Transformer(8, 2, custom_encoder=model.encoder, custom_decoder=model.decoder, batch_first=True)
        return [*made, custom(src, tgt)]
    agree(program, rtol=5e-4, atol=5e-5)


# --- refusals ---------------------------------------------------------------------------------------------------------

zeros = lambda lib, shapes: [lib.zeros(shape) for shape in shapes]
sdpa = lambda lib, *shapes, **more: lib.nn.functional.scaled_dot_product_attention(*zeros(lib, shapes), **more)
heads = lambda lib, *shapes, **more: lib.nn.MultiheadAttention(8, 2)(*zeros(lib, shapes), **more)
Q, K = (2, 3, 8), (2, 5, 8)
REFUSED = {
    "one dimension": lambda lib: sdpa(lib, (8,), (8,), (8,)),
    "mask and causal": lambda lib: sdpa(lib, Q, K, K, attn_mask=lib.zeros(3, 5), is_causal=True),
    "mask of integers": lambda lib: sdpa(lib, Q, K, K, attn_mask=lib.zeros(3, 5).int()),
    "mask size": lambda lib: sdpa(lib, Q, K, K, attn_mask=lib.zeros(4, 5)),
    "integers": lambda lib: lib.nn.functional.scaled_dot_product_attention(*[lib.zeros(1, 2, 3, dtype=lib.int64)] * 3),
    "complex": lambda lib: lib.nn.functional.scaled_dot_product_attention(*[lib.zeros(2, 3, dtype=lib.complex64)] * 3),
    "groups": lambda lib: sdpa(lib, (1, 4, 3, 8), (1, 3, 3, 8), (1, 3, 3, 8), enable_gqa=True),
    "groups of nothing": lambda lib: sdpa(lib, (3, 8), (3, 8), (3, 8), enable_gqa=True),
    "heads": lambda lib: sdpa(lib, (1, 4, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8)),
    "dropout": lambda lib: sdpa(lib, Q, K, K, dropout_p=1.5),
    "backends": lambda lib: lib.nn.attention.sdpa_kernel("flash").__enter__(),
    "bias sizes": lambda lib: lib.nn.attention.bias.causal_lower_right(1, 2, 3),
    "bias variant": lambda lib: lib.nn.attention.bias.CausalBias(1, 2, 3),
    "embedding": lambda lib: lib.nn.MultiheadAttention(0, 2),
    "embedding and heads": lambda lib: lib.nn.MultiheadAttention(7, 2),
    "query dimensions": lambda lib: heads(lib, (8,), Q, Q),
    "key dimensions": lambda lib: heads(lib, Q, (3, 8), Q),
    "padding dimensions": lambda lib: heads(lib, Q, Q, Q, key_padding_mask=lib.zeros(3)),
    "padding samples": lambda lib: heads(lib, Q, Q, Q, key_padding_mask=lib.zeros(1, 2)),
    "padding steps": lambda lib: heads(lib, Q, Q, Q, key_padding_mask=lib.zeros(3, 4)),
    "mask dimensions": lambda lib: heads(lib, Q, Q, Q, attn_mask=lib.zeros(3)),
    "mask shape": lambda lib: heads(lib, Q, Q, Q, attn_mask=lib.zeros(3, 2)),
    "mask of heads": lambda lib: heads(lib, Q, Q, Q, attn_mask=lib.zeros(3, 2, 2)),
    "mask of one sample": lambda lib: heads(lib, (3, 8), (3, 8), (3, 8), attn_mask=lib.zeros(4, 3, 3)),
    "mask dtype": lambda lib: heads(lib, Q, Q, Q, attn_mask=lib.zeros(2, 2).int()),
    "hint without mask": lambda lib: heads(lib, Q, Q, Q, is_causal=True),
    "width": lambda lib: heads(lib, (2, 3, 4), Q, Q),
    "key and value": lambda lib: heads(lib, Q, K, Q),
    "separate widths": lambda lib: lib.nn.MultiheadAttention(8, 2, kdim=3)(*[lib.zeros(Q)] * 3),
    "activation": lambda lib: lib.nn.TransformerEncoderLayer(8, 2, activation="sine"),
    "samples": lambda lib: lib.nn.Transformer(8, 2, 1, 1, 16)(lib.zeros(3, 2, 8), lib.zeros(3, 1, 8)),
    "features": lambda lib: lib.nn.Transformer(8, 2, 1, 1, 16)(lib.zeros(3, 2, 4), lib.zeros(3, 2, 8)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal(case):
    both_refuse(REFUSED[case])


@pytest.mark.parametrize("options", [dict(), dict(norm_first=True, batch_first=True),
                                     dict(bias=False, batch_first=True), dict(activation=abs, batch_first=True)])
def test_nested_warning(options):
    both_warn(lambda lib: lib.nn.TransformerEncoder(lib.nn.TransformerEncoderLayer(8, 2, 16, **options), 1))


def test_mask_kinds_warning():
    both_warn(lambda lib: heads(lib, Q, Q, Q, key_padding_mask=lib.zeros(3, 2).bool(), attn_mask=lib.zeros(2, 2)))
