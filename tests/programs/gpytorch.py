"""gpytorch: exact and variational Gaussian processes: likelihoods, training, predictions, kernels, several outputs."""
import gpytorch
import torch

from tests.programs import array, tolerance

PACKAGES = ["gpytorch"]
QUICK = True


class _Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _data():
    x = torch.linspace(0, 1, 20)
    return x, torch.sin(6 * x) + 0.1 * array(20)


def _trained(model, likelihood, objective, x, y, steps=10):
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.1), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        seen = likelihood(model(torch.linspace(0, 1.5, 7)))
    return {"losses": losses, "mean": seen.mean, "variance": seen.variance}


def exact():
    """Exact regression with several kernels."""
    x, y = _data()
    kernels = gpytorch.kernels
    out = {}
    for name, kernel in (("rbf", kernels.RBFKernel()), ("matern", kernels.MaternKernel(nu=1.5)),
                         ("periodic", kernels.PeriodicKernel()), ("sum", kernels.RBFKernel() + kernels.LinearKernel())):
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = _Exact(x, y, likelihood, kernel)
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        out[name] = _trained(model, likelihood, objective, x, y)
    return out


@tolerance(1.5e-4, "a Cholesky factor of a nearly singular float32 matrix carries rounding on")
def variational():
    """A sparse process that learns its inducing points, for regression and for two classes."""
    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            posterior = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, posterior))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, y = _data()
    out = {}
    for name, likelihood, goal in (("regression", gpytorch.likelihoods.GaussianLikelihood(), y),
                                   ("classes", gpytorch.likelihoods.BernoulliLikelihood(), (y > 0.2).float())):
        model = Sparse(torch.linspace(0, 1, 5))
        model.variational_strategy.variational_params_initialized.fill_(1)      # its start is drawn at random otherwise
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
        out[name] = _trained(model, likelihood, objective, x, goal, steps=6)
    return out


def several_outputs():
    """Two outputs that are learnt together, and the covariance between them."""
    x, y = _data()
    y = torch.stack([y, y.cos()], -1)

    class Both(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
            self.covar_module = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), num_tasks=2, rank=1)
            with torch.no_grad():
                self.covar_module.task_covar_module.covar_factor.copy_(torch.tensor([[0.5], [-0.3]]))

        def forward(self, x):
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
    model = Both(likelihood)
    return _trained(model, likelihood, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), x, y, steps=5)
