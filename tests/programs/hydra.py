"""hydra: nets, optimizers and schedules built from a configuration, and trained."""
from functools import partial

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import call, get_class, instantiate
from omegaconf import OmegaConf

from tests.programs import array, fill

PACKAGES = ["hydra-core", "omegaconf"]
QUICK = True
CONFIG = """
defaults: [_self_, optimizer: adam]
net:
  _target_: torch.nn.Sequential
  _args_:
    - {_target_: torch.nn.Linear, in_features: 4, out_features: "${width}"}
    - {_target_: torch.nn.GELU}
    - _target_: torch.nn.Linear
      in_features: ${width}
      out_features: 1
      dtype: {_target_: hydra.utils.get_object, path: torch.float32}
width: 8
loss: {_target_: torch.nn.functional.huber_loss, _partial_: true, delta: 0.5}
schedule: {_target_: torch.optim.lr_scheduler.OneCycleLR, _partial_: true, max_lr: 0.1, total_steps: 8}
"""


def instantiated():
    """Everything of a training run comes from files, and one value from the command line."""
    from pathlib import Path
    folder = Path("conf").absolute()
    (folder / "optimizer").mkdir(parents=True)
    (folder / "run.yaml").write_text(CONFIG)
    (folder / "optimizer" / "adam.yaml").write_text("{_target_: torch.optim.Adam, _partial_: true, lr: 0.01}")
    (folder / "optimizer" / "sgd.yaml").write_text(
        "{_target_: torch.optim.SGD, _partial_: true, lr: 0.01, momentum: 0.9}")
    found = {}
    with initialize_config_dir(str(folder), version_base="1.3"):
        for name in ("adam", "sgd"):
            config = compose("run", [f"optimizer={name}", "width=6"])
            net = fill(instantiate(config.net))
            optimizer = instantiate(config.optimizer)(net.parameters())
            schedule, loss_of, losses = instantiate(config.schedule)(optimizer), instantiate(config.loss), []
            for _ in range(6):
                loss = loss_of(net(array(16, 4)), array(16, 1, seed=1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss)
            found[name] = {"losses": losses, "rate": optimizer.param_groups[0]["lr"],
                           "config": OmegaConf.to_yaml(config.optimizer), "partial": isinstance(loss_of, partial)}
    return found


def named():
    """Classes and functions found by their paths."""
    return {"class": get_class("torch.nn.Linear") is torch.nn.Linear,
            "called": call({"_target_": "torch.arange", "end": 4}),
            "tensor": call(OmegaConf.create({"_target_": "torch.tensor", "data": [1.0, 2.0]}))}
