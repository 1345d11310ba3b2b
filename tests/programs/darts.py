"""darts: series forecast by nets, with covariates and likelihoods, historical forecasts, saved models."""
import numpy as np
import pandas as pd
from darts import TimeSeries
from darts.dataprocessing.transformers import Scaler
from darts.metrics import mae
from darts.models import BlockRNNModel, NBEATSModel, NLinearModel, TCNModel, TransformerModel
from darts.utils.likelihood_models.torch import GaussianLikelihood

from tests.programs import array, tolerance

PACKAGES = ["darts"]
HOW = dict(input_chunk_length=12, output_chunk_length=4, n_epochs=2, batch_size=16, random_state=1,
           pl_trainer_kwargs={"accelerator": "cpu", "enable_progress_bar": False, "logger": False,
                              "enable_model_summary": False, "enable_checkpointing": False})


def _series():
    t = np.arange(72)
    values = np.sin(t / 4) + 0.02 * t + 0.05 * array(72).numpy()
    return TimeSeries.from_times_and_values(pd.date_range("2020-01-01", periods=72), values.astype(np.float32))


@tolerance(1e-4, "epochs of training carry rounding on")
def forecast():
    """Several nets are fitted, and say what comes next."""
    series = Scaler().fit_transform(_series())
    train, rest = series[:-8], series[-8:]
    found = {}
    for kind, how in ((NLinearModel, {}), (NBEATSModel, dict(num_stacks=2, num_blocks=1, layer_widths=16)),
                      (BlockRNNModel, dict(model="LSTM", hidden_dim=8)), (TCNModel, dict(num_filters=3)),
                      (TransformerModel, dict(d_model=8, nhead=2, num_encoder_layers=1, num_decoder_layers=1,
                                              dim_feedforward=16))):
        model = kind(**how, **HOW).fit(train, verbose=False)
        said = model.predict(8, verbose=False)
        found[kind.__name__] = {"values": said.values().ravel(), "error": float(mae(rest, said))}
    return found


@tolerance(1e-4, "epochs of training carry rounding on")
def kept():
    """A model with a likelihood, saved whole and loaded; samples, and what it would have said earlier."""
    series = _series()
    model = NLinearModel(normalize=False, likelihood=GaussianLikelihood(), **HOW).fit(series, verbose=False)
    model.save("model.pt")
    again = NLinearModel.load("model.pt")
    earlier = again.historical_forecasts(series, start=0.8, forecast_horizon=2, retrain=False, verbose=False)
    return {"spread": again.predict(4, predict_likelihood_parameters=True, verbose=False).values(),
            "earlier": earlier.values().ravel()}
