"""Learn to balance a pole on a cart by trial and error: proximal policy optimization (PPO), from the physics up.

    python examples/cart_pole.py [--rounds 100] [--quick]

A cart is pushed left or right, fifty times a second, so that the pole on it does not fall over. Each push earns 1, for
at most 500 in a trial. Pushing at random earns about 22. After a hundred rounds of practice, two thousand pushes each,
the mean is above 475, which counts as solved. Takes about twenty seconds on two cores.

Nothing here is particular to Flambeau: with `import torch` in the place of its import it runs on PyTorch.
"""
import argparse
import math

from progress import bar

import flambeau as torch

nn, F = torch.nn, torch.nn.functional

LIMIT = 500                   # pushes, then the trial is over
DISCOUNT, SMOOTHING = 0.99, 0.95
CLIP, ENTROPY, EPOCHS = 0.2, 0.01, 4


class Carts:
    """Many carts that move in step. A state (N, 4) holds place and speed of the cart, angle and speed of the pole."""

    def __init__(self, count):
        self.count = count
        self.state, self.age = self.start(), torch.zeros(count)

    def start(self):
        return torch.rand(self.count, 4) * 0.1 - 0.05

    def push(self, right):
        """Push for 0.02 s, right where `right` is 1: (the states after it, which fell, which are over, all their ages).

        A cart is over when its pole fell or its time is up. The next push finds a new one in its place.
        """
        gravity, cart, pole, half, force, time = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
        _, speed, angle, turning = self.state.unbind(dim=1)
        sin, cos = angle.sin(), angle.cos()
        pushed = (force * (2 * right - 1) + pole * half * turning.square() * sin) / (cart + pole)
        spin = (gravity * sin - cos * pushed) / (half * (4 / 3 - pole * cos.square() / (cart + pole)))
        gain = pushed - pole * half * spin * cos / (cart + pole)
        after = self.state + time * torch.stack([speed, gain, turning, spin], dim=1)
        fallen = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > math.radians(12))
        age = self.age + 1
        over = fallen | (age >= LIMIT)
        self.state, self.age = torch.where(over.unsqueeze(1), self.start(), after), torch.where(over, 0.0, age)
        return after, fallen, over, age


class ActorCritic(nn.Module):
    """What to do in a state, and what the state is worth: two nets that share nothing."""

    def __init__(self, width=64):
        super().__init__()

        def net(out):
            return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                 nn.Linear(width, out))
        self.actor, self.critic = net(2), net(1)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, math.sqrt(2))
                nn.init.zeros_(layer.bias)
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)          # at first, as good as a coin

    def policy(self, states):
        return torch.distributions.Categorical(logits=self.actor(states))

    def value(self, states):
        return self.critic(states).squeeze(-1)


@torch.no_grad()
def played(model, carts, pushes):
    """Let the model push: what `ppo_loss` wants to know, one row per push, and for how long each trial lasted."""
    seen = []
    for _ in range(pushes):
        state, policy = carts.state, model.policy(carts.state)
        action = policy.sample()
        seen.append((state, action, policy.log_prob(action), *carts.push(action)))
    states, actions, log_probs, after, fallen, over, ages = (torch.stack(column) for column in zip(*seen))   # (T, N, …)

    # Generalised advantage estimation: how much better things went than expected, the near future counting most.
    value = model.value(states)
    surprise = 1 + DISCOUNT * model.value(after) * ~fallen - value   # whose time was up might have gone on
    advantage, advantages = torch.zeros(carts.count), []
    for t in reversed(range(pushes)):
        advantage = surprise[t] + DISCOUNT * SMOOTHING * advantage * ~over[t]
        advantages.append(advantage)
    advantages = torch.stack(advantages[::-1])
    batch = [part.flatten(0, 1) for part in (states, actions, log_probs, advantages, advantages + value)]
    return batch, ages[over].tolist()


def ppo_loss(model, states, actions, log_probs, advantages, targets):
    """The clipped objective, the critic's error and a reward for staying undecided, as one number to make small."""
    policy = model.policy(states)
    ratio = (policy.log_prob(actions) - log_probs).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
    return 0.5 * F.mse_loss(model.value(states), targets) - gain - ENTROPY * policy.entropy().mean()


@torch.no_grad()
def trial(model, count):
    """For how many pushes each of `count` carts holds its pole."""
    carts = Carts(count)
    held, standing = torch.zeros(count), torch.ones(count, dtype=torch.bool)
    for _ in bar(range(LIMIT), "trial"):
        held += standing
        standing &= ~carts.push(model.policy(carts.state).sample())[2]
        if not standing.any():
            break
    return held


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, help="default: 100, or 8 with --quick")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a trial of some seconds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rounds = args.rounds or (8 if args.quick else 100)

    torch.manual_seed(args.seed)
    carts, model = Carts(32), ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=rounds)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, pushes at random: {trial(model, 32).mean():.1f}")
    for number in (progress := bar(range(1, rounds + 1), "rounds")):
        batch, ages = played(model, carts, pushes=64)
        dataset = torch.utils.data.TensorDataset(*batch)
        losses = []
        for _ in range(EPOCHS):
            for part in torch.utils.data.DataLoader(dataset, batch_size=512, shuffle=True):
                loss = ppo_loss(model, *part)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                losses.append(loss.item())
        schedule.step()
        mean = sum(ages) / max(len(ages), 1)
        progress.set_postfix_str(f"{mean:.0f} pushes")
        if number % max(rounds // 8, 1) == 0 or number == 1:
            print(f"round {number}: first loss {losses[0]:.5f}, {len(ages)} trials ended after {mean:.1f} pushes "
                  "on average", flush=True)

    print(f"mean return of 32 trials: {trial(model, 32).mean():.1f} of {LIMIT}")


if __name__ == "__main__":
    main()
