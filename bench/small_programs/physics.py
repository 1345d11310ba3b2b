"""Programs of science: equations in the loss, derivatives as forces, trajectories, fields, forecasts."""
import math

import numpy as np

from . import batches, drawn, program, uniform


@program
def burgers_equation(torch):
    """A PINN: first and second derivatives of the net by its inputs are the residual of Burgers' equation."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                        nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    inside = torch.from_numpy(uniform(500, 2, low=-1))
    x0 = torch.linspace(-1, 1, 64).unsqueeze(1)

    def slopes(out, x):
        return torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)[0]

    def step():
        x, t = inside[:, :1].clone().requires_grad_(), inside[:, 1:].abs().clone().requires_grad_()
        u = net(torch.cat((x, t), 1))
        u_x, u_t = slopes(u, x), slopes(u, t)
        residual = u_t + u * u_x - 0.01 / math.pi * slopes(u_x, x)
        start = net(torch.cat((x0, torch.zeros_like(x0)), 1)) + torch.sin(math.pi * x0)
        loss = residual.pow(2).mean() + start.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def neural_ode(torch):
    """A spiral fitted through a Runge-Kutta solver that the gradient goes through, step by step."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0, 0.1)
            nn.init.zeros_(layer.bias)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    matrix = np.array([[-0.1, 2.0], [-2.0, -0.1]], np.float32)
    path = [np.array([2.0, 0.0], np.float32)]
    for _ in range(999):
        path.append(path[-1] + 0.01 * (path[-1] ** 3) @ matrix)
    path = torch.from_numpy(np.stack(path))
    random = np.random.default_rng(12)

    def field(y):
        return net(y ** 3)

    def step():
        starts = torch.from_numpy(random.choice(980, 20, replace=False))
        y, found = path[starts], []
        for _ in range(10):
            k1 = field(y)
            k2 = field(y + 0.005 * k1)
            k3 = field(y + 0.005 * k2)
            k4 = field(y + 0.01 * k3)
            y = y + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            found.append(y)
        wanted = torch.stack([path[starts + i + 1] for i in range(10)])
        loss = (torch.stack(found) - wanted).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def adaptive_ode(torch):
    """A continuous flow whose solver chooses its own steps: it looks at the error of each, and repeats some."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(3, 32), nn.Softplus(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    data = batches(torch, 64, drawn(512, 2), drawn(512, 2, seed=1) * 0.3 + 1)

    def field(t, y):
        return net(torch.cat((y, torch.full((len(y), 1), t)), 1))

    def solve(y):
        t, h = 0.0, 0.2
        while t < 1 - 1e-6:
            h = min(h, 1 - t)
            k1 = field(t, y)
            k2 = field(t + h / 2, y + h / 2 * k1)
            k3 = field(t + 3 * h / 4, y + 3 * h / 4 * k2)
            new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
            k4 = field(t + h, new)
            error = (h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)).abs().max().item()
            if error < 1e-3:
                t, y = t + h, new
            h = h * min(2.0, max(0.3, 0.9 * (1e-3 / (error + 1e-12)) ** (1 / 3)))
        return y

    def step():
        x, wanted = next(data)
        found = solve(x)
        loss = (found.mean(0) - wanted.mean(0)).pow(2).sum() + (torch.cov(found.T) - torch.cov(wanted.T)).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def hamiltonian_net(torch):
    """An energy whose derivatives are the motion, by func.grad under vmap."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    q = drawn(1024, 4)
    data = batches(torch, 128, q, np.concatenate((q[:, 2:], -q[:, :2]), 1))
    turn = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1], [-1, 0, 0, 0], [0, -1, 0, 0]])
    motion = torch.func.vmap(torch.func.grad(lambda state: net(state).squeeze()))

    def step():
        x, change = next(data)
        loss = F.mse_loss(motion(x) @ turn.T, change)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def force_field(torch):
    """SchNet-like: radial basis functions of distances, and forces as gradients of the energy in the loss."""
    nn, F = torch.nn, torch.nn.functional
    atoms, width, bases = 12, 32, 16
    embed = nn.Embedding(5, width)
    filters = nn.Sequential(nn.Linear(bases, width), nn.Softplus(), nn.Linear(width, width))
    update, out = nn.Linear(width, width), nn.Sequential(nn.Linear(width, 16), nn.Softplus(), nn.Linear(16, 1))
    net = nn.ModuleList([embed, filters, update, out])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    kinds = torch.from_numpy(np.random.default_rng(0).integers(0, 5, atoms))
    source, target = (torch.from_numpy(i) for i in np.nonzero(1 - np.eye(atoms)))
    centres = torch.linspace(0, 5, bases)
    data = batches(torch, 16, drawn(64, atoms, 3), drawn(64, seed=1), drawn(64, atoms, 3, seed=2))

    def energy(places):
        distance = (places[:, source] - places[:, target]).norm(dim=-1)
        w = filters(torch.exp(-10 * (distance.unsqueeze(-1) - centres) ** 2))
        w = w * (0.5 * torch.cos(distance * math.pi / 5).add(1) * (distance < 5)).unsqueeze(-1)
        h = embed(kinds).expand(len(places), -1, -1)
        for _ in range(2):
            h = h + update(torch.zeros_like(h).index_add(1, target, h[:, source] * w))
        return out(h).sum((1, 2))

    def step():
        places, energies, forces = next(data)
        places.requires_grad_()
        found = energy(places)
        pull = -torch.autograd.grad(found.sum(), places, create_graph=True)[0]
        loss = 0.1 * F.mse_loss(found, energies) + F.mse_loss(pull, forces)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def fourier_operator(torch):
    """An FNO: complex weights for the low frequencies of a two-dimensional field."""
    nn, F = torch.nn, torch.nn.functional
    width, modes = 16, 8

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            scale = 1 / width ** 2
            self.w1, self.w2 = (nn.Parameter(scale * torch.rand(width, width, modes, modes, dtype=torch.cfloat))
                                for _ in range(2))

        def forward(self, x):
            f = torch.fft.rfft2(x)
            out = torch.zeros_like(f)
            out[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", f[:, :, :modes, :modes], self.w1)
            out[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", f[:, :, -modes:, :modes], self.w2)
            return torch.fft.irfft2(out, s=x.shape[-2:])

    enter, leave = nn.Conv2d(3, width, 1), nn.Sequential(nn.Conv2d(width, 32, 1), nn.GELU(), nn.Conv2d(32, 1, 1))
    spectral = nn.ModuleList([Spectral() for _ in range(2)])
    local = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(2)])
    net = nn.ModuleList([enter, leave, spectral, local])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, 32), torch.linspace(0, 1, 32), indexing="ij"))
    data = batches(torch, 8, drawn(32, 1, 32, 32), drawn(32, 1, 32, 32, seed=1))

    def step():
        x, y = next(data)
        h = enter(torch.cat((x, grid.expand(len(x), -1, -1, -1)), 1))
        for s, w in zip(spectral, local):
            h = F.gelu(s(h) + w(h))
        loss = ((leave(h) - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def sine_picture(torch):
    """SIREN: a net of sines fits a picture and its gradients."""
    nn = torch.nn

    class Sine(nn.Module):
        def __init__(self, inside, outside, first=False):
            super().__init__()
            self.linear = nn.Linear(inside, outside)
            bound = 1 / inside if first else math.sqrt(6 / inside) / 30
            with torch.no_grad():
                self.linear.weight.uniform_(-bound, bound)

        def forward(self, x):
            return torch.sin(30 * self.linear(x))

    net = nn.Sequential(Sine(2, 64, True), Sine(64, 64), Sine(64, 64), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    side = torch.linspace(-1, 1, 24)
    where = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    picture = uniform(24, 24)
    wanted = torch.from_numpy(np.stack(np.gradient(picture), -1).reshape(-1, 2))
    picture = torch.from_numpy(picture)

    def step():
        x = where.clone().requires_grad_()
        out = net(x)
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        loss = (out.squeeze() - picture.flatten()).pow(2).mean() + 1e-2 * (slope - wanted).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def forecaster(torch):
    """A temporal convolutional net with weight norm; quantile losses of a many-step forecast; accuracy as a number."""
    nn = torch.nn
    norm = nn.utils.parametrizations.weight_norm

    class Block(nn.Module):
        def __init__(self, inside, outside, dilation):
            super().__init__()
            self.pad = 2 * dilation
            self.conv1 = norm(nn.Conv1d(inside, outside, 3, padding=self.pad, dilation=dilation))
            self.conv2 = norm(nn.Conv1d(outside, outside, 3, padding=self.pad, dilation=dilation))
            self.drop = nn.Dropout(0.1)
            self.skip = nn.Conv1d(inside, outside, 1) if inside != outside else nn.Identity()

        def forward(self, x):
            h = self.drop(torch.relu(self.conv1(x)[..., :-self.pad]))
            h = self.drop(torch.relu(self.conv2(h)[..., :-self.pad]))
            return torch.relu(h + self.skip(x))

    net = nn.Sequential(Block(4, 32, 1), Block(32, 32, 2), Block(32, 32, 4))
    head, quantiles = nn.Linear(32, 12 * 3), torch.tensor([0.1, 0.5, 0.9])
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-3)
    data = batches(torch, 32, drawn(300, 4, 96), drawn(300, 12, seed=1), drop_last=False)

    def step():
        x, y = next(data)
        centre, spread = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        found = head(net((x - centre) / spread)[..., -1]).view(-1, 12, 3)
        error = y.unsqueeze(-1) - found
        loss = torch.maximum(quantiles * error, (quantiles - 1) * error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def linear_system(torch):
    """A linear system is identified through matrix exponentials, with an orthogonal basis by QR and a spectral term."""
    nn = torch.nn
    n = 12
    a, basis = nn.Parameter(torch.randn(n, n) * 0.1), nn.Parameter(torch.randn(n, n))
    optimizer = torch.optim.Adam([a, basis], lr=1e-2)
    starts, ends = torch.from_numpy(drawn(64, n)), torch.from_numpy(drawn(64, n, seed=1))
    times = torch.linspace(0.1, 1.0, 8)

    def step():
        q, _ = torch.linalg.qr(basis)
        system = q @ (a - a.T) @ q.T
        moves = torch.linalg.matrix_exp(times[:, None, None] * system)
        found = torch.einsum("tij,bj->tbi", moves, starts)
        loss = (found - ends).pow(2).mean() + 1e-2 * torch.linalg.svdvals(a).max() - 1e-3 * torch.linalg.slogdet(
            torch.eye(n) + a @ a.T)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
