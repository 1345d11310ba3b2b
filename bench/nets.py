"""Image nets: four with long traces or many shapes, for what their first calls cost (cold.py), and ResNet-18.

Each is a function of the library `m`, flambeau or torch, and gives an `m.nn.Module` from images to 1,000 logits.
"""


def dense(m, blocks=(6, 12, 24, 16), growth=32):
    """Every layer of a block reads what all layers before it gave, side by side: no two have the same shape."""
    nn = m.nn

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * growth, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(4 * growth)
            self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

        def forward(self, parts):
            x = self.conv1(m.relu(self.norm1(m.cat(parts, 1))))
            return self.conv2(m.relu(self.norm2(x)))

    class Block(nn.Module):
        def __init__(self, width, count):
            super().__init__()
            self.layers = nn.ModuleList(Layer(width + i * growth) for i in range(count))

        def forward(self, x):
            parts = [x]
            for layer in self.layers:
                parts.append(layer(parts))
            return m.cat(parts, 1)

    width = 2 * growth
    parts = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for i, count in enumerate(blocks):
        parts.append(Block(width, count))
        width += count * growth
        if i + 1 < len(blocks):
            parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*parts, nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(width, 1000))


def windows(m, depths=(2, 2, 6, 2), width=96, window=7, head=32):
    """Attention inside windows of an image that every other layer shifts, with a learnt bias for each distance."""
    nn, F = m.nn, m.nn.functional
    near = m.arange(window)
    rows = (near[:, None] - near[None, :] + window - 1)
    distance = (rows[:, None, :, None] * (2 * window - 1) + rows[None, :, None, :]).reshape(-1)

    class Attention(nn.Module):
        def __init__(self, width, shift):
            super().__init__()
            self.heads, self.shift = width // head, shift
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.bias = nn.Parameter(0.02 * m.randn((2 * window - 1) ** 2, self.heads))

        def forward(self, x):
            B, H, W, C = x.shape
            down, right = -H % window, -W % window
            x = F.pad(x, (0, 0, 0, right, 0, down))
            high, wide = H + down, W + right
            shift = self.shift if high > window else 0
            if shift:
                x = m.roll(x, (-shift, -shift), (1, 2))
            n = high // window * (wide // window)
            x = self.cut(x)
            q, k, v = self.qkv(x).reshape(B * n, window ** 2, 3, self.heads, head).permute(2, 0, 3, 1, 4)
            scores = (q * head ** -0.5) @ k.transpose(-2, -1)
            scores = scores + self.bias[distance].reshape(window ** 2, window ** 2, -1).permute(2, 0, 1)
            if shift:
                scores = scores.reshape(B, n, self.heads, window ** 2, window ** 2)
                scores = (scores + self.apart(high, wide, shift)[:, None]).reshape(B * n, self.heads, window ** 2, -1)
            x = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B * n, window ** 2, C))
            x = x.reshape(B, high // window, wide // window, window, window, C).permute(0, 1, 3, 2, 4, 5)
            x = x.reshape(B, high, wide, C)
            if shift:
                x = m.roll(x, (shift, shift), (1, 2))
            return x[:, :H, :W]

        def cut(self, x):
            B, H, W, C = x.shape
            x = x.reshape(B, H // window, window, W // window, window, C).permute(0, 1, 3, 2, 4, 5)
            return x.reshape(-1, window ** 2, C)

        def apart(self, high, wide, shift):
            """Minus much for pairs that only the shift has brought into one window."""
            part = m.zeros(1, high, wide, 1)
            edges = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for i, down in enumerate(edges):
                for j, right in enumerate(edges):
                    part[:, down, right] = 3 * i + j
            part = self.cut(part)[..., 0]
            return (part[:, None, :] != part[:, :, None]) * -100.0

    class Layer(nn.Module):
        def __init__(self, width, shift):
            super().__init__()
            self.norm1, self.norm2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, shift)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Halve(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

        def forward(self, x):
            return self.reduce(self.norm(m.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, layers, size = nn.Conv2d(3, width, 4, 4), [], width
            for i, depth in enumerate(depths):
                layers += [Layer(size, window // 2 * (j % 2)) for j in range(depth)]
                if i + 1 < len(depths):
                    layers.append(Halve(size))
                    size *= 2
            self.layers, self.norm, self.head = nn.Sequential(*layers), nn.LayerNorm(size), nn.Linear(size, 1000)

        def forward(self, x):
            return self.head(self.norm(self.layers(self.patches(x).permute(0, 2, 3, 1))).mean((1, 2)))
    return Net()


def branches(m):
    """Modules of four branches with convolutions of different reach, all of different widths."""
    nn = m.nn

    def conv(wide_in, wide_out, size=1, stride=1):
        return nn.Sequential(nn.Conv2d(wide_in, wide_out, size, stride, size // 2, bias=False),
                             nn.BatchNorm2d(wide_out, eps=0.001), nn.ReLU())

    class Branches(nn.Module):
        def __init__(self, width, one, three, five, pooled):
            super().__init__()
            self.parts = nn.ModuleList([
                conv(width, one), nn.Sequential(conv(width, three // 2), conv(three // 2, three, 3)),
                nn.Sequential(conv(width, five // 4), conv(five // 4, five, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(width, pooled))])

        def forward(self, x):
            return m.cat([part(x) for part in self.parts], 1)

    layers = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), conv(64, 64), conv(64, 192, 3), nn.MaxPool2d(3, 2, 1)]
    width = 192
    for sizes in ((64, 128, 32, 32), (128, 192, 96, 64), None, (192, 208, 48, 64), (160, 224, 64, 64),
                  (128, 256, 64, 64), (112, 288, 64, 64), (256, 320, 128, 128), None, (256, 320, 128, 128),
                  (384, 384, 128, 128)):
        if sizes is None:
            layers.append(nn.MaxPool2d(3, 2, 1))
        else:
            layers.append(Branches(width, *sizes))
            width = sum(sizes)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def stacked(m, widths=(64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0), hidden=4096):
    """Convolutions one after the other, halved in size at each 0, and three large linear layers: VGG11."""
    nn, parts, before = m.nn, [], 3
    for width in widths:
        parts += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()] if width else [nn.MaxPool2d(2)]
        before = width or before
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(49 * before, hidden), nn.ReLU(),
                         nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, 1000))


def residual(m, layers=(2, 2, 2, 2), width=64, classes=1000):
    """ResNet-18: eight times two convolutions with their input added, in four stages, each half as high."""
    nn = m.nn

    class Block(nn.Module):
        def __init__(self, wide_in, wide_out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(wide_in, wide_out, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(wide_out, wide_out, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(wide_out), nn.BatchNorm2d(wide_out)
            self.shortcut = nn.Identity() if stride == 1 and wide_in == wide_out else nn.Sequential(
                nn.Conv2d(wide_in, wide_out, 1, stride, bias=False), nn.BatchNorm2d(wide_out))

        def forward(self, x):
            out = m.relu(self.norm1(self.conv1(x)))
            return m.relu(self.norm2(self.conv2(out)) + self.shortcut(x))

    parts = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    wide_in = width
    for stage, count in enumerate(layers):
        wide_out = width * 2 ** stage
        for i in range(count):
            parts.append(Block(wide_in, wide_out, 2 if stage and not i else 1))
            wide_in = wide_out
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide_in, classes))


NETS = {"dense": dense, "windows": windows, "branches": branches, "stacked": stacked}
