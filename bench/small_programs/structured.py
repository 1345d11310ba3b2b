"""Programs whose inner part is a recurrence, a dynamic program, a routing or another net's weights."""
import math

import numpy as np

from . import batches, drawn, program, uniform, whole


@program
def selective_scan(torch):
    """A Mamba-like block: a causal convolution, steps that depend on the input, and the scan as a loop over time."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, width, states, tokens = 64, 48, 8, 48

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.enter = nn.LayerNorm(width), nn.Linear(width, 2 * width)
            self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
            self.project, self.dt = nn.Linear(width, 2 * states + 4), nn.Linear(4, width)
            self.log_a = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(width, 1))
            self.skip, self.leave = nn.Parameter(torch.ones(width)), nn.Linear(width, width)

        def forward(self, x):
            inner, gate = self.enter(self.norm(x)).chunk(2, -1)
            inner = F.silu(self.conv(inner.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
            dt, b, c = self.project(inner).split([4, states, states], -1)
            dt = F.softplus(self.dt(dt))
            decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.log_a))
            enters = (dt * inner).unsqueeze(-1) * b.unsqueeze(2)
            h, outs = torch.zeros(len(x), width, states), []
            for t in range(x.shape[1]):
                h = decay[:, t] * h + enters[:, t]
                outs.append((h * c[:, t].unsqueeze(1)).sum(-1))
            y = torch.stack(outs, 1) + inner * self.skip
            return x + self.leave(y * F.silu(gate))

    net = nn.Sequential(nn.Embedding(vocabulary, width), Block(), Block(), nn.LayerNorm(width),
                        nn.Linear(width, vocabulary))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    data = batches(torch, 8, whole(vocabulary, 64, tokens + 1))

    def step():
        rows, = next(data)
        loss = F.cross_entropy(net(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def structured_state_space(torch):
    """S4D: the kernel of a diagonal complex recurrence, applied by FFT."""
    nn, F = torch.nn, torch.nn.functional
    width, states, length = 32, 16, 256

    class S4D(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_dt = nn.Parameter(torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
            self.c = nn.Parameter(torch.randn(width, states, 2))
            self.log_real = nn.Parameter(torch.log(0.5 * torch.ones(width, states)))
            self.imag = nn.Parameter(math.pi * torch.arange(states).float().repeat(width, 1))
            self.d, self.out = nn.Parameter(torch.randn(width)), nn.Conv1d(width, 2 * width, 1)

        def forward(self, u):
            dt, c = torch.exp(self.log_dt), torch.view_as_complex(self.c)
            a = -torch.exp(self.log_real) + 1j * self.imag
            dta = a * dt.unsqueeze(-1)
            powers = torch.exp(dta.unsqueeze(-1) * torch.arange(length))
            kernel = 2 * torch.einsum("hn,hnl->hl", c * (torch.exp(dta) - 1) / a, powers).real
            y = torch.fft.irfft(torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length), n=2 * length)
            return F.glu(self.out(F.gelu(y[..., :length] + u * self.d.unsqueeze(-1))), dim=1)

    enter, leave = nn.Linear(1, width), nn.Linear(width, 10)
    layers, norms = nn.ModuleList([S4D() for _ in range(2)]), nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
    net = nn.ModuleList([enter, layers, norms, leave])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    data = batches(torch, 8, drawn(64, length, 1), whole(10, 64))

    def step():
        x, y = next(data)
        h = enter(x)
        for layer, norm in zip(layers, norms):
            h = norm(h + layer(h.transpose(1, 2)).transpose(1, 2))
        loss = F.cross_entropy(leave(h.mean(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def crf_tagger(torch):
    """A linear-chain CRF over an LSTM: the forward algorithm in the loss, Viterbi for what it would say."""
    nn = torch.nn
    tags, words = 9, 500
    embed, rnn = nn.Embedding(words, 48), nn.LSTM(48, 32, batch_first=True, bidirectional=True)
    out, moves = nn.Linear(64, tags), nn.Parameter(torch.randn(tags, tags) * 0.1)
    parameters = [*embed.parameters(), *rnn.parameters(), *out.parameters(), moves]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    length = 5 + whole(11, 128, seed=3)
    data = batches(torch, 16, whole(words, 128, 16), whole(tags, 128, 16, seed=2),
                   np.arange(16)[None] < length[:, None])

    def partition(scores, mask):
        alpha = scores[:, 0]
        for t in range(1, scores.shape[1]):
            following = torch.logsumexp(alpha.unsqueeze(2) + moves.unsqueeze(0) + scores[:, t].unsqueeze(1), 1)
            alpha = torch.where(mask[:, t].unsqueeze(1), following, alpha)
        return torch.logsumexp(alpha, 1)

    def path_score(scores, y, mask):
        found = scores.gather(2, y.unsqueeze(2)).squeeze(2)
        steps = moves[y[:, :-1], y[:, 1:]]
        return (found * mask).sum(1) + (steps * mask[:, 1:]).sum(1)

    def viterbi(scores):
        best, back = scores[0], []
        for t in range(1, len(scores)):
            top, where = (best.unsqueeze(1) + moves).max(0)
            best = top + scores[t]
            back.append(where)
        path = [best.argmax().item()]
        for where in reversed(back):
            path.append(where[path[-1]].item())
        return path[::-1]

    def step():
        x, y, mask = next(data)
        scores = out(rnn(embed(x))[0])
        loss = (partition(scores, mask) - path_score(scores, y, mask)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            assert len(viterbi(scores[0])) == 16
        return loss
    return step


@program
def soft_dtw(torch):
    """Soft dynamic time warping between a net's forecast and what came, by anti-diagonals."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 20))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 32, drawn(256, 40), drawn(256, 20, seed=1))
    gamma, n = 0.1, 20

    def distance(a, b):
        cost = (a.unsqueeze(2) - b.unsqueeze(1)) ** 2
        r = {(0, 0): torch.zeros(len(a))}
        far = torch.full((len(a),), 1e8)
        for i in range(1, n + 1):
            for j in range(max(1, i - 3), min(n, i + 3) + 1):
                steps = torch.stack([r.get(p, far) for p in ((i - 1, j - 1), (i - 1, j), (i, j - 1))], -1)
                r[i, j] = cost[:, i - 1, j - 1] - gamma * torch.logsumexp(-steps / gamma, -1)
        return r[n, n]

    def step():
        x, y = next(data)
        loss = distance(net(x), y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def mixture_of_experts(torch):
    """Tokens go to their two best experts, gathered and added back by index, with a loss that balances the load."""
    nn, F = torch.nn, torch.nn.functional
    width, experts, tokens = 64, 8, 512

    class MoE(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(width, experts, bias=False)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width))
                                          for _ in range(experts)])

        def forward(self, x):
            p = self.gate(x).softmax(-1)
            weights, chosen = p.topk(2, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                rows, slot = torch.where(chosen == i)
                if rows.numel() == 0:
                    continue
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot].unsqueeze(-1))
            share = F.one_hot(chosen[:, 0], experts).float().mean(0)
            return out, experts * (share * p.mean(0)).sum()

    moe, head = MoE(), nn.Linear(width, 10)
    optimizer = torch.optim.AdamW([*moe.parameters(), *head.parameters()], lr=1e-3)
    data = batches(torch, tokens, drawn(4096, width), whole(10, 4096))

    def step():
        x, y = next(data)
        h, balance = moe(x)
        loss = F.cross_entropy(head(x + h), y) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def hypernetwork(torch):
    """A net that writes, for each task, the weights of another one, which func.functional_call and vmap run."""
    nn, F = torch.nn, torch.nn.functional
    target = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    shapes = {name: p.shape for name, p in target.named_parameters()}
    total = sum(p.numel() for p in target.parameters())
    hyper = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, total))
    optimizer = torch.optim.Adam(hyper.parameters(), lr=1e-3)
    data = batches(torch, 16, drawn(128, 8), drawn(128, 50, 2, seed=1), drawn(128, 50, 1, seed=2))

    def run(flat, x):
        weights, at = {}, 0
        for name, shape in shapes.items():
            weights[name] = flat[at:at + shape.numel()].view(shape)
            at += shape.numel()
        return torch.func.functional_call(target, weights, (x,))

    def step():
        task, x, y = next(data)
        loss = F.mse_loss(torch.func.vmap(run)(hyper(task) * 0.1, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def learnt_sorting(torch):
    """Sinkhorn: scores become a permutation by rounds of normalising in the log domain."""
    nn, F = torch.nn, torch.nn.functional
    n = 10
    net = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, n))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 64, uniform(512, n))

    def step():
        x, = next(data)
        log_p = net(x.unsqueeze(-1)) / 0.5
        uniform_noise = torch.rand_like(log_p)
        log_p = log_p - torch.log(-torch.log(uniform_noise + 1e-20) + 1e-20)
        for _ in range(15):
            log_p = log_p - torch.logsumexp(log_p, 2, keepdim=True)
            log_p = log_p - torch.logsumexp(log_p, 1, keepdim=True)
        ordered = (log_p.exp().transpose(1, 2) @ x.unsqueeze(-1)).squeeze(-1)
        loss = F.mse_loss(ordered, x.sort(1).values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def optimal_transport(torch):
    """The Sinkhorn divergence between two clouds moves the first onto the second, until its potentials stand still."""
    points, wanted = torch.from_numpy(drawn(150, 2)), torch.from_numpy(drawn(200, 2, seed=1) + 3)
    points.requires_grad_()
    optimizer = torch.optim.SGD([points], lr=5.0, momentum=0.5)
    epsilon = 0.5

    def cost(a, b):
        c = torch.cdist(a, b) ** 2 / 2
        f, g = torch.zeros(len(a)), torch.zeros(len(b))
        log_a, log_b = math.log(1 / len(a)), math.log(1 / len(b))
        for _ in range(40):
            before = f
            f = -epsilon * torch.logsumexp((g - c) / epsilon + log_b, 1)
            g = -epsilon * torch.logsumexp((f.unsqueeze(1) - c) / epsilon + log_a, 0)
            if (f - before).abs().mean().item() < 1e-3:
                break
        return f.mean() + g.mean()

    def step():
        optimizer.zero_grad()
        loss = cost(points, wanted) - 0.5 * cost(points, points + 1e-6)
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def tree_net(torch):
    """A recursive net over random binary trees, node by node."""
    nn, F = torch.nn, torch.nn.functional
    width = 32
    embed, compose, out = nn.Embedding(100, width), nn.Linear(2 * width, 2 * width), nn.Linear(width, 5)
    net = nn.ModuleList([embed, compose, out])
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
    random = np.random.default_rng(8)

    def tree(leaves):
        if leaves == 1:
            return int(random.integers(0, 100))
        left = int(random.integers(1, leaves))
        return tree(left), tree(leaves - left)

    trees = [(tree(int(random.integers(4, 14))), int(random.integers(0, 5))) for _ in range(64)]

    def encode(node):
        if isinstance(node, int):
            return embed(torch.tensor(node))
        gate, value = compose(torch.cat((encode(node[0]), encode(node[1])))).chunk(2)
        return gate.sigmoid() * value.tanh()

    def step():
        chosen = [trees[i] for i in random.choice(64, 8, replace=False)]
        scores = torch.stack([out(encode(node)) for node, _ in chosen])
        loss = F.cross_entropy(scores, torch.tensor([label for _, label in chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
