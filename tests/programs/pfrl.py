"""pfrl: agents of reinforcement learning: DQN, PPO and SAC learn in a small world; saved and loaded."""
import gymnasium
import numpy as np
import pfrl
import torch

from tests.programs import array, fill, seed

PACKAGES = ["pfrl"]


class _World:
    """Numbers that drift, and a reward for pushing them back."""
    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
        self.rng = np.random.default_rng(0)

    def reset(self):
        self.now, self.steps = self.rng.standard_normal(3).astype(np.float32), 0
        return self.now

    def step(self, action):
        push = np.float32(np.sum(action)) - np.float32(0.5)
        self.now = (0.9 * self.now + 0.1 * push + 0.1 * self.rng.standard_normal(3)).astype(np.float32)
        self.steps += 1
        return self.now, float(-np.square(self.now).sum()), self.steps % 12 == 0, {}


def _ran(agent, steps=60):
    world, actions = _World(), []
    seen = world.reset()
    for _ in range(steps):
        action = agent.act(seen)
        seen, reward, done, _ = world.step(action)
        agent.observe(seen, reward, done, False)
        actions.append(action)
        if done:
            seen = world.reset()
    agent.save("agent")
    agent.load("agent")
    with agent.eval_mode():
        chosen = [agent.act(array(3, seed=n).numpy()) for n in range(3)]
    return {"last": np.array(actions[-5:]), "chosen": np.array(chosen),
            "statistics": {name: float(value) for name, value in agent.get_statistics() if np.isfinite(value)}}


def dqn():
    """Doubled DQN with a replay buffer by priority."""
    seed(1)
    q = torch.nn.Sequential(fill(torch.nn.Linear(3, 16)), torch.nn.ReLU(), fill(torch.nn.Linear(16, 2)),
                            pfrl.q_functions.DiscreteActionValueHead())
    explorer = pfrl.explorers.LinearDecayEpsilonGreedy(1.0, 0.1, 40, lambda: np.random.randint(2))
    agent = pfrl.agents.DoubleDQN(q, torch.optim.Adam(q.parameters(), 1e-2, eps=1e-4),
                                  pfrl.replay_buffers.PrioritizedReplayBuffer(1000), 0.95, explorer, gpu=None,
                                  replay_start_size=16, minibatch_size=8, target_update_interval=20)
    return _ran(agent)


def ppo():
    """PPO with a Gaussian policy."""
    seed(2)
    policy = torch.nn.Sequential(fill(torch.nn.Linear(3, 8)), torch.nn.Tanh(), fill(torch.nn.Linear(8, 2)),
                                 pfrl.policies.GaussianHeadWithStateIndependentCovariance(2, "diagonal", lambda x: (
                                     2 * x).exp(), 0))
    value = torch.nn.Sequential(fill(torch.nn.Linear(3, 8)), torch.nn.Tanh(), fill(torch.nn.Linear(8, 1)))
    net = pfrl.nn.Branched(policy, value)
    return _ran(pfrl.agents.PPO(net, torch.optim.Adam(net.parameters(), 3e-3), gpu=None, update_interval=24,
                                minibatch_size=8, epochs=2))


def sac():
    """SAC with a squashed Gaussian and a temperature that is learned."""
    seed(3)

    def squashed(x):
        mean, spread = x.chunk(2, 1)
        base = torch.distributions.Independent(torch.distributions.Normal(mean, spread.clamp(-5, 2).exp()), 1)
        return torch.distributions.TransformedDistribution(base, [torch.distributions.TanhTransform(cache_size=1)])

    def critic(n):
        net = torch.nn.Sequential(pfrl.nn.ConcatObsAndAction(), fill(torch.nn.Linear(5, 8), n), torch.nn.ReLU(),
                                  fill(torch.nn.Linear(8, 1), n))
        return net, torch.optim.Adam(net.parameters(), 3e-3)

    policy = torch.nn.Sequential(fill(torch.nn.Linear(3, 4)), pfrl.nn.Lambda(squashed))
    (one, adam_one), (other, adam_other) = critic(1), critic(2)
    agent = pfrl.agents.SoftActorCritic(policy, one, other, torch.optim.Adam(policy.parameters(), 3e-3), adam_one,
                                        adam_other, pfrl.replay_buffers.ReplayBuffer(1000), 0.95, gpu=None,
                                        replay_start_size=16, minibatch_size=8, entropy_target=-2,
                                        temperature_optimizer_lr=3e-3,
                                        burnin_action_func=lambda: np.random.uniform(-1, 1, 2).astype(np.float32))
    return _ran(agent, 40)
