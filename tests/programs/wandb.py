"""wandb: a run kept on this machine: numbers, histograms, pictures, tables, what it notes of a watched net."""
import json
import os
import struct
from pathlib import Path

os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB_SILENT"] = "true"

import torch
import wandb
from wandb.proto import wandb_internal_pb2

from tests.programs import array, fill

PACKAGES = ["wandb"]


def _records(file):
    """The records of a run's file: a header of seven bytes, then pieces of records in blocks."""
    data, at, held = Path(file).read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4:at + 7])
        held += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):                  # a whole record, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(held)
            yield record
            held = b""


def described():
    """What becomes of tensors in numbers, histograms and tables."""
    values = array(200, scale=3.0)
    held = wandb.Histogram(values, num_bins=12)
    given = {"tensor": torch.tensor(1.5), "list": array(3), "int": torch.tensor(4),
             "gradient": torch.ones(2, requires_grad=True)}
    table = wandb.Table(columns=["a", "b"], data=[[torch.tensor(1.0), array(2)], [torch.tensor(2.0), array(2, seed=1)]])
    return {"histogram": {"counts": held.histogram, "bins": held.bins},
            "friendly": {key: wandb.util.json_friendly(value)[0] for key, value in given.items()},
            "table": [len(table.data), str(table.columns)], "type": wandb.util.get_full_typename(values),
            "tensor": [wandb.util.is_pytorch_tensor_typename(wandb.util.get_full_typename(value)) for value in (
                values, torch.nn.Parameter(values))]}


def logged():
    """A watched net is trained; what the run's file on disk has of it: losses, histograms of weights and gradients."""
    net = fill(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1)))
    sgd = torch.optim.SGD(net.parameters(), 0.05)
    run = wandb.init(dir=".", project="p", config={"rate": 0.05}, settings=wandb.Settings(x_disable_stats=True,
                                                                                         console="off"))
    run.watch(net, log="all", log_freq=1)
    for _ in range(3):
        loss = (net(array(8, 4)) - 1).square().mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        run.log({"loss": loss, "picture": wandb.Image(array(3, 8, 8).sigmoid()),
                 "values": wandb.Histogram(net[0].weight.detach())})
    file = run.settings.sync_file
    run.finish()
    found = {}
    for record in _records(file):
        for item in record.history.item:
            key = item.key or "/".join(item.nested_key)
            if not key.startswith("_"):
                found.setdefault(key, []).append(json.loads(item.value_json))
    return {"names": sorted(found), "loss": found["loss"]} | {
        name: held[0] for name, held in sorted(found.items()) if name.startswith("gradients/") or "width" in name}
