"""torchdiffeq: fixed and adaptive solvers, the adjoint's gradients, an event, a neural equation that learns."""
import torch
from torchdiffeq import odeint, odeint_adjoint, odeint_event

from tests.programs import array, fill, gradients

PACKAGES = ["torchdiffeq"]
QUICK = True


class _Spiral(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    def forward(self, t, y):
        return self.net(y ** 3)


def solvers():
    """The same equation by each solver."""
    t = torch.linspace(0, 2, 6, dtype=torch.float64)
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=torch.float64)
    start = torch.tensor([2.0, 0.0], dtype=torch.float64)
    return {method: odeint(lambda t, y: y ** 3 @ matrix, start, t, method=method, rtol=1e-4, atol=1e-5)
            for method in ("euler", "midpoint", "rk4", "explicit_adams", "dopri5", "dopri8", "bosh3", "adaptive_heun")}


def gradients_of_both_kinds():
    """Backward through the solver, and by the adjoint equation."""
    t, out = torch.linspace(0, 1, 5), {}
    for name, solve in (("through", odeint), ("adjoint", odeint_adjoint)):
        model = fill(_Spiral(), scale=0.5)
        y = solve(model, array(4, 2), t, method="dopri5")
        y.square().mean().backward()
        out[name] = {"y": y, "gradients": gradients(model)}
    return out


def event():
    """A ball falls until it meets the ground."""
    def falls(t, state):
        return state[1], torch.full_like(state[1], -9.8)
    start = (torch.tensor([10.0]), torch.tensor([0.0]))
    at, (_, speed) = odeint_event(falls, start, torch.tensor(0.0), event_fn=lambda t, s: s[0], atol=1e-8, rtol=1e-8)
    return {"at": at, "speed": speed[-1]}


def training():
    """A neural equation learns a spiral by RMSprop."""
    model = fill(_Spiral(), scale=0.5)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    t, y, losses = torch.linspace(0, 1, 5), array(5, 4, 2, seed=1), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (odeint(model, y[0], t, method="rk4") - y).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses}
