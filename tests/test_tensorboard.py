"""What `SummaryWriter` writes is what TensorBoard's own reader finds."""
import io
import wave
from pathlib import Path

import numpy as np
import pytest

tensorboard = pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")

from google.protobuf import text_format
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE, EventAccumulator
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.util.tensor_util import make_ndarray

import flambeau as torch
from flambeau.utils.tensorboard import SummaryWriter


def read(folder):
    return EventAccumulator(str(folder), STORE_EVERYTHING_SIZE_GUIDANCE).Reload()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 2)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, y):
        return self.head(self.drop(self.body(x))) + y, x.sum()


def test_a_module_becomes_a_graph_of_boxes(tmp_path):
    net = Net().train()
    net.body[0].eval()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, (torch.randn(3, 4), torch.ones(2)))
    assert net.training and net.head.training and not net.body[0].training       # as it was
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    found = read(tmp_path)
    nodes = {node.name: node for node in found.Graph().node}
    names = {*nodes}
    assert {"input/input.1", "input/input.2", "output/output.1", "output/output.2",
            "Net/Sequential[body]/Linear[0]/weight", "Net/Sequential[body]/Linear[0]/linear",
            "Net/Sequential[body]/ReLU[1]/relu", "Net/Linear[head]/linear", "Net/add", "Net/sum"} <= names, names
    assert all(source in names for node in nodes.values() for source in node.input)
    assert "Net/Sequential[body]/ReLU[1]/relu" in nodes[nodes["Net/Linear[head]/linear"].input[0]].input or \
        nodes["Net/Linear[head]/linear"].input[0].endswith(("relu", "dropout"))
    shape = nodes["Net/Linear[head]/linear"].attr["_output_shapes"].list.shape[0]
    assert [dim.size for dim in shape.dim] == [3, 2] and nodes["Net/add"].op == "aten::add"
    with pytest.raises(ValueError, match="input_to_model"):
        writer.add_graph(net)
    with pytest.raises(NotImplementedError, match="test_tensorboard.py"):
        writer.add_onnx_graph("x")


def test_an_error_in_the_module_leaves_it_as_it_was(tmp_path):
    net = Net().train()
    with SummaryWriter(tmp_path) as writer, pytest.raises(RuntimeError):
        writer.add_graph(net, (torch.randn(3, 5), torch.ones(2)))
    assert net.training and not any(module._forward_hooks for module in net.modules()) and torch.is_grad_enabled()
    assert float(net(torch.zeros(1, 4), 0.0)[1]) == 0.0                         # no mode is left behind


def test_sounds_moving_pictures_and_boxes(tmp_path):
    tone = torch.sin(torch.arange(441.0) / 10)
    with SummaryWriter(tmp_path) as writer:
        writer.add_audio("tone", tone, 1, sample_rate=8000)
        writer.add_audio("loud", 3 * tone, 1)
        writer.add_video("moving", torch.rand(3, 5, 3, 6, 8), 1, fps=10)
        writer.add_image_with_boxes("boxed", torch.zeros(3, 20, 30), torch.tensor([[2, 3, 12, 15]]), 1,
                                    labels="a")
        writer.add_image_with_boxes("larger", torch.zeros(20, 30), torch.tensor([[2, 3, 12, 15]]), 1, rescale=2,
                                    dataformats="HW")
        with pytest.raises(AssertionError, match="1 dimensional"):
            writer.add_audio("two", torch.zeros(2, 10))
        with pytest.raises(AssertionError, match="shape"):
            writer.add_video("flat", torch.zeros(3, 4))
        with pytest.raises(AssertionError, match="2 labels"):
            writer.add_image_with_boxes("x", torch.zeros(3, 9, 9), torch.ones(1, 4), labels=["a", "b"])
    found = read(tmp_path)
    (event,) = found.Audio("tone")
    with wave.open(io.BytesIO(event.encoded_audio_string)) as sound:
        frames = np.frombuffer(sound.readframes(1000), "<i2")
        assert (sound.getframerate(), sound.getnchannels(), len(frames), event.sample_rate) == (8000, 1, 441, 8000)
    assert np.abs(frames / 32767 - np.sin(np.arange(441) / 10)).max() < 1e-4
    (event,) = found.Images("moving")
    moving = Image.open(io.BytesIO(event.encoded_image_string))
    assert (moving.n_frames, moving.size, event.height, event.width) == (5, (32, 6), 6, 32)      # 3 with room for 4
    (event,) = found.Images("boxed")
    picture = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
    assert picture.shape == (20, 30, 3) and picture[9, 2].tolist() == [255, 0, 0] and not picture[1].any()
    (event,) = found.Images("larger")
    assert Image.open(io.BytesIO(event.encoded_image_string)).size == (60, 40) and event.height == 20


DTYPES = "float16 float32 float64 bfloat16 int8 uint8 int16 int32 int64 bool complex64".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_comes_back_bit_for_bit(tmp_path, dtype):
    given = torch.tensor([[0, 1, 3], [2, 7, 5]]).to(getattr(torch, dtype))
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("held", given, 4)
    (event,) = read(tmp_path).Tensors("held")
    if dtype == "bfloat16":                       # TensorBoard's reader has no array of it: its bits are looked at
        bits = np.array(event.tensor_proto.half_val, np.uint32) << 16
        assert bits.view(np.float32).tolist() == [0, 1, 3, 2, 7, 5]
        return
    found = make_ndarray(event.tensor_proto)
    assert event.step == 4 and found.shape == (2, 3) and found.dtype == given.numpy().dtype
    assert found.astype(np.complex128 if dtype == "complex64" else np.float64).tolist() == given.to(
        torch.complex128 if dtype == "complex64" else torch.float64).tolist()


def test_what_is_no_tensor_of_theirs_is_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="unsupported tensor dtype torch.float8"):
        writer.add_tensor("held", torch.zeros(2, dtype=torch.float8_e4m3fn))


def test_meshes(tmp_path):
    vertices, faces = torch.rand(1, 4, 3), torch.tensor([[[0, 1, 2], [1, 2, 3]]])
    with SummaryWriter(tmp_path) as writer:
        writer.add_mesh("solid", vertices, faces=faces, config_dict={"camera": {"cls": "x"}}, global_step=2)
        with pytest.raises(AssertionError, match="shape"):
            writer.add_mesh("flat", vertices[0])
    found = read(tmp_path)
    assert sorted(found.Tags()["tensors"]) == ["solid_FACE", "solid_VERTEX"]
    (event,) = found.Tensors("solid_VERTEX")
    assert np.allclose(make_ndarray(event.tensor_proto), vertices.numpy())
    about = MeshPluginData.FromString(found.SummaryMetadata("solid_FACE").plugin_data.content)
    assert about.json_config == '{"camera": {"cls": "x"}}' and list(about.shape) == [1, 2, 3]


def test_embeddings(tmp_path):
    points = torch.arange(10.0).reshape(5, 2) / 3
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(points, ["a", "b", "c", "d", "e"], torch.rand(5, 3, 4, 6), 7, "first/one")
        writer.add_embedding(points, [["a", 1]] * 5, metadata_header=["word", "number"])
        for wrong in (dict(metadata=["a"]), dict(label_img=torch.rand(2, 3, 4, 4))):
            with pytest.raises(AssertionError, match="should equal"):
                writer.add_embedding(points, **wrong)
    config = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig())
    assert [one.tensor_name for one in config.embeddings] == ["first/one:00007", "default:00000"]
    first, second = config.embeddings
    assert np.allclose(np.loadtxt(tmp_path / first.tensor_path), points.numpy())
    assert (tmp_path / first.metadata_path).read_text() == "a\nb\nc\nd\ne\n"
    assert (tmp_path / second.metadata_path).read_text().startswith("word\tnumber\na\t1\n")
    assert Image.open(tmp_path / first.sprite.image_path).size == (18, 18)
    assert list(first.sprite.single_image_dim) == [6, 4] and Path(first.tensor_path).parts[0] == "00007"


def test_every_method_of_pytorchs_writer_is_here():
    wanted = """add_hparams add_scalar add_scalars add_tensor add_histogram add_histogram_raw add_image add_images
        add_image_with_boxes add_figure add_video add_audio add_text add_onnx_graph add_graph add_embedding
        add_pr_curve add_pr_curve_raw add_custom_scalars_multilinechart add_custom_scalars_marginchart
        add_custom_scalars add_mesh flush close get_logdir""".split()
    assert [name for name in wanted if not hasattr(SummaryWriter, name)] == []



@pytest.mark.parametrize("name", ["../x", "../../x", "/x", "a/../../x", ".."])
def test_names_stay_in_the_folder_of_the_log(tmp_path, name):
    with SummaryWriter(str(tmp_path / "runs" / "log")) as writer:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ValueError, match="run_name=.* is not in .*log"):
            writer.add_hparams({"lr": 0.1}, {"loss": 1.0}, run_name=name)
        with pytest.raises(ValueError, match="main_tag and tag=.* is not in .*log"):
            writer.add_scalars("a", {f"/../{name}/../../../x": 1.0})
        with pytest.raises(ValueError, match="global_step and tag=.* is not in .*log"):
            writer.add_embedding(torch.ones(2, 2), global_step=f"../../{name}")
        assert sorted(tmp_path.rglob("*")) == before
        writer.add_hparams({"lr": 0.1}, {"loss": 1.0}, run_name="first/one")
    assert [*(tmp_path / "runs" / "log" / "first" / "one").iterdir()]
