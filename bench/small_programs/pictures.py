"""Programs that look at pictures, volumes, and boxes in them."""
import numpy as np

from . import batches, drawn, program, uniform, whole


@program
def image_classifier(torch):
    """A small residual CNN with batch norm, SGD with momentum, a schedule of the learning rate."""
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outside)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outside)
            self.skip = nn.Sequential()
            if stride != 1 or inside != outside:
                self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(out)) + self.skip(x))

    net = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                        Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10_000)
    data = batches(torch, 16, drawn(256, 3, 32, 32), whole(10, 256))

    def step():
        x, y = next(data)
        flipped = torch.rand(len(x)) < 0.5
        x = torch.where(flipped[:, None, None, None], x.flip(-1), x)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss
    return step


@program
def autocast_cnn(torch):
    """Depthwise separable convolutions under autocast to bfloat16, and a running accuracy."""
    nn, F = torch.nn, torch.nn.functional

    def block(inside, outside, stride):
        return nn.Sequential(nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False),
                             nn.BatchNorm2d(inside), nn.ReLU6(), nn.Conv2d(inside, outside, 1, bias=False),
                             nn.BatchNorm2d(outside), nn.ReLU6())

    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), block(16, 32, 1), block(32, 64, 2), block(64, 64, 1),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    data = batches(torch, 16, drawn(128, 3, 48, 48), whole(10, 128))
    seen = {"right": 0, "all": 0}

    def step():
        x, y = next(data)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = net(x)
            loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        seen["right"] += (scores.argmax(1) == y).sum().item()
        seen["all"] += len(y)
        return loss
    return step


@program
def detector(torch):
    """A one-stage detector: boxes matched to anchors by IoU, focal and GIoU losses, then NMS of what it finds."""
    nn, F = torch.nn, torch.nn.functional
    classes, cells, stride = 5, 8, 8

    def area(boxes):
        return (boxes[..., 2] - boxes[..., 0]).clamp(min=0) * (boxes[..., 3] - boxes[..., 1]).clamp(min=0)

    def pairwise_iou(a, b):
        low = torch.maximum(a[:, None, :2], b[None, :, :2])
        high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
        inter = (high - low).clamp(min=0).prod(-1)
        return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-6)

    def giou_loss(a, b):
        inter = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
        union = area(a) + area(b) - inter + 1e-6
        hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1) + 1e-6
        return 1 - inter / union + (hull - union) / hull

    def nms(boxes, scores, threshold):
        order, kept = scores.argsort(descending=True, stable=True), []
        while len(order) > 0:
            best = order[0]
            kept.append(best.item())
            overlap = pairwise_iou(boxes[best][None], boxes[order[1:]])[0]
            order = order[1:][overlap <= threshold]
        return kept

    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                             nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
    class_head, box_head = nn.Conv2d(64, classes, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
    parameters = [*backbone.parameters(), *class_head.parameters(), *box_head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    ys, xs = torch.meshgrid(torch.arange(cells), torch.arange(cells), indexing="ij")
    centres = torch.stack((xs, ys), -1).reshape(-1, 2).float() * stride + stride / 2
    anchors = torch.cat((centres - 8, centres + 8), 1)

    images = torch.from_numpy(drawn(4, 3, 64, 64))
    random, targets = np.random.default_rng(3), []
    for _ in range(4):
        count = int(random.integers(2, 6))
        corner, size = random.uniform(0, 44, (count, 2)), random.uniform(8, 20, (count, 2))
        boxes = torch.from_numpy(np.concatenate((corner, corner + size), 1).astype(np.float32))
        targets.append((boxes, torch.from_numpy(random.integers(0, classes, count))))

    def step():
        features = backbone(images)
        scores = class_head(features).flatten(2).transpose(1, 2)
        offsets = box_head(features).flatten(2).transpose(1, 2)
        losses, found = [], 0
        for score, offset, (boxes, labels) in zip(scores, offsets, targets):
            predicted = anchors + offset * 4
            iou = pairwise_iou(anchors, boxes)
            best, match = iou.max(1)
            positive = best > 0.3
            positive[iou.argmax(0)] = True               # every box has an anchor
            wanted = torch.zeros_like(score)
            wanted[positive, labels[match[positive]]] = 1.0
            p = score.sigmoid()
            focal = F.binary_cross_entropy_with_logits(score, wanted, reduction="none")
            focal = focal * (p * (1 - wanted) + (1 - p) * wanted) ** 2
            losses.append(focal.sum() / positive.sum() + giou_loss(predicted[positive], boxes[match[positive]]).mean())
            with torch.no_grad():
                top = p.max(1).values.topk(20)
                found += len(nms(predicted.detach()[top.indices], top.values, 0.5))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        optimizer.step()
        return loss
    return step


@program
def spatial_transformer(torch):
    """A localisation net whose affine transform samples the picture by grid_sample, before a classifier."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.localise = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5),
                                          nn.MaxPool2d(2), nn.ReLU())
            self.affine = nn.Sequential(nn.Linear(10 * 3 * 3, 32), nn.ReLU(), nn.Linear(32, 6))
            self.affine[2].weight.data.zero_()
            self.affine[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
            self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
            self.drop = nn.Dropout2d()
            self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

        def forward(self, x):
            theta = self.affine(self.localise(x).view(-1, 90)).view(-1, 2, 3)
            x = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
            x = F.relu(F.max_pool2d(self.conv1(x), 2))
            x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
            x = F.dropout(F.relu(self.fc1(x.view(-1, 320))), training=self.training)
            return F.log_softmax(self.fc2(x), dim=1)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = batches(torch, 32, drawn(256, 1, 28, 28), whole(10, 256))

    def step():
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.nll_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def volume_segmentation(torch):
    """Convolutions in three dimensions, instance norm, soft Dice loss and cross entropy."""
    nn, F = torch.nn, torch.nn.functional

    def block(inside, outside):
        return nn.Sequential(nn.Conv3d(inside, outside, 3, padding=1), nn.InstanceNorm3d(outside, affine=True),
                             nn.LeakyReLU(0.01))

    first, second, last = block(1, 8), block(8, 16), block(16 + 8, 8)
    out = nn.Conv3d(8, 3, 1)
    net = nn.ModuleList([first, second, last, out])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    volume, labels = torch.from_numpy(drawn(1, 1, 16, 16, 16)), torch.from_numpy(whole(3, 1, 16, 16, 16))

    def step():
        high = first(volume)
        low = second(F.max_pool3d(high, 2))
        up = F.interpolate(low, scale_factor=2, mode="trilinear", align_corners=False)
        scores = out(last(torch.cat((up, high), 1)))
        p, wanted = scores.softmax(1), F.one_hot(labels, 3).permute(0, 4, 1, 2, 3).float()
        both = (p * wanted).sum((2, 3, 4))
        dice = (2 * both + 1) / (p.sum((2, 3, 4)) + wanted.sum((2, 3, 4)) + 1)
        loss = F.cross_entropy(scores, labels) + 1 - dice.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def quantisation_aware(torch):
    """A CNN trained with fake quantisation of weights and activations, whose observers follow the range."""
    nn, F = torch.nn, torch.nn.functional

    class Quantised(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
            self.register_buffer("low", torch.zeros(()))
            self.register_buffer("high", torch.ones(()))

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    self.low.lerp_(x.min().clamp(max=0), 0.1)
                    self.high.lerp_(x.max().clamp(min=0), 0.1)
            scale = ((self.high - self.low) / 255).item()
            zero = int(round(-self.low.item() / scale))
            x = torch.fake_quantize_per_tensor_affine(x, scale, min(max(zero, 0), 255), 0, 255)
            weight = self.layer.weight
            scales = weight.detach().flatten(1).abs().amax(1).clamp(min=1e-8) / 127
            zeros = torch.zeros(len(weight), dtype=torch.int32)
            weight = torch.fake_quantize_per_channel_affine(weight, scales, zeros, 0, -128, 127)
            if isinstance(self.layer, nn.Conv2d):
                return F.conv2d(x, weight, self.layer.bias, self.layer.stride, self.layer.padding)
            return F.linear(x, weight, self.layer.bias)

    net = nn.Sequential(Quantised(nn.Conv2d(1, 16, 3, 2, 1)), nn.ReLU(), Quantised(nn.Conv2d(16, 32, 3, 2, 1)),
                        nn.ReLU(), nn.Flatten(), Quantised(nn.Linear(32 * 49, 10)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    data = batches(torch, 32, drawn(256, 1, 28, 28), whole(10, 256))

    def step():
        x, y = next(data)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def capsules(torch):
    """Capsules with three rounds of routing by agreement, and the margin loss."""
    nn, F = torch.nn, torch.nn.functional

    def squash(s):
        squared = (s ** 2).sum(-1, keepdim=True)
        return squared / (1 + squared) * s / (squared + 1e-8).sqrt()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.primary = nn.Conv2d(1, 32, 9), nn.Conv2d(32, 32, 9, 2)
            self.weight = nn.Parameter(0.05 * torch.randn(10, 4 * 36, 16, 8))

        def forward(self, x):
            u = self.primary(F.relu(self.conv(x)))
            u = squash(u.view(len(x), 4, 8, 36).permute(0, 1, 3, 2).reshape(len(x), 4 * 36, 8))
            votes = torch.einsum("jiod,bid->bjio", self.weight, u)
            logits = torch.zeros(len(x), 10, 4 * 36)
            for i in range(3):
                c = logits.softmax(1)
                v = squash((c.unsqueeze(-1) * votes).sum(2))
                if i < 2:
                    logits = logits + (votes * v.unsqueeze(2)).sum(-1).detach()
            return v.norm(dim=-1)

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 8, drawn(64, 1, 28, 28), whole(10, 64))

    def step():
        x, y = next(data)
        lengths, wanted = net(x), F.one_hot(y, 10).float()
        loss = (wanted * F.relu(0.9 - lengths) ** 2 + 0.5 * (1 - wanted) * F.relu(lengths - 0.1) ** 2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def style_transfer(torch):
    """The pixels of a picture follow the Gram matrices and the features of two others, by Adam."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                        nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1),
                        nn.ReLU()).requires_grad_(False)
    content, style = torch.from_numpy(uniform(1, 3, 64, 64)), torch.from_numpy(uniform(1, 3, 64, 64, seed=1))

    def features(x):
        kept = []
        for layer in net:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                kept.append(x)
        return kept

    def gram(x):
        flat = x.flatten(2)
        return flat @ flat.transpose(1, 2) / flat[0].numel()

    wanted = [gram(f) for f in features(style)]
    kept = features(content)[2]
    picture = content.clone().requires_grad_()
    optimizer = torch.optim.Adam([picture], lr=0.02)

    def step():
        optimizer.zero_grad()
        found = features(picture)
        smooth = (picture[..., 1:] - picture[..., :-1]).abs().mean()
        smooth = smooth + (picture[..., 1:, :] - picture[..., :-1, :]).abs().mean()
        loss = F.mse_loss(found[2], kept) + 1e3 * sum(F.mse_loss(gram(f), g) for f, g in zip(found, wanted)) + smooth
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            picture.clamp_(0, 1)
        return loss
    return step


@program
def multi_scale(torch):
    """A fully convolutional net trained on pictures whose size changes at every step."""
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.GroupNorm(4, 24), nn.Hardswish(), nn.Conv2d(24, 48, 3, 2, 1),
                        nn.GroupNorm(4, 48), nn.Hardswish(), nn.Conv2d(48, 10, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    data = batches(torch, 8, drawn(64, 3, 64, 64), whole(10, 64))
    sizes = np.random.default_rng(5)

    def step():
        x, y = next(data)
        size = int(sizes.integers(5, 13)) * 8
        x = F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
        loss = F.cross_entropy(net(x).mean((2, 3)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def neural_cellular_automaton(torch):
    """Cells that see their neighbours through Sobel filters and grow towards a picture, eight updates a step."""
    nn, F = torch.nn, torch.nn.functional
    channels = 16
    sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
    identity = torch.zeros(3, 3)
    identity[1, 1] = 1.0
    kernels = torch.stack((identity, sobel, sobel.T)).unsqueeze(1).repeat(channels, 1, 1, 1)
    rule = nn.Sequential(nn.Conv2d(3 * channels, 64, 1), nn.ReLU(), nn.Conv2d(64, channels, 1, bias=False))
    nn.init.zeros_(rule[2].weight)
    optimizer = torch.optim.Adam(rule.parameters(), lr=2e-3)
    target = torch.from_numpy(uniform(4, 4, 24, 24))
    seed = torch.zeros(4, channels, 24, 24)
    seed[:, 3:, 12, 12] = 1.0

    def step():
        x = seed.clone()
        for _ in range(8):
            alive = F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1
            update = rule(F.conv2d(x, kernels, padding=1, groups=channels))
            x = x + update * (torch.rand(4, 1, 24, 24) < 0.5).float()
            x = x * (alive & (F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1)).float()
        loss = F.mse_loss(x[:, :4], target)
        optimizer.zero_grad()
        loss.backward()
        for p in rule.parameters():
            p.grad /= p.grad.norm() + 1e-8
        optimizer.step()
        return loss
    return step


@program
def radiance_field(torch):
    """A NeRF: rays, positional encoding, stratified samples, and the volume rendering of density and colour."""
    nn, F = torch.nn, torch.nn.functional
    frequencies, samples = 6, 32

    def encode(x):
        parts = [x]
        for i in range(frequencies):
            parts += [torch.sin(2.0 ** i * x), torch.cos(2.0 ** i * x)]
        return torch.cat(parts, -1)

    wide = 3 + 6 * frequencies
    trunk = nn.Sequential(nn.Linear(wide, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    density, colour = nn.Linear(64, 1), nn.Sequential(nn.Linear(64 + 3, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid())
    parameters = [*trunk.parameters(), *density.parameters(), *colour.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=5e-4)
    data = batches(torch, 256, drawn(2048, 3, scale=0.1), drawn(2048, 3, seed=1), uniform(2048, 3, seed=2))

    def step():
        origins, directions, wanted = next(data)
        directions = F.normalize(directions, dim=-1)
        bins = torch.linspace(2.0, 6.0, samples + 1)
        depths = bins[:-1] + torch.rand(len(origins), samples) * (bins[1:] - bins[:-1])
        points = origins[:, None] + directions[:, None] * depths[..., None]
        hidden = trunk(encode(points))
        sigma = F.softplus(density(hidden)).squeeze(-1)
        rgb = colour(torch.cat((hidden, directions[:, None].expand(-1, samples, -1)), -1))
        widths = torch.cat((depths[:, 1:] - depths[:, :-1], torch.full((len(depths), 1), 1e10)), 1)
        alpha = 1 - torch.exp(-sigma * widths)
        through = torch.cumprod(torch.cat((torch.ones(len(alpha), 1), 1 - alpha + 1e-10), 1), 1)[:, :-1]
        pixels = ((alpha * through)[..., None] * rgb).sum(1)
        loss = F.mse_loss(pixels, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
