"""What a program hands over, as the messages that TensorBoard reads: one `Summary` for each call.

The plugins of TensorBoard find their messages by tag and metadata. Both are written as PyTorch writes them.
"""
import io

import numpy as np
from google.protobuf.struct_pb2 import ListValue, Value
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import api_pb2, metadata as hparams_metadata, plugin_data_pb2
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from ...base import dtypes
from ...tensor.tensor import Tensor

MOST_THRESHOLDS = 127         # of a curve; the plugin reads no more
PICTURES_PER_ROW = 8          # of a batch that is shown as one picture


def array_of(given):
    """A tensor, an array or a number as an array."""
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        return (given.to(dtypes.float16) if given.dtype is dtypes.bfloat16 else given).numpy()
    if isinstance(given, np.ndarray):
        return given
    if np.isscalar(given):
        return np.array([given])
    raise NotImplementedError(f"Got {type(given)}, but numpy array or torch tensor are expected.")


def _one(tag, plugin=None, content=b"", **held):
    """A Summary of one value, for the plugin of that name."""
    if plugin is not None:
        held["metadata"] = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))
    return Summary(value=[Summary.Value(tag=tag, **held)])


def _shape(*sizes):
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def scalar(tag, given, new_style=False, double_precision=False):
    """One number: as a plain field, or in the newer form that loads faster."""
    held = array_of(given).squeeze()
    if held.ndim:
        raise AssertionError(f"Tensor should contain one element (0 dimensions). Was given size: {held.size} and "
                             f"{held.ndim} dimensions.")
    number = float(held)
    if not new_style:
        return _one(tag, simple_value=number)
    kind = {"double_val": [number], "dtype": "DT_DOUBLE"} if double_precision else \
        {"float_val": [number], "dtype": "DT_FLOAT"}
    return _one(tag, "scalars", tensor=TensorProto(**kind))


# --- histograms ---


def default_bins():
    """Edges that grow by a tenth from 1e-12 to 1e20, on both sides of zero."""
    edges = [1e-12]
    while edges[-1] * 1.1 < 1e20:
        edges.append(edges[-1] * 1.1)
    return [-edge for edge in reversed(edges)] + [0] + edges


def histogram(tag, given, bins, max_bins=None):
    """How the values are spread over `bins`."""
    values = array_of(given).astype(float).reshape(-1)
    if not values.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _joined(counts, limits, len(counts) // max_bins)
    used = np.flatnonzero(counts)
    if not used.size:
        raise ValueError("The histogram is empty, please file a bug report.")
    # TensorBoard knows a bin by its right edge. An empty one before the first says where that begins.
    first, last = int(used[0]), int(used[-1]) + 1
    held = [0, *counts[first:last].tolist()]
    return histogram_raw(tag, values.min(), values.max(), len(values), values.sum(), values.dot(values),
                         limits[first:last + 1].tolist(), held)


def _joined(counts, limits, several):
    """Each `several` bins as one; the last may be of fewer."""
    starts = np.arange(0, len(counts), several)
    return np.add.reduceat(counts, starts), np.append(limits[:-1][starts], limits[-1])


def histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts):
    """A histogram that was counted elsewhere."""
    return _one(tag, histo=HistogramProto(min=min, max=max, num=num, sum=sum, sum_squares=sum_squares,
                                          bucket_limit=bucket_limits, bucket=bucket_counts))


# --- pictures ---


def image(tag, given, dataformats="NCHW"):
    """A picture, or several side by side, as a PNG; numbers from 0 to 1, bytes as they are."""
    from PIL import Image
    held = array_of(given)
    scale = 1 if held.dtype == np.uint8 else 255
    held = (rows_columns_colours(held, dataformats).astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(held).save(file, format="PNG")
    height, width, colours = held.shape
    return _one(tag, image=Summary.Image(height=height, width=width, colorspace=colours,
                                         encoded_image_string=file.getvalue()))


def rows_columns_colours(held, dataformats):
    """An array whose dimensions `dataformats` names, as (height, width, colours); a batch becomes a grid."""
    if len(set(dataformats)) != len(dataformats):
        raise AssertionError(f"You can not use the same dimension shorthand twice. input_format: {dataformats}")
    if held.ndim != len(dataformats):
        raise AssertionError(f"size of input tensor and input format are different. tensor shape: {held.shape}, "
                             f"input_format: {dataformats}")
    order = {4: "NHWC", 3: "HWC", 2: "HW"}.get(held.ndim)
    if order is None or set(order) != set(dataformats.upper()):
        raise ValueError(f"dataformats={dataformats!r}: a picture is HW, CHW or HWC, and several are NCHW or NHWC")
    held = held.transpose([dataformats.upper().index(letter) for letter in order])
    if held.ndim == 2:
        held = held[..., None]
    if held.shape[-1] == 1:
        held = held.repeat(3, axis=-1)
    return _grid(held) if held.ndim == 4 else held


def _grid(pictures):
    """Pictures (n, height, width, colours) in rows, black where there are none."""
    many, height, width, colours = pictures.shape
    if colours != 3:
        raise AssertionError("Input should be a 4D numpy array with 3 channels")
    columns = min(many, PICTURES_PER_ROW)
    made = np.zeros((-(-many // columns) * columns, height, width, colours), pictures.dtype)
    made[:many] = pictures
    return made.reshape(-1, columns, height, width, colours).swapaxes(1, 2).reshape(-1, columns * width, colours)


def drawn(figure, close=True):
    """A figure of matplotlib as an array (colours, height, width)."""
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    held = np.asarray(canvas.buffer_rgba())[..., :3]
    if close:
        pyplot.close(figure)
    return np.moveaxis(held, 2, 0)


# --- texts, curves, layouts ---


def text(tag, words):
    """A text, which TensorBoard shows as Markdown."""
    return _one(f"{tag}/text_summary", "text", TextPluginData(version=0).SerializeToString(),
                tensor=TensorProto(dtype="DT_STRING", string_val=[words.encode()], tensor_shape=_shape(1)))


def pr_curve(tag, labels, predictions, num_thresholds=MOST_THRESHOLDS, weights=None):
    """Precision over recall of `predictions` from 0 to 1 for `labels`, at evenly spread thresholds."""
    num_thresholds = min(num_thresholds, MOST_THRESHOLDS)
    labels, weights = array_of(labels).astype(np.float64), 1.0 if weights is None else weights
    above = np.floor(array_of(predictions) * (num_thresholds - 1)).astype(np.int32)

    def counted(weight):
        """How much of `weight` lies at each threshold or above."""
        found, _ = np.histogram(above, num_thresholds, (0, num_thresholds - 1), weights=weight * weights)
        return found[::-1].cumsum()[::-1]

    tp, fp = counted(labels), counted(1.0 - labels)
    precision = tp / np.maximum(1e-7, tp + fp)
    recall = tp / np.maximum(1e-7, tp[0])
    return pr_curve_raw(tag, tp, fp, fp[0] - fp, tp[0] - tp, precision, recall, num_thresholds)


def pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds=MOST_THRESHOLDS):
    """Such a curve that was counted elsewhere."""
    rows = np.stack([array_of(row) for row in (tp, fp, tn, fn, precision, recall)])
    content = PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, MOST_THRESHOLDS)).SerializeToString()
    return _one(tag, "pr_curves", content, tensor=TensorProto(
        dtype="DT_FLOAT", float_val=rows.reshape(-1).tolist(), tensor_shape=_shape(*rows.shape)))


def custom_scalars(layout):
    """Charts of several series: {category: {title: ["Multiline" or "Margin", tags]}}."""
    categories = []
    for category, charts in layout.items():
        made = []
        for title, (kind, tags, *_) in charts.items():
            if kind == "Margin":
                value, lower, upper = tags
                series = layout_pb2.MarginChartContent.Series(value=value, lower=lower, upper=upper)
                made.append(layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series])))
            else:
                made.append(layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags)))
        categories.append(layout_pb2.Category(title=category, chart=made))
    content = layout_pb2.Layout(category=categories).SerializeToString()
    return _one("custom_scalars__config__", "custom_scalars", tensor=TensorProto(
        dtype="DT_STRING", string_val=[content], tensor_shape=TensorShapeProto()))


# --- hyperparameters ---

# By the type of a hyperparameter: its name in the messages, and the field that holds it. A bool is a number too, and
# PyTorch asks for numbers first.
_KINDS = (((int, float), "DATA_TYPE_FLOAT64", "number_value"), (str, "DATA_TYPE_STRING", "string_value"))


def hparams(hparam_dict, metric_dict, hparam_domain_discrete=None):
    """Three messages: what is varied and measured, with which settings this run began, and that it ended."""
    domains = hparam_domain_discrete or {}
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for name, values in domains.items():
        if name not in hparam_dict or not isinstance(values, list) \
                or not all(isinstance(value, type(hparam_dict[name])) for value in values):
            raise TypeError(f"parameter: hparam_domain_discrete[{name}] should be a list of same type as "
                            f"hparam_dict[{name}].")
    started, infos = plugin_data_pb2.SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        if isinstance(value, Tensor):
            value = float(array_of(value).reshape(-1)[0])
        for types, kind, field in _KINDS:
            if isinstance(value, types):
                setattr(started.hparams[name], field, value)
                values = ListValue(values=[Value(**{field: each}) for each in domains[name]]) \
                    if name in domains else None
                infos.append(api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(kind), domain_discrete=values))
                break
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
    measured = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metric_dict]
    ended = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    return [_one(tag, hparams_metadata.PLUGIN_NAME, plugin_data_pb2.HParamsPluginData(
                version=hparams_metadata.PLUGIN_DATA_VERSION, **held).SerializeToString())
            for tag, held in (
                (hparams_metadata.EXPERIMENT_TAG,
                 {"experiment": api_pb2.Experiment(hparam_infos=infos, metric_infos=measured)}),
                (hparams_metadata.SESSION_START_INFO_TAG, {"session_start_info": started}),
                (hparams_metadata.SESSION_END_INFO_TAG, {"session_end_info": ended}))]
