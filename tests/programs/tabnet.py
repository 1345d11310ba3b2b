"""pytorch-tabnet: classes and numbers of tables, what the net looked at, pretraining, saving and loading."""
import numpy as np
import torch
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier, TabNetRegressor

from tests.programs import array, tolerance

PACKAGES = ["pytorch-tabnet"]
HOW = dict(n_d=4, n_a=4, n_steps=2, verbose=0, seed=3, device_name="cpu", optimizer_params={"lr": 0.02})


def _table():
    x = array(128, 6).numpy()
    x[:, 5] = np.arange(128) % 4
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).astype(int)


def classified():
    """A classifier with a column of categories: losses, scores, probabilities, importances; saved and loaded."""
    x, y = _table()
    net = TabNetClassifier(cat_idxs=[5], cat_dims=[4], cat_emb_dim=2, **HOW)
    net.fit(x[:96], y[:96], eval_set=[(x[96:], y[96:])], eval_metric=["auc", "logloss"], max_epochs=4, batch_size=32,
            virtual_batch_size=16, drop_last=False)
    path = net.save_model("net")
    again = TabNetClassifier()
    again.load_model(path)
    return {"losses": net.history["loss"], "auc": net.history["val_0_auc"], "logloss": net.history["val_0_logloss"],
            "probabilities": again.predict_proba(x[96:]), "importances": net.feature_importances_,
            "explained": net.explain(x[96:100])[0]}


@tolerance(2e-4, "batch norms of few rows after each other carry rounding on")
def regressed():
    """A regressor, with a schedule of rates, after pretraining without labels."""
    x, _ = _table()
    before = TabNetPretrainer(mask_type="entmax", **HOW)
    before.fit(x, eval_set=[x[:32]], max_epochs=2, batch_size=32, virtual_batch_size=32, pretraining_ratio=0.5)
    net = TabNetRegressor(scheduler_fn=torch.optim.lr_scheduler.StepLR, scheduler_params={"step_size": 1, "gamma": 0.9},
                          mask_type="entmax", **HOW)
    net.fit(x, x[:, :1] * 2 + 1, max_epochs=3, batch_size=32, virtual_batch_size=32, from_unsupervised=before)
    return {"pretrained": before.history["loss"], "losses": net.history["loss"], "rates": net.history["lr"],
            "predicted": net.predict(x[:8])}
