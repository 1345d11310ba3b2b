"""vmap over PyTorch's own samples: every operation, mapped over each of its tensors, beside PyTorch's single calls.

What goes slice by slice is listed by name, so that an operation that loses its rule is seen.
"""
import itertools

import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_flatten, tree_unflatten

from flambeau.base.op import door
from tests.torch.harness import OPS, Unsupported, assert_same, copy, fb, function, to_fb, torch_function

SLICES, SAMPLES = 2, 3
# What PyTorch's samples have of operations without a rule: those whose result's shape depends on data, that look at
# numbers among their arguments, or that are rare.
ONE_BY_ONE = set("""argwhere bernoulli bincount block_diag cov histc index_add index_copy index_fill index_put
    index_select isin istft linalg.lstsq linalg.lstsq.grad_oriented linalg.pinv linalg.pinv.hermitian
    linalg.pinv.singular
    linspace.tensor_overload logspace.tensor_overload masked_scatter masked_select multinomial narrow
    nn.functional.batch_norm nn.functional.ctc_loss nn.functional.embedding nn.functional.embedding_bag
    nn.functional.instance_norm nn.functional.nll_loss nn.functional.one_hot nonzero normal normal.number_mean
    quantile repeat_interleave searchsorted tensor_split unique unique_consecutive""".split())
RANDOM = set("""bernoulli cauchy exponential geometric log_normal multinomial normal normal.in_place normal.number_mean
    poisson rand_like randint randint_like randn randn_like uniform""".split())
# Seen by place in memory, which is not that of a slice; or never written; or determined up to a factor alone.
LEFT_OUT = set("""as_strided.partial_views empty empty_like empty_permuted empty_strided linalg.eigh new_empty
    new_empty_strided""".split())
# Draw numbers, which are the slices' own; of attention some samples have dropout.
UNLIKE = ("dropout", "fractional", "rrelu", "gumbel", "scaled_dot_product_attention", "multi_head_attention")
MAPPED = [op for op in OPS if torch.float32 in op.dtypes and op.full_name not in RANDOM | LEFT_OUT
          and not any(word in op.name for word in UNLIKE)]


def drawn(op):
    """For some samples: one of each slice, flat, with their structure."""
    found = []
    for seed in range(SLICES):
        torch.manual_seed(seed)
        found.append(list(itertools.islice(op.sample_inputs("cpu", torch.float32), 24)))
    count = min(map(len, found))
    for at in sorted({round(i * (count - 1) / (SAMPLES - 1)) for i in range(SAMPLES)} if count else ()):
        flat = [tree_flatten((each[at].input, each[at].args, each[at].kwargs)) for each in found]
        places = [k for k, a in enumerate(flat[0][0]) if isinstance(a, torch.Tensor)]
        alike = all(spec == flat[0][1] and all(parts[k].shape == flat[0][0][k].shape for k in places)
                    for parts, spec in flat)
        if places and alike and all(parts[k].layout is torch.strided for parts, _ in flat for k in places):
            yield [parts for parts, _ in flat], flat[0][1], places


@pytest.mark.parametrize("op", MAPPED, ids=lambda op: op.full_name)
def test_every_operation(op, monkeypatch):
    noted, told = [], door.noticed
    monkeypatch.setattr(door, "noticed", lambda what, *facts: noted.append(what) if what.startswith("vmap")
                        else told(what, *facts))
    ours, theirs = function(op), torch_function(op)
    for parts, spec, places in drawn(op):
        for mapped in {tuple(places), *[(k,) for k in places]}:
            def called(call, flat):
                input, args, kwargs = tree_unflatten(flat, spec)
                return call(input, *args, **kwargs)

            slices = [[parts[nr][k] if k in mapped else a for k, a in enumerate(parts[0])] for nr in range(SLICES)]
            try:
                wanted = [called(theirs, copy(flat)) for flat in slices]
                given = [to_fb(flat) for flat in slices]
            except (Unsupported, RuntimeError, ValueError, IndexError):
                continue
            wanted = [tree_flatten(each)[0] for each in wanted]
            if not all(isinstance(t, torch.Tensor) and t.shape == other.shape for each in wanted
                       for t, other in zip(each, wanted[0])):
                continue
            stacks = [fb.stack([flat[k] for flat in given]) for k in mapped]

            def f(*values):
                flat = list(given[0])
                for k, value in zip(mapped, values):
                    flat[k] = value
                made = called(ours, flat)
                return tuple(made) if isinstance(made, (tuple, list)) else made

            got = fb.vmap(f)(*stacks)
            got = list(got) if isinstance(got, tuple) else [got]
            got = [one for each in got for one in (each if isinstance(each, tuple) else [each])]
            for nr in range(SLICES):
                for one, want in zip(got, wanted[nr], strict=True):
                    assert_same(one[nr], want, op, torch.float32)
    assert not noted or op.full_name in ONE_BY_ONE, noted
