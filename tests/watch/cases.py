"""Programs with a mistake, and their correct twins; every finding has one at least. Whatever walks over CASES takes
a new one: here, beside PyTorch, and on a GPU.

The line that has to be named ends with `# found`. What lies on a device says COPPER first.
"""
from typing import NamedTuple


class Case(NamedTuple):
    name: str                  # of the finding
    mistake: str
    twin: str
    full: bool = False         # whether it needs a full watch
    on_gpu: bool = True        # whether it is run there too: not what is about NumPy's memory, processes or waiting


CASES: list = []


def case(*fields, **more):
    CASES.append(Case(*fields, **more))


case("broadcast", """
net = torch.nn.Linear(3, 1)
x, y = torch.randn(64, 3), torch.randn(64)
pred = net(x)
loss = ((pred - y) ** 2).mean()     # found
""", """
net = torch.nn.Linear(3, 1)
x, y = torch.randn(64, 3), torch.randn(64)
pred = net(x).squeeze(-1)
loss = ((pred - y) ** 2).mean()
""")
case("broadcast", """
labels = torch.arange(10).reshape(10, 1)
a = 1
b = 2
c = 3
d = 4
e = 5
f = 6
g = 7
scores = torch.randn(10, 4)
found = scores.argmax(1, keepdim=True)
right = (
    found == labels.flatten()       # found
).float().mean()
""", """
labels = torch.arange(10).reshape(10, 1)
scores = torch.randn(10, 4)
right = (scores.argmax(1) == labels.flatten()).float().mean()
pairs = labels == labels.flatten()
near = labels.flatten()[:, None] - labels.flatten()
apart = torch.cdist(scores, scores)
""")
case("broadcast", """
weight = torch.randn(5, 1)
value = torch.randn(5)
each = weight * value               # found
""", """
weight = torch.randn(5, 1)
value = torch.randn(5)
each = weight.squeeze(1) * value
table = weight * value[None, :]
with torch.watch.allow("broadcast"):
    other = weight * value
""", full=True)
case("broadcast", """
pred, y = torch.randn(6, 1, requires_grad=True) * 2, torch.randn(6)
loss = torch.nn.functional.mse_loss(pred, y)        # found
""", """
pred, y = torch.randn(6, 1, requires_grad=True) * 2, torch.randn(6)
loss = torch.nn.functional.mse_loss(pred, y.unsqueeze(1))
loss = torch.nn.functional.mse_loss(pred, y[:1])
""")

TRAINING = """
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(8, 3), torch.randn(8, 1)
"""
case("stale-gradients", TRAINING + """
for i in range(3):
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()                # found
""", TRAINING + """
for i in range(3):
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
optimizer.zero_grad()
for i in range(3):
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
for i in range(3):
    for p in net.parameters():
        p.grad.data.zero_()
    ((net(x) - y) ** 2).mean().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
optimizer.zero_grad()
for i in range(8):                  # over batches
    ((net(x) - y) ** 2).mean().backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
optimizer.accumulate(4)
for i in range(8):
    ((net(x) - y) ** 2).mean().backward()
    optimizer.step()
    if i % 4 == 3:
        optimizer.zero_grad()
""")
case("stale-gradients", TRAINING + """
optimizer.accumulate(2)
for i in range(4):
    ((net(x) - y) ** 2).mean().backward()
    if i % 2:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()            # found
""", TRAINING + """
optimizer.accumulate(2)
other = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
for i in range(4):
    loss = ((net(x) - y) ** 2).mean() + other.param_groups[0]["params"][0].sum()
    loss.backward()                 # goes through both; each sets its own to zero before it matters
    if i % 2:
        optimizer.step()
        net.zero_grad()
    other.zero_grad()
    other.param_groups[0]["params"][0].sum().backward()
    other.step()
    other.zero_grad()
""")
case("old-graph", TRAINING + """
total = 0
for i in range(12):
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    total += loss                   # found
""", TRAINING + """
total, last = 0, None
for i in range(12):
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    total += loss.item()
    last = loss
""")
case("old-graph", TRAINING + """
class Log:
    def __init__(self):
        self.losses = []
log = Log()
def train():
    for i in range(12):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        log.losses.append(loss)     # found
train()
""", TRAINING + """
losses, nets = {}, [torch.nn.Linear(3, 1) for _ in range(10)]
steps = [torch.optim.SGD(one.parameters(), lr=0.1) for one in nets]
for i in range(12):
    for number, (one, step) in enumerate(zip(nets, steps)):
        step.zero_grad()
        losses[number] = ((one(x) - y) ** 2).mean()
        losses[number].backward()
        step.step()
""")
case("plain-container", """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.rest = [torch.nn.Linear(4, 1)]     # found
    def forward(self, x):
        return self.rest[0](self.first(x))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 3)).sum().backward()
optimizer.step()
""", """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.rest = torch.nn.ModuleList([torch.nn.Linear(4, 1)])
        self.teacher = [torch.nn.Linear(3, 4)]           # on purpose: it is not trained
    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher[0](x)
        return self.rest[0](self.first(x) - wanted)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 3)).sum().backward()
optimizer.step()
""")
case("non-finite", """
x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
p = x / x.sum()
logs = p.log()                      # found
loss = -(p * logs).sum()
print(f"{loss.item():.3f}")
""", """
x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
p = x / x.sum()
loss = -torch.special.xlogy(p, p.clamp(min=1e-9)).sum()
print(f"{loss.item():.3f}")
scores = torch.randn(4, 4, requires_grad=True)
scores = scores.masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf"))
print(scores.softmax(-1).sum().item(), scores[0, 1].item())
(scores.softmax(-1)[:, 0] ** 2).sum().backward()
""")
case("non-finite", TRAINING + """
with torch.no_grad():
    net.bias.fill_(-1000.0)         # nothing comes through the relu, and the parameters stay finite
for i in range(4):
    optimizer.zero_grad()
    part = net(x).relu() + torch.tensor([[0.0]] + [[1.0]] * 7)
    loss = (part.log() * part).mean()           # found
    loss.backward()
    optimizer.step()
    print(loss.item())
""", TRAINING + """
with torch.no_grad():
    net.bias.fill_(-1000.0)
for i in range(4):
    optimizer.zero_grad()
    part = net(x).relu() + torch.tensor([[0.1]] + [[1.0]] * 7)
    loss = (part.log() * part).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
""")
case("non-finite", TRAINING + """
for i in range(4):
    optimizer.zero_grad()
    part = net(x).relu() * 0 + torch.tensor([[0.0]] + [[1.0]] * 7)
    share = part / part.sum(0)
    loss = (share.log() * share).mean()         # found
    loss.backward()
    optimizer.step()
    print(loss.item())
""", TRAINING + """
for i in range(4):
    optimizer.zero_grad()
    part = net(x).relu() * 0 + torch.tensor([[0.0]] + [[1.0]] * 7)
    share = part / part.sum(0)
    loss = torch.special.xlogy(share, share.clamp(min=1e-9)).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
scores = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(scores.parameters(), lr=0.1)
for i in range(3):                  # infinities that are meant
    optimizer.zero_grad()
    masked = scores(torch.ones(4, 4)).masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf"))
    (masked.softmax(-1) ** 2).sum().backward()
    optimizer.step()
""")
case("non-finite", TRAINING + """
for i in range(3):
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean() * 1e30
    loss = loss * loss              # found
    loss.backward()
    with torch.no_grad():           # by hand, and nobody looks but at the end
        for p in net.parameters():
            p -= 0.1 * p.grad
    print(loss)
    print(loss.item())
""", TRAINING + """
for i in range(3):
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
            p.grad = None
    print(loss.item())
""")
case("non-finite", TRAINING + """
scale = torch.tensor(1e30)
for i in range(3):
    optimizer.zero_grad()
    wide = net(x) * scale
    loss = (wide ** 2).mean()       # found
    loss.backward()
    optimizer.step()
    break
""", TRAINING + """
for i in range(12):
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
""")
case("non-finite", """
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
h = net(torch.ones(4, 3))
h = h - h
length = (h ** 2).sum(1).sqrt()     # found
length.sum().backward()
optimizer.step()
""", """
net = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
h = net(torch.ones(4, 3))
h = h - h
length = ((h ** 2).sum(1) + 1e-12).sqrt()
length.sum().backward()
optimizer.step()
""")
case("non-finite", """
data = torch.tensor([[1.0, float("nan"), 2.0]] * 4)         # found
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(net.parameters())
loss = net(data).mean()
loss.backward()
optimizer.step()
""", """
data = torch.tensor([[1.0, float("nan"), 2.0]] * 4).nan_to_num()
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(net.parameters())
loss = net(data).mean()
loss.backward()
optimizer.step()
""")
case("no-gradient", """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used = torch.nn.Linear(3, 1)
        self.unused = torch.nn.Linear(3, 1)     # found
    def forward(self, x):
        return self.used(x)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(6):
    optimizer.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
""", """
net = torch.nn.ModuleList([torch.nn.Linear(3, 1), torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)])
net[2].requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(6):
    optimizer.zero_grad()
    net[i % 2](torch.ones(2, 3)).sum().backward()
    optimizer.step()
""", full=True)
case("dead-layer", """
first, second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)            # found
with torch.no_grad():
    first.bias.fill_(-1000.0)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for i in range(6):
    optimizer.zero_grad()
    second(first(torch.ones(2, 3)).relu()).sum().backward()
    optimizer.step()
""", """
critic = torch.nn.Linear(4, 1)                          # of a difference, which its bias takes no part in
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for i in range(6):
    optimizer.zero_grad()
    (critic(torch.ones(2, 4)).mean() - critic(torch.zeros(2, 4)).mean()).backward()
    optimizer.step()
first, second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
with torch.no_grad():
    first.bias.fill_(1.0)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
for i in range(6):
    optimizer.zero_grad()
    second(first(torch.ones(2, 3)).relu()).sum().backward()
    optimizer.step()
""", full=True)
case("exploding-gradients", """
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=50.0)
for i in range(5):
    optimizer.zero_grad()
    (w ** 2).sum().backward()
    optimizer.step()                # found
""", """
w = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=50.0)
for i in range(5):
    optimizer.zero_grad()
    (w ** 2).sum().backward()
    torch.nn.utils.clip_grad_norm_([w], 1.0)
    optimizer.step()
""", full=True)
case("underflow", """
w = torch.ones(64, dtype=torch.float16, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
loss = (w.float() * torch.linspace(0, 5e-8, 64)).sum()
loss.backward()
optimizer.step()                    # found
""", """
w = torch.ones(64, dtype=torch.float16, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
loss = (w.float() * torch.linspace(0, 5e-8, 64)).sum()
(loss * 2.0 ** 16).backward()
w.grad /= 2.0 ** 8
optimizer.step()
""", full=True)
case("swallowed-error", """
def total(batches):
    good = 0
    for batch in batches:
        try:
            good += (batch @ torch.ones(3)).sum()
        except Exception:           # found
            continue
    return good
total([torch.ones(2, 3), torch.ones(2, 4), torch.ones(5, 5)])
""", """
import traceback
def total(batches):
    good = 0
    for batch in batches:
        try:
            good += (batch @ torch.ones(3)).sum()
        except RuntimeError:
            continue
        except Exception:
            pass
        try:
            batch.view(77)
        except Exception as error:
            print(error)
        try:
            try:
                batch.view(77)
            except Exception:
                raise
        except RuntimeError:
            pass
        try:
            batch.view(77)
        except:
            traceback.print_exc()
    return good
total([torch.ones(2, 3), torch.ones(2, 4), torch.ones(5, 5)])
""")
case("swallowed-error", """
import contextlib
x = torch.ones(3, requires_grad=True)
loss = x.sum()
loss.backward()
for i in range(3):
    with contextlib.suppress(Exception):        # found
        (x * 2).backward()
""", """
import contextlib
x = torch.ones(3, requires_grad=True)
with contextlib.suppress(RuntimeError):
    (x * 2).backward()
with contextlib.suppress(Exception):
    raise ValueError("another's")
""")
case("unused-graph", TRAINING + """
net.eval()
total = 0.0
for i in range(12):
    total += ((net(x) - y) ** 2).mean().item()          # found
""", TRAINING + """
net.eval()
total = 0.0
with torch.no_grad():
    for i in range(12):
        total += ((net(x) - y) ** 2).mean().item()
def loss_of(rows):
    return ((net(rows) - y) ** 2).mean()
loss_of(x).backward()
for i in range(3):
    total += loss_of(x).item()
kept = [net(x) for i in range(6)]                       # for a backward to come
sum(k.sum() for k in kept).backward()
""", full=True)
case("unused-graph", TRAINING + """
def answer(rows):
    return net(rows).argmax(1)      # found
for i in range(12):
    answer(x).tolist()
""", TRAINING + """
@torch.inference_mode()
def answer(rows):
    return net(rows).argmax(1)
for i in range(12):
    answer(x).tolist()
frozen = torch.nn.Linear(3, 1).requires_grad_(False)
for i in range(12):
    frozen(x).tolist()
""", full=True)
case("input-requires-grad", TRAINING + """
for i in range(6):
    rows = torch.randn(8, 3, requires_grad=True)        # found
    optimizer.zero_grad()
    ((net(rows) - y) ** 2).mean().backward()
    optimizer.step()
""", TRAINING + """
for i in range(6):
    rows = torch.randn(8, 3, requires_grad=True)
    optimizer.zero_grad()
    ((net(rows) - y) ** 2).mean().backward()
    optimizer.step()
    rows = rows + 0.1 * rows.grad.sign()                # an attack
shift = torch.zeros(3, requires_grad=True)
other = torch.optim.SGD([shift], lr=0.1)
for i in range(6):
    other.zero_grad()
    optimizer.zero_grad()
    ((net(x + shift) - y) ** 2).mean().backward()
    optimizer.step()
    other.step()
""", full=True)
case("cut-loss", TRAINING + """
with torch.no_grad():
    loss = ((net(x) - y) ** 2).mean()
loss.requires_grad = True
loss.backward()                     # found
optimizer.step()
""", TRAINING + """
loss = ((net(x) - y) ** 2).mean()
loss.backward()
optimizer.step()
w = torch.tensor(2.0, requires_grad=True)
w.backward()
""")
case("cut-loss", TRAINING + """
value = ((net(x) - y) ** 2).mean().item()
loss = torch.tensor(net(x).mean().item(), requires_grad=True)
loss.backward()                     # found
""", TRAINING + """
loss = net(x).mean()
print(loss.item())
loss.backward()
""")
case("vmap", """
turned = torch.vmap(lambda v: v if v.sum() > 0 else -v)(torch.ones(3, 2))       # found
""", """
turned = torch.vmap(lambda v: torch.where(v.sum() > 0, v, -v))(torch.ones(3, 2))
""")
case("not-called", """
device = "cuda" if torch.cuda.is_available else "cpu"       # found
""", """
device = "cuda" if torch.cuda.is_available() else "cpu"
device = "mps" if torch.backends.mps.is_available() else "cpu"
supported = getattr(torch.cuda, "is_bf16_supported", None)
if supported and supported():
    pass
if getattr(torch.cuda, "is_available", None) and torch.cuda.is_available():
    pass
assert callable(torch.cuda.is_available) and torch.cuda.is_available is not None
""")
case("not-called", """
if not torch.backends.mps.is_available:                     # found
    raise SystemExit
""", """
if torch.backends.mps.is_available():
    raise SystemExit
""")
case("not-called", TRAINING + """
for i in range(2):
    optimizer.zero_grad             # found
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    net.zero_grad()
""", TRAINING + """
for i in range(2):
    optimizer.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    zero = optimizer.zero_grad
""", full=True)
case("scrambled-channels", """
images = torch.randn(2, 8, 6, 3)
x = images.reshape(2, 3, 8, 6)      # found
out = torch.nn.BatchNorm2d(3)(x)
""", """
images = torch.randn(2, 8, 6, 3)
x = images.permute(0, 3, 1, 2)
out = torch.nn.BatchNorm2d(3)(x)
out = torch.nn.BatchNorm2d(3)(x.contiguous())
rows = torch.randn(2, 12, 5).reshape(2, 3, 4, 5)
out = torch.nn.GroupNorm(3, 3)(rows)
out = torch.nn.BatchNorm1d(5)(torch.randn(4, 3, 5).reshape(12, 5))
images = torch.watch.label(images, "N H W C")
out = torch.nn.BatchNorm2d(3)(images.permute(0, 3, 1, 2))
out = torch.nn.BatchNorm2d(3)(images.transpose(1, 3))
""")
case("scrambled-channels", """
hidden = torch.nn.Linear(4, 7)(torch.randn(2, 5, 4))
turned = hidden.view(2, 7, 5)       # found
out = torch.nn.functional.group_norm(
    turned, 7)
""", """
hidden = torch.nn.Linear(4, 7)(torch.randn(2, 5, 4))
turned = hidden.transpose(1, 2)
out = torch.nn.functional.group_norm(turned, 7)
""")
case("shared-memory", """
import numpy as np
buffer = np.zeros(4)
batches = []
for i in range(6):
    buffer[:] = i
    batches.append(torch.from_numpy(buffer))            # found
    batches[-1].sum().item()
""", """
import numpy as np
buffer = np.zeros(4)
batches = []
for i in range(6):
    buffer[:] = i
    batches.append(torch.tensor(buffer))
    batches[-1].sum().item()
array = np.zeros(4)
x = torch.from_numpy(array)
x += 1                              # through the tensor
for i in range(6):
    x.sum().item()
lent = torch.from_numpy(np.arange(3.0), lend=True)
for i in range(6):
    lent.sum().item()
""", full=True, on_gpu=False)
case("same-random-numbers", """
import numpy as np
class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.random = np.random.default_rng(0)
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.tensor(self.random.normal())
loader = torch.utils.data.DataLoader(Noisy(), num_workers=2, multiprocessing_context="fork")
iter(loader)                        # found
""", """
import numpy as np
class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.random = None
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.tensor(np.random.normal())
loader = torch.utils.data.DataLoader(Noisy(), num_workers=2, multiprocessing_context="fork")
iter(loader)
class Seeded(Noisy):
    def __init__(self):
        self.random = np.random.default_rng(0)
def seed(worker):
    torch.utils.data.get_worker_info().dataset.random = np.random.default_rng(worker)
iter(torch.utils.data.DataLoader(Seeded(), num_workers=2, worker_init_fn=seed,
                                   multiprocessing_context="fork"))
for _ in torch.utils.data.DataLoader(Seeded()):
    break
""", on_gpu=False)
SLOW = """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        time.sleep(0.008)
        return torch.ones(3)
"""
case("starved", SLOW + """
w = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.01)
for x in torch.utils.data.DataLoader(Slow()):           # found
    optimizer.zero_grad()
    (w * x).sum().backward()
    optimizer.step()
""", SLOW + """
for x in torch.utils.data.DataLoader(Slow()):           # nothing trains: the loop is about the data
    pass
""", full=True, on_gpu=False)
COPPER = """
from tests.watch.devices import register_copper
register_copper()
"""
case("transfer", COPPER + """
mask = torch.ones(4, 4)
x = torch.randn(4, 4).to("copper")
for i in range(8):
    x = x * mask.to("copper")          # found
""", COPPER + """
mask = torch.ones(4, 4).to("copper")
x = torch.randn(4, 4).to("copper")
for i in range(8):
    x = x * mask.to("copper")
    batch = torch.randn(4, 4).to("copper")
    x = x + batch
""", full=True)
case("synchronisation", COPPER + """
w = torch.ones(3, device="copper", requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for i in range(30):
    optimizer.zero_grad()
    loss = (w ** 2).sum()
    loss.backward()
    optimizer.step()
    print(loss.item())              # found
""", COPPER + """
w = torch.ones(3, device="copper", requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
total = 0
for i in range(30):
    optimizer.zero_grad()
    loss = (w ** 2).sum()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    if i % 10 == 9:
        print(total.item())
""", full=True)
case("split-module", COPPER + """
net = torch.nn.Linear(3, 1, device="copper")
net.register_buffer("scale", torch.ones(1))             # found
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 3, device="copper")).sum().backward()
optimizer.step()
""", COPPER + """
net = torch.nn.Linear(3, 1)
net.register_buffer("scale", torch.ones(1))
net.to("copper")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 3, device="copper")).sum().backward()
optimizer.step()
""", full=True)
case("idle-accelerator", COPPER + """
net = torch.nn.Linear(400, 300)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 400)).sum().backward()
optimizer.step()                    # found
""", COPPER + """
net = torch.nn.Linear(400, 300).to("copper")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(2, 400, device="copper")).sum().backward()
optimizer.step()
small = torch.optim.SGD([torch.ones(3, requires_grad=True)], lr=0.1)
small.step()
""", full=True)
