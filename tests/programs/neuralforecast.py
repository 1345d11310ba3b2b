"""neuralforecast: many series forecast by nets: NHITS, LSTM, PatchTST; quantiles, cross validation, files."""
import logging

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MQLoss
from neuralforecast.models import LSTM, MLP, NHITS, PatchTST

from tests.programs import array, tolerance

PACKAGES = ["neuralforecast"]
HOW = dict(h=4, input_size=12, max_steps=4, batch_size=2, random_seed=1, accelerator="cpu", enable_progress_bar=False,
           logger=False, enable_checkpointing=False, enable_model_summary=False)


def _table():
    t = np.arange(60)
    return pd.concat([pd.DataFrame({"unique_id": name, "ds": pd.date_range("2020-01-01", periods=60),
                                    "y": np.sin(t / 5 + n) + 0.05 * array(60, seed=n).numpy()})
                      for n, name in enumerate("ab")])


@tolerance(1e-4, "steps of training carry rounding on")
def forecast():
    """Several nets are fitted together, and say what comes next; saved and loaded."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    nets = [MLP(hidden_size=16, num_layers=2, **HOW), NHITS(mlp_units=3 * [[16, 16]], **HOW),
            LSTM(encoder_hidden_size=8, decoder_hidden_size=8, encoder_n_layers=1, **HOW),
            PatchTST(hidden_size=8, n_heads=2, encoder_layers=1, linear_hidden_size=16, patch_len=4, stride=2, **HOW)]
    whole = NeuralForecast(nets, "D")
    whole.fit(_table())
    said = whole.predict()
    whole.save("kept", overwrite=True)
    again = NeuralForecast.load("kept").predict()
    return {"said": {name: said[name].to_numpy() for name in ("MLP", "NHITS", "LSTM", "PatchTST")},
            "again": again["NHITS"].to_numpy()}


@tolerance(1e-4, "steps of training carry rounding on")
def quantiles():
    """Quantiles, and cross validation over windows."""
    whole = NeuralForecast([MLP(hidden_size=8, num_layers=1, loss=MQLoss(level=[80]), **HOW)], "D")
    table = whole.cross_validation(_table(), n_windows=2)
    return {name: table[name].to_numpy() for name in table.columns if name.startswith("MLP")}
