"""Whole programs as people write them, run with PyTorch and with Flambeau from one seed: what they print is the same.

Where a program amplifies rounding (a loss that is divided by a small variance, a search along lines) it is in double.
"""
import io
import math

import pytest

torch = pytest.importorskip("torch")
import flambeau

from .pairs import agree


def history(m, optimizer, loss_of, steps, schedule=None):
    """The losses of some steps of training, with the rate of each."""
    losses, rates = [], []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        rates.append(round(optimizer.param_groups[0]["lr"], 9))
        if schedule is not None:
            schedule.step()
    return m.stack(losses), rates


def residual_network(m):
    nn, F = m.nn, m.nn.functional

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.relu = nn.ReLU(inplace=True)
            self.short = None
            if stride > 1:
                self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x):
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            out += x if self.short is None else self.short(x)
            return self.relu(out)

    net = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(3, 2, 1),
                        Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Block):
            nn.init.zeros_(module.bn2.weight)
    x, y = m.randn(16, 3, 20, 20), m.randint(0, 5, (16,))
    decayed = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim == 1]
    optimizer = m.optim.SGD([{"params": decayed, "weight_decay": 5e-4}, {"params": plain}], lr=0.02, momentum=0.9,
                            nesterov=True)
    schedule = m.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=6)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = history(m, optimizer, lambda: criterion(net(x), y), 6, schedule)
    net.eval()
    with m.inference_mode():
        top = F.softmax(net(x), dim=-1).topk(2)
    return losses, top.values, net.state_dict(), repr(net)


def u_net(m):
    nn, F = m.nn, m.nn.functional

    def double(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                             nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.down, self.deep = double(1, 4), double(4, 8), double(8, 8)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.half, self.back = double(16, 4), nn.ConvTranspose2d(4, 4, 2, stride=2)
            self.last, self.out = double(8, 4), nn.Conv2d(4, 2, 1)

        def join(self, x, skip):
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            return m.cat([skip, F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], dim=1)

        def forward(self, x):
            a = self.first(x)
            b = self.down(F.max_pool2d(a, 2))
            c = self.half(self.join(self.up(self.deep(F.max_pool2d(b, 2))), b))
            return self.out(self.last(self.join(self.back(c), a)))

    yy, xx = m.meshgrid(m.arange(13), m.arange(15), indexing="ij")
    centre, radius = m.randint(4, 9, (6, 2)), m.rand(6) * 3 + 2
    masks = m.stack([(yy - a) ** 2 + (xx - b) ** 2 < r ** 2 for (a, b), r in zip(centre, radius)]).long()
    images = (masks.float() + 0.3 * m.randn(6, 13, 15))[:, None].double()
    net = UNet().double().to(memory_format=m.channels_last)
    images = images.to(memory_format=m.channels_last)
    optimizer = m.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)

    def loss():
        out = net(images)
        soft, hot = out.softmax(1), F.one_hot(masks, 2).permute(0, 3, 1, 2)
        dice = 2 * (soft * hot).sum((-1, -2)) / (soft.sum((-1, -2)) + hot.sum((-1, -2)))
        return F.cross_entropy(out, masks) + 1 - dice.mean()

    losses = history(m, optimizer, loss, 5)
    return losses, net.eval()(images).argmax(1), net.first[0].weight.stride()


def generative_pair(m):
    nn = m.nn
    generator = nn.Sequential(nn.ConvTranspose2d(8, 8, 4, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                              nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
                           nn.Conv2d(8, 1, 4, bias=False), nn.Sigmoid())

    def start(module):
        if type(module).__name__.find("Conv") != -1:
            nn.init.normal_(module.weight.data, 0.0, 0.05)
        elif type(module).__name__.find("BatchNorm") != -1:
            nn.init.normal_(module.weight.data, 1.0, 0.02)
            nn.init.constant_(module.bias.data, 0)

    generator.apply(start)
    critic.apply(start)
    g_step = m.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d_step = m.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    criterion, told = nn.BCELoss(), []
    data = m.utils.data.TensorDataset(m.randn(24, 1, 8, 8).cumsum(-1).tanh())
    for (real,) in m.utils.data.DataLoader(data, batch_size=8, shuffle=True):
        critic.zero_grad()
        label = m.full((8,), 1.0).uniform_(0.8, 1.0)
        label[m.rand(8) < 0.2] = 0.0
        criterion(critic(real).view(-1), label).backward()
        fake = generator(m.randn(8, 8, 1, 1))
        d_fake = criterion(critic(fake.detach()).view(-1), label.fill_(0.0))
        d_fake.backward()
        d_step.step()
        generator.zero_grad()
        out = critic(fake).view(-1)
        g_loss = criterion(out, label.fill_(1.0))
        g_loss.backward()
        g_step.step()
        told += [d_fake.item(), g_loss.item(), out.mean().item()]
    between = (0.3 * real + 0.7 * fake.detach()).requires_grad_()
    out = critic(between)
    slope, = m.autograd.grad(out, between, m.ones_like(out), create_graph=True)
    penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    critic.zero_grad()
    penalty.backward()
    return m.tensor(told), penalty, [p.grad for p in critic.parameters()]


def language_model(m, compiled=False, precision=None):
    nn, F = m.nn, m.nn.functional

    class Block(nn.Module):
        def __init__(self, d, heads, context):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
            self.attn, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d),
                                     nn.Dropout(0.1))
            self.register_buffer("mask", m.tril(m.ones(1, 1, context, context)), persistent=False)

        def forward(self, x):
            b, t, d = x.size()
            parts = self.attn(self.ln_1(x)).split(d, dim=2)
            q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in parts)
            if self.training:
                att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
                att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
                y = F.dropout(F.softmax(att, dim=-1), 0.1, self.training) @ v
            else:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, d))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, vocabulary=11, context=8, d=16):
            super().__init__()
            self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(vocabulary, d), wpe=nn.Embedding(context, d),
                                                  h=nn.ModuleList(Block(d, 2, context) for _ in range(2))))
            self.head = nn.Linear(d, vocabulary, bias=False)
            self.transformer.wte.weight = self.head.weight
            self.apply(lambda part: nn.init.normal_(part.weight, 0.0, 0.02) if isinstance(part, nn.Linear) else None)

        def forward(self, ids, targets=None):
            x = self.transformer.wte(ids) + self.transformer.wpe(m.arange(ids.size(1)))
            for block in self.transformer.h:
                x = block(x)
            logits = self.head(x if targets is not None else x[:, [-1], :])
            return logits, None if targets is None else F.cross_entropy(logits.view(-1, 11), targets.view(-1))

    def made(model):
        groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) is deep], "weight_decay": 0.1 * deep}
                  for deep in (True, False)]
        return m.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))

    def batch():
        at = m.randint(80, (4,))
        return m.stack([data[i:i + 8] for i in at]), m.stack([data[i + 1:i + 9] for i in at])

    def train(model, optimizer, start, stop, keep=None):
        losses, norms = [], []
        run = m.compile(model) if compiled else model
        for it in range(start, stop):
            optimizer.param_groups[0]["lr"] = 1e-2 * min(1, (it + 1) / 3) * 0.5 * (1 + math.cos(math.pi * it / 8))
            for _ in range(2):
                with m.autocast("cpu", dtype=getattr(m, precision or "bfloat16"), enabled=precision is not None):
                    _, loss = run(*batch())
                scaler.scale(loss / 2).backward()
            scaler.unscale_(optimizer)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            if keep is not None and it == 2:
                m.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it,
                        "rng": m.get_rng_state()}, keep)
        return m.stack(losses), m.stack(norms)

    data = m.arange(100) * 7 % 11
    scaler, file = m.amp.GradScaler("cpu", enabled=False), io.BytesIO()
    model = GPT()
    whole = train(model, made(model), 0, 6, file)
    file.seek(0)
    kept = m.load(file, map_location="cpu", weights_only=True)
    again = GPT()
    assert "matched" in str(again.load_state_dict(kept["model"]))
    optimizer = made(again)
    optimizer.load_state_dict(kept["optimizer"])
    m.set_rng_state(kept["rng"])
    resumed = train(again, optimizer, kept["it"] + 1, 6)
    slack = 0.05 if precision else 1e-4
    for part, full in zip(resumed, whole):
        assert m.allclose(part, full[3:], rtol=slack, atol=slack), "resuming changed the course of training"
    again.eval()
    ids = m.zeros((1, 1), dtype=m.long)
    with m.no_grad():
        for _ in range(5):
            logits = again(ids)[0][:, -1, :] / 0.9
            logits[logits < logits.topk(4).values[:, [-1]]] = -float("inf")
            ids = m.cat((ids, m.multinomial(F.softmax(logits, dim=-1), 1)), dim=1)
    return whole, resumed, None if precision else ids


def packed_tagger(m):
    nn, rnn = m.nn, m.nn.utils.rnn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 8, padding_idx=0)
            self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
            self.cell, self.out = nn.GRUCell(12, 5), nn.Linear(5, 3)

        def forward(self, x, lengths):
            packed = rnn.pack_padded_sequence(self.emb(x), lengths, batch_first=True, enforce_sorted=False)
            out, (h, _) = self.lstm(packed)
            out, lengths = rnn.pad_packed_sequence(out, batch_first=True)
            state, outs = h[-1].new_zeros(x.size(0), 5), []
            for t in range(out.size(1)):
                state = self.cell(out[:, t], state)
                outs.append(self.out(state))
            return m.stack(outs, 1), m.cat([h[-2], h[-1]], 1), lengths

    words = [m.randint(1, 20, (n,)) for n in (4, 6, 2)]
    x = rnn.pad_sequence(words, batch_first=True)
    tags = rnn.pad_sequence([w % 3 for w in words], batch_first=True, padding_value=-100)
    lengths = m.tensor([len(w) for w in words])
    net = Tagger()
    optimizer = m.optim.Adam(net.parameters(), lr=0.02)

    def loss():
        logits, last, _ = net(x, lengths)
        return m.nn.functional.cross_entropy(logits.transpose(1, 2), tags) + last.pow(2).mean()

    return history(m, optimizer, loss, 5), net(x, lengths), net.emb.weight[0]


def averaged_student(m):
    nn, F, swa = m.nn, m.nn.functional, m.optim.swa_utils

    def net(h):
        return nn.Sequential(nn.Linear(6, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(0.1), nn.Linear(h, 3))

    teacher, student = net(16).eval().requires_grad_(False), net(8)
    x = m.randn(48, 6)
    y = (x[:, 0] * 2).long().clamp(-1, 1) + 1
    average = swa.AveragedModel(student, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    optimizer = m.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    schedule = swa.SWALR(optimizer, swa_lr=0.02, anneal_epochs=3)
    seen = {}
    hook = student[0].register_forward_hook(lambda module, args, out: seen.update(mean=out.detach().mean()))

    def loss():
        out = student(x)
        soft = F.kl_div(F.log_softmax(out / 3, 1), F.softmax(teacher(x) / 3, 1), reduction="batchmean") * 9
        average.update_parameters(student)
        return 0.5 * soft + 0.5 * F.cross_entropy(out, y)

    losses = history(m, optimizer, loss, 6, schedule)
    hook.remove()
    swa.update_bn(m.utils.data.DataLoader(m.utils.data.TensorDataset(x), 16), average)
    return losses, seen, average.eval()(x[:3]), average.state_dict()


def policy_gradients(m):
    nn, dist = m.nn, m.distributions
    policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))
    mean, spread, value = nn.Linear(3, 2), nn.Parameter(m.zeros(2)), nn.Linear(3, 1)
    optimizer = m.optim.Adam([*policy.parameters(), *mean.parameters(), spread, *value.parameters()], lr=1e-2, eps=1e-5)
    told = []
    for _ in range(3):
        state, logs, values, rewards = m.randn(3), [], [], []
        for _ in range(5):                                     # one decision at a time, each looked at
            choice = dist.Categorical(logits=policy(state))
            action = choice.sample()
            logs.append(choice.log_prob(action) + 0.01 * choice.entropy())
            values.append(value(state))
            rewards.append(1.0 if action.item() == 2 else -0.1)
            state = state.roll(1) + 0.1 * action
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns = m.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        critic = m.cat(values)
        loss = -(m.stack(logs) * (returns - critic.detach())).sum() + nn.functional.smooth_l1_loss(critic, returns)
        s = m.randn(16, 3)
        with m.no_grad():
            old = dist.Independent(dist.Normal(mean(s), spread.exp().expand(16, 2)), 1)
            a = old.sample()
            gain = -(a - s[:, :2]).pow(2).sum(-1)
        now = dist.Independent(dist.Normal(mean(s), spread.exp().expand(16, 2)), 1)
        ratio = (now.log_prob(a) - old.log_prob(a)).exp()
        loss = loss - m.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() + dist.kl_divergence(old, now).mean()
        optimizer.zero_grad()
        loss.backward()
        told += [loss.item(), nn.utils.clip_grad_norm_(mean.parameters(), 0.5).item()]
        optimizer.step()
    return m.tensor(told), spread


def equation_and_graph(m):
    """A field with second derivatives, fitted by L-BFGS; a graph network by scattering; a step with its own slope."""
    nn, F = m.nn, m.nn.functional

    class Straight(m.autograd.Function):
        @staticmethod
        def forward(ctx, x, reach):
            ctx.save_for_backward(x)
            ctx.reach = reach
            return x.sign()

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * (x.abs() <= ctx.reach), None

    net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1)).double()
    t = m.linspace(0, 2, 12, dtype=m.double).view(-1, 1).requires_grad_()
    optimizer = m.optim.LBFGS(net.parameters(), max_iter=6, line_search_fn="strong_wolfe")
    told = []

    def closure():
        optimizer.zero_grad()
        u = net(t)
        du, = m.autograd.grad(u, t, m.ones_like(u), create_graph=True)
        ddu, = m.autograd.grad(du, t, m.ones_like(du), create_graph=True)
        loss = (ddu + u).pow(2).mean() + (u[0, 0] - 1) ** 2 + du[0, 0] ** 2
        loss.backward()
        told.append(loss.item())
        return loss

    for _ in range(3):
        optimizer.step(closure)
    n, edges = 12, m.randint(0, 12, (2, 40))
    x, w = m.randn(n, 5), nn.Parameter(m.randn(5, 3) * 0.5)
    row, col = edges
    degree = m.zeros(n).scatter_add_(0, col, m.ones(40)).clamp(min=1)
    h = m.zeros(n, 3).index_add_(0, col, (x @ w)[row] / degree[col].unsqueeze(-1))
    top = m.full((n, 3), float("-inf")).scatter_reduce(0, col[:, None].expand(-1, 3), h[row], "amax")
    out = Straight.apply(h, 0.5) + top.masked_fill(top.isinf(), 0)
    F.cross_entropy(out, m.arange(n) % 3).backward()
    node = repr(Straight.apply(w, 1.0).grad_fn)
    return m.tensor(told, dtype=m.double), out, w.grad, node


def transformed_images(m):
    """A spatial transformer as it starts: its grid is the identity, and points at pixels up to rounding."""
    F, told = m.nn.functional, []
    for size in (7, 10, 16, 28):
        for align in (False, True):
            image = m.rand(2, 1, size, size)
            theta = m.tensor([[1.0, 0, 0], [0, 1, 0]]).repeat(2, 1, 1).requires_grad_()
            places = F.affine_grid(theta, [2, 1, size, size], align_corners=align)
            F.mse_loss(F.grid_sample(image, places, align_corners=align), image.roll(1, -1)).backward()
            told.append(theta.grad)
    return told


@pytest.mark.parametrize("program", [residual_network, generative_pair, language_model, packed_tagger, averaged_student,
                                     policy_gradients, transformed_images], ids=lambda program: program.__name__)
def test_program(program):
    agree(program, rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize("program", [u_net, equation_and_graph], ids=lambda program: program.__name__)
def test_program_in_double(program):
    agree(program, rtol=1e-5, atol=1e-6)


def test_language_model_in_low_precision():
    agree(lambda m: language_model(m, precision="bfloat16"), rtol=0.02, atol=0.02)


def test_compiled_language_model_is_the_same():
    flambeau.manual_seed(0)
    (losses, _), _, ids = language_model(flambeau, compiled=True)
    torch.manual_seed(0)
    (want, _), _, same = language_model(torch)          # PyTorch's own compiler draws other random numbers
    assert flambeau.allclose(losses, flambeau.tensor(want.tolist()), rtol=1e-4) and ids.tolist() == same.tolist()


def test_limits_of_floats():
    for name in ("float16", "bfloat16", "float32", "float64"):
        assert repr(flambeau.finfo(getattr(flambeau, name))) == repr(torch.finfo(getattr(torch, name)))
        assert flambeau.finfo(getattr(flambeau, name)).resolution == torch.finfo(getattr(torch, name)).resolution
