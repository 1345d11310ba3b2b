"""pyro: variational inference with several guides, NUTS, enumeration, predictive samples."""
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, TraceMeanField_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal, AutoLowRankMultivariateNormal, AutoNormal

from tests.programs import array, tolerance

PACKAGES = ["pyro-ppl"]


def _regression(x, y=None):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 2.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ weight + bias, scale), obs=y)


def _data():
    x = array(20, 3)
    return x, x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 + 0.1 * array(20, seed=1)


def variational():
    """SVI with each automatic guide: losses, parameters, medians."""
    x, y = _data()
    out = {}
    for kind in (AutoNormal, AutoDiagonalNormal, AutoDelta, AutoLowRankMultivariateNormal):
        pyro.clear_param_store()
        pyro.set_rng_seed(1)
        guide = kind(_regression)
        svi = SVI(_regression, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=2))
        losses = [svi.step(x, y) for _ in range(30)]
        out[kind.__name__] = {"losses": losses[::5], "median": dict(guide.median(x)),
                              "names": sorted(pyro.get_param_store().keys())}
    return out


def mean_field():
    """A variational autoencoder with the divergence in closed form, clipped Adam, a schedule of rates."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = torch.nn.Linear(6, 4), torch.nn.Linear(2, 6)

        def model(self, x):
            pyro.module("decode", self.decode)
            with pyro.plate("data", len(x)):
                z = pyro.sample("z", dist.Normal(torch.zeros(len(x), 2), 1.0).to_event(1))
                pyro.sample("x", dist.Bernoulli(logits=self.decode(z)).to_event(1), obs=x)

        def guide(self, x):
            pyro.module("encode", self.encode)
            with pyro.plate("data", len(x)):
                mean, spread = self.encode(x).chunk(2, -1)
                pyro.sample("z", dist.Normal(mean, spread.exp()).to_event(1))

    pyro.clear_param_store()
    pyro.set_rng_seed(2)
    net, x = Model(), (array(10, 6) > 0).float()
    svi = SVI(net.model, net.guide, pyro.optim.ClippedAdam({"lr": 0.02, "lrd": 0.99}), TraceMeanField_ELBO())
    return {"losses": [svi.step(x) for _ in range(10)], "evaluated": svi.evaluate_loss(x)}


def enumerated():
    """A mixture whose assignments are summed out, exactly."""
    data = torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0])

    @config_enumerate
    def model(data):
        weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=dist.constraints.simplex)
        places = pyro.param("places", torch.tensor([1.0, 9.0]))
        with pyro.plate("data", len(data)):
            which = pyro.sample("which", dist.Categorical(weights))
            pyro.sample("seen", dist.Normal(places[which], 2.0), obs=data)

    pyro.clear_param_store()
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    svi = SVI(model, lambda data: None, pyro.optim.Adam({"lr": 0.1}), elbo)
    losses = [svi.step(data) for _ in range(10)]
    return {"losses": losses, "weights": pyro.param("weights"), "places": pyro.param("places"),
            "assigned": elbo.compute_marginals(model, lambda data: None, data)["which"].probs}


@tolerance(1e-4, "each leapfrog step of NUTS carries rounding on, and another processor rounds elsewhere")
def chains():
    """NUTS finds the posterior of the regression: its samples, one by one."""
    pyro.set_rng_seed(3)
    pyro.clear_param_store()
    x, y = _data()
    kernel = NUTS(_regression, step_size=0.05, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=3)
    chain = MCMC(kernel, num_samples=6, warmup_steps=4, disable_progbar=True)
    chain.run(x, y)
    return dict(chain.get_samples())


def predictive():
    """Samples of the prior and of what a posterior predicts; conditioned and traced models."""
    pyro.set_rng_seed(4)
    x, y = _data()
    prior = Predictive(_regression, num_samples=5)(x)
    given = {"weight": array(5, 3), "bias": array(5), "scale": array(5, seed=2).abs()}
    after = Predictive(_regression, given)(x)
    trace = pyro.poutine.trace(pyro.condition(_regression, {"bias": torch.tensor(0.3)})).get_trace(x, y)
    return {"prior": prior["y"], "weight": prior["weight"], "after": after["y"], "log_prob": trace.log_prob_sum(),
            "names": sorted(trace.nodes)}
