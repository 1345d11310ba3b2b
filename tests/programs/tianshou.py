"""tianshou: agents that learn CartPole and the pendulum by DQN, PPO and SAC: what they collect, learn and do."""
import gymnasium
import numpy as np
import torch
from tianshou.algorithm import DQN, PPO, SAC
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from tests.programs import fill, tolerance

PACKAGES = ["tianshou", "gymnasium"]

SETTINGS = {"max_epochs": 1, "epoch_num_steps": 128, "verbose": False, "show_progress": False, "test_collector": None}


def _worlds(name, count=2):
    return DummyVectorEnv([lambda: gymnasium.make(name) for _ in range(count)])


def _collector(algorithm, worlds):
    worlds.seed(3)
    made = Collector(algorithm, worlds, VectorReplayBuffer(400, len(worlds)), exploration_noise=True)
    made.reset()
    return made


def _results(algorithm, collector, acted):
    batch, _ = collector.buffer.sample(0)
    return {"steps": len(collector.buffer), "actions": np.asarray(batch.act, np.float32).ravel()[:40],
            "rewards": float(np.sum(batch.rew)), "acted": acted.detach(),
            "weights": {name: held.norm().item() for name, held in algorithm.state_dict().items()
                        if isinstance(held, torch.Tensor) and held.is_floating_point()}}


def deep_q():
    """DQN with a target net and several steps of return."""
    net = fill(Net(state_shape=4, action_shape=2, hidden_sizes=[16, 16]))
    world = gymnasium.make("CartPole-v1")
    world.action_space.seed(0)
    policy = DiscreteQLearningPolicy(model=net, action_space=world.action_space, eps_training=0.1)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), n_step_return_horizon=3, target_update_freq=5)
    collector = _collector(algorithm, _worlds("CartPole-v1"))
    algorithm.run_training(OffPolicyTrainerParams(training_collector=collector, collection_step_num_env_steps=16,
                                                  batch_size=32, update_step_num_gradient_steps_per_sample=0.25,
                                                  **SETTINGS))
    return _results(algorithm, collector, net(torch.ones(1, 4))[0])


@tolerance(1e-3, "thirty steps of Adam carry the order of sums on")
def proximal():
    """PPO with advantages, two passes over what was collected, and clipping."""
    body = Net(state_shape=4, hidden_sizes=[16, 16])
    actor, critic = (fill(kind(preprocess_net=body, **extra)) for kind, extra in
                     ((DiscreteActor, {"action_shape": 2}), (DiscreteCritic, {})))
    policy = ProbabilisticActorPolicy(actor=actor, dist_fn=lambda p: torch.distributions.Categorical(p),
                                      action_space=gymnasium.make("CartPole-v1").action_space, action_scaling=False)
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3), max_grad_norm=0.5)
    collector = _collector(algorithm, _worlds("CartPole-v1"))
    algorithm.run_training(OnPolicyTrainerParams(training_collector=collector, collection_step_num_env_steps=64,
                                                 batch_size=32, update_step_num_repetitions=2, **SETTINGS))
    return _results(algorithm, collector, actor(torch.ones(1, 4))[0])


@tolerance(1e-3, "steps of Adam carry the order of sums on")
def soft():
    """SAC with two critics on continuous actions."""
    world = gymnasium.make("Pendulum-v1")
    actor = fill(ContinuousActorProbabilistic(preprocess_net=Net(state_shape=3, hidden_sizes=[16, 16]), action_shape=1,
                                              unbounded=True, conditioned_sigma=True))
    critics = [fill(ContinuousCritic(preprocess_net=Net(state_shape=3, action_shape=1, hidden_sizes=[16, 16],
                                                        concat=True)), seed=n) for n in (1, 2)]
    rate = AdamOptimizerFactory(lr=1e-3)
    algorithm = SAC(policy=SACPolicy(actor=actor, action_space=world.action_space), policy_optim=rate,
                    critic=critics[0], critic_optim=rate, critic2=critics[1], critic2_optim=rate)
    collector = _collector(algorithm, _worlds("Pendulum-v1"))
    algorithm.run_training(OffPolicyTrainerParams(training_collector=collector, collection_step_num_env_steps=16,
                                                  batch_size=32, update_step_num_gradient_steps_per_sample=0.25,
                                                  **SETTINGS))
    (mean, spread), _ = actor(torch.ones(1, 3))
    return _results(algorithm, collector, torch.cat([mean, spread]))
