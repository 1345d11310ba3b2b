"""botorch: models fitted, acquisition functions and their gradients, candidates found."""
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from tests.programs import array, tolerance

PACKAGES = ["botorch", "gpytorch"]


def _data():
    x = torch.sigmoid(array(12, 2)).double()
    return x, (1 - (x - 0.4).square().sum(1, keepdim=True)).sin()


def _model():
    x, y = _data()
    return SingleTaskGP(x, y, input_transform=Normalize(2), outcome_transform=Standardize(1))


@tolerance(3e-4, "a search by L-BFGS stops within its own tolerance")
def fitted():
    """The likelihood's best parameters, and what the model says elsewhere."""
    model = _model()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    seen = model.posterior(torch.tensor([[0.2, 0.3], [0.7, 0.9]], dtype=torch.float64))
    return {"mean": seen.mean, "variance": seen.variance}


@tolerance(1e-4, "an improvement that is hardly expected is what few of the samples leave of nearly equal numbers")
def acquisitions():
    """The value of trying a place, and which way it grows."""
    model, (_, y) = _model().eval(), _data()
    x = torch.tensor([[[0.2, 0.3]], [[0.7, 0.9]]], dtype=torch.float64, requires_grad=True)
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=3)
    out = {}
    for value in (LogExpectedImprovement(model, best_f=y.max()), UpperConfidenceBound(model, beta=0.5),
                  qExpectedImprovement(model, best_f=y.max(), sampler=sampler)):
        given = value(x)
        out[type(value).__name__] = {"value": given, "gradient": torch.autograd.grad(given.sum(), x)[0]}
    return out


def candidates():
    """The next places to try, one and two at once."""
    model, (_, y) = _model().eval(), _data()
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    one, value = optimize_acqf(UpperConfidenceBound(model, beta=0.5), bounds, q=1, num_restarts=2, raw_samples=8)
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=3)
    two, _ = optimize_acqf(qExpectedImprovement(model, y.max(), sampler), bounds, q=2, num_restarts=2, raw_samples=8)
    return {"one": one, "value": value, "two": list(two.shape)}


def several_models():
    """Two models as one."""
    x, y = _data()
    both = ModelListGP(SingleTaskGP(x, y), SingleTaskGP(x, -y))
    seen = both.posterior(torch.tensor([[0.5, 0.5]], dtype=torch.float64))
    return {"mean": seen.mean, "variance": seen.variance}
