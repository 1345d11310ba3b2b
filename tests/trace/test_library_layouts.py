"""The library's steps take operands of any layout, as they lie or copied first: strides alone never leave an operation
to the reference executor, which is ten times slower."""
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.data.transforms.colour_kernels import jittered
from flambeau.data.transforms.geometry_kernels import boxes_resized, mirrored_rows, warped
from flambeau.nn import functional as F
from flambeau.ops.corners import _sampled, _sampled_drop, _sampled_slopes
from flambeau.ops.maxpool import _drop, _drop_weighted
from flambeau.vision.rows import spread_rows, weighted_rows

pytestmark = pytest.mark.pinned


def apart(x):
    """The same contents, every other element of memory."""
    return torch.stack([x, x], -1).flatten(-2)[..., ::2]


def last_first(x):
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def first_last(x):
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


def inside(x):
    """The same contents, in the middle of something larger."""
    return F.pad(x, (1, 2) * x.ndim)[tuple(slice(1, -2) for _ in x.shape)]


def repeated(x):
    """Other contents, all rows the same one in memory."""
    return x[:1].expand_as(x)


LAYOUTS = {layout.__name__: layout for layout in (apart, last_first, first_last, inside, repeated)}


def numbers(*shape):
    return torch.linspace(-2, 2, int(np.prod(shape))).mul(37).sin().reshape(shape)


def weight_gradient(x, g):
    weight = torch.zeros(5, 3, 3, 3, requires_grad=True)
    return torch.autograd.grad(F.conv2d(x, weight), weight, g)[0]


# name of the library's function → an operation that calls it, and its operands
STEPS = {
    "gemm": (torch.matmul, lambda: (numbers(3, 5, 40), numbers(3, 40, 7))),
    "convolve": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), lambda: (numbers(2, 4, 9, 11), numbers(6, 4, 3, 3))),
    "convolve_weight": (weight_gradient, lambda: (numbers(2, 3, 9, 11), numbers(2, 5, 7, 9))),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), lambda: (numbers(2, 3, 11, 13),)),
    "weigh": (lambda x: F.interpolate(x, size=(15, 9), mode="bilinear"), lambda: (numbers(2, 3, 11, 13),)),
    "sample": (lambda image, at: _sampled(image, at, (4, 5)), lambda: (numbers(2, 3, 20), numbers(2, 2, 14) * 3)),
    "sample_drop": (lambda g, at: _sampled_drop(g, at, (4, 5)), lambda: (numbers(2, 3, 14), numbers(2, 2, 14) * 3)),
    "sample_slopes": (lambda g, image, at: _sampled_slopes(g, image, at, (4, 5)),
                      lambda: (numbers(2, 3, 14), numbers(2, 3, 20), numbers(2, 2, 14) * 3)),
    "drop": (lambda g, index: _drop(g, index, 30),
             lambda: (numbers(2, 3, 20), torch.arange(120).reshape(2, 3, 20) % 30)),
    "scatter": (lambda x, rows, index, at: (x.index_add(1, index, rows), x.index_copy(1, index, rows),
                                            x.scatter_reduce(1, at, rows, "amax")),
                lambda: (numbers(5, 9, 12), numbers(5, 20, 12), torch.arange(20) % 9,
                         torch.arange(1200).reshape(5, 20, 12) * 7 % 9)),
    "drop_weighted": (lambda g, index, weight: _drop_weighted(g, index, weight, 30),
                      lambda: (numbers(2, 3, 20), torch.arange(160).reshape(2, 4, 20) % 31 - 1, numbers(2, 4, 20))),
    "spread": (lambda x, mask, source: x.masked_scatter(mask, source),
               lambda: (numbers(5, 9, 12), torch.arange(540).reshape(5, 9, 12) % 3 > 0, numbers(9, 60))),
    "bags": (lambda table, index, weight: F.embedding_bag(index, table, mode="sum", per_sample_weights=weight),
             lambda: (numbers(9, 12), torch.arange(20).reshape(5, 4) % 9, numbers(5, 4))),
    "scan": (lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1)), lambda: (numbers(5, 6, 7),)),
    "running": (lambda x: (x.cumprod(0), *x.cummax(1), *x.cummin(-1), x.cumprod(-1)), lambda: (numbers(5, 6, 7),)),
    "sum_weighted_rows": (weighted_rows, lambda: (numbers(9, 12), torch.arange(20).reshape(10, 2) % 9, numbers(10, 2))),
    "add_weighted_rows": (lambda g, index, weight: spread_rows(g, index, weight, 9),
                          lambda: (numbers(10, 12), torch.arange(20).reshape(10, 2) % 9, numbers(10, 2))),
    "jitter_colours": (jittered, lambda: (numbers(4, 3, 21) / 3 + 0.5, torch.arange(16).reshape(4, 4) * 3 % 4,
                                          numbers(4, 8) / 4 + 0.5)),
    "resize_boxes": (boxes_resized, lambda: (
        numbers(2, 3, 9, 11), (torch.arange(10).reshape(2, 5) % 5 * 2).int(), numbers(2, 5, 3), torch.zeros(2).int(),
        (torch.arange(8).reshape(2, 4) % 4).int(), numbers(2, 4, 3), torch.zeros(2).int())),
    "mirror_rows": (mirrored_rows, lambda: (numbers(4, 5, 19), torch.tensor([1, 0, 1, 0], dtype=torch.uint8))),
    "warp_places": (lambda image, table, fill: warped(image, table, fill, (6, 7), (5, 9), False),
                    lambda: (numbers(2, 3, 1, 42), numbers(2, 6, 1, 1) / 9, numbers(2, 3, 1, 1)[:1])),
    "solve_triangular": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
                         lambda: (numbers(2, 5, 5) / 9 + 3 * torch.eye(5), numbers(2, 5, 3))),
    "search": (lambda rows, values: torch.searchsorted(rows, values),
               lambda: (torch.arange(60.0).reshape(5, 12), numbers(5, 7) * 20)),
    "ctc": (lambda scores: F.ctc_loss(scores, torch.tensor([[1, 2, 2], [3, 1, 2]]), (6, 5), (3, 2), reduction="none"),
            lambda: (numbers(6, 2, 4),)),
    "fft": (lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)), lambda: (numbers(5, 6, 7),)),
    "sort": (lambda x: (*x.sort(0), *x.sort(1, descending=True), *x.sort(-1)), lambda: (numbers(5, 6, 7),)),
    "topk": (lambda x: (*x.topk(2, 0), *x.topk(3, 1, largest=False), *x.topk(4)), lambda: (numbers(5, 6, 7),)),
    "pick": (lambda x: (*x.kthvalue(2, 0), *x.median(1, keepdim=True), *x.nanmedian(-1), x.median()),
             lambda: (numbers(5, 6, 7),)),
}


# What a GPU's library alone has (tests/cuda/test_library.py); on the CPU these are left to the reference.
ON_A_GPU = {"attention", "attention_backward"}


def test_every_function_is_among_them():
    source = Path(torch.__file__).parent
    asked = {name for path in source.rglob("*.py")
             for name in re.findall(r"(?:k\.library\(|in_rows\(\w+, )\"(\w+)\"", path.read_text())}
    assert set(STEPS) | ON_A_GPU == asked | {"gemm"} and not set(STEPS) & ON_A_GPU


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", STEPS)
def test_no_layout_is_left_to_the_reference(name, layout):
    call, operands = STEPS[name]
    for changed in range(len(operands())):
        given = [LAYOUTS[layout](x) if i == changed else x for i, x in enumerate(operands())]
        torch.cpu.synchronize()
        made = {}
        for executor in ("reference", "auto", "native"):             # auto: seen for the first time
            with torch.config.using(executor=executor):
                out = call(*given)
                if executor == "native":
                    steps = [step for one in (out if isinstance(out, tuple) else (out,))
                             for step in torch.plans.of(one).steps]
                    assert "reference" not in {step.kind for step in steps}, (changed, steps)
                    assert (name,) in {step.words for step in steps}, (changed, steps)
                made[executor] = [one.numpy().copy() for one in (out if isinstance(out, tuple) else (out,))]
        for exact, first, planned in zip(*made.values(), strict=True):
            np.testing.assert_allclose(planned, exact, rtol=2e-5, atol=2e-5)
            assert first.tobytes() == planned.tobytes() and first.strides == planned.strides == exact.strides
