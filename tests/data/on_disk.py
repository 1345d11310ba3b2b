"""Small datasets as they lie on disk, drawn by NumPy: MNIST's IDX files, CIFAR's pickles, folders of pictures."""
import gzip
import hashlib
import pickle
from pathlib import Path

import numpy as np


def idx(array):
    """The bytes of an IDX file of bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def digits(count, seed=0, size=28):
    """Pictures [count, size, size] that tell their class: a bar for each, in noise. And the classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    pictures = rng.integers(0, 60, (count, size, size))
    for picture, label in zip(pictures, labels):
        at = 2 + int(label) * (size - 4) // 10
        picture[at:at + 3, 4:-4] += 180 if label % 2 else 120
        picture[4:-4, at:at + 2] += 70
    return pictures.clip(0, 255).astype(np.uint8), labels


def write_mnist(root, name="MNIST", train=60, test=20, packed=False, prefix=("train", "t10k"), seed=0):
    """Files of MNIST's form below root/name/raw; with `packed`, as .gz. {file's name: its MD5 checksum}."""
    folder = Path(root) / name / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    sums = {}
    for split, count, number in ((prefix[0], train, seed), (prefix[1], test, seed + 1)):
        pictures, labels = digits(count, number)
        for kind, array in (("images-idx3", pictures), ("labels-idx1", labels)):
            file, held = f"{split}-{kind}-ubyte", idx(array)
            if packed:
                file, held = f"{file}.gz", gzip.compress(held, mtime=0)
            (folder / file).write_bytes(held)
            sums[file] = hashlib.md5(held).hexdigest()
    return sums


def write_cifar(root, dataset, train=50, test=20):
    """The files of `dataset` (a class of CIFAR's, of ours or torchvision's) below root.

    A subclass of it that knows their checksums is given back.
    """
    folder = Path(root) / dataset.base_folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    fine = dataset.meta["key"] == "fine_label_names"
    classes = 100 if fine else 10

    def write(name, held):
        (folder / name).write_bytes(pickle.dumps(held, protocol=2))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    def batch(count):
        labels = rng.integers(0, classes, count).tolist()
        pictures = rng.integers(0, 256, (count, 3072)).astype(np.uint8)
        return {"data": pictures, "fine_labels" if fine else "labels": labels}

    lists = {}
    for kind, count in (("train_list", train), ("test_list", test)):
        names = [name for name, _ in getattr(dataset, kind)]
        lists[kind] = [[name, write(name, batch(count // len(names)))] for name in names]
    md5 = write(dataset.meta["filename"], {dataset.meta["key"]: [f"class {i}" for i in range(classes)]})
    return type(dataset.__name__, (dataset,), {**lists, "meta": {**dataset.meta, "md5": md5}})


def write_folders(root, classes=("ant", "bee"), count=3, size=(20, 24)):
    """A folder of PNG and JPEG files for each class."""
    from PIL import Image
    rng = np.random.default_rng(0)
    for name in classes:
        folder = Path(root) / name / ("more" if name == "bee" else "")
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            picture = Image.fromarray(rng.integers(0, 256, (*size, 3)).astype(np.uint8))
            picture.save(folder / f"{i}.{'png' if i % 2 else 'JPEG'}")
        (Path(root) / name / "notes.txt").write_text("not a picture")
