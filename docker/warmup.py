"""What an image for inference computes: run once while it is built, so that every kernel is compiled beforehand.

Take this as the place for your own: load the model, and call it with each shape that will come. Kernels that it does
not use here run on the reference executor there, slower, and a warning says so.
"""
import flambeau as torch

BATCHES = (1, 8)


def model():
    """A small net for pictures of 3 × 32 × 32; yours would be loaded with torch.load."""
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(32, 10)).eval()


def answer(net, pictures):
    """The class of each picture, and how likely it is."""
    with torch.no_grad():
        return torch.softmax(net(pictures), 1).max(1)


if __name__ == "__main__":
    net = model()
    for batch in BATCHES:
        for _ in range(3):
            likely, kind = answer(net, torch.rand(batch, 3, 32, 32))
            print(batch, kind.tolist(), [round(share, 3) for share in likely.tolist()])
