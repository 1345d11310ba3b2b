"""Programs with a mistake, and their correct twins: (finding, whether it needs a full watch, mistake, twin).

The line that has to be named ends with `# found`.
"""
CASES = []


def case(name, mistake, twin, full=False):
    CASES.append((name, full, mistake, twin))


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
