"""cleanrl: its scripts as they are, started with their own arguments: DQN, DDPG and PPO, what they learn and report.

The scripts write to TensorBoard; what stands in their event files afterwards is what is held.
"""
import importlib.util
import runpy
import sys
from pathlib import Path

import gymnasium
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.programs import tolerance

PACKAGES = ["cleanrl", "gymnasium", "tensorboard"]
LACKS = ["scripts for JAX, envpool, procgen, Atari and several GPUs are not shown: they need more than PyTorch"]

# Means of numbers around one that cancel each other to a thousandth, and are held as what is left beside one.
CANCELLING = {"losses/policy_loss", "losses/approx_kl", "losses/old_approx_kl"}


def _ran(script, **settings):
    """A script's variables at its end, and the numbers that it reported, by name and step."""
    given = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    (folder,) = importlib.util.find_spec("cleanrl").submodule_search_locations
    before, sys.argv = sys.argv, [script, *given]
    try:
        ended = runpy.run_path(str(Path(folder) / script), run_name="__main__")
    finally:
        sys.argv = before
    events = EventAccumulator(ended["writer"].log_dir).Reload()
    told = {tag: {"steps": [event.step for event in events.Scalars(tag)],
                  "values": [event.value + (tag in CANCELLING) for event in events.Scalars(tag)]}
            for tag in sorted(events.Tags()["scalars"]) if tag != "charts/SPS"}           # that is a speed
    return ended, {"reported": told, "texts": events.Tags()["tensors"]}


def _weights(model):
    return {name: held.double().pow(2).mean().sqrt() for name, held in model.state_dict().items()}


def dqn():
    """DQN on the pole and the cart: exploring, the replay buffer, the target net."""
    ended, told = _ran("dqn.py", total_timesteps=420, learning_starts=100, target_network_frequency=100,
                       batch_size=32, learning_rate=0.001, save_model=False)
    values = ended["q_network"](torch.from_numpy(ended["obs"]).float())
    return {**told, "values": values, "weights": _weights(ended["q_network"]), "loss": ended["loss"]}


def ddpg():
    """DDPG on the pendulum: actor and critic, both with slow copies, noise on the actions."""
    ended, told = _ran("ddpg_continuous_action.py", env_id="Pendulum-v1", total_timesteps=180, learning_starts=60,
                       batch_size=32)
    return {**told, "actor": _weights(ended["actor"]), "critic": _weights(ended["qf1"]),
            "slow": _weights(ended["target_actor"]), "loss": ended["qf1_loss"]}


@tolerance(3e-4, "actions are drawn by torch.normal, whose numbers agree to 2e-6, and each round of playing and "
                 "learning carries that on")
def ppo():
    """PPO on the pendulum: normal actions, advantages, clipped losses, a falling rate."""
    transform = gymnasium.wrappers.TransformObservation
    # The script is older than gymnasium 1, whose wrapper asks for the space of what it gives as well.
    gymnasium.wrappers.TransformObservation = lambda env, f: transform(env, f, env.observation_space)
    try:
        ended, told = _ran("ppo_continuous_action.py", env_id="Pendulum-v1", total_timesteps=256, num_steps=64,
                           num_minibatches=4, update_epochs=2)
    finally:
        gymnasium.wrappers.TransformObservation = transform
    return {**told, "weights": _weights(ended["agent"]), "advantages": ended["advantages"]}
