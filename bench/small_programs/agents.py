"""Programs that act in small worlds, or that search without gradients."""
import collections
import copy
import random as random_module

import numpy as np

from . import drawn, program, uniform


class CartPole:
    """A pole on a cart, by Euler's method, in plain numbers."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.state, self.time = self.random.uniform(-0.05, 0.05, 4), 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * turn ** 2 * np.sin(angle)) / 1.1
        alpha = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        a = push - 0.05 * alpha * np.cos(angle) / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * a, angle + 0.02 * turn, turn + 0.02 * alpha])
        self.time += 1
        over = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21 or self.time >= 200
        return self.state.astype(np.float32), 1.0, bool(over)


@program
def dqn(torch):
    """Eight steps of an epsilon-greedy agent into a replay buffer, an update after each, and a target net."""
    nn, F = torch.nn, torch.nn.functional
    world, random = CartPole(0), random_module.Random(0)
    q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target = copy.deepcopy(q)
    optimizer = torch.optim.AdamW(q.parameters(), lr=1e-4, amsgrad=True)
    memory = collections.deque(maxlen=5000)
    at = {"state": torch.from_numpy(world.reset()).unsqueeze(0), "steps": 0}

    def act():
        at["steps"] += 1
        if random.random() < max(0.05, 0.9 - at["steps"] / 500):
            action = torch.tensor([[random.randrange(2)]], dtype=torch.long)
        else:
            with torch.no_grad():
                action = q(at["state"]).max(1).indices.view(1, 1)
        seen, reward, over = world.step(action.item())
        following = None if over else torch.tensor(seen).unsqueeze(0)
        memory.append((at["state"], action, following, torch.tensor([reward])))
        at["state"] = torch.from_numpy(world.reset()).unsqueeze(0) if over else following

    def learn():
        states, actions, followings, rewards = zip(*random.sample(memory, 32))
        going_on = torch.tensor([s is not None for s in followings], dtype=torch.bool)
        values = q(torch.cat(states)).gather(1, torch.cat(actions))
        after = torch.zeros(32)
        with torch.no_grad():
            after[going_on] = target(torch.cat([s for s in followings if s is not None])).max(1).values
        loss = F.smooth_l1_loss(values, (torch.cat(rewards) + 0.99 * after).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(q.parameters(), 100)
        optimizer.step()
        weights, slow = q.state_dict(), target.state_dict()
        for name in weights:
            slow[name] = weights[name] * 0.005 + slow[name] * 0.995
        target.load_state_dict(slow)
        return loss

    while len(memory) < 64:
        act()

    def step():
        for _ in range(4):
            act()
            loss = learn()
        return loss
    return step


@program
def ppo(torch):
    """A rollout in four worlds, generalised advantages, and two epochs of minibatches with clipped ratios."""
    nn = torch.nn
    worlds, length = [CartPole(i) for i in range(4)], 16

    def layer(inside, outside, gain):
        made = nn.Linear(inside, outside)
        nn.init.orthogonal_(made.weight, gain)
        nn.init.constant_(made.bias, 0.0)
        return made

    actor = nn.Sequential(layer(4, 64, 2 ** 0.5), nn.Tanh(), layer(64, 64, 2 ** 0.5), nn.Tanh(), layer(64, 2, 0.01))
    critic = nn.Sequential(layer(4, 64, 2 ** 0.5), nn.Tanh(), layer(64, 64, 2 ** 0.5), nn.Tanh(), layer(64, 1, 1.0))
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2.5e-4, eps=1e-5)
    at = {"seen": torch.tensor(np.array([w.reset() for w in worlds])), "over": torch.zeros(4)}
    states, actions = torch.zeros(length, 4, 4), torch.zeros(length, 4)
    log_probs, rewards, overs, values = (torch.zeros(length, 4) for _ in range(4))

    def rollout():
        for t in range(length):
            states[t], overs[t] = at["seen"], at["over"]
            with torch.no_grad():
                policy = torch.distributions.Categorical(logits=actor(at["seen"]))
                action = policy.sample()
                values[t] = critic(at["seen"]).flatten()
            actions[t], log_probs[t] = action, policy.log_prob(action)
            found = [world.step(a) for world, a in zip(worlds, action.cpu().numpy())]
            rewards[t] = torch.tensor([reward for _, reward, _ in found])
            seen = [world.reset() if over else s for world, (s, _, over) in zip(worlds, found)]
            at["seen"] = torch.tensor(np.array(seen))
            at["over"] = torch.tensor([float(over) for _, _, over in found])

    def advantages():
        with torch.no_grad():
            following, last = critic(at["seen"]).flatten(), 0
            found = torch.zeros_like(rewards)
            for t in reversed(range(length)):
                over = at["over"] if t == length - 1 else overs[t + 1]
                value = following if t == length - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * value * (1 - over) - values[t]
                found[t] = last = delta + 0.99 * 0.95 * (1 - over) * last
        return found, found + values

    def step():
        rollout()
        gains, returns = advantages()
        flat = [t.reshape(-1, *t.shape[2:]) for t in (states, actions, log_probs, gains, returns)]
        for _ in range(2):
            for rows in torch.randperm(4 * length).chunk(2):
                s, a, old, gain, wanted = (t[rows] for t in flat)
                policy = torch.distributions.Categorical(logits=actor(s))
                ratio = (policy.log_prob(a) - old).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() \
                    + 0.5 * 0.5 * (critic(s).flatten() - wanted).pow(2).mean() - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
        return loss
    return step


@program
def policy_gradient(torch):
    """REINFORCE with a baseline: one episode of an agent that is asked step by step, then one update."""
    nn = torch.nn
    world = CartPole(5)
    body, head, value = nn.Linear(4, 64), nn.Linear(64, 2), nn.Linear(64, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters(), *value.parameters()], lr=1e-3)

    def step():
        seen, over, log_probs, values, rewards = world.reset(), False, [], [], []
        while not over and len(rewards) < 30:
            h = torch.relu(body(torch.from_numpy(seen)))
            policy = torch.distributions.Categorical(logits=head(h))
            action = policy.sample()
            seen, reward, over = world.step(action.item())
            log_probs.append(policy.log_prob(action))
            values.append(value(h))
            rewards.append(reward)
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        values = torch.cat(values)
        gains = (returns - values).detach()
        loss = (-torch.stack(log_probs) * gains).mean() + nn.functional.smooth_l1_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


@program
def soft_actor_critic(torch):
    """SAC on a replay buffer of vectors: twin critics, a squashed Gaussian, a learnt temperature, soft targets."""
    nn, F = torch.nn, torch.nn.functional
    seen, acts, rows = 12, 3, 2000
    buffer = [torch.from_numpy(t) for t in (drawn(rows, seen), uniform(rows, acts, low=-1), drawn(rows, 1, seed=2),
                                            drawn(rows, seen, seed=3))]

    def mlp(inside, outside):
        return nn.Sequential(nn.Linear(inside, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outside))

    actor, critics = mlp(seen, 2 * acts), nn.ModuleList([mlp(seen + acts, 1) for _ in range(2)])
    targets = copy.deepcopy(critics).requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.Adam(p, lr=3e-4) for p in (actor.parameters(), critics.parameters(), [log_alpha])]

    def sample(s):
        mean, log_std = actor(s).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        return action, (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(-1, keepdim=True)

    def update(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def step():
        chosen = torch.randint(0, rows, (64,))
        s, a, r, after = (t[chosen] for t in buffer)
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            action, log_p = sample(after)
            both = torch.cat((after, action), -1)
            wanted = r + 0.99 * (torch.min(targets[0](both), targets[1](both)) - alpha * log_p)
        both = torch.cat((s, a), -1)
        loss = sum(F.mse_loss(critic(both), wanted) for critic in critics)
        update(optimizers[1], loss)
        action, log_p = sample(s)
        both = torch.cat((s, action), -1)
        update(optimizers[0], (alpha * log_p - torch.min(critics[0](both), critics[1](both))).mean())
        update(optimizers[2], -(log_alpha * (log_p.detach() - acts)).mean())
        for slow, fast in zip(targets.parameters(), critics.parameters()):
            slow.data.mul_(0.995).add_(fast.data, alpha=0.005)
        return loss
    return step


@program
def evolution_strategy(torch):
    """A population of flat weight vectors, each tried by func.functional_call under vmap; ranks shape the update."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)).requires_grad_(False)
    flat = nn.utils.parameters_to_vector(net.parameters()).clone()
    shapes = [(name, p.shape, p.numel()) for name, p in net.named_parameters()]
    x, y = torch.from_numpy(drawn(100, 8)), torch.from_numpy(drawn(100, 4, seed=1))
    population, sigma, rate = 64, 0.05, 0.02

    def fitness(vector):
        parts = vector.split([n for _, _, n in shapes])
        weights = {name: part.view(shape) for (name, shape, _), part in zip(shapes, parts)}
        return -(torch.func.functional_call(net, weights, (x,)) - y).pow(2).mean()

    def step():
        nonlocal flat
        half = torch.randn(population // 2, len(flat))
        noise = torch.cat((half, -half))
        scores = torch.vmap(fitness)(flat + sigma * noise)
        ranks = scores.argsort().argsort().float() / (population - 1) - 0.5
        flat = flat + rate / (population * sigma) * (ranks @ noise)
        return -fitness(flat)
    return step


@program
def world_model(torch):
    """A latent dynamics model: a GRU state, a discrete latent by straight-through samples, KL balancing, rewards."""
    nn, F = torch.nn, torch.nn.functional
    groups, kinds, wide, length = 8, 8, 64, 12
    latent = groups * kinds
    encoder, cell = nn.Linear(24, 64), nn.GRUCell(latent + 2, wide)
    prior, posterior = nn.Linear(wide, latent), nn.Linear(wide + 64, latent)
    decoder, rewards = nn.Linear(wide + latent, 24), nn.Linear(wide + latent, 1)
    net = nn.ModuleList([encoder, cell, prior, posterior, decoder, rewards])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    seen, acts = torch.from_numpy(drawn(16, length, 24)), torch.from_numpy(drawn(16, length, 2, seed=1))
    gained = torch.from_numpy(drawn(16, length, seed=2))
    Categorical = torch.distributions.OneHotCategoricalStraightThrough
    kl_divergence = torch.distributions.kl_divergence

    def latent_of(logits):
        return Categorical(logits=logits.view(-1, groups, kinds))

    def step():
        h, z, loss = torch.zeros(16, wide), torch.zeros(16, latent), 0.0
        for t in range(length):
            h = cell(torch.cat((z, acts[:, t]), -1), h)
            expected = prior(h)
            found = posterior(torch.cat((h, F.elu(encoder(seen[:, t]))), -1))
            z = latent_of(found).rsample().flatten(1)
            state = torch.cat((h, z), -1)
            kl = 0.8 * kl_divergence(latent_of(found.detach()), latent_of(expected)) \
                + 0.2 * kl_divergence(latent_of(found), latent_of(expected.detach()))
            likelihood = F.mse_loss(decoder(state), seen[:, t]) + F.mse_loss(rewards(state).squeeze(-1), gained[:, t])
            loss = loss + likelihood + 0.1 * kl.sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 100.0)
        optimizer.step()
        return loss / length
    return step


@program
def imagined_rollout(torch):
    """Fitted Q in a known model of a world: ten greedy actions, each by argmax, a row of a table, and gather."""
    nn, F = torch.nn, torch.nn.functional
    effects, goal = torch.from_numpy(drawn(32, 12)) * 0.3, torch.from_numpy(drawn(12, seed=1))
    starts = torch.from_numpy(drawn(128, 12, seed=2))
    q = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32))
    slow = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)

    def step():
        state, loss = starts, 0.0
        for _ in range(10):
            values = q(state)
            action = values.argmax(1)
            state = torch.tanh(0.9 * state + effects[action])
            wanted = state @ goal + 0.9 * slow(state).max(1).values
            loss = loss + F.smooth_l1_loss(values.gather(1, action.unsqueeze(1)).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), q.parameters()):
                mine.lerp_(theirs, 0.01)
        return loss / 10
    return step
