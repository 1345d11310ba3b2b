"""Programs that learn to draw: diffusion, adversaries, autoencoders, flows, energies."""
import math

from . import batches, drawn, program, uniform


@program
def diffusion(torch):
    """DDPM: a U-Net with time embeddings predicts the noise, and an average of the weights follows it."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, inside, outside):
            super().__init__()
            self.norm1, self.conv1 = nn.GroupNorm(4, inside), nn.Conv2d(inside, outside, 3, padding=1)
            self.time = nn.Linear(64, outside)
            self.norm2, self.conv2 = nn.GroupNorm(4, outside), nn.Conv2d(outside, outside, 3, padding=1)
            self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

        def forward(self, x, t):
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.conv2(F.silu(self.norm2(h))) + self.skip(x)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64))
            self.enter = nn.Conv2d(3, 16, 3, padding=1)
            self.down1, self.down2, self.middle = Block(16, 16), Block(16, 32), Block(32, 32)
            self.shrink1, self.shrink2 = nn.Conv2d(16, 16, 3, 2, 1), nn.Conv2d(32, 32, 3, 2, 1)
            self.up2, self.up1 = Block(64, 16), Block(32, 16)
            self.leave = nn.Conv2d(16, 3, 3, padding=1)

        def forward(self, x, t):
            rates = torch.exp(-math.log(10_000) * torch.arange(16) / 16)
            angles = t[:, None].float() * rates[None]
            t = self.time(torch.cat((angles.sin(), angles.cos()), -1))
            a = self.down1(self.enter(x), t)
            b = self.down2(self.shrink1(a), t)
            h = self.middle(self.shrink2(b), t)
            h = self.up2(torch.cat((F.interpolate(h, scale_factor=2, mode="nearest"), b), 1), t)
            h = self.up1(torch.cat((F.interpolate(h, scale_factor=2, mode="nearest"), a), 1), t)
            return self.leave(h)

    net, average = UNet(), UNet()
    average.load_state_dict(net.state_dict())
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    data = batches(torch, 8, drawn(64, 3, 32, 32))

    def step():
        x, = next(data)
        t = torch.randint(0, 1000, (len(x),))
        noise = torch.randn_like(x)
        part = kept[t].view(-1, 1, 1, 1)
        loss = F.mse_loss(net(part.sqrt() * x + (1 - part).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for mean, new in zip(average.parameters(), net.parameters()):
                mean.lerp_(new, 0.001)
        return loss
    return step


@program
def wasserstein_gan(torch):
    """WGAN with a gradient penalty: two critic updates, each with a derivative of a derivative, for one generator's."""
    nn = torch.nn
    generator = nn.Sequential(nn.ConvTranspose2d(32, 32, 4), nn.BatchNorm2d(32), nn.ReLU(),
                              nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
                              nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1),
                           nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 16, 1))
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.5, 0.9))
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.5, 0.9))
    data = batches(torch, 16, uniform(128, 1, 16, 16, low=-1.0))

    def step():
        for _ in range(2):
            real, = next(data)
            fake = generator(torch.randn(len(real), 32, 1, 1)).detach()
            mixed = torch.rand(len(real), 1, 1, 1)
            between = (mixed * real + (1 - mixed) * fake).requires_grad_()
            slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
        for_generator.zero_grad()
        (-critic(generator(torch.randn(16, 32, 1, 1))).mean()).backward()
        for_generator.step()
        return loss
    return step


@program
def spectral_gan(torch):
    """A DCGAN whose discriminator has spectral norm; label smoothing by binary cross entropy."""
    nn, F = torch.nn, torch.nn.functional
    norm = nn.utils.parametrizations.spectral_norm
    generator = nn.Sequential(nn.Linear(64, 64 * 16), nn.Unflatten(1, (64, 4, 4)), nn.BatchNorm2d(64), nn.ReLU(),
                              nn.Upsample(scale_factor=2), nn.Conv2d(64, 32, 3, padding=1), nn.BatchNorm2d(32),
                              nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(32, 3, 3, padding=1), nn.Tanh())
    judge = nn.Sequential(norm(nn.Conv2d(3, 32, 4, 2, 1)), nn.LeakyReLU(0.1), norm(nn.Conv2d(32, 64, 4, 2, 1)),
                          nn.LeakyReLU(0.1), nn.Flatten(), norm(nn.Linear(64 * 16, 1)))
    optimizers = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (generator, judge)]
    data = batches(torch, 16, uniform(128, 3, 16, 16, low=-1.0))

    def step():
        real, = next(data)
        fake = generator(torch.randn(len(real), 64))
        optimizers[1].zero_grad()
        loss = F.binary_cross_entropy_with_logits(judge(real), torch.full((len(real), 1), 0.9)) \
            + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(len(real), 1))
        loss.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(len(real), 1))
        fooled.backward()
        optimizers[0].step()
        return loss.item() + fooled.item()
    return step


@program
def variational_autoencoder(torch):
    """A VAE whose reconstruction is also compared by its Fourier transform."""
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                         nn.Flatten())
            self.mean, self.log_var = nn.Linear(32 * 49, 16), nn.Linear(32 * 49, 16)
            self.decoder = nn.Sequential(nn.Linear(16, 32 * 49), nn.ReLU(), nn.Unflatten(1, (32, 7, 7)),
                                         nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(),
                                         nn.ConvTranspose2d(16, 1, 4, 2, 1))

        def forward(self, x):
            h = self.encoder(x)
            mean, log_var = self.mean(h), self.log_var(h)
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
            return self.decoder(z), mean, log_var

    net = VAE()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 32, uniform(256, 1, 28, 28))

    def step():
        x, = next(data)
        logits, mean, log_var = net(x)
        spectrum = (torch.fft.rfft2(logits.sigmoid(), norm="ortho") - torch.fft.rfft2(x, norm="ortho")).abs().mean()
        kl = -0.5 * (1 + log_var - mean ** 2 - log_var.exp()).sum(1).mean()
        loss = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3)).mean() + kl + spectrum
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def vector_quantised_autoencoder(torch):
    """VQ-VAE: the nearest code of a book whose entries follow by moving averages, straight-through gradients."""
    nn, F = torch.nn, torch.nn.functional
    codes, width = 128, 16
    encoder = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, width, 4, 2, 1))
    decoder = nn.Sequential(nn.ConvTranspose2d(width, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))
    book = torch.randn(codes, width)
    counts, sums = torch.ones(codes), book.clone()
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    data = batches(torch, 16, drawn(128, 3, 32, 32))

    def step():
        x, = next(data)
        z = encoder(x)
        flat = z.permute(0, 2, 3, 1).reshape(-1, width)
        with torch.no_grad():
            distances = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ book.t() + book.pow(2).sum(1)
            nearest = distances.argmin(1)
            one_hot = F.one_hot(nearest, codes).type(flat.dtype)
            counts.mul_(0.99).add_(one_hot.sum(0), alpha=0.01)
            sums.mul_(0.99).add_(one_hot.t() @ flat, alpha=0.01)
        q = F.embedding(nearest, book).view(len(x), 8, 8, width).permute(0, 3, 1, 2)
        commitment = F.mse_loss(z, q.detach())
        restored = decoder(z + (q - z).detach())
        loss = F.mse_loss(restored, x) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.copy_(sums / (counts + 1e-5).unsqueeze(1))
        used = one_hot.mean(0)
        perplexity = torch.exp(-(used * torch.log(used + 1e-10)).sum()).item()
        assert perplexity >= 1
        return loss
    return step


@program
def denoising_autoencoder(torch):
    """Fully connected, noise on the input, tied weights, and a penalty for dense codes; the last batch is ragged."""
    nn, F = torch.nn, torch.nn.functional

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight1 = nn.Parameter(torch.empty(256, 784))
            self.weight2 = nn.Parameter(torch.empty(64, 256))
            self.biases = nn.ParameterList([nn.Parameter(torch.zeros(n)) for n in (256, 64, 256, 784)])
            for weight in (self.weight1, self.weight2):
                nn.init.xavier_uniform_(weight)

        def forward(self, x):
            hidden = F.elu(F.linear(x, self.weight1, self.biases[0]))
            code = torch.sigmoid(F.linear(hidden, self.weight2, self.biases[1]))
            hidden = F.elu(F.linear(code, self.weight2.t(), self.biases[2]))
            return F.linear(hidden, self.weight1.t(), self.biases[3]), code

    net = Tied()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    data = batches(torch, 128, uniform(500, 784), drop_last=False)

    def step():
        x, = next(data)
        restored, code = net(x + 0.3 * torch.randn_like(x))
        active = code.mean(0)
        sparse = (0.05 * torch.log(0.05 / active) + 0.95 * torch.log(0.95 / (1 - active))).sum()
        loss = F.mse_loss(restored, x) + 1e-3 * sparse
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def coupling_flow(torch):
    """RealNVP: affine coupling layers with alternating masks, on points of a moon-like shape."""
    nn = torch.nn
    dims, layers = 6, 6

    class Coupling(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", mask)
            self.scale = nn.Sequential(nn.Linear(dims, 64), nn.LeakyReLU(), nn.Linear(64, dims), nn.Tanh())
            self.shift = nn.Sequential(nn.Linear(dims, 64), nn.LeakyReLU(), nn.Linear(64, dims))

        def forward(self, x):
            still = x * self.mask
            s, t = self.scale(still) * (1 - self.mask), self.shift(still) * (1 - self.mask)
            return still + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(1)

    even = torch.arange(dims) % 2
    flow = nn.ModuleList([Coupling((even if i % 2 else 1 - even).float()) for i in range(layers)])
    prior = torch.distributions.MultivariateNormal(torch.zeros(dims), torch.eye(dims))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    data = batches(torch, 256, drawn(2048, dims) ** 2)

    def step():
        z, = next(data)
        log_det = 0
        for layer in flow:
            z, change = layer(z)
            log_det = log_det + change
        loss = -(prior.log_prob(z) + log_det).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def spline_flow(torch):
    """Coupling by rational-quadratic splines: cumulative bins, searchsorted, gather."""
    nn, F = torch.nn, torch.nn.functional
    bins, bound, half = 8, 4.0, 2

    def spline(x, widths, heights, slopes):
        inside = (x > -bound) & (x < bound)
        widths = 1e-3 + (1 - 1e-3 * bins) * F.softmax(widths, -1)
        heights = 1e-3 + (1 - 1e-3 * bins) * F.softmax(heights, -1)
        xs = F.pad(torch.cumsum(widths, -1), (1, 0)) * 2 * bound - bound
        ys = F.pad(torch.cumsum(heights, -1), (1, 0)) * 2 * bound - bound
        slopes = F.pad(1e-3 + F.softplus(slopes), (1, 1), value=1.0)
        i = torch.searchsorted(xs.detach(), x.unsqueeze(-1)).clamp(1, bins) - 1

        def at(values, offset=0):
            return values.gather(-1, i + offset).squeeze(-1)
        x0, y0, d0 = at(xs), at(ys), at(slopes)
        w, h, d1 = at(xs, 1) - x0, at(ys, 1) - y0, at(slopes, 1)
        s, t = h / w, ((x - x0) / w).clamp(0, 1)
        below = s + (d1 + d0 - 2 * s) * t * (1 - t)
        y = y0 + h * (s * t ** 2 + d0 * t * (1 - t)) / below
        slope = s ** 2 * (d1 * t ** 2 + 2 * s * t * (1 - t) + d0 * (1 - t) ** 2) / below ** 2
        return torch.where(inside, y, x), torch.where(inside, slope.log(), torch.zeros_like(x))

    nets = nn.ModuleList([nn.Sequential(nn.Linear(half, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                        nn.Linear(64, half * (3 * bins - 1))) for _ in range(4)])
    optimizer = torch.optim.Adam(nets.parameters(), lr=1e-3)
    data = batches(torch, 256, drawn(2048, 2 * half))

    def step():
        x, = next(data)
        log_det = torch.zeros(len(x))
        for net in nets:
            a, b = x.chunk(2, 1)
            parameters = net(a).view(len(x), half, 3 * bins - 1)
            b, change = spline(b, *parameters.split([bins, bins, bins - 1], -1))
            log_det = log_det + change.sum(1)
            x = torch.cat((b, a), 1)
        loss = (0.5 * x ** 2 + 0.5 * math.log(2 * math.pi)).sum(1).mean() - log_det.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def energy_model(torch):
    """An energy-based model; its negatives come from twenty steps of Langevin dynamics out of a replay buffer."""
    nn = torch.nn
    energy = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3, betas=(0.0, 0.999))
    data = batches(torch, 128, drawn(1024, 2) * 0.3 + uniform(1024, 1, seed=1).round() * 2 - 1)
    buffer = torch.rand(2000, 2) * 4 - 2

    def langevin(x):
        for p in energy.parameters():
            p.requires_grad_(False)
        for _ in range(20):
            x = x.detach().requires_grad_(True)
            slope = torch.autograd.grad(energy(x).sum(), x)[0]
            x = x - 0.5 * 0.01 * slope.clamp(-1, 1) + 0.01 * torch.randn_like(x)
        for p in energy.parameters():
            p.requires_grad_(True)
        return x.detach()

    def step():
        real, = next(data)
        rows = torch.randint(0, len(buffer), (len(real),))
        fake = langevin(buffer[rows])
        buffer[rows] = fake
        up, down = energy(real), energy(fake)
        loss = up.mean() - down.mean() + 0.1 * (up ** 2 + down ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def score_matching(torch):
    """Sliced score matching: a directional derivative of the score itself is part of the loss."""
    nn = torch.nn
    score = nn.Sequential(nn.Linear(4, 128), nn.Softplus(), nn.Linear(128, 128), nn.Softplus(), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(score.parameters(), lr=1e-3)
    data = batches(torch, 256, drawn(1024, 4))

    def step():
        x, = next(data)
        x.requires_grad_(True)
        v = torch.randn_like(x)
        s = score(x)
        along = torch.autograd.grad((s * v).sum(), x, create_graph=True)[0]
        loss = ((along * v).sum(-1) + 0.5 * (s ** 2).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
