"""Programs that learn what is near to what, and clusters of it."""
import numpy as np

from . import batches, drawn, program, uniform, whole


@program
def clip(torch):
    """A picture tower and a text tower, and cross entropy along both axes of their similarities."""
    nn, F = torch.nn, torch.nn.functional

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.places = nn.Embedding(300, 64), nn.Parameter(torch.randn(1, 16, 64) * 0.01)
            layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True, norm_first=True)
            self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 32)

        def forward(self, x):
            return self.out(self.encoder(self.embed(x) + self.places)[torch.arange(len(x)), x.argmax(-1)])

    text = Text()
    picture = nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.GELU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GELU(), nn.Flatten(),
                            nn.Linear(64 * 16, 32))
    scale = nn.Parameter(torch.tensor(np.log(1 / 0.07), dtype=torch.float32))
    optimizer = torch.optim.AdamW([*text.parameters(), *picture.parameters(), scale], lr=5e-4)
    data = batches(torch, 32, drawn(128, 3, 32, 32), whole(300, 128, 16))

    def step():
        x, words = next(data)
        a, b = F.normalize(picture(x), dim=-1), F.normalize(text(words), dim=-1)
        logits = scale.exp() * a @ b.t()
        y = torch.arange(len(x))
        loss = (F.cross_entropy(logits, y) + F.cross_entropy(logits.t(), y)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, np.log(100))
        return loss
    return step


@program
def barlow_twins(torch):
    """Two noisy views; their cross-correlation is to be the identity."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(200, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 256), nn.BatchNorm1d(256),
                        nn.ReLU(), nn.Linear(256, 128, bias=False))
    last = nn.BatchNorm1d(128, affine=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    data = batches(torch, 128, drawn(512, 200))

    def view(x):
        return (x + 0.2 * torch.randn_like(x)) * (torch.rand_like(x) > 0.1)

    def off_diagonal(c):
        n = len(c)
        return c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()

    def step():
        x, = next(data)
        c = last(net(view(x))).T @ last(net(view(x))) / len(x)
        loss = torch.diagonal(c).add_(-1).pow_(2).sum() + 5e-3 * off_diagonal(c).pow_(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def simsiam(torch):
    """Two views, a predictor, and a stopped gradient on the other side; random crops by slices."""
    nn, F = torch.nn, torch.nn.functional
    encoder = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1),
                            nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64))
    predictor = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 64))
    optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)
    data = batches(torch, 16, uniform(64, 3, 32, 32))

    def view(x):
        parts = []
        for picture in x:
            top, left = torch.randint(0, 8, (2,)).tolist()
            part = picture[:, top:top + 24, left:left + 24]
            if torch.rand(()) < 0.5:
                part = part.flip(2)
            parts.append(part * (0.6 + 0.8 * torch.rand(3, 1, 1)))
        return torch.stack(parts)

    def step():
        x, = next(data)
        a, b = encoder(view(x)), encoder(view(x))
        loss = -0.5 * (F.cosine_similarity(predictor(a), b.detach()).mean()
                       + F.cosine_similarity(predictor(b), a.detach()).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def momentum_contrast(torch):
    """MoCo: keys from a slowly following copy, and a queue of old keys as negatives."""
    nn, F = torch.nn, torch.nn.functional

    def encoder():
        return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64))

    query, key = encoder(), encoder()
    for slow, fast in zip(key.parameters(), query.parameters()):
        slow.data.copy_(fast.data)
        slow.requires_grad = False
    queue = F.normalize(torch.randn(64, 1024), dim=0)
    at = {"place": 0}
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    data = batches(torch, 64, drawn(512, 128))

    def step():
        x, = next(data)
        q = F.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters()):
                slow.data = slow.data * 0.99 + fast.data * 0.01
            k = F.normalize(key(x + 0.1 * torch.randn_like(x)), dim=1)
        right = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        wrong = torch.einsum("nc,ck->nk", q, queue.clone().detach())
        loss = F.cross_entropy(torch.cat((right, wrong), 1) / 0.07, torch.zeros(len(x), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[:, at["place"]:at["place"] + len(x)] = k.t()
        at["place"] = (at["place"] + len(x)) % 1024
        return loss
    return step


@program
def triplets(torch):
    """Metric learning with the hardest positive and negative of each batch, and recall by nearest neighbours."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(64, 128), nn.PReLU(), nn.Linear(128, 32))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    y = whole(12, 512)
    data = batches(torch, 64, drawn(12, 64, seed=3)[y] + drawn(512, 64), y)

    def step():
        x, labels = next(data)
        e = F.normalize(net(x), dim=1)
        distance = torch.cdist(e, e)
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        itself = torch.eye(len(x), dtype=torch.bool)
        positive = distance.masked_fill(~same | itself, -1.0).max(1).values
        negative = distance.masked_fill(same, float("inf")).min(1).values
        loss = F.relu(positive - negative + 0.2)[positive > 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        nearest = distance.detach().masked_fill(itself, float("inf")).topk(5, largest=False).indices
        recall = (labels[nearest] == labels.unsqueeze(1)).any(1).float().mean().item()
        assert 0 <= recall <= 1
        return loss
    return step


@program
def siamese(torch):
    """Pairs of pictures through one net, and a contrastive loss of their distance."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 16, 64))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 16, uniform(128, 1, 28, 28), uniform(128, 1, 28, 28, seed=1),
                   (uniform(128) < 0.5).astype(np.float32))

    def step():
        a, b, same = next(data)
        distance = F.pairwise_distance(net(a), net(b))
        loss = (same * distance ** 2 + (1 - same) * (1 - distance).clamp(min=0) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def angular_margin(torch):
    """ArcFace over many classes, with mixed-up inputs and gradient clipping by value."""
    nn, F = torch.nn, torch.nn.functional
    classes = 1000
    net = nn.Sequential(nn.Linear(96, 128), nn.BatchNorm1d(128), nn.PReLU(), nn.Linear(128, 64), nn.BatchNorm1d(64))
    weight = nn.Parameter(torch.empty(classes, 64))
    nn.init.xavier_uniform_(weight)
    optimizer = torch.optim.SGD([*net.parameters(), weight], lr=0.1, momentum=0.9, weight_decay=5e-4)
    data = batches(torch, 64, drawn(512, 96), whole(classes, 512))

    def step():
        x, y = next(data)
        cosine = F.linear(F.normalize(net(x)), F.normalize(weight)).clamp(-1 + 1e-7, 1 - 1e-7)
        theta = torch.acos(cosine)
        own = torch.zeros_like(cosine).scatter_(1, y.view(-1, 1), 1.0)
        loss = F.cross_entropy(30.0 * torch.cos(theta + 0.3 * own), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_([*net.parameters(), weight], 1.0)
        optimizer.step()
        return loss
    return step


@program
def distillation(torch):
    """A student follows a frozen teacher's softened answers, with mixup."""
    nn, F = torch.nn, torch.nn.functional
    teacher = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 20)).eval()
    student = nn.Sequential(nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 20))
    optimizer = torch.optim.NAdam(student.parameters(), lr=1e-3)
    data = batches(torch, 128, drawn(1024, 128), whole(20, 1024))

    def step():
        x, y = next(data)
        part = torch.distributions.Beta(0.4, 0.4).sample().item()
        other = torch.randperm(len(x))
        x = part * x + (1 - part) * x[other]
        with torch.no_grad():
            wanted = teacher(x)
        scores = student(x)
        soft = F.kl_div(F.log_softmax(scores / 4, 1), F.log_softmax(wanted / 4, 1), reduction="batchmean",
                        log_target=True) * 16
        loss = 0.7 * soft + 0.3 * (part * F.cross_entropy(scores, y) + (1 - part) * F.cross_entropy(scores, y[other]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def masked_autoencoder(torch):
    """MAE: a transformer sees a random quarter of the patches, and a small one restores the others."""
    nn = torch.nn
    width, patches = 64, 64

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            def layers(n):
                layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
                return nn.TransformerEncoder(layer, n, enable_nested_tensor=False)
            self.enter, self.leave = nn.Linear(48, width), nn.Linear(width, 48)
            self.places = nn.Parameter(torch.randn(1, patches, width) * 0.02)
            self.hidden = nn.Parameter(torch.zeros(1, 1, width))
            self.encoder, self.decoder = layers(2), layers(1)

        def forward(self, x):
            B, keep = len(x), patches // 4
            order = torch.rand(B, patches).argsort(1)
            back = order.argsort(1)
            h = self.enter(x) + self.places
            h = self.encoder(torch.gather(h, 1, order[:, :keep].unsqueeze(-1).expand(-1, -1, width)))
            h = torch.cat((h, self.hidden.expand(B, patches - keep, -1)), 1)
            h = torch.gather(h, 1, back.unsqueeze(-1).expand(-1, -1, width)) + self.places
            mask = torch.ones(B, patches)
            mask[:, :keep] = 0
            return self.leave(self.decoder(h)), mask.gather(1, back)

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1.5e-4, betas=(0.9, 0.95))
    data = batches(torch, 8, uniform(64, 3, 32, 32))

    def step():
        pictures, = next(data)
        x = pictures.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(len(pictures), patches, 48)
        found, mask = net(x)
        wanted = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-6).sqrt()
        loss = (((found - wanted) ** 2).mean(-1) * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def k_means(torch):
    """Lloyd's iterations until the centres stand still: cdist, argmin, index_add, and a look at every round."""
    random, clouds = np.random.default_rng(9), drawn(2, 4000, 16) + 3 * drawn(2, 20, 16, seed=1).repeat(200, 1)
    points = torch.from_numpy(clouds)
    k, which = 20, {"cloud": 0}

    def step():
        x = points[which["cloud"]]
        which["cloud"] = 1 - which["cloud"]
        centres = x[torch.from_numpy(random.choice(len(x), k, replace=False))]
        for _ in range(8):
            distance, nearest = torch.cdist(x, centres).min(1)
            count = torch.bincount(nearest, minlength=k).clamp(min=1)
            new = torch.zeros_like(centres).index_add_(0, nearest, x) / count.unsqueeze(1)
            shift = (new - centres).norm()
            centres = new
            if shift < 1e-3:
                break
        return distance.pow(2).mean()
    return step


@program
def nearest_neighbours(torch):
    """Neighbourhood components: a linear map trained so that a soft vote of neighbours is right, then a hard vote."""
    x, y = torch.from_numpy(drawn(600, 20)), torch.from_numpy(whole(5, 600))
    a = (torch.randn(20, 6) * 0.1).requires_grad_()
    optimizer = torch.optim.Adagrad([a], lr=0.05)

    def step():
        rows = torch.randperm(600)[:300]
        z, labels = x[rows] @ a, y[rows]
        d = torch.cdist(z, z).pow(2)
        p = torch.softmax(-d.masked_fill(torch.eye(300, dtype=torch.bool), float("inf")), 1)
        loss = -torch.log((p * (labels[:, None] == labels[None])).sum(1) + 1e-9).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            near = torch.cdist(x[:100] @ a, z).topk(7, largest=False).indices
            votes = torch.mode(labels[near], 1).values
            right = (votes == y[:100]).float().mean()
        assert right.item() >= 0
        return loss
    return step
