"""mlflow: a net saved as a model of mlflow's, loaded whole and as a function of arrays, and its state alone."""
import mlflow.pyfunc
import mlflow.pytorch
import numpy as np
import torch

from tests.programs import array, fill

PACKAGES = ["mlflow"]


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.first(x).relu())


def kept():
    """The whole net in a folder, and asked by mlflow's common form; the state of the net."""
    net = fill(_Net())
    mlflow.pytorch.save_model(net, "whole", pip_requirements=["torch"], serialization_format="pickle")
    mlflow.pytorch.save_state_dict(net.state_dict(), "state")
    again, x = mlflow.pytorch.load_model("whole"), array(3, 4, seed=1)
    asked = mlflow.pyfunc.load_model("whole").predict(x.numpy())
    return {"loaded": again(x), "asked": np.asarray(asked), "keys": list(mlflow.pytorch.load_state_dict("state"))}
