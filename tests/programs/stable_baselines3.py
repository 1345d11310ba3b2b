"""stable-baselines3: PPO, A2C, DQN and SAC on Gymnasium's classics: what they learn, do, save and load."""
import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from tests.programs import fill

PACKAGES = ["stable-baselines3", "gymnasium"]


def _actions(model, count=20):
    """What the policy does for observations that NumPy draws."""
    seen = np.random.default_rng(1).standard_normal((count, *model.observation_space.shape)).astype(np.float32) * 0.1
    return model.predict(seen, deterministic=True)[0]


def _weights(model):
    return dict(list(model.policy.state_dict().items())[:4])


def ppo():
    """PPO on the pole and the cart: some rounds of playing and learning, then saved and loaded."""
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=2, seed=3), n_steps=32, batch_size=32, n_epochs=2,
                seed=3, device="cpu")
    fill(model.policy)
    model.learn(128)
    model.save("ppo")
    again = PPO.load("ppo", device="cpu")
    mean, _ = evaluate_policy(again, make_vec_env("CartPole-v1", seed=4), n_eval_episodes=3)
    return {"actions": _actions(model).tolist(), "again": _actions(again).tolist(), "mean": float(mean),
            "weights": _weights(model), "steps": model.num_timesteps}


def a2c():
    """A2C with RMSprop."""
    model = A2C("MlpPolicy", make_vec_env("CartPole-v1", n_envs=2, seed=3), seed=3, device="cpu")
    fill(model.policy)
    model.learn(60)
    return {"actions": _actions(model).tolist(), "weights": _weights(model)}


def dqn():
    """DQN with its replay buffer and target net."""
    model = DQN("MlpPolicy", gymnasium.make("CartPole-v1"), learning_starts=30, train_freq=4, batch_size=16, seed=3,
                target_update_interval=40, device="cpu")
    fill(model.policy)
    model.learn(120)
    return {"actions": _actions(model).tolist(), "weights": _weights(model), "updates": model._n_updates}


def sac():
    """SAC on the pendulum, with its entropy learnt."""
    model = SAC("MlpPolicy", gymnasium.make("Pendulum-v1"), learning_starts=20, batch_size=16, seed=3, device="cpu",
                policy_kwargs={"net_arch": [16, 16]})
    fill(model.policy, scale=0.5)
    model.learn(40)
    return {"actions": _actions(model), "entropy": float(model.log_ent_coef.exp()), "weights": _weights(model)}


def policies():
    """The distribution of a policy: actions, values, log-probabilities and entropy of given observations."""
    model = PPO("MlpPolicy", gymnasium.make("Pendulum-v1"), seed=3, device="cpu")
    fill(model.policy)
    seen = torch.from_numpy(np.random.default_rng(2).standard_normal((6, 3)).astype(np.float32))
    values, logs, entropy = model.policy.evaluate_actions(seen, seen[:, :1])
    return {"values": values, "logs": logs, "entropy": entropy, "text": str(model.policy.action_net)}
