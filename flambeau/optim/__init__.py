"""Optimizers, learning-rate schedules and averages of models."""
from ..base.names import attribute_error
from . import lr_scheduler, swa_utils
from ._adafactor import Adafactor
from ._muon import Muon
from ._stateless import swap_in_optimizer_params_and_state
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam
from .adamax import Adamax
from .adamw import AdamW
from .asgd import ASGD
from .lbfgs import LBFGS
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__all__ = sorted(["lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state", *(
    name for name, made in globals().items() if isinstance(made, type) and issubclass(made, Optimizer))])


def __getattr__(name):
    raise attribute_error("torch.optim", name, globals().keys)
