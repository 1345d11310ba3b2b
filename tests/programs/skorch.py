"""skorch: nets as scikit-learn estimators: fit, predict, grid search, pipelines, callbacks, saving."""
import pickle

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import Checkpoint, EarlyStopping, EpochScoring, LRScheduler
from skorch.dataset import ValidSplit

from tests.programs import array, fill

PACKAGES = ["skorch", "scikit-learn"]


class _Net(torch.nn.Module):
    def __init__(self, width=8, outputs=2):
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, width), torch.nn.Linear(width, outputs)
        self.outputs = outputs
        fill(self)

    def forward(self, x):
        x = self.second(self.first(x).relu())
        return x.softmax(-1) if self.outputs > 1 else x


def _data():
    x = array(60, 5).numpy()
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


def _classifier(**extra):
    settings = dict(max_epochs=4, lr=0.1, batch_size=16, verbose=0, iterator_train__shuffle=True,
                    train_split=ValidSplit(4, stratified=True))
    return NeuralNetClassifier(_Net, **settings | extra)


def classified():
    """A classifier learns; its history, its classes, its probabilities; saved and loaded."""
    x, y = _data()
    net = _classifier(optimizer=torch.optim.Adam, optimizer__lr=0.01).fit(x, y)
    net.save_params("net.pt")
    again = _classifier().initialize()
    again.load_params("net.pt")
    pickled = pickle.loads(pickle.dumps(net))
    return {"losses": net.history[:, "train_loss"], "validated": net.history[:, "valid_loss"],
            "right": net.history[:, "valid_acc"], "classes": net.predict(x[:10]).tolist(),
            "probabilities": again.predict_proba(x[:10]), "pickled": pickled.predict_proba(x[:3]),
            "score": float(net.score(x, y))}


def regressed():
    """A regressor with a schedule, a checkpoint and early stopping."""
    x, _ = _data()
    goal = x.sum(1, keepdims=True).astype(np.float32)
    net = NeuralNetRegressor(_Net, module__outputs=1, max_epochs=6, lr=0.05, verbose=0, callbacks=[
        LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5), Checkpoint(dirname="best"),
        EarlyStopping(patience=3), EpochScoring("r2", lower_is_better=False)]).fit(x, goal)
    return {"losses": net.history[:, "train_loss"], "r2": [float(r) for r in net.history[:, "r2"]],
            "predicted": net.predict(x[:5])}


def searched():
    """Inside scikit-learn: a pipeline, a grid search, cross validation."""
    x, y = _data()
    pipeline = make_pipeline(StandardScaler(), _classifier(train_split=None))
    torch.manual_seed(2)
    scores = cross_val_score(pipeline, x, y, cv=3)
    search = GridSearchCV(_classifier(train_split=None), {"lr": [0.01, 0.2], "module__width": [4, 8]}, cv=2)
    search.fit(x, y)
    return {"scores": scores, "best": {key: float(held) for key, held in search.best_params_.items()},
            "table": search.cv_results_["mean_test_score"]}
