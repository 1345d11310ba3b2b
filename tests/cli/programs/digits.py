"""A trainer as they are found in tutorials: arguments, a data set, a module, an optimizer, a schedule, a checkpoint."""
import argparse
import os

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Blobs(Dataset):
    """Ten kinds of noisy 8 by 8 pictures."""

    def __init__(self, count, generator):
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        shapes = torch.rand(10, 1, 8, 8, generator=generator)
        self.pictures = shapes[self.labels] + 0.3 * torch.randn(count, 1, 8, 8, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.pictures[i], self.labels[i]


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, 1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, 1)
        self.norm = nn.BatchNorm2d(2 * width)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(2 * width * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.norm(self.conv2(x))), 2)
        x = self.dropout(torch.flatten(x, 1))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if batch % args.log_interval == 0:
            print(f"epoch {epoch} batch {batch} loss: {loss.item():.6f}")


@torch.no_grad()
def test(model, device, loader):
    model.eval()
    loss, correct = 0.0, 0
    for data, target in loader:
        output = model(data.to(device))
        loss += F.nll_loss(output, target.to(device), reduction="sum").item()
        correct += output.argmax(dim=1, keepdim=True).eq(target.view_as(output[:, :1])).sum().item()
    print(f"test loss: {loss / len(loader.dataset):.6f} correct: {correct}")
    return loss


def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--save", default=None)
    args = parser.parse_args()

    use_cuda = not args.no_cuda and torch.cuda.is_available()
    cudnn.benchmark = use_cuda
    torch.manual_seed(args.seed)
    torch.cuda.manual_seed_all(args.seed)
    device = torch.device("cuda" if use_cuda else "mps" if torch.backends.mps.is_available() else "cpu")

    full = Blobs(160, torch.Generator().manual_seed(args.seed))
    kept, held_out = random_split(full, [128, 32])
    loader = DataLoader(kept, batch_size=args.batch_size, shuffle=True, num_workers=0, pin_memory=use_cuda)
    test_loader = DataLoader(TensorDataset(*[torch.stack(column) for column in zip(*held_out)]), batch_size=16)
    model = Net().to(device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(args.epochs):
        train(args, model, device, loader, optimizer, epoch)
        wanted = test(model, device, test_loader)
        scheduler.step()
        print(f"lr: {scheduler.get_last_lr()[0]:.6f}")
    print(f"parameters: {sum(p.numel() for p in model.parameters() if p.requires_grad)}")

    if args.save:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": args.epochs}, args.save)
        checkpoint = torch.load(args.save, map_location=device)
        other = Net()
        print(other.load_state_dict(checkpoint["model"]))
        other_optimizer = optim.SGD(other.parameters(), lr=1.0)
        other_optimizer.load_state_dict(checkpoint["optimizer"])
        assert abs(test(other, device, test_loader) - wanted) < 1e-3
        print(f"saved: {os.path.exists(args.save)} epoch: {checkpoint['epoch']}")


if __name__ == "__main__":
    main()
