"""fastai: learners on vectors, tables and pictures, with its schedules, callbacks, metrics and optimizers."""
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fastai import optimizer
from fastai.basics import CrossEntropyLossFlat, DataLoaders, Learner, accuracy
from fastai.callback.all import EarlyStoppingCallback, GradientAccumulation, MixUp, SaveModelCallback
from fastai.tabular.all import Categorify, FillMissing, Normalize, TabularDataLoaders, tabular_learner
from fastai.vision.all import Flip, ImageDataLoaders, Resize, TensorImage, aug_transforms, resnet18, vision_learner
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

from tests.programs import array, fill, tokens

PACKAGES = ["fastai", "fastcore"]


def _learner(callbacks=(), opt=optimizer.Adam):
    x, y = array(64, 6), tokens(64, below=3)
    train, valid = TensorDataset(x[:48], y[:48]), TensorDataset(x[48:], y[48:])
    net = fill(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3)))
    return Learner(DataLoaders.from_dsets(train, valid, bs=16, num_workers=0), net, CrossEntropyLossFlat(),
                   opt_func=opt,
                   metrics=accuracy, cbs=list(callbacks))


def _values(learn):
    return [[float(v) for v in row] for row in learn.recorder.values]


def fitting():
    """fit, fit_one_cycle, fit_flat_cos, groups of layers with rates of their own, freezing, searching a rate."""
    learn = _learner()
    with learn.no_bar(), learn.no_logging():
        learn.fit(2, 1e-2)
        learn.fit_one_cycle(2, slice(1e-3, 1e-2))
        learn.fit_flat_cos(1, 1e-3)
        rates = [float(v) for v in learn.recorder.lrs]
        preds, targets = learn.get_preds()
        valid = learn.validate()
    return {"values": _values(learn), "rates": rates, "preds": preds, "targets": targets, "valid": list(valid)}


def optimizers():
    """Optimizers out of fastai's steps."""
    found = {}
    for name in ("SGD", "Adam", "RMSProp", "RAdam", "QHAdam", "Lamb", "Larc", "ranger"):
        learn = _learner(opt=getattr(optimizer, name))
        with learn.no_bar(), learn.no_logging():
            learn.fit(1, 1e-2)
        found[name] = _values(learn)
    return found


def callbacks():
    """Mixup, accumulated gradients, the best model kept, stopping early."""
    found = {}
    for name, callback in {"mixup": MixUp(0.4), "accumulated": GradientAccumulation(32), "kept": SaveModelCallback(),
                           "stopped": EarlyStoppingCallback(patience=1)}.items():
        learn = _learner([callback])
        with learn.no_bar(), learn.no_logging():
            learn.fit(2, 5e-3)
        found[name] = _values(learn)
    return found


def tables():
    """A learner of a table with categories, gaps and numbers."""
    rng = np.random.default_rng(0)
    held = pd.DataFrame({"kind": rng.choice(["a", "b", "c"], 80), "size": rng.normal(size=80), "age": rng.uniform(0, 9,
                                                                                                                  80)})
    held.loc[::9, "age"] = np.nan
    held["label"] = np.where(held["size"] + (held["kind"] == "a") > 0.3, "yes", "no")
    loaders = TabularDataLoaders.from_df(held, procs=[Categorify, FillMissing, Normalize], cat_names=["kind"],
                                         cont_names=["size", "age"], y_names="label", valid_idx=list(range(60, 80)),
                                         bs=20)
    learn = tabular_learner(loaders, layers=[12, 6], metrics=accuracy)
    fill(learn.model)
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(2, 1e-2)
        row, label, probabilities = learn.predict(held.iloc[3])
    return {"values": _values(learn), "classes": list(loaders.vocab), "label": int(label),
            "probabilities": probabilities,
            "embeddings": [list(e.weight.shape) for e in learn.model.embeds]}


def pictures():
    """A learner of pictures in folders: augmentations in batches, a resnet without weights, saving and prediction."""
    rng = np.random.default_rng(0)
    for kind in range(2):
        folder = Path("shapes", f"kind{kind}")
        folder.mkdir(parents=True, exist_ok=True)
        for n in range(8):
            image = rng.integers(0, 120, (40, 48, 3))
            image[10:30, 10:30, kind] += 120
            Image.fromarray(image.astype(np.uint8)).save(folder / f"{n}.png")
    loaders = ImageDataLoaders.from_folder("shapes", valid_pct=0.25, seed=1, bs=4, item_tfms=Resize(32), num_workers=0)
    learn = vision_learner(loaders, resnet18, pretrained=False, normalize=False, metrics=accuracy)
    fill(learn.model)
    with learn.no_bar(), learn.no_logging():
        first = learn.validate()
        learn.fit(1, 1e-4)
        learn.save("learner")
        again = vision_learner(loaders, resnet18, pretrained=False, normalize=False).load("learner")
        same = all(torch.equal(a, b) for a, b in zip(learn.model.state_dict().values(),
                                                     again.model.state_dict().values()))
        with again.no_bar():
            label, number, _ = again.predict(Path("shapes/kind0/0.png"))
    return {"classes": list(loaders.vocab), "valid files": sorted(f.name for f in loaders.valid_ds.items),
            "first": list(first),
            "epochs": len(learn.recorder.values), "same": same,
            "label": label == loaders.vocab[int(number)],
            "groups": [len(list(g)) for g in learn.opt.param_lists]}


def transforms():
    """Augmentations of batches; tensors that know what they hold."""
    x = TensorImage(array(2, 3, 24, 24).sigmoid())
    found = {"flipped": torch.Tensor(Flip(p=1.0, draw=lambda x: torch.ones(x.size(0)))(x))}
    found["names"] = [type(t).__name__ for t in aug_transforms()]
    found["kind"] = type(x + 1).__name__
    return found
