"""Programs that read or write words, sounds and signals."""
import math

import numpy as np

from . import batches, drawn, program, whole


@program
def speech_recogniser(torch):
    """Convolutions over spectrogram frames, a bidirectional GRU, and CTC over transcripts of many lengths."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(1, 16, (5, 5), (2, 2), (2, 2)), nn.BatchNorm2d(16), nn.Hardtanh(0, 20))
            self.rnn = nn.GRU(16 * 20, 96, num_layers=1, batch_first=True, bidirectional=True)
            self.out = nn.Linear(192, 29)

        def forward(self, x):
            x = self.conv(x)
            x, _ = self.rnn(x.permute(0, 3, 1, 2).flatten(2))
            return self.out(x).log_softmax(-1)

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-4)
    data = batches(torch, 8, drawn(64, 1, 40, 96), 1 + whole(28, 64, 15), 5 + whole(10, 64, seed=3))

    def step():
        x, words, lengths = next(data)
        log_p = net(x).transpose(0, 1)
        frames = torch.full((len(x),), len(log_p), dtype=torch.long)
        loss = F.ctc_loss(log_p, words, frames, lengths, blank=0, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        return loss
    return step


@program
def sound_separator(torch):
    """A mask on the STFT of a mixture, resynthesised by the inverse, and the signal-to-noise ratio as the loss."""
    nn = torch.nn
    net = nn.Sequential(nn.Conv1d(129, 128, 3, padding=1), nn.PReLU(), nn.Conv1d(128, 128, 3, padding=2, dilation=2),
                        nn.PReLU(), nn.Conv1d(128, 129, 1), nn.Sigmoid())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    window = torch.hann_window(256)
    data = batches(torch, 4, drawn(32, 8192), drawn(32, 8192, seed=1))

    def step():
        clean, noise = next(data)
        spectrum = torch.stft(clean + noise, 256, 128, window=window, return_complex=True)
        mask = net(torch.log1p(spectrum.abs()))
        found = torch.istft(spectrum * mask, 256, 128, window=window, length=clean.shape[1])
        scale = (found * clean).sum(1, keepdim=True) / clean.pow(2).sum(1, keepdim=True)
        target = scale * clean
        loss = -10 * torch.log10(target.pow(2).sum(1) / ((found - target).pow(2).sum(1) + 1e-8) + 1e-8).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def keyword_spotter(torch):
    """A mel filter bank made by hand, SpecAugment, and dilated one-dimensional convolutions."""
    nn, F = torch.nn, torch.nn.functional
    mels, window = 40, torch.hann_window(400)
    edges = 700 * (10 ** (np.linspace(0, 2595 * math.log10(1 + 8000 / 700), mels + 2) / 2595) - 1)
    bins = np.linspace(0, 8000, 201)[:, None]
    up = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    bank = torch.from_numpy(np.clip(np.minimum(up, down), 0, None).astype(np.float32))
    net = nn.Sequential(nn.Conv1d(mels, 64, 5, padding=2), nn.BatchNorm1d(64), nn.ReLU(),
                        nn.Conv1d(64, 64, 5, padding=4, dilation=2), nn.BatchNorm1d(64), nn.ReLU(),
                        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(64, 12))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 8, drawn(64, 8000), whole(12, 64))

    def step():
        wave, y = next(data)
        power = torch.stft(wave, 400, 160, window=window, return_complex=True).abs() ** 2
        mel = torch.log(power.transpose(1, 2) @ bank + 1e-6).transpose(1, 2)
        mel = (mel - mel.mean((1, 2), keepdim=True)) / mel.std((1, 2), keepdim=True)
        start = torch.randint(0, mels - 8, (1,)).item()
        mel[:, start:start + 8] = 0
        loss = F.cross_entropy(net(mel), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def lstm_language_model(torch):
    """Truncated backpropagation: the state is handed from window to window, and detached."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, batch, window = 1000, 16, 25

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, 128)
            self.rnn = nn.LSTM(128, 128, 2, dropout=0.2)
            self.out = nn.Linear(128, vocabulary)
            self.out.weight = self.embed.weight
            self.drop = nn.Dropout(0.2)

        def forward(self, x, state):
            out, state = self.rnn(self.drop(self.embed(x)), state)
            return self.out(self.drop(out)), state

    net = Model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    text = torch.from_numpy(whole(vocabulary, 2000, batch))
    at = {"row": 0, "state": None}

    def step():
        if at["row"] + window + 1 > len(text):
            at["row"], at["state"] = 0, None
        x, y = text[at["row"]:at["row"] + window], text[at["row"] + 1:at["row"] + window + 1]
        at["row"] += window
        scores, state = net(x, at["state"])
        at["state"] = tuple(s.detach() for s in state)
        loss = F.cross_entropy(scores.view(-1, vocabulary), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        optimizer.step()
        return loss
    return step


@program
def packed_sequences(torch):
    """Sentences of many lengths, sorted and packed for an LSTM, tagged word by word."""
    nn, F = torch.nn, torch.nn.functional
    rnn_tools = nn.utils.rnn
    random = np.random.default_rng(4)
    sentences = [torch.from_numpy(random.integers(1, 500, int(n))) for n in random.integers(4, 24, 128)]
    labels = [torch.from_numpy(random.integers(0, 9, len(s))) for s in sentences]
    embed, rnn = nn.Embedding(500, 48, padding_idx=0), nn.LSTM(48, 64, batch_first=True, bidirectional=True)
    out = nn.Linear(128, 9)
    net = nn.ModuleList([embed, rnn, out])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step():
        chosen = random.choice(128, 16, replace=False)
        x = rnn_tools.pad_sequence([sentences[i] for i in chosen], batch_first=True)
        y = rnn_tools.pad_sequence([labels[i] for i in chosen], batch_first=True, padding_value=-100)
        lengths = torch.tensor([len(sentences[i]) for i in chosen])
        packed = rnn_tools.pack_padded_sequence(embed(x), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = rnn_tools.pad_packed_sequence(rnn(packed)[0], batch_first=True)
        loss = F.cross_entropy(out(hidden).transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def translator(torch):
    """A sequence-to-sequence nn.Transformer with padding masks, and the warm-up schedule of its paper."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, width = 400, 64

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
            places = torch.arange(64).unsqueeze(1)
            rates = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
            table = torch.zeros(64, width)
            table[:, 0::2], table[:, 1::2] = torch.sin(places * rates), torch.cos(places * rates)
            self.register_buffer("places", table)
            self.transformer = nn.Transformer(width, 4, 2, 2, 128, 0.1, batch_first=True)
            self.out = nn.Linear(width, vocabulary)

        def forward(self, source, target):
            s = self.source(source) * math.sqrt(width) + self.places[:source.shape[1]]
            t = self.target(target) * math.sqrt(width) + self.places[:target.shape[1]]
            later = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
            return self.out(self.transformer(s, t, tgt_mask=later, src_key_padding_mask=source == 0,
                                             tgt_key_padding_mask=target == 0, memory_key_padding_mask=source == 0))

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: width ** -0.5 * min((n + 1) ** -0.5, (n + 1) * 400 ** -1.5))
    source, target = 1 + whole(vocabulary - 1, 128, 20), 1 + whole(vocabulary - 1, 128, 18, seed=2)
    for table, seed in ((source, 3), (target, 4)):
        for row, length in zip(table, 8 + whole(10, 128, seed=seed)):
            row[length:] = 0
    data = batches(torch, 16, source, target)

    def step():
        x, y = next(data)
        scores = net(x, y[:, :-1])
        loss = F.cross_entropy(scores.reshape(-1, vocabulary), y[:, 1:].reshape(-1), ignore_index=0,
                               label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss
    return step


@program
def llama(torch):
    """RMS norm, rotary embeddings, grouped queries and SwiGLU, under autocast to bfloat16; gradients accumulate."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, width, heads, groups, tokens = 512, 96, 6, 2, 64
    each = width // heads

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = RMSNorm(), RMSNorm()
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = nn.Linear(width, groups * each, bias=False), nn.Linear(width, groups * each, bias=False)
            self.gate, self.up = nn.Linear(width, 256, bias=False), nn.Linear(width, 256, bias=False)
            self.down = nn.Linear(256, width, bias=False)

        def forward(self, x, cos, sin):
            B, T, _ = x.shape
            h = self.norm1(x)
            q = self.q(h).view(B, T, heads, each).transpose(1, 2)
            k, v = (layer(h).view(B, T, groups, each).transpose(1, 2) for layer in (self.k, self.v))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(B, T, width))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(vocabulary, width), RMSNorm()
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.out = nn.Linear(width, vocabulary, bias=False)
            angles = torch.outer(torch.arange(tokens).float(), 10_000 ** (-torch.arange(0, each, 2).float() / each))
            angles = torch.cat((angles, angles), -1)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, idx):
            x = self.embed(idx)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.out(self.norm(x))

    net = Llama()
    decay = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95))
    data = batches(torch, 2, whole(vocabulary, 64, tokens + 1))

    def step():
        total = 0.0
        optimizer.zero_grad(set_to_none=True)
        for _ in range(2):
            rows, = next(data)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                scores = net(rows[:, :-1])
            loss = F.cross_entropy(scores.float().view(-1, vocabulary), rows[:, 1:].reshape(-1)) / 2
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return total
    return step


@program
def text_classifier(torch):
    """An EmbeddingBag over texts of any length, with offsets."""
    nn, F = torch.nn, torch.nn.functional
    random = np.random.default_rng(6)
    texts = [torch.from_numpy(random.integers(0, 5000, int(n))) for n in random.integers(10, 120, 512)]
    labels = random.integers(0, 4, 512).tolist()
    embed, out = nn.EmbeddingBag(5000, 64), nn.Linear(64, 4)
    net = nn.Sequential(embed, out)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)

    def step():
        chosen = random.choice(512, 64, replace=False).tolist()
        words = torch.cat([texts[i] for i in chosen])
        offsets = torch.tensor([0] + [len(texts[i]) for i in chosen[:-1]]).cumsum(0)
        y = torch.tensor([labels[i] for i in chosen])
        scores = out(embed(words, offsets))
        loss = F.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        return loss
    return step


@program
def memory_network(torch):
    """End-to-end memory: three hops of attention over stored sentences."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, width, hops = 200, 48, 3
    tables = nn.ModuleList([nn.Embedding(vocabulary, width, padding_idx=0) for _ in range(hops + 1)])
    for table in tables:
        nn.init.normal_(table.weight, 0, 0.1)
    optimizer = torch.optim.Adam(tables.parameters(), lr=1e-2)
    data = batches(torch, 32, whole(vocabulary, 256, 20, 7), whole(vocabulary, 256, 6, seed=2),
                   whole(vocabulary, 256, seed=3))

    def step():
        stories, questions, answers = next(data)
        u = tables[0](questions).sum(1)
        for hop in range(hops):
            p = F.softmax((tables[hop](stories).sum(2) * u.unsqueeze(1)).sum(2), 1)
            u = u + (tables[hop + 1](stories).sum(2) * p.unsqueeze(2)).sum(1)
        loss = F.cross_entropy(u @ tables[-1].weight.t(), answers)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(tables.parameters(), 40.0)
        optimizer.step()
        return loss
    return step


@program
def beam_search(torch):
    """A GRU decoder trained with teacher forcing, then eight steps of beam search with what it has learnt."""
    nn, F = torch.nn, torch.nn.functional
    vocabulary, beam = 200, 4
    embed, cell, out = nn.Embedding(vocabulary, 64), nn.GRUCell(64, 64), nn.Linear(64, vocabulary)
    net = nn.ModuleList([embed, cell, out])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = batches(torch, 16, drawn(64, 64), whole(vocabulary, 64, 12))

    def search(hidden):
        hidden = hidden.expand(beam, -1)
        words = torch.zeros(beam, 1, dtype=torch.long)
        scores = torch.tensor([0.0] + [-1e9] * (beam - 1))
        for _ in range(8):
            hidden = cell(embed(words[:, -1]), hidden)
            total = scores.unsqueeze(1) + F.log_softmax(out(hidden), -1)
            scores, flat = total.view(-1).topk(beam)
            parents, chosen = flat // vocabulary, flat % vocabulary
            words, hidden = torch.cat((words[parents], chosen.unsqueeze(1)), 1), hidden[parents]
        return words[scores.argmax()].tolist()

    def step():
        context, text = next(data)
        hidden, loss = context, 0.0
        for t in range(text.shape[1] - 1):
            hidden = cell(embed(text[:, t]), hidden)
            loss = loss + F.cross_entropy(out(hidden), text[:, t + 1])
        loss = loss / (text.shape[1] - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            assert len(search(context[:1])) == 9
        return loss
    return step


@program
def spiking_net(torch):
    """Leaky integrate-and-fire neurons over 20 ticks; the spike's derivative is a surrogate of an autograd.Function."""
    nn, F = torch.nn, torch.nn.functional

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return (v > 0).float()

        @staticmethod
        def backward(ctx, g):
            v, = ctx.saved_tensors
            return g / (1 + 10 * v.abs()) ** 2

    fc1, fc2 = nn.Linear(200, 128), nn.Linear(128, 10)
    optimizer = torch.optim.Adam([*fc1.parameters(), *fc2.parameters()], lr=1e-3)
    data = batches(torch, 32, (np.random.default_rng(7).random((128, 20, 200)) < 0.1).astype(np.float32),
                   whole(10, 128))

    def step():
        x, y = next(data)
        v1, v2, fired = torch.zeros(len(x), 128), torch.zeros(len(x), 10), torch.zeros(len(x), 10)
        for t in range(x.shape[1]):
            v1 = 0.9 * v1 + fc1(x[:, t])
            s1 = Spike.apply(v1 - 1)
            v1 = v1 - s1.detach()
            v2 = 0.9 * v2 + fc2(s1)
            s2 = Spike.apply(v2 - 1)
            v2 = v2 - s2.detach()
            fired = fired + s2
        loss = F.cross_entropy(fired, y) + 1e-3 * v2.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
