"""Programs of statistics: posteriors, processes, mixtures, and gradients of gradients and of samples."""
import math

import numpy as np

from . import batches, drawn, program, uniform, whole


@program
def bayesian_last_layer(torch):
    """Features from a net; the last layer is integrated out, and its marginal likelihood is the loss."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32))
    log_noise, log_prior = nn.Parameter(torch.tensor(-1.0)), nn.Parameter(torch.tensor(0.0))
    optimizer = torch.optim.Adam([*net.parameters(), log_noise, log_prior], lr=1e-3)
    x = drawn(400, 5)
    data = batches(torch, 200, x, np.sin(x.sum(1)) + 0.1 * drawn(400, seed=1))

    def step():
        rows, y = next(data)
        phi = net(rows)
        beta, alpha = torch.exp(-log_noise), torch.exp(log_prior)
        precision = alpha * torch.eye(32) + beta * phi.T @ phi
        factor = torch.linalg.cholesky(precision)
        mean = beta * torch.cholesky_solve((phi.T @ y).unsqueeze(1), factor).squeeze(1)
        n = len(rows)
        evidence = 16 * log_prior - 0.5 * n * log_noise - torch.log(torch.diagonal(factor)).sum() \
            - 0.5 * beta * (y - phi @ mean).pow(2).sum() - 0.5 * alpha * mean.pow(2).sum() \
            - 0.5 * n * math.log(2 * math.pi)
        loss = -evidence / n
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def gaussian_process(torch):
    """Exact regression: an RBF kernel with a length for every input, Cholesky, triangular solves, and predictions."""
    x, new = torch.from_numpy(drawn(200, 4)), torch.from_numpy(drawn(50, 4, seed=1))
    y = torch.from_numpy(np.sin(drawn(200, 4).sum(1)))
    raw_length, raw_scale, raw_noise = (torch.zeros(n, requires_grad=True) for n in (4, 1, 1))
    optimizer = torch.optim.Adam([raw_length, raw_scale, raw_noise], lr=0.05)
    softplus = torch.nn.functional.softplus

    def kernel(a, b):
        a, b = a / softplus(raw_length), b / softplus(raw_length)
        squared = (a ** 2).sum(1)[:, None] + (b ** 2).sum(1)[None] - 2 * a @ b.T
        return softplus(raw_scale) * torch.exp(-0.5 * squared.clamp(min=0))

    def step():
        k = kernel(x, x) + (softplus(raw_noise) + 1e-4) * torch.eye(len(x))
        factor = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y[:, None], factor)
        loss = (0.5 * y @ alpha[:, 0] + factor.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            across = kernel(new, x)
            v = torch.linalg.solve_triangular(factor, across.T, upper=False)
            variance = softplus(raw_scale) - (v ** 2).sum(0)
            assert variance.min().item() > -1
        return loss
    return step


@program
def sparse_gaussian_process(torch):
    """Inducing points and a variational posterior, in minibatches."""
    nn = torch.nn
    m = 40
    places, log_length = nn.Parameter(torch.from_numpy(drawn(m, 3, seed=4))), nn.Parameter(torch.zeros(3))
    mean, raw = nn.Parameter(torch.zeros(m)), nn.Parameter(torch.eye(m))
    log_noise = nn.Parameter(torch.tensor(-1.0))
    optimizer = torch.optim.Adam([places, log_length, mean, raw, log_noise], lr=0.01)
    x = drawn(1000, 3)
    data = batches(torch, 100, x, np.sin(2 * x[:, 0]) * x[:, 1])

    def kernel(a, b):
        return torch.exp(-0.5 * torch.cdist(a / log_length.exp(), b / log_length.exp()).pow(2))

    def step():
        rows, y = next(data)
        factor = torch.linalg.cholesky(kernel(places, places) + 1e-4 * torch.eye(m))
        a = torch.linalg.solve_triangular(factor, kernel(places, rows), upper=False)
        lower = torch.tril(raw)
        found = a.T @ mean
        variance = 1 - a.pow(2).sum(0) + (lower.T @ a).pow(2).sum(0)
        q = torch.distributions.MultivariateNormal(mean, scale_tril=torch.tril(raw, -1) + torch.diag(
            torch.nn.functional.softplus(raw.diagonal())))
        p = torch.distributions.MultivariateNormal(torch.zeros(m), torch.eye(m))
        likelihood = -0.5 * ((y - found).pow(2) + variance) / log_noise.exp() - 0.5 * log_noise
        loss = -likelihood.mean() + torch.distributions.kl_divergence(q, p) / 1000
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def bayes_by_backprop(torch):
    """Weights drawn anew for every forward, three samples a step, KL between Gaussians."""
    nn, F = torch.nn, torch.nn.functional

    class BayesLinear(nn.Module):
        def __init__(self, inside, outside):
            super().__init__()
            self.mean = nn.Parameter(torch.randn(outside, inside) * 0.1)
            self.rho = nn.Parameter(torch.full((outside, inside), -4.0))
            self.bias = nn.Parameter(torch.zeros(outside))

        def forward(self, x):
            return F.linear(x, torch.normal(0.0, 1.0, self.mean.shape) * F.softplus(self.rho) + self.mean, self.bias)

        def kl(self):
            q = torch.distributions.Normal(self.mean, F.softplus(self.rho))
            return torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 0.3)).sum()

    net = nn.Sequential(BayesLinear(20, 100), nn.ReLU(), BayesLinear(100, 100), nn.ReLU(), BayesLinear(100, 5))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 64, drawn(512, 20), whole(5, 512))

    def step():
        x, y = next(data)
        likelihood = torch.stack([F.cross_entropy(net(x), y) for _ in range(3)]).mean()
        loss = likelihood + sum(layer.kl() for layer in net if isinstance(layer, BayesLinear)) / 512
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def mixture_density(torch):
    """A net gives the weights, means and spreads of a mixture, with torch.distributions."""
    nn, D = torch.nn, torch.distributions
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5 * 7))
    optimizer = torch.optim.Adamax(net.parameters(), lr=2e-3)
    data = batches(torch, 128, drawn(1024, 4), drawn(1024, 3, seed=1) + np.sign(drawn(1024, 1, seed=2)))

    def step():
        x, y = next(data)
        out = net(x).view(-1, 5, 7)
        parts = D.Independent(D.Normal(out[..., 1:4], out[..., 4:].exp()), 1)
        mixture = D.MixtureSameFamily(D.Categorical(logits=out[..., 0]), parts)
        loss = -mixture.log_prob(y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def hamiltonian_sampler(torch):
    """Hamiltonian Monte Carlo for a logistic regression: ten leapfrog steps, and a decision to accept."""
    x, y = torch.from_numpy(drawn(500, 12)), torch.from_numpy((uniform(500) < 0.4).astype(np.float32))
    at = {"w": torch.zeros(12)}

    def energy(w):
        return torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y, reduction="sum") + 0.5 * (w ** 2).sum()

    def slope(w):
        w = w.detach().requires_grad_(True)
        return torch.autograd.grad(energy(w), w)[0]

    def step():
        w, p = at["w"], torch.randn(12)
        before = energy(w) + 0.5 * (p ** 2).sum()
        p = p - 0.01 * slope(w)
        for i in range(10):
            w = w + 0.02 * p
            p = p - (0.02 if i < 9 else 0.01) * slope(w)
        after = energy(w) + 0.5 * (p ** 2).sum()
        if torch.rand(1).item() < torch.exp(before - after).item():
            at["w"] = w
        return energy(at["w"]) / 500
    return step


@program
def meta_learning(torch):
    """MAML on sine waves: two inner steps by hand for each of four tasks, differentiated twice."""
    F = torch.nn.functional
    sizes = [(1, 40), (40, 40), (40, 1)]
    weights = []
    for inside, outside in sizes:
        weights.append((torch.randn(outside, inside) * (2 / inside) ** 0.5).requires_grad_())
        weights.append(torch.zeros(outside, requires_grad=True))
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    random = np.random.default_rng(10)

    def net(x, w):
        for i in range(0, len(w) - 2, 2):
            x = F.relu(F.linear(x, w[i], w[i + 1]))
        return F.linear(x, w[-2], w[-1])

    def step():
        losses = []
        for _ in range(4):
            height, phase = random.uniform(0.1, 5.0), random.uniform(0, math.pi)
            x = random.uniform(-5, 5, (20, 1)).astype(np.float32)
            y = torch.from_numpy((height * np.sin(x + phase)).astype(np.float32))
            x, fast = torch.from_numpy(x), weights
            for _ in range(2):
                slopes = torch.autograd.grad(F.mse_loss(net(x[:10], fast), y[:10]), fast, create_graph=True)
                fast = [w - 0.01 * g for w, g in zip(fast, slopes)]
            losses.append(F.mse_loss(net(x[10:], fast), y[10:]))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def prototypes(torch):
    """Few-shot episodes: class means of a support set, distances of the queries to them."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5)
    pictures = torch.from_numpy(uniform(20, 15, 1, 20, 20))
    random = np.random.default_rng(11)

    def step():
        classes = torch.from_numpy(random.choice(20, 5, replace=False))
        chosen = pictures[classes][:, torch.randperm(15)[:8]]
        support, query = chosen[:, :3], chosen[:, 3:]
        e = net(torch.cat((support.flatten(0, 1), query.flatten(0, 1))))
        centres = e[:15].view(5, 3, -1).mean(1)
        distance = torch.cdist(e[15:], centres) ** 2
        loss = F.cross_entropy(-distance, torch.arange(5).repeat_interleave(5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss
    return step


@program
def private_training(torch):
    """DP-SGD: gradients of every sample by func.vmap(func.grad), clipped one by one, summed, and noised."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.Tanh(), nn.Conv2d(8, 16, 3, 2), nn.Tanh(), nn.Flatten(),
                        nn.Linear(16 * 25, 10))
    parameters = dict(net.named_parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = batches(torch, 32, uniform(128, 1, 28, 28), whole(10, 128))

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(net, weights, (x.unsqueeze(0),)), y.unsqueeze(0))

    per_sample = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0, 0))

    def step():
        x, y = next(data)
        grads, losses = per_sample({name: p.detach() for name, p in parameters.items()}, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()], 1).norm(dim=1)
        factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        for name, p in parameters.items():
            total = torch.einsum("n,n...->...", factor, grads[name])
            p.grad = (total + 0.5 * torch.randn_like(p)) / len(x)
        optimizer.step()
        return losses.mean()
    return step


@program
def quasi_newton(torch):
    """Logistic regression by L-BFGS with strong Wolfe conditions, all data in every step."""
    nn, F = torch.nn, torch.nn.functional
    x, y = torch.from_numpy(drawn(500, 30)), torch.from_numpy(whole(3, 500))
    net = nn.Linear(30, 3)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y) + 1e-2 * sum(p.pow(2).sum() for p in net.parameters())
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@program
def tabular_regression(torch):
    """Minibatches are slices of rows, shuffled once an epoch; the schedule looks at rows that were held out."""
    nn, F = torch.nn, torch.nn.functional
    x = drawn(4000, 30)
    y = x[:, :1] * np.sin(x[:, 1:2]) + 0.1 * drawn(4000, 1, seed=1)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    x = (x - x.mean(0)) / x.std(0)
    held_x, held_y, x, y = x[3500:], y[3500:], x[:3500], y[:3500]
    net = nn.Sequential(nn.Linear(30, 128), nn.BatchNorm1d(128), nn.SiLU(), nn.Linear(128, 128), nn.BatchNorm1d(128),
                        nn.SiLU(), nn.Dropout(0.1), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)
    at = {"row": 3500}

    def step():
        nonlocal x, y
        if at["row"] >= len(x):
            order = torch.randperm(len(x))
            x, y, at["row"] = x[order], y[order], 0
            net.eval()
            with torch.no_grad():
                scheduler.step(F.mse_loss(net(held_x), held_y).item())
            net.train()
        rows_x, rows_y = x[at["row"]:at["row"] + 64], y[at["row"]:at["row"] + 64]
        at["row"] += 64
        loss = F.mse_loss(net(rows_x), rows_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
