"""A fuzzer of pictures: small ones of every format, changed at random, with PNG's checksums made right again.

Each changed file is read, or refused with one kind of error, which says why. `python -m tests.vision.damaged 20000`
tries so many.
"""
import collections
import functools
import io
import random
import struct
import sys
import tempfile
import warnings
import zlib

import numpy as np

import flambeau as torch
from flambeau.data.datasets.folder import pil_loader
from flambeau.vision import images

EXTREMES = (b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\xff")


@functools.cache
def sources():
    from PIL import Image
    rng, exif = np.random.default_rng(0), Image.Exif()
    exif[274] = 6                                           # the orientation
    rgb = Image.fromarray(rng.integers(0, 256, (9, 13, 3)).astype(np.uint8))
    deep = Image.fromarray(rng.integers(0, 65536, (9, 13)).astype(np.uint16))
    made = [(rgb, "png", {}), (rgb, "png", {"exif": exif}), (deep, "png", {}), (rgb.quantize(), "png", {}),
            (rgb, "jpeg", {"exif": exif}), (rgb.convert("CMYK"), "jpeg", {}), (rgb, "webp", {"exif": exif}),
            (rgb, "gif", {"save_all": True, "append_images": [rgb.rotate(180)]}), (rgb, "bmp", {}), (rgb, "tiff", {})]
    return [saved(*each) for each in made]


def saved(image, form, options):
    to = io.BytesIO()
    image.save(to, form, **options)
    return to.getvalue()


def case(seed):
    """The bytes of a changed file."""
    draw = random.Random(seed)
    data = bytearray(draw.choice(sources()))
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, way = draw.randrange(len(data) + 1), draw.randrange(6)
        if way == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif way == 1:
            data[at:at + 4] = draw.randbytes(4)
        elif way == 2:
            del data[at:at + draw.choice((1, 4, 40))]
        elif way == 3:
            data[at:at] = draw.randbytes(5)
        elif way == 4:
            del data[at:]
        elif way == 5:
            at = draw.randrange(min(len(data), 60) + 1)
            data[at:at + draw.choice((1, 2, 4))] = draw.choice(EXTREMES)
    return with_checksums(bytes(data)) if draw.random() < 0.5 else bytes(data)


def with_checksums(data):
    """A PNG file in which every chunk has the checksum of what it holds."""
    out, at = data[:8], 8
    while data.startswith(b"\x89PNG") and at + 12 <= len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        if at + 12 + length > len(data):
            break
        body = data[at + 4:at + 8 + length]
        out += data[at:at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + length
    return out + data[at:]


def attempt(seed):
    """What came of a file, of its bytes as a tensor and by its name: "read" or "refused"; anything else is raised."""
    from PIL import UnidentifiedImageError
    data = case(seed)
    if not data:
        return []
    found = []
    with warnings.catch_warnings(), tempfile.NamedTemporaryFile(suffix=".png") as file:
        warnings.simplefilter("ignore")                     # Pillow's, of pictures that are large or odd
        file.write(data)
        file.flush()
        try:
            images.decode_image(torch.tensor(np.frombuffer(data, np.uint8).copy()), seed % 5, seed % 2 == 0)
            found.append("read")
        except RuntimeError as error:
            assert str(error)
            found.append("refused")
        try:
            pil_loader(file.name)
            found.append("read by name")
        except UnidentifiedImageError as error:
            assert str(error).startswith((f"{file.name}: ", f"{file.name} is not a picture")) and error.errno is None
            found.append("refused by name")
    return found


if __name__ == "__main__":
    print(collections.Counter(word for seed in range(int(sys.argv[1])) for word in attempt(seed)))
