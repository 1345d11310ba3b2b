"""A small adversarial pair, with two optimizers."""
import torch
from torch import nn, optim


class Generator(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(latent, 16), nn.LeakyReLU(0.2, inplace=True),
                                   nn.BatchNorm1d(16), nn.Linear(16, 2), nn.Tanh())

    def forward(self, z):
        return self.model(z)


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.2)
        nn.init.zeros_(m.bias)


torch.manual_seed(3)
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
generator = Generator()
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(16, 1))
for net in (generator, discriminator):
    net.apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
opt_g = optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
for step in range(12):
    angle = torch.rand(32) * 6.2831853
    real = torch.stack([angle.cos(), angle.sin()], dim=1)
    valid, fake = Tensor(32, 1).fill_(1.0), Tensor(32, 1).fill_(0.0)
    noise = torch.randn(32, 4)
    made = generator(noise)
    opt_d.zero_grad()
    loss_d = 0.5 * (criterion(discriminator(real), valid) + criterion(discriminator(made.detach()), fake))
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad(set_to_none=True)
    loss_g = criterion(discriminator(made), valid)
    loss_g.backward()
    opt_g.step()
    if step % 3 == 0:
        print(f"step {step} d: {loss_d.item():.6f} g: {loss_g.item():.6f}")
generator.eval()
with torch.inference_mode():
    made = generator(torch.zeros(5, 4)).mean(), generator(torch.randn(64, 4)).std()
    print("mean: {:.6f} spread: {:.6f}".format(*made))
