"""The Kullback-Leibler divergence: how much longer a code for samples of p gets when it was made for q.

KL(p || q) = -H(p) - E_p[log q]. Many pairs need no formula of their own: where log q is linear in a few functions of x,
the means of these functions under p are enough, and there is one rule for q and any p (see `to_normal`, `to_gamma`, …).
"""
import math

from ..autograd.engine import grad
from ..base.errors import warn
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .functions import broadcast_shapes, softplus, where
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal, _batch_lowrank_logdet, _batch_lowrank_mahalanobis
from .multivariate_normal import MultivariateNormal, _batch_mahalanobis, log_diagonal
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import _sum_rightmost, euler_constant

__all__ = ["register_kl", "kl_divergence"]

_KL_REGISTRY: dict = {}       # (class of p, class of q) → function
_KL_MEMOIZE: dict = {}        # and what was found for the classes of actual pairs


def register_kl(type_p, type_q):
    """A decorator: the function gives `kl_divergence(p, q)` for p of class `type_p` and q of class `type_q`.

    The most specific registration wins. A pair for which two are equally specific can be registered itself.
    """
    for name, cls in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(cls, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {cls}")

    def decorator(function):
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function
    return decorator


def _dispatch_kl(type_p, type_q):
    """The registered function for two classes; NotImplemented if there is none."""
    matches = [(type_p.__mro__.index(p), type_q.__mro__.index(q), p, q) for p, q in _KL_REGISTRY
               if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return NotImplemented
    left = min(matches, key=lambda match: match[:2])               # nearest in p first
    right = min(matches, key=lambda match: match[1::-1])           # nearest in q first
    found, other = _KL_REGISTRY[left[2:]], _KL_REGISTRY[right[2:]]
    if found is not other:
        warn(f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({left[2].__name__}, "
             f"{right[3].__name__})", RuntimeWarning)
    return found


def kl_divergence(p, q):
    """The divergence KL(p || q), one number for each distribution of the batch.

    >>> from flambeau.distributions import Normal
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 2.0))
    tensor(0.4431)
    """
    pair = type(p), type(q)
    found = _KL_MEMOIZE.get(pair)
    if found is None:
        found = _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    if found is NotImplemented:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                                  f"{type(q).__name__}; register one with register_kl")
    return found(p, q)


def infinite_where(mask, value):
    """`value`, and infinity where p has probability that q has not."""
    return where(mask, math.inf, value)


def _kl_infinity(p, q):
    return p.mean.new_full(p.batch_shape, math.inf)


# --- p and q of one family ----------------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(p, q):
    ones = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zeros = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    ones = where(p.probs == 0, 0.0, infinite_where(q.probs == 0, ones))
    return ones + where(p.probs == 1, 0.0, infinite_where(q.probs == 1, zeros))


@register_kl(Beta, Beta)
def _kl_beta_beta(p, q):
    p1, p0, q1, q0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    p_total, q_total = p1 + p0, q1 + q0
    norms = q1.lgamma() + q0.lgamma() + p_total.lgamma() - p1.lgamma() - p0.lgamma() - q_total.lgamma()
    return norms + (p1 - q1) * p1.digamma() + (p0 - q0) * p0.digamma() + (q_total - p_total) * p_total.digamma()


@register_kl(Binomial, Binomial)
def _kl_binomial_binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return infinite_where(p.total_count > q.total_count, p.total_count * each)


@register_kl(Categorical, Categorical)
def _kl_categorical_categorical(p, q):
    each = infinite_where(q.probs == 0, p.probs * (p.logits - q.logits))
    return where(p.probs == 0, 0.0, each).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_onehotcategorical_onehotcategorical(p, q):
    return _kl_categorical_categorical(p._categorical, q._categorical)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy_cauchy(p, q):
    # F. Chyzak and F. Nielsen, "A closed-form formula for the KL divergence between Cauchy distributions" (2019)
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli_continuous_bernoulli(p, q):
    return (p.mean * (p.logits - q.logits) + p._log_norm() + (-p.probs).log1p() - q._log_norm() - (-q.probs).log1p())


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(p, q):
    a, b = p.concentration, q.concentration
    a_total, b_total = a.sum(-1), b.sum(-1)
    means = a.digamma() - a_total.digamma().unsqueeze(-1)          # of the logarithms of the components
    return a_total.lgamma() - b_total.lgamma() - (a.lgamma() - b.lgamma()).sum(-1) + ((a - b) * means).sum(-1)


@register_kl(Exponential, Exponential)
def _kl_exponential_exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p, q):
    """A Bregman divergence of the log-normaliser, between the natural parameters."""
    if type(p) is not type(q):
        raise NotImplementedError("The cross KL-divergence between different exponential families cannot be computed "
                                  f"using Bregman divergences: {type(p).__name__} and {type(q).__name__}")
    theta = [t.detach().requires_grad_() for t in p._natural_params]
    there = q._natural_params
    normaliser = p._log_normalizer(*theta)
    total = q._log_normalizer(*there) - normaliser
    for own, other, slope in zip(theta, there, grad(normaliser.sum(), theta, create_graph=True), strict=True):
        total = total - _sum_rightmost((other - own) * slope, own.dim() - len(p.batch_shape))
    return total


@register_kl(Gamma, Gamma)
def _kl_gamma_gamma(p, q):
    a, b = p.concentration, q.concentration
    return (b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Gumbel, Gumbel)
def _kl_gumbel_gumbel(p, q):
    ratio, off = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return off - ratio.log() + ratio * euler_constant + ((1 + ratio).lgamma() - off).exp() - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _kl_geometric_geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_halfnormal_halfnormal(p, q):
    return _kl_normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace_laplace(p, q):
    ratio, off = p.scale / q.scale, (p.loc - q.loc).abs()
    return off / q.scale + ratio * (-off / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _kl_normal_normal(p, q):
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _kl_pareto_pareto(p, q):
    ratio = q.alpha / p.alpha
    return infinite_where(p.scale < q.scale, q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1)


@register_kl(Poisson, Poisson)
def _kl_poisson_poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _kl_uniform_uniform(p, q):
    return infinite_where((q.low > p.low) | (q.high < p.high), ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed_transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(f"KL between {type(p).__name__} and {type(q).__name__} through different transforms, "
                                  "or of different event shapes, is not implemented")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent_independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independent distributions of different reinterpreted_batch_ndims is not "
                                  f"implemented: {p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}")
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# --- normal vectors -----------------------------------------------------------------------------------------------


def _kl_normal_vectors(p, q):
    """Between normal vectors, in whichever form the covariances are."""
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between {type(p).__name__} and {type(q).__name__} with different event shapes "
                         f"cannot be computed: {tuple(p.event_shape)} and {tuple(q.event_shape)}")
    batch_shape = broadcast_shapes(p.batch_shape, q.batch_shape)
    total = squared_length_under(q, q.loc - p.loc)
    for matrix in halves_of(p):
        columns = matrix.expand(batch_shape + matrix.shape[-2:]).movedim(-1, 0)
        total = total + squared_length_under(q, columns).sum(0)
    return 0.5 * (log_det(q) - log_det(p) + total - p.event_shape[0])


def squared_length_under(q, off):
    if isinstance(q, LowRankMultivariateNormal):
        return _batch_lowrank_mahalanobis(q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, off,
                                          q._capacitance_tril)
    return _batch_mahalanobis(q._unbroadcasted_scale_tril, off)


def log_det(p):
    if isinstance(p, LowRankMultivariateNormal):
        return _batch_lowrank_logdet(p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag, p._capacitance_tril)
    return 2 * log_diagonal(p._unbroadcasted_scale_tril)


def halves_of(p):
    """Matrices that, each times its transpose, add up to the covariance of p."""
    if isinstance(p, LowRankMultivariateNormal):
        return p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()
    return (p._unbroadcasted_scale_tril,)


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_kl_normal_vectors)


# --- one rule for q and any p -------------------------------------------------------------------------------------


def to_normal(p, q):
    square = p.variance + (p.mean - q.loc).square()
    return -p.entropy() + 0.5 * (2 * math.pi * q.scale.square()).log() + square / (2 * q.scale.square())


def to_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


def to_gamma(p, q):
    a = q.concentration
    return -p.entropy() + a.lgamma() - a * q.rate.log() - (a - 1) * mean_log(p) + q.rate * p.mean


def to_continuous_bernoulli(p, q):
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_norm()


def to_gumbel(p, q):
    return (q.scale.log() - p.entropy() + (p.mean - q.loc) / q.scale
            + (q.loc / q.scale + log_mean_exp(p, -q.scale.reciprocal())).exp())


def mean_log(p):
    """The mean of log x under p."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (x_log_x(p.high) - x_log_x(p.low)) / (p.high - p.low) - 1           # uniform


def x_log_x(x):
    return x.xlogy(x)


def log_mean_exp(p, t):
    """The logarithm of the mean of exp(t x) under p."""
    if isinstance(p, Exponential):
        return -(1 - t / p.rate).log()
    if isinstance(p, Gamma):
        return -p.concentration * (1 - t / p.rate).log()
    if isinstance(p, Normal):
        return t * p.loc + 0.5 * (t * p.scale).square()
    return (((t * p.high).exp() - (t * p.low).exp()) / (t * (p.high - p.low))).log()      # uniform


def _kl_bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


def _kl_normal_laplace(p, q):
    off = p.loc - q.loc
    z = off / p.scale
    mean_off = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.square()).exp() + off * (math.sqrt(0.5) * z).erf()
    return -(p.scale / q.scale).log() + mean_off / q.scale - 0.5 * (1 + math.log(0.5 * math.pi))


def _kl_uniform_exponential(p, q):
    return infinite_where(p.low < 0, to_exponential(p, q))


def _kl_uniform_gamma(p, q):
    return infinite_where(p.low < 0, to_gamma(p, q))


def _kl_uniform_beta(p, q):
    mean_log_rest = (x_log_x(1 - p.low) - x_log_x(1 - p.high)) / (p.high - p.low) - 1
    norm = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma()
    rest = norm - (q.concentration1 - 1) * mean_log(p) - (q.concentration0 - 1) * mean_log_rest
    return infinite_where((p.low < 0) | (p.high > 1), rest - p.entropy())


def _kl_uniform_continuous_bernoulli(p, q):
    # in PyTorch the ends themselves count as outside, here and the other way round
    return infinite_where((p.low <= 0) | (p.high >= 1), to_continuous_bernoulli(p, q))


def _kl_beta_uniform(p, q):
    return infinite_where((q.low > 0) | (q.high < 1), (q.high - q.low).log() - p.entropy())


def _kl_continuous_bernoulli_uniform(p, q):
    return infinite_where((q.low >= 0) | (q.high <= 1), (q.high - q.low).log() - p.entropy())


def _kl_uniform_pareto(p, q):
    rest = (q.alpha + 1) * mean_log(p) - q.alpha * q.scale.log() - q.alpha.log()
    return infinite_where(p.low < q.scale, rest - p.entropy())


for _rule, _q, *_classes in (
        (_kl_bernoulli_poisson, Poisson, Bernoulli),
        (to_continuous_bernoulli, ContinuousBernoulli, Beta),
        (_kl_uniform_continuous_bernoulli, ContinuousBernoulli, Uniform),
        (to_exponential, Exponential, Beta, ContinuousBernoulli, Gamma, Pareto),
        (_kl_uniform_exponential, Exponential, Uniform),
        (to_gamma, Gamma, Beta, Exponential, Pareto),
        (_kl_uniform_gamma, Gamma, Uniform),
        (to_normal, Normal, Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform),
        (_kl_beta_uniform, Uniform, Beta),
        (_kl_continuous_bernoulli_uniform, Uniform, ContinuousBernoulli),
        (to_gumbel, Gumbel, Exponential, Gamma, Normal, Uniform),
        (_kl_normal_laplace, Laplace, Normal),
        (_kl_uniform_beta, Beta, Uniform),
        (_kl_uniform_pareto, Pareto, Uniform),
        # p has samples where q cannot have any
        (_kl_infinity, Pareto, Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Normal),
        (_kl_infinity, Uniform, Exponential, Gamma, Gumbel, Laplace, Normal, Pareto),
        (_kl_infinity, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Normal, Pareto),
        (_kl_infinity, Beta, Exponential, Gamma, Gumbel, Laplace, Normal, Pareto),
        (_kl_infinity, Gamma, Gumbel, Laplace, Normal),
        (_kl_infinity, Exponential, Gumbel, Laplace, Normal),
        (_kl_infinity, Binomial, Poisson),
        (_kl_infinity, Bernoulli, Poisson)):
    for _p in _classes:
        register_kl(_p, _q)(_rule)
del _p, _q, _rule, _classes
