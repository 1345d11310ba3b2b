"""Points for TensorBoard's projector: text files beside the event file, and a list of them."""
import io
import math
import os

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo, ProjectorConfig

from ...base.paths import inside
from . import summary as summaries

CONFIG_FILE = "projector_config.pbtxt"


class Projector:
    """The embeddings of one folder. The list of them is written anew with each."""

    def __init__(self, folder):
        self.folder, self.config = folder, ProjectorConfig()

    def add(self, mat, metadata, pictures, step, tag, header):
        """Write points, labels and pictures into a folder of their own, named by step and tag."""
        number = str(step).zfill(5)
        below = f"{number}/{as_file_name(tag)}"
        path = inside(self.folder, below, "global_step and tag")
        os.makedirs(path, exist_ok=True)
        info = EmbeddingInfo(tensor_name=f"{tag}:{number}", tensor_path=os.path.join(below, "tensors.tsv"))
        if metadata is not None:
            info.metadata_path = os.path.join(below, "metadata.tsv")
            self._write(info.metadata_path, lines(metadata, header))
        if pictures is not None:
            pictures = summaries.array_of(pictures)
            info.sprite.image_path = os.path.join(below, "sprite.png")
            info.sprite.single_image_dim.extend([pictures.shape[3], pictures.shape[2]])
            self._write(info.sprite.image_path, sprite(pictures))
        self._write(info.tensor_path, "".join("\t".join(str(x.item()) for x in row) + "\n" for row in mat).encode())
        self.config.embeddings.append(info)
        self._write(CONFIG_FILE, text_format.MessageToString(self.config).encode())

    def _write(self, name, content):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(content)


def as_file_name(tag):
    """A tag without what parts the names of folders."""
    return tag.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")


def lines(metadata, header):
    """Labels, one a line; of several columns where there is a header."""
    if not header:
        return ("\n".join(str(each) for each in metadata) + "\n").encode()
    if len(header) != len(metadata[0]):
        raise AssertionError("len of header must be equal to the number of columns in metadata")
    return ("\n".join("\t".join(str(each) for each in row) for row in [header, *metadata]) + "\n").encode()


def sprite(pictures):
    """All pictures (n, colours, height, width) as one PNG, a square of as many in a row as in a column."""
    from PIL import Image
    many, colours, height, width = pictures.shape
    side = math.ceil(many ** 0.5)
    scale = 255 if pictures.dtype != np.uint8 else 1
    tiles = np.zeros((side * side, height, width, 3), np.uint8)
    tiles[:many] = (pictures.transpose(0, 2, 3, 1).astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    rows = tiles.reshape(side, side, height, width, 3).swapaxes(1, 2).reshape(side * height, side * width, 3)
    square = np.zeros((side * width, side * width, 3), np.uint8)      # the projector takes it to be one
    square[:len(rows)] = rows[:side * width]
    file = io.BytesIO()
    Image.fromarray(square).save(file, format="PNG")
    return file.getvalue()
