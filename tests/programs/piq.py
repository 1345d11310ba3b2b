"""piq: measures of the quality of pictures, and their gradients as losses."""
import piq
import torch

from tests.programs import array, tolerance

PACKAGES = ["piq"]


def _pair(size=48):
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    base = torch.stack([x, y, (x * 9).sin() * 0.5 + 0.5])[None].repeat(2, 1, 1, 1)
    base = (0.8 * base + 0.1 * array(2, 3, size, size, seed=1)).clamp(0, 1)
    return base, (base + 0.05 * array(2, 3, size, size)).clamp(0, 1)


def measured():
    """Of two pictures each measure that needs no trained net."""
    given, other = _pair()
    of = {name: getattr(piq, name)(other, given, data_range=1.0) for name in (
        "psnr", "ssim", "multi_scale_gmsd", "gmsd", "vif_p", "fsim", "vsi", "mdsi", "haarpsi", "srsim", "dss")}
    return of | {"total variation": piq.total_variation(other),
                 "several scales": piq.multi_scale_ssim(*(_pair(96)), kernel_size=5, data_range=1.0)}


@tolerance(1e-4, "measures divide by variances of patches that hardly vary")
def as_losses():
    """Each measure's gradient with respect to the picture."""
    found = {}
    for kind in (piq.SSIMLoss, piq.GMSDLoss, piq.VIFLoss, piq.FSIMLoss, piq.VSILoss, piq.MDSILoss, piq.HaarPSILoss,
                 piq.TVLoss):
        given, other = _pair()
        other.requires_grad_()
        loss = kind()(other) if kind is piq.TVLoss else kind(data_range=1.0)(other, given)
        loss.backward()
        found[kind.__name__] = {"loss": loss, "gradient": other.grad}
    return found


def restored():
    """A noisy picture comes nearer to the other one by descending on structural similarity."""
    given, other = _pair()
    other = other.requires_grad_()
    adam, losses = torch.optim.Adam([other], 0.01), []
    for _ in range(5):
        adam.zero_grad()
        loss = piq.SSIMLoss(data_range=1.0)(other.clamp(0, 1), given)
        loss.backward()
        adam.step()
        losses.append(loss)
    return {"losses": losses}


def features():
    """Distances between two sets of features."""
    one, other = array(40, 6), array(40, 6, seed=1) + 0.3
    return {"fid": piq.FID().compute_metric(one, other), "kid": piq.KID()(one, other),
            "inception": piq.IS(num_splits=4)(one, other)}
