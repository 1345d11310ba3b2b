"""zuko: flows of several kinds fitted to data, sampled, and inverted."""
import torch
import zuko

from tests.programs import array, fill, tolerance

PACKAGES = ["zuko"]
QUICK = True


def _data():
    x = array(64, 3)
    return torch.stack([x[:, 0], x[:, 0] ** 2 + 0.3 * x[:, 1], x[:, 2].exp()], 1), array(64, 2, seed=1)


@tolerance(1e-4, "a spline's slope changes from bin to bin, and steps of training carry rounding on")
def fitted():
    """Each kind of flow, with a context: losses, densities and samples."""
    x, context = _data()
    found = {}
    for name, flow in {"spline": zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16,)),
                       "autoregressive": zuko.flows.MAF(3, 2, transforms=2, hidden_features=(16,)),
                       "coupling": zuko.flows.RealNVP(3, 2, transforms=2, hidden_features=(16,)),
                       "unconstrained": zuko.flows.SOSPF(3, 2, transforms=1, hidden_features=(8,)),
                       "mixture": zuko.flows.GMM(3, 2, components=2)}.items():
        adam, losses = torch.optim.Adam(fill(flow).parameters(), 1e-2), []
        for _ in range(3):
            loss = -flow(context).log_prob(x).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss)
        torch.manual_seed(5)
        found[name] = {"losses": losses, "sampled": flow(context[0]).sample((4,)),
                       "density": flow(context).log_prob(x)[:5]}
    return found


def inverted():
    """A transform and its inverse, with determinants; a distribution over a box, a sphere's shell."""
    x, context = _data()
    forward = fill(zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16,)))(context).transform
    z = forward(x)
    box = zuko.distributions.BoxUniform(-torch.ones(2), torch.ones(2))
    return {"z": z, "back": (forward.inv(z) - x).abs().max() < 1e-3, "determinant": forward.log_abs_det_jacobian(x, z),
            "box": box.log_prob(array(4, 2) * 0.3), "sampled": box.sample((3,)),
            "mixed": zuko.distributions.Mixture(zuko.distributions.DiagNormal(array(4, 2), torch.ones(4, 2)),
                                                array(4, seed=2)).log_prob(array(5, 2, seed=3))}
