"""sbi: parameters inferred from simulations: posteriors, likelihoods and ratios learned by nets, and sampled."""
import torch
from sbi.inference import NLE, NPE, NRE
from sbi.neural_nets import posterior_nn
from sbi.utils import BoxUniform

from tests.programs import array, tolerance

PACKAGES = ["sbi"]


def _simulated():
    prior = BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2))
    torch.manual_seed(1)
    theta = prior.sample((120,))
    return prior, theta, theta + 0.3 * array(120, 2)


@tolerance(1e-3, "epochs of training carry rounding on")
def posterior():
    """A density of the parameters, given what was seen: what training says, samples, densities."""
    prior, theta, x = _simulated()
    found = {}
    for kind in ("mdn", "maf"):
        torch.manual_seed(2)
        inference = NPE(prior, density_estimator=posterior_nn(kind, hidden_features=10, num_transforms=2),
                        show_progress_bars=False)
        net = inference.append_simulations(theta, x).train(max_num_epochs=4, training_batch_size=20)
        given = inference.build_posterior(net)
        torch.manual_seed(3)
        seen = torch.tensor([[0.5, -0.4]])
        found[kind] = {"losses": inference.summary["validation_loss"], "sampled": given.sample((4,), x=seen,
                                                                                          show_progress_bars=False),
                       "density": given.log_prob(torch.zeros(1, 2), x=seen)}
    return found


@tolerance(1e-3, "epochs of training carry rounding on")
def likelihood_and_ratio():
    """A net for the likelihood, and one for the ratio, which chains of samples go along."""
    prior, theta, x = _simulated()
    found = {}
    for kind in (NLE, NRE):
        torch.manual_seed(4)
        inference = kind(prior, show_progress_bars=False)
        inference.append_simulations(theta, x).train(max_num_epochs=3, training_batch_size=20)
        found[kind.__name__] = inference.summary["validation_loss"]
    return found
