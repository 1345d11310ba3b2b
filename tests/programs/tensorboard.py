"""tensorboard: what torch.utils.tensorboard writes, read back: numbers, histograms, pictures, texts, settings."""
import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE, EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard import SummaryWriter

from tests.programs import array

PACKAGES = ["tensorboard"]
LACKS = ["SummaryWriter.add_onnx_graph: tensorboardX has it"]


def _read(folder):
    """What TensorBoard itself finds in a folder, all of it."""
    return EventAccumulator(str(folder), STORE_EVERYTHING_SIZE_GUIDANCE).Reload()


def _events(folder):
    """The events of a folder's file, one by one."""
    (path,) = Path(folder).glob("events.*")
    return list(LegacyEventFileLoader(str(path)).Load())


def numbers():
    """Scalars of tensors, arrays and numbers, in both forms; several in one chart; a run that was resumed."""
    with SummaryWriter("numbers", purge_step=2) as writer:
        for step, value in enumerate((1, 2.5, torch.tensor(3.0), torch.tensor([4.0], dtype=torch.bfloat16),
                                      np.float32(5), torch.tensor(6.0, requires_grad=True))):
            writer.add_scalar("loss", value, step)
        writer.add_scalar("new", 0.1, 1, new_style=True)
        writer.add_scalar("double", 0.1, 1, new_style=True, double_precision=True)
        writer.add_scalars("two/of", {"a": 1.0, "b": torch.tensor(2.0)}, 7)
    found, new = _read("numbers"), {event.summary.value[0].tag: event.summary.value[0].tensor
                                for event in _events("numbers") if event.summary.value}
    refused = ""
    try:
        writer.add_scalar("loss", torch.ones(2))
    except AssertionError as error:
        refused = " ".join(str(error).split())
    return {"loss": [[event.step, event.value] for event in found.Scalars("loss")],
            "tags": sorted(found.Tags()["tensors"]), "new": list(new["new"].float_val),
            "double": list(new["double"].double_val), "refused": refused,
            "several": {tag: [_read(f"numbers/two_of_{tag}").Scalars("two/of")[0].value] for tag in "ab"}}


def histograms():
    """Histograms over the bins of TensorFlow, NumPy's and given ones, with fewer bins, and counted by hand."""
    values = array(500, scale=3.0)
    with SummaryWriter("histograms") as writer:
        writer.add_histogram("usual", values, 1)
        writer.add_histogram("tenths", values.numpy(), 1, bins=np.linspace(-10, 10, 200))
        writer.add_histogram("fewer", values, 1, bins=np.linspace(-10, 10, 200), max_bins=30)
        writer.add_histogram("auto", values, 1, bins="auto")
        writer.add_histogram("integers", torch.arange(-3, 4), 1)
        writer.add_histogram_raw("raw", 0, 3, 6, 10.0, 20.0, [1, 2, 3], [1, 2, 3], 1)
        writer.add_pr_curve("curve", torch.tensor([0, 1, 1, 0, 1]), torch.tensor([0.2, 0.4, 0.9, 0.6, 0.7]), 1)
    found, made = _read("histograms"), {}
    for tag in found.Tags()["histograms"]:
        (event,) = found.Histograms(tag)
        held = event.histogram_value
        made[tag] = {"least": held.min, "most": held.max, "count": held.num, "sum": held.sum,
                     "squares": held.sum_squares, "limits": np.array(held.bucket_limit),
                     "counts": np.array(held.bucket)}
    (curve,) = found.Tensors("curve")
    return {**made, "curve": np.array(curve.tensor_proto.float_val),
            "shape": [dim.size for dim in curve.tensor_proto.tensor_shape.dim]}


def pictures():
    """One picture in each order of dimensions, several in a grid, in numbers and in bytes; as PNG."""
    one = array(3, 6, 5).sigmoid()
    with SummaryWriter("pictures") as writer:
        writer.add_image("colours first", one, 1)
        writer.add_image("colours last", one.permute(1, 2, 0), 1, dataformats="HWC")
        writer.add_image("grey", one[0], 1, dataformats="HW")
        writer.add_image("one colour", one[:1], 1)
        writer.add_image("bytes", (one * 255).to(torch.uint8), 1)
        writer.add_images("ten", array(10, 3, 4, 4, seed=1).sigmoid(), 1)
        writer.add_images("two", array(2, 4, 5, 1, seed=2), 1, dataformats="NHWC")
    found, made = _read("pictures"), {}
    for tag in found.Tags()["images"]:
        (event,) = found.Images(tag)
        made[tag] = {"size": [event.height, event.width],
                     "is": np.asarray(Image.open(io.BytesIO(event.encoded_image_string))).astype(int)}
    return made


def words():
    """Texts, the settings of a run beside its results, and charts of several series."""
    with SummaryWriter("words", comment="not used") as writer:
        writer.add_text("note", "a *text*, déjà vu", 3)
        writer.add_hparams({"rate": 0.1, "kind": "adam", "on": True, "size": torch.tensor([3.0]), "none": None},
                           {"accuracy": 0.5}, {"kind": ["adam", "sgd"]}, run_name="tried", global_step=2)
        writer.add_custom_scalars({"both": {"lines": ["Multiline", ["a", "b"]], "band": ["Margin", ["a", "b", "c"]]}})
    found = _read("words")
    (text,) = found.Tensors("note/text_summary")
    contents = [value.metadata.plugin_data.content for event in _events("words/tried") for value in event.summary.value]
    settings = [str(HParamsPluginData.FromString(content)) for content in contents if content]
    (layout,) = found.Tensors("custom_scalars__config__")
    return {"text": text.tensor_proto.string_val[0].decode(), "step": text.step, "settings": settings,
            "accuracy": _read("words/tried").Scalars("accuracy")[0].value,
            "layout": str(Layout.FromString(layout.tensor_proto.string_val[0])), "folder": writer.get_logdir()}
