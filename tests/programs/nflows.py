"""nflows: chains of transforms fitted to data, sampled and inverted."""
import torch
from nflows.distributions.normal import ConditionalDiagonalNormal, StandardNormal
from nflows.flows.base import Flow
from nflows.transforms import (
    ActNorm,
    AffineCouplingTransform,
    BatchNorm,
    CompositeTransform,
    LULinear,
    MaskedAffineAutoregressiveTransform,
    RandomPermutation,
    ReversePermutation,
)
from nflows.transforms.autoregressive import MaskedPiecewiseRationalQuadraticAutoregressiveTransform

from tests.programs import array, fill, tolerance

PACKAGES = ["nflows"]


def _trained(flow, context=None):
    x = torch.stack([array(64), array(64) ** 2 + 0.3 * array(64, seed=1), array(64, seed=2)], 1)
    sgd, losses = torch.optim.SGD(flow.parameters(), 1e-2), []
    for _ in range(4):
        loss = -flow.log_prob(x, context=context).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss)
    torch.manual_seed(4)
    return {"losses": losses, "density": flow.eval().log_prob(x[:6], None if context is None else context[:6]),
            "sampled": flow.sample(4, None if context is None else context[:2])}


@tolerance(1e-4, "steps of training carry rounding on")
def chained():
    """Autoregressive, affine and spline transforms with permutations and norms."""
    def part(n):
        return [ReversePermutation(3), fill(MaskedAffineAutoregressiveTransform(3, 12), n), LULinear(3), ActNorm(3),
                RandomPermutation(3), BatchNorm(3)]

    spline = fill(MaskedPiecewiseRationalQuadraticAutoregressiveTransform(3, 12, num_bins=5, tails="linear",
                                                                          tail_bound=4.0))
    return {"affine": _trained(Flow(CompositeTransform(part(0) + part(1)), StandardNormal([3]))),
            "spline": _trained(Flow(spline, StandardNormal([3])))}


@tolerance(1e-4, "steps of training carry rounding on")
def conditioned():
    """A flow given a context, over a normal whose place depends on it."""
    class Net(torch.nn.Module):
        def __init__(self, given, made):
            super().__init__()
            self.first, self.last = torch.nn.Linear(given + 2, 8), torch.nn.Linear(8, made)

        def forward(self, x, context):
            return self.last(self.first(torch.cat([x, context], 1)).relu())

    coupling = fill(AffineCouplingTransform(torch.tensor([1, 0, 1]), Net))
    base = ConditionalDiagonalNormal([3], fill(torch.nn.Linear(2, 6)))
    return _trained(Flow(CompositeTransform([coupling, ReversePermutation(3)]), base), array(64, 2, seed=3))
