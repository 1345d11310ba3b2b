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


def _one(tag, plugin=None, content=b"", **fields):
    """A Summary of one value, for the plugin of that name."""
    if plugin is not None:
        fields["metadata"] = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))
    return Summary(value=[Summary.Value(tag=tag, **fields)])


def _shape(*sizes):
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def scalar(tag, given, new_style=False, double_precision=False):
    """One number: as a plain field, or in the newer form that loads faster."""
    array = array_of(given).squeeze()
    if array.ndim:
        raise AssertionError(f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and "
                             f"{array.ndim} dimensions.")
    number = float(array)
    if not new_style:
        return _one(tag, simple_value=number)
    fields = {"double_val": [number], "dtype": "DT_DOUBLE"} if double_precision else \
        {"float_val": [number], "dtype": "DT_FLOAT"}
    return _one(tag, "scalars", tensor=TensorProto(**fields))


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
    bin_counts = [0, *counts[first:last].tolist()]
    return histogram_raw(tag, values.min(), values.max(), len(values), values.sum(), values.dot(values),
                         limits[first:last + 1].tolist(), bin_counts)


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
    pixels = _bytes_of(given, dataformats)
    return _one(tag, image=_encoded(Image.fromarray(pixels), pixels.shape))


def _bytes_of(given, dataformats):
    """A picture as bytes (height, width, colours)."""
    pixels = array_of(given)
    scale = 1 if pixels.dtype == np.uint8 else 255
    return (rows_columns_colours(pixels, dataformats).astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def _encoded(picture, shape):
    """A picture of Pillow as the message that holds it; `shape` is what it had before it was scaled, as in PyTorch."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    height, width, colours = shape
    return Summary.Image(height=height, width=width, colorspace=colours, encoded_image_string=file.getvalue())


def image_boxes(tag, given, boxes, rescale=1, dataformats="CHW", labels=None):
    """A picture with red boxes (left, top, right, bottom), and words at the lower left of each."""
    from PIL import Image, ImageDraw, ImageFont
    pixels, boxes = _bytes_of(given, dataformats), array_of(boxes)
    picture = Image.fromarray(pixels)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default()
    if labels is not None and len(labels) != len(boxes):
        raise AssertionError(f"{len(boxes)} boxes, and {len(labels)} labels")
    for number, (left, top, right, bottom) in enumerate(boxes.tolist()):
        draw.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], fill="Red", width=2)
        if labels is not None and labels[number]:
            a, b, c, d = font.getbbox(labels[number])
            wide, high, margin = c - a, d - b, float(np.ceil(0.05 * (d - b)))
            draw.rectangle([(left, bottom - high - 2 * margin), (left + wide, bottom)], fill="Red")
            draw.text((left + margin, bottom - high - margin), labels[number], fill="black", font=font)
    height, width, _ = pixels.shape
    if rescale != 1:
        picture = picture.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    return _one(tag, image=_encoded(picture, pixels.shape))


def video(tag, given, fps=4):
    """Pictures in time (n, time, colours, height, width) as a moving GIF, the n side by side in a grid."""
    from PIL import Image
    clips = array_of(given)
    if clips.ndim != 5:
        raise AssertionError(f"a video is (n, time, colours, height, width), and this has the shape {clips.shape}")
    many, time, colours, height, width = clips.shape
    clips = clips if clips.dtype == np.uint8 else (clips.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)
    rows = 2 ** ((many.bit_length() - 1) // 2)
    columns = (1 << (many - 1).bit_length()) // rows             # room for a power of two, black where there is none
    room = np.zeros((rows * columns, *clips.shape[1:]), np.uint8)
    room[:many] = clips
    room = room.reshape(rows, columns, time, colours, height, width).transpose(2, 0, 4, 1, 5, 3)
    frames = room.reshape(time, rows * height, columns * width, colours)
    pictures = [Image.fromarray(frame if colours == 3 else frame[..., 0]) for frame in frames]
    file = io.BytesIO()
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], duration=1000 / fps, loop=0)
    return _one(tag, image=Summary.Image(height=frames.shape[1], width=frames.shape[2], colorspace=colours,
                                         encoded_image_string=file.getvalue()))


# --- sounds, tensors, meshes ---


def audio(tag, given, sample_rate=44100):
    """A sound of one channel, from -1 to 1, as a WAV of 16 bits."""
    import wave
    samples = array_of(given).squeeze()
    if samples.size and np.abs(samples).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        samples = samples.clip(-1, 1)
    if samples.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    samples = (samples * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(sample_rate)
        wav.writeframes(samples.tobytes())
    return _one(tag, audio=Summary.Audio(sample_rate=sample_rate, num_channels=1, length_frames=len(samples),
                                         encoded_audio_string=file.getvalue(), content_type="audio/wav"))


# dtype → its name in the messages, the field that holds it, and the array in whose type that field has it
_TENSOR_FIELDS = {
    "float16": ("DT_HALF", "half_val", lambda array: array.view(np.uint16)),
    "float32": ("DT_FLOAT", "float_val", None), "float64": ("DT_DOUBLE", "double_val", None),
    "int8": ("DT_INT8", "int_val", None), "uint8": ("DT_UINT8", "int_val", None),
    "int16": ("DT_INT16", "int_val", None), "int32": ("DT_INT32", "int_val", None),
    "int64": ("DT_INT64", "int64_val", None), "bool": ("DT_BOOL", "bool_val", None),
    "complex64": ("DT_COMPLEX64", "scomplex_val", lambda array: array.view(np.float32)),
    "complex128": ("DT_COMPLEX128", "dcomplex_val", lambda array: array.view(np.float64)),
}


def tensor_proto(tag, tensor):
    """A whole tensor, bit for bit."""
    if tensor.numel() * tensor.itemsize >= 1 << 31:
        raise ValueError("tensor is bigger than protocol buffer's hard limit of 2GB in size")
    bits = tensor.dtype is dtypes.bfloat16
    if not bits and tensor.dtype.name not in _TENSOR_FIELDS:
        raise ValueError(f"{tag} has unsupported tensor dtype {tensor.dtype}")
    plain = tensor.detach().cpu().contiguous()
    if bits:
        type_name, field, flat = "DT_BFLOAT16", "half_val", plain.view(dtypes.int16).numpy().view(np.uint16)
    else:
        type_name, field, seen = _TENSOR_FIELDS[tensor.dtype.name]
        flat = plain.numpy() if seen is None else seen(np.atleast_1d(plain.numpy()))
    return _one(tag, "tensor", tensor=TensorProto(dtype=type_name, tensor_shape=_shape(*tensor.shape),
                                                  **{field: flat.reshape(-1).tolist()}))


def mesh(tag, vertices, colors=None, faces=None, config_dict=None):
    """Points in space (n, points, 3), with their colours, and triangles between them."""
    import json

    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
    given = [(array_of(part), content) for part, content in ((vertices, MeshPluginData.VERTEX),
                                                             (faces, MeshPluginData.FACE),
                                                             (colors, MeshPluginData.COLOR)) if part is not None]
    for part, _ in given:
        if part.ndim != 3:
            raise AssertionError(f"a mesh is (n, points, 3), and this has the shape {part.shape}")
    components = metadata.get_components_bitmask([content for _, content in given])
    config = "{}" if config_dict is None else json.dumps(config_dict, sort_keys=True)
    values = []
    for part, content in given:
        about = metadata.create_summary_metadata(tag, None, content, components, part.shape, None, json_config=config)
        values.append(Summary.Value(
            tag=metadata.get_instance_name(tag, content), metadata=about, tensor=TensorProto(
                dtype="DT_FLOAT", float_val=part.reshape(-1).tolist(), tensor_shape=_shape(*part.shape))))
    return Summary(value=values)


def rows_columns_colours(pixels, dataformats):
    """An array whose dimensions `dataformats` names, as (height, width, colours); a batch becomes a grid."""
    if len(set(dataformats)) != len(dataformats):
        raise AssertionError(f"You can not use the same dimension shorthand twice. input_format: {dataformats}")
    if pixels.ndim != len(dataformats):
        raise AssertionError(f"size of input tensor and input format are different. tensor shape: {pixels.shape}, "
                             f"input_format: {dataformats}")
    order = {4: "NHWC", 3: "HWC", 2: "HW"}.get(pixels.ndim)
    if order is None or set(order) != set(dataformats.upper()):
        raise ValueError(f"dataformats={dataformats!r}: a picture is HW, CHW or HWC, and several are NCHW or NHWC")
    pixels = pixels.transpose([dataformats.upper().index(letter) for letter in order])
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.shape[-1] == 1:
        pixels = pixels.repeat(3, axis=-1)
    return _grid(pixels) if pixels.ndim == 4 else pixels


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
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    if close:
        pyplot.close(figure)
    return np.moveaxis(pixels, 2, 0)


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
        for title, (chart_type, tags, *_) in charts.items():
            if chart_type == "Margin":
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
_HPARAM_TYPES = (((int, float), "DATA_TYPE_FLOAT64", "number_value"), (str, "DATA_TYPE_STRING", "string_value"))


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
        for types, type_name, field in _HPARAM_TYPES:
            if isinstance(value, types):
                setattr(started.hparams[name], field, value)
                values = ListValue(values=[Value(**{field: each}) for each in domains[name]]) \
                    if name in domains else None
                infos.append(api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(type_name),
                                                domain_discrete=values))
                break
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
    measured = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metric_dict]
    ended = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    return [_one(tag, hparams_metadata.PLUGIN_NAME, plugin_data_pb2.HParamsPluginData(
                version=hparams_metadata.PLUGIN_DATA_VERSION, **fields).SerializeToString())
            for tag, fields in (
                (hparams_metadata.EXPERIMENT_TAG,
                 {"experiment": api_pb2.Experiment(hparam_infos=infos, metric_infos=measured)}),
                (hparams_metadata.SESSION_START_INFO_TAG, {"session_start_info": started}),
                (hparams_metadata.SESSION_END_INFO_TAG, {"session_end_info": ended}))]
