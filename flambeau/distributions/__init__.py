"""Probability distributions to sample from and to compute with, after `torch.distributions`.

>>> m = torch.distributions.Normal(torch.tensor([0.0, 10.0]), 1.0)
>>> m.batch_shape, m.sample((5,)).shape
(torch.Size([2]), torch.Size([5, 2]))
"""
from ..base.lazy import import_when_asked
from ..base.names import attribute_error

# Module → what it gives. Each is read when it is asked for: a program uses one or two of forty.
_GIVEN_BY = {
    "bernoulli": "Bernoulli", "beta": "Beta", "binomial": "Binomial", "categorical": "Categorical",
    "cauchy": "Cauchy", "chi2": "Chi2", "constraint_registry": "biject_to transform_to",
    "continuous_bernoulli": "ContinuousBernoulli", "dirichlet": "Dirichlet", "distribution": "Distribution",
    "exp_family": "ExponentialFamily", "exponential": "Exponential", "fishersnedecor": "FisherSnedecor",
    "gamma": "Gamma", "generalized_pareto": "GeneralizedPareto", "geometric": "Geometric", "gumbel": "Gumbel",
    "half_cauchy": "HalfCauchy", "half_normal": "HalfNormal", "independent": "Independent",
    "inverse_gamma": "InverseGamma", "kl": "kl_divergence register_kl", "kumaraswamy": "Kumaraswamy",
    "laplace": "Laplace", "lkj_cholesky": "LKJCholesky", "log_normal": "LogNormal",
    "logistic_normal": "LogisticNormal", "lowrank_multivariate_normal": "LowRankMultivariateNormal",
    "mixture_same_family": "MixtureSameFamily", "multinomial": "Multinomial",
    "multivariate_normal": "MultivariateNormal", "negative_binomial": "NegativeBinomial", "normal": "Normal",
    "one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough", "pareto": "Pareto",
    "poisson": "Poisson", "relaxed_bernoulli": "RelaxedBernoulli", "relaxed_categorical": "RelaxedOneHotCategorical",
    "studentT": "StudentT", "transformed_distribution": "TransformedDistribution",
    "transforms":
        "AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform "
        "CumulativeDistributionTransform ExpTransform IndependentTransform LowerCholeskyTransform "
        "PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform SoftplusTransform "
        "TanhTransform SoftmaxTransform StackTransform StickBreakingTransform Transform identity_transform",
    "uniform": "Uniform", "von_mises": "VonMises", "weibull": "Weibull", "wishart": "Wishart",
}
_CLASSES = {name: f"distributions.{module}:{name}" for module, names in _GIVEN_BY.items() for name in names.split()}
_DISTRIBUTION_MODULES = {name: f"distributions.{name}"
            for name in (*_GIVEN_BY, "constraints", "functions", "matrix_transforms", "transform", "utils")}
__all__ = list(_CLASSES)
__getattr__ = import_when_asked(__name__, {**_DISTRIBUTION_MODULES, **_CLASSES},
                                lambda name: attribute_error("torch.distributions", name, lambda: __all__))
