"""lpips: the perceptual distance of pictures, from random weights, and what descending on it gives."""
import lpips
import torch

from tests.programs import array, fill, tolerance

PACKAGES = ["lpips"]


@tolerance(2e-4, "a layer's distance is the mean of small differences squared")
def measured():
    """With each of its nets: the distance, that of each layer, the map of it, and the gradient."""
    found = {}
    for name in ("alex", "squeeze"):
        net = lpips.LPIPS(pretrained=False, net=name, pnet_rand=True, verbose=False, spatial=name == "alex")
        fill(net.eval())
        one, other = array(1, 3, 48, 48).tanh().requires_grad_(), array(1, 3, 48, 48, seed=1).tanh()
        distance, layers = net(one, other, retPerLayer=True)
        distance.sum().backward()
        found[name] = {"distance": distance, "layers": [layer.mean() for layer in layers], "gradient": one.grad}
    return found


def descended():
    """A picture comes nearer to another one."""
    net = fill(lpips.LPIPS(pretrained=False, net="squeeze", pnet_rand=True, verbose=False)).eval()
    one, other = (array(1, 3, 48, 48) * 0.3).requires_grad_(), array(1, 3, 48, 48, seed=1).tanh()
    sgd, losses = torch.optim.SGD([one], 0.05), []
    for _ in range(3):
        sgd.zero_grad()
        loss = net(one, other).mean()
        loss.backward()
        sgd.step()
        losses.append(loss)
    return {"losses": losses}
