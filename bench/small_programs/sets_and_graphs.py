"""Programs on nodes and edges, sets, point clouds, and tables of users and items."""
import numpy as np

from . import batches, drawn, program, uniform, whole


def edges_of(nodes, count, seed=0):
    """Random edges, and every node's edge to itself."""
    both = np.random.default_rng(seed).integers(0, nodes, (2, count))
    return np.concatenate((both, np.tile(np.arange(nodes), (2, 1))), 1)


@program
def graph_convolution(torch):
    """A GCN on one graph: messages scaled by degrees and added by index; some nodes have labels."""
    nn, F = torch.nn, torch.nn.functional
    nodes = 1000
    edges = torch.from_numpy(edges_of(nodes, 4000))
    x, y = torch.from_numpy(drawn(nodes, 128)), torch.from_numpy(whole(7, nodes))
    train = torch.from_numpy(np.random.default_rng(1).random(nodes) < 0.3)

    class Conv(nn.Module):
        def __init__(self, inside, outside):
            super().__init__()
            self.linear = nn.Linear(inside, outside)

        def forward(self, x):
            source, target = edges
            degree = torch.zeros(len(x)).index_add_(0, target, torch.ones(len(target)))
            scale = degree.pow(-0.5)
            messages = self.linear(x)[source] * (scale[source] * scale[target]).unsqueeze(1)
            return torch.zeros(len(x), messages.shape[1]).index_add_(0, target, messages)

    conv1, conv2 = Conv(128, 64), Conv(64, 7)
    optimizer = torch.optim.Adam([{"params": conv1.parameters(), "weight_decay": 5e-4},
                                  {"params": conv2.parameters()}], lr=0.01)

    def step():
        h = F.dropout(F.relu(conv1(F.dropout(x, 0.5))), 0.5)
        scores = conv2(h)
        loss = F.cross_entropy(scores[train], y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def graph_attention(torch):
    """A GAT: softmax over the edges of each node, by scatter_reduce and index_add, on batches of small graphs."""
    nn, F = torch.nn, torch.nn.functional
    heads, width = 4, 16
    random = np.random.default_rng(2)
    graphs = []
    for i in range(64):
        nodes = int(random.integers(10, 30))
        graphs.append((torch.from_numpy(drawn(nodes, 12, seed=i)), torch.from_numpy(edges_of(nodes, 3 * nodes, i)),
                       float(random.normal())))

    class Attention(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.linear = nn.Linear(inside, heads * width, bias=False)
            self.source, self.target = (nn.Parameter(torch.randn(1, heads, width) * 0.1) for _ in range(2))

        def forward(self, x, edges):
            source, target = edges
            h = self.linear(x).view(-1, heads, width)
            score = F.leaky_relu((h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target], 0.2)
            where = target.unsqueeze(1).expand_as(score)
            top = torch.full((len(x), heads), -1e9).scatter_reduce(0, where, score.detach(), "amax")
            weight = (score - top[target]).exp()
            total = torch.zeros(len(x), heads).scatter_add(0, where, weight)
            weight = weight / (total[target] + 1e-16)
            out = torch.zeros_like(h).index_add(0, target, h[source] * weight.unsqueeze(-1))
            return F.elu(out.flatten(1))

    layers = nn.ModuleList([Attention(12), Attention(heads * width)])
    head = nn.Linear(heads * width, 1)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=5e-3)

    def step():
        chosen = [graphs[i] for i in random.choice(64, 16, replace=False)]
        sizes = torch.tensor([len(x) for x, _, _ in chosen])
        shift = torch.cumsum(sizes, 0) - sizes
        x = torch.cat([x for x, _, _ in chosen])
        edges = torch.cat([e + s for (_, e, _), s in zip(chosen, shift)], 1)
        member = torch.repeat_interleave(torch.arange(len(chosen)), sizes)
        for layer in layers:
            x = layer(x, edges)
        pooled = torch.zeros(len(chosen), x.shape[1]).scatter_reduce(
            0, member.unsqueeze(1).expand_as(x), x, "mean", include_self=False)
        loss = F.l1_loss(head(pooled).squeeze(1), torch.tensor([y for _, _, y in chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def molecule_messages(torch):
    """A message passing net with a GRU for the state of an atom, on sparse adjacency by torch.sparse.mm."""
    nn, F = torch.nn, torch.nn.functional
    atoms, width = 400, 32
    edges = edges_of(atoms, 1200, 3)
    adjacency = torch.sparse_coo_tensor(torch.from_numpy(edges), torch.ones(edges.shape[1]), (atoms, atoms)).coalesce()
    enter, message, cell = nn.Linear(16, width), nn.Linear(width, width), nn.GRUCell(width, width)
    gate, out = nn.Linear(width, 1), nn.Linear(width, 1)
    net = nn.ModuleList([enter, message, cell, gate, out])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.from_numpy(drawn(atoms, 16)), torch.from_numpy(drawn(20, seed=5))
    member = torch.arange(atoms) // 20

    def step():
        h = torch.relu(enter(x))
        for _ in range(3):
            h = cell(torch.sparse.mm(adjacency, message(h)), h)
        found = torch.zeros(20).index_add(0, member, (torch.sigmoid(gate(h)) * out(h)).squeeze(1))
        loss = F.smooth_l1_loss(found, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def point_cloud(torch):
    """Farthest point sampling, the nearest neighbours of what it chose, a shared MLP and the largest of each group."""
    nn, F = torch.nn, torch.nn.functional

    def farthest(points, count):
        B, N, _ = points.shape
        chosen = torch.zeros(B, count, dtype=torch.long)
        distance, at, rows = torch.full((B, N), 1e10), torch.zeros(B, dtype=torch.long), torch.arange(B)
        for i in range(count):
            chosen[:, i] = at
            new = ((points - points[rows, at].unsqueeze(1)) ** 2).sum(-1)
            distance = torch.minimum(distance, new)
            at = distance.argmax(-1)
        return chosen

    def gather(x, index):
        rows = torch.arange(len(x)).view(-1, *[1] * (index.dim() - 1))
        return x[rows, index]

    first = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU())
    second = nn.Sequential(nn.Linear(64 + 3, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
    head = nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))
    net = nn.ModuleList([first, second, head])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 8, drawn(64, 256, 3), whole(8, 64))

    def group(points, count, neighbours):
        centres = gather(points, farthest(points, count))
        near = torch.cdist(centres, points).topk(neighbours, largest=False).indices
        return centres, near, gather(points, near) - centres.unsqueeze(2)

    def step():
        points, y = next(data)
        points = points + 0.01 * torch.randn_like(points)
        with torch.no_grad():
            centres, near, offsets = group(points, 48, 16)
            _, near2, offsets2 = group(centres, 12, 8)
        h = first(offsets).max(2).values
        h = second(torch.cat((gather(h, near2), offsets2), -1)).max(2).values
        loss = F.cross_entropy(head(h.max(1).values), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def edge_convolution(torch):
    """DGCNN: the graph of nearest neighbours is drawn anew from the features of every layer."""
    nn, F = torch.nn, torch.nn.functional
    k = 8

    def edge_features(x):
        inner = x @ x.transpose(1, 2)
        squares = (x ** 2).sum(-1, keepdim=True)
        near = (2 * inner - squares - squares.transpose(1, 2)).topk(k, -1).indices
        around = torch.gather(x.unsqueeze(1).expand(-1, x.shape[1], -1, -1), 2,
                              near.unsqueeze(-1).expand(-1, -1, -1, x.shape[-1]))
        centre = x.unsqueeze(2).expand_as(around)
        return torch.cat((around - centre, centre), -1)

    layers = nn.ModuleList([nn.Linear(6, 32), nn.Linear(64, 64)])
    head = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 8))
    optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
    data = batches(torch, 4, drawn(64, 128, 3), whole(8, 64))

    def step():
        x, y = next(data)
        kept = []
        for layer in layers:
            x = F.leaky_relu(layer(edge_features(x)), 0.2).amax(2)
            kept.append(x)
        loss = F.cross_entropy(head(torch.cat(kept, -1).max(1)[0]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def deep_sets(torch):
    """Sums over sets of many sizes, padded and masked: the net learns their largest minus their smallest number."""
    nn, F = torch.nn, torch.nn.functional
    each = nn.Sequential(nn.Linear(1, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 64))
    whole_set = nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam([*each.parameters(), *whole_set.parameters()], lr=1e-3)
    mask = np.arange(50)[None] < 5 + whole(45, 512)[:, None]
    data = batches(torch, 64, drawn(512, 50), mask)

    def step():
        x, there = next(data)
        y = x.masked_fill(~there, -1e9).amax(1) - x.masked_fill(~there, 1e9).amin(1)
        h = (each(x.unsqueeze(-1)) * there.unsqueeze(-1)).sum(1)
        loss = F.huber_loss(whole_set(h).squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def set_transformer(torch):
    """Induced set attention and pooling by attention, with nn.MultiheadAttention; Chamfer loss of what comes out."""
    nn = torch.nn
    width = 48

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.feed = nn.Sequential(nn.Linear(width, width), nn.ReLU())

        def forward(self, q, kv):
            h = self.norm1(q + self.attention(q, kv, kv, need_weights=False)[0])
            return self.norm2(h + self.feed(h))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(2, width), nn.Linear(width, 2)
            self.inducing = nn.Parameter(torch.randn(1, 8, width) * 0.1)
            self.seeds = nn.Parameter(torch.randn(1, 4, width) * 0.1)
            self.to_inducing, self.to_points, self.pool, self.among = Attend(), Attend(), Attend(), Attend()

        def forward(self, x):
            h = self.enter(x)
            h = self.to_points(h, self.to_inducing(self.inducing.expand(len(x), -1, -1), h))
            s = self.pool(self.seeds.expand(len(x), -1, -1), h)
            return self.leave(self.among(s, s))

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    centres = drawn(256, 4, 1, 2, scale=3)
    points = (centres + drawn(256, 4, 25, 2, seed=1, scale=0.3)).reshape(256, 100, 2)
    data = batches(torch, 16, points, centres[:, :, 0])

    def step():
        x, y = next(data)
        d = torch.cdist(net(x), y)
        loss = d.min(1).values.mean() + d.min(2).values.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def factorisation_machine(torch):
    """DeepFM: embeddings of categorical fields, products of pairs, and an MLP; click or no click."""
    nn, F = torch.nn, torch.nn.functional
    fields, rows, width = 20, 500, 8

    class DeepFM(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.linear = nn.Embedding(fields * rows, width), nn.Embedding(fields * rows, 1)
            self.register_buffer("shift", torch.arange(fields) * rows)
            self.deep = nn.Sequential(nn.Linear(fields * width, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2),
                                      nn.Linear(64, 1))

        def forward(self, x):
            x = x + self.shift
            e = self.embed(x)
            pairs = 0.5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1)
            return self.linear(x).sum((1, 2)) + pairs + self.deep(e.flatten(1)).squeeze(1)

    net = DeepFM()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-6)
    data = batches(torch, 256, whole(rows, 2000, fields), (uniform(2000) < 0.3).astype(np.float32), drop_last=False)

    def step():
        x, y = next(data)
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def two_towers(torch):
    """Recommendation: bags of what a user has seen, sparse gradients, and a sampled softmax over items."""
    nn, F = torch.nn, torch.nn.functional
    items, width = 20_000, 32
    history, item = (nn.EmbeddingBag(items, width, mode="mean", sparse=True), nn.Embedding(items, width, sparse=True))
    tower = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))
    for_tables = torch.optim.SparseAdam([*history.parameters(), *item.parameters()], lr=1e-3)
    for_tower = torch.optim.Adam(tower.parameters(), lr=1e-3)
    data = batches(torch, 128, whole(items, 1024, 20), whole(items, 1024, seed=2))

    def step():
        seen, chosen = next(data)
        users = tower(history(seen))
        others = torch.randint(0, items, (256,))
        right = (users * item(chosen)).sum(1, keepdim=True)
        scores = torch.cat((right, users @ item(others).t()), 1)
        loss = F.cross_entropy(scores, torch.zeros(len(seen), dtype=torch.long))
        for_tables.zero_grad()
        for_tower.zero_grad()
        loss.backward()
        for_tables.step()
        for_tower.step()
        return loss
    return step
