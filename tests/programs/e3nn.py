"""e3nn: layers that turn with the space they are in: spherical harmonics, products, a net of points that learns."""
import torch
from e3nn import o3
from e3nn.math import soft_one_hot_linspace
from e3nn.nn import BatchNorm, FullyConnectedNet, Gate

from tests.programs import array, fill

PACKAGES = ["e3nn"]


def harmonics():
    """Spherical harmonics, Wigner matrices, representations and their gradients."""
    x = array(5, 3).requires_grad_()
    values = o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True, normalization="component")
    values.square().sum().sub(values.sum()).backward()
    irreps = o3.Irreps("2x0e + 1o + 2e")
    angles = torch.tensor([0.3, 1.1, -0.4])
    return {"values": values, "gradient": x.grad, "matrix": irreps.D_from_angles(*angles),
            "wigner": o3.wigner_3j(1, 2, 3), "dim": irreps.dim, "text": str(irreps.simplify()),
            "hot": soft_one_hot_linspace(array(4).abs(), 0.0, 2.0, 5, basis="smooth_finite", cutoff=True)}


def products():
    """Tensor products with weights inside and weights given, a linear layer, a gate: values and gradients."""
    one, other = o3.Irreps("4x0e + 3x1o"), o3.Irreps("0e + 1o + 2e")
    whole = fill(o3.FullyConnectedTensorProduct(one, other, "5x0e + 2x1o"))
    x, y = array(6, one.dim).requires_grad_(), array(6, other.dim, seed=1)
    out = whole(x, y)
    out.square().sum().backward()
    given = o3.FullTensorProduct(one, other)
    gate = Gate("2x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
    linear = fill(o3.Linear(one, gate.irreps_in))
    norm = BatchNorm(one)
    return {"product": out, "gradient": x.grad, "weight": whole.weight.grad, "full": given(x, y),
            "irreps": str(given.irreps_out), "gated": gate(linear(x)), "normed": norm(x)}


class _Net(torch.nn.Module):
    """A convolution over points, as e3nn's tutorial has it."""
    def __init__(self):
        super().__init__()
        self.harmonics = o3.Irreps.spherical_harmonics(2)
        self.product = o3.FullyConnectedTensorProduct("3x0e", self.harmonics, "4x0e + 2x1o", shared_weights=False)
        self.weights = FullyConnectedNet([8, 16, self.product.weight_numel], torch.relu)
        self.last = o3.Linear("4x0e + 2x1o", "0e + 1o")

    def forward(self, places, kinds, source, target):
        edges = places[target] - places[source]
        sh = o3.spherical_harmonics(self.harmonics, edges, True, normalization="component")
        distances = soft_one_hot_linspace(edges.norm(dim=1), 0.0, 3.0, 8, basis="gaussian", cutoff=False)
        messages = self.product(kinds[source], sh, self.weights(distances))
        summed = torch.zeros(len(places), messages.shape[1]).index_add(0, target, messages)
        return self.last(summed / 3)


def learned():
    """The net learns; turned points give turned vectors; saved and loaded."""
    net, places, kinds = fill(_Net()), array(7, 3), array(7, 3, seed=1)
    source, target = torch.nonzero(~torch.eye(7, dtype=torch.bool)).T
    adam, losses = torch.optim.Adam(net.parameters(), 0.01), []
    for _ in range(6):
        loss = (net(places, kinds, source, target) - array(7, 4, seed=2)).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss)
    torch.save(net.state_dict(), "net.pt")
    again = _Net()
    again.load_state_dict(torch.load("net.pt"))
    turn = o3.matrix_x(torch.tensor(0.7)) @ o3.matrix_y(torch.tensor(0.2))
    out, turned = net(places, kinds, source, target), again(places @ turn.T, kinds, source, target)
    expected = out @ o3.Irreps("0e + 1o").D_from_matrix(turn).T
    return {"losses": losses, "out": out, "turns along": bool(torch.allclose(turned, expected, atol=1e-4))}
