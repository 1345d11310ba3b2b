"""A variational autoencoder over torch.distributions."""
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, Normal, kl_divergence

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
patterns = (torch.rand(4, 12) > 0.5).double()
data = patterns[Categorical(torch.ones(4)).sample((48,))]
data = (data + Bernoulli(torch.full((48, 12), 0.05)).sample()) % 2
encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
decoder = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 12))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
prior = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
for step in range(20):
    mean, spread = encoder(data).chunk(2, dim=-1)
    posterior = Independent(Normal(mean, nn.functional.softplus(spread)), 1)
    latent = posterior.rsample()
    likelihood = Independent(Bernoulli(logits=decoder(latent)), 1).log_prob(data)
    loss = (kl_divergence(posterior, prior) - likelihood).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0 or step == 19:
        print(f"step {step} loss: {loss.item():.8f} entropy: {posterior.entropy().mean().item():.6f}")
