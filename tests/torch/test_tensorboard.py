"""The messages for TensorBoard are PyTorch's, byte for byte."""
import numpy as np
import pytest

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
torch = pytest.importorskip("torch")
from torch.utils.tensorboard import summary as theirs

import flambeau
from flambeau.utils.tensorboard import summary as ours

VALUES = np.sin(np.arange(60.0)).astype(np.float32)


def both(name, *args, **options):
    """The message of ours and of theirs, over the same arrays as tensors of each."""
    def made(library, module):
        given = [library.tensor(each) if isinstance(each, np.ndarray) else each for each in args]
        held = {key: library.tensor(each) if isinstance(each, np.ndarray) else each for key, each in options.items()}
        return getattr(module, name)(*given, **held)
    return made(flambeau, ours), made(torch, theirs)


@pytest.mark.parametrize("name, args, options", [
    ("audio", ("a", VALUES), dict(sample_rate=8000)), ("audio", ("a", VALUES[None] * 2), {}),
    *[("tensor_proto", ("a", VALUES.reshape(4, 15).astype(kind)), {}) for kind in
      "f4 f8 i1 i2 i4 i8 ? c8 c16".split()], ("tensor_proto", ("a", np.array(3.0)), {}),
    ("mesh", ("a", VALUES.reshape(1, 20, 3)), dict(colors=None, faces=None, config_dict=None)),
    ("mesh", ("a", VALUES.reshape(1, 20, 3)), dict(colors=np.ones((1, 20, 3), np.uint8),
                                                   faces=np.ones((1, 2, 3), np.int32), config_dict={"b": 1, "a": 2})),
    ("image_boxes", ("a", np.abs(VALUES).reshape(3, 4, 5), np.array([[1.0, 1, 3, 2]])), {}),
    ("image_boxes", ("a", np.zeros((3, 30, 40)), np.array([[5, 4, 30, 22], [1, 2, 3, 4]])),
     dict(rescale=2, labels=["cat", None])),
])
def test_messages_are_the_same(name, args, options):
    one, other = both(name, *args, **options)
    assert one.SerializeToString() == other.SerializeToString()


def test_16_bit_floats_are_16_bits():
    """PyTorch writes the bits of a float32 there, which TensorBoard's reader takes for something else."""
    from tensorboard.util.tensor_util import make_ndarray
    given = VALUES.astype(np.float16)
    one, other = (made.value[0].tensor for made in both("tensor_proto", "a", given))
    assert np.array_equal(make_ndarray(one).reshape(-1), given) and len(other.half_val) == len(given)
    assert max(one.half_val) < 1 << 16 < max(other.half_val)


def test_embeddings_are_the_same_files(tmp_path):
    from torch.utils.tensorboard import SummaryWriter
    points, pictures = VALUES.reshape(6, 10), np.abs(np.tile(VALUES, 12)[:6 * 3 * 5 * 4].reshape(6, 3, 5, 4))
    for library, writer, folder in ((torch, SummaryWriter, "theirs"), (flambeau, None, "ours")):
        writer = writer or flambeau.utils.tensorboard.SummaryWriter
        with writer(tmp_path / folder) as run:
            run.add_embedding(library.tensor(points), list("abcdef"), library.tensor(pictures), 3, "one/two %")
            run.add_embedding(library.tensor(points), [["x", 1]] * 6, metadata_header=["word", "number"])
    files = {folder: {str(path.relative_to(tmp_path / folder)): path.read_bytes() for path in
                      (tmp_path / folder).rglob("*") if path.is_file() and not path.name.startswith("events")}
             for folder in ("ours", "theirs")}
    assert files["ours"] == files["theirs"] and len(files["ours"]) == 6
