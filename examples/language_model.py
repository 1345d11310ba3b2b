"""Teach a small GPT to write like the manual that Python carries with it, one character after the other.

    python examples/language_model.py [--steps 800] [--prompt "The "] [--quick]

The text is what `help("topics")` shows, so nothing is downloaded. The loss is in nats per character. As a yardstick,
the frequencies of what follows each pair of characters are counted: the net is below that after 800 steps, and what it
writes at the end looks like English about Python, if one does not read too closely. Takes about a minute on two cores.

Nothing here is particular to Flambeau: with `import torch` in the place of its import it runs on PyTorch.
"""
import argparse
import math
from pydoc_data.topics import topics

from progress import bar

import flambeau as torch

nn, F = torch.nn, torch.nn.functional


def corpus():
    """The manual as one text of printable ASCII."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return "".join(c for c in text if c == "\n" or " " <= c <= "~")


class Windows(torch.utils.data.Dataset):
    """Stretches of `length` characters, each with the same stretch moved on by one: what follows each character."""

    def __init__(self, characters, length):
        self.characters, self.length = characters, length

    def __len__(self):
        return len(self.characters) - self.length

    def __getitem__(self, start):
        window = self.characters[start:start + self.length + 1]
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)             # (B, heads, T, C / heads)
                   for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, width, layers, heads):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)
        self.head.weight = self.token.weight               # what a character is, and what speaks for it

    def forward(self, x):
        """The logits (B, T, vocabulary) of what follows each character of `x` (B, T)."""
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.token(x) + self.place(places))))


def pair_entropy(train, valid, vocabulary):
    """The loss on `valid` of who knows how often each character follows each pair of characters in `train`."""
    def pairs(of): return of[:-2] * vocabulary + of[1:-1]
    counts = torch.full((vocabulary ** 2, vocabulary), 0.01)
    counts.index_put_((pairs(train), train[2:]), torch.tensor(1.0), accumulate=True)
    return F.nll_loss((counts / counts.sum(dim=1, keepdim=True)).log()[pairs(valid)], valid[2:]).item()


@torch.no_grad()
def loss_on(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(x).flatten(0, 1), y.flatten()) for x, y in loader]
    return torch.stack(losses).mean().item()


@torch.no_grad()
def written(model, start, count, context, blank, temperature=0.7):
    """The characters `start` and `count` more, each drawn from what the model expects after those before it."""
    model.eval()
    text = [blank] * context + start             # so that what the model sees always has the same length
    for _ in bar(range(count), "writing"):
        logits = model(torch.tensor([text[-context:]]))[0, -1]
        text.append(torch.multinomial((logits / temperature).softmax(dim=-1), 1).item())
    return text[context:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, help="default: 800, or 60 with --quick")
    parser.add_argument("--prompt", default="The statement ", help="how the text at the end starts")
    parser.add_argument("--quick", action="store_true", help="a smaller net, for a trial of some seconds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    steps = args.steps or (60 if args.quick else 800)
    context, width, layers, batch = (32, 32, 1, 16) if args.quick else (64, 96, 3, 32)

    torch.manual_seed(args.seed)
    text = corpus()
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    characters = torch.tensor([number[letter] for letter in text])
    split = int(0.9 * len(characters))
    train, valid = characters[:split], characters[split:]
    sampler = torch.utils.data.RandomSampler(Windows(train, context), replacement=True, num_samples=steps * batch)
    loader = torch.utils.data.DataLoader(Windows(train, context), batch_size=batch, sampler=sampler)
    sparse = range(0, len(valid) - context, 40 * context if args.quick else 4 * context)
    validation = torch.utils.data.DataLoader(torch.utils.data.Subset(Windows(valid, context), sparse), batch_size=batch,
                                             drop_last=True)

    model = GPT(len(letters), context, width, layers, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps - 20, 1), eta_min=1e-4)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], [20])
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text):,} characters, "
          f"{len(letters)} different ones (a blind guess: {math.log(len(letters)):.3f})")

    total, every = 0.0, max(steps // 8, 1)
    model.train()
    for step, (x, y) in enumerate(progress := bar(loader, "training"), 1):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
        progress.set_postfix_str(f"loss {loss.item():.3f}")
        if step == 1:
            print(f"first loss {loss.item():.5f}")
        if step % every == 0:
            print(f"step {step}: mean loss {total / every:.5f}", flush=True)
            total = 0.0

    print(f"loss on text not trained on: {loss_on(model, validation):.3f}; by counting what follows pairs: "
          f"{pair_entropy(train, valid, len(letters)):.3f}\n")
    start = [number[letter] for letter in args.prompt if letter in number]
    text = written(model, start, 40 if args.quick else 400, context, blank=number["\n"])
    print("".join(letters[i] for i in text))


if __name__ == "__main__":
    main()
