"""tensorboardX: numbers, histograms, pictures, embeddings and graphs of tensors, read back by TensorBoard."""
import io

import numpy as np
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE, EventAccumulator
from tensorboardX import SummaryWriter

from tests.programs import array, fill

PACKAGES = ["tensorboardX", "tensorboard"]


def _read(folder):
    return EventAccumulator(folder, STORE_EVERYTHING_SIZE_GUIDANCE).Reload()


def scalars():
    """Losses of a loop, as tensors, arrays and numbers; several in one chart."""
    net = fill(torch.nn.Linear(3, 1))
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    with SummaryWriter("scalars") as writer:
        for step in range(4):
            loss = (net(array(8, 3)) - 1).square().mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            writer.add_scalar("loss", loss, step)
            writer.add_scalar("item", loss.item(), step)
        writer.add_scalars("both", {"a": loss, "b": np.float32(2)}, 3)
    found = _read("scalars")
    return {"loss": [event.value for event in found.Scalars("loss")], "tags": sorted(found.Tags()["scalars"]),
            "a": _read("scalars/both/a").Scalars("both")[0].value}


def histograms():
    """Histograms of tensors, parameters and their gradients; a curve of precision over recall."""
    net = fill(torch.nn.Linear(6, 20))
    net(array(4, 6)).square().sum().backward()
    with SummaryWriter("histograms") as writer:
        writer.add_histogram("values", array(300, scale=2.0), 1)
        for name, parameter in net.named_parameters():
            writer.add_histogram(name, parameter, 1)
            writer.add_histogram(f"{name} gradient", parameter.grad, 1, bins="auto")
        writer.add_pr_curve("curve", torch.tensor([0, 1, 1, 0, 1]), torch.tensor([0.2, 0.4, 0.9, 0.6, 0.7]), 1)
    found, made = _read("histograms"), {}
    for tag in found.Tags()["histograms"]:
        held = found.Histograms(tag)[0].histogram_value
        made[tag] = {"range": [held.min, held.max], "count": held.num, "sum": held.sum,
                     "counts": np.array(held.bucket)}
    return made | {"curve": np.array(found.Tensors("curve")[0].tensor_proto.float_val)}


def pictures():
    """A picture, a grid of several, and an embedding with labels."""
    with SummaryWriter("pictures") as writer:
        writer.add_image("one", array(3, 6, 5).sigmoid(), 1)
        writer.add_images("six", array(6, 3, 4, 4).sigmoid(), 1)
        writer.add_text("note", "a *text*", 1)
        writer.add_embedding(array(5, 3), metadata=list("abcde"), label_img=array(5, 3, 4, 4).sigmoid(), global_step=1)
    found = _read("pictures")
    with open("pictures/00001/default/tensors.tsv", encoding="utf-8") as file:
        rows = [[float(value) for value in line.split()] for line in file]
    return {"embedded": np.array(rows)} | {
        tag: np.asarray(Image.open(io.BytesIO(found.Images(tag)[0].encoded_image_string))).astype(int)
        for tag in ("one", "six")}
