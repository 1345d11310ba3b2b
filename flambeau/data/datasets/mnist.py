"""MNIST and its kin: small grey pictures in IDX files, below ROOT/NAME/raw.

The files are read as they lie there, decompressed (train-images-idx3-ubyte) or as they were published
(train-images-idx3-ubyte.gz), whose checksum is then verified.
"""
import gzip
import os
import shutil
import string

import numpy as np

from ...base.errors import need, warn
from ...tensor.create import from_array
from ...tensor.reading import array_of
from ...vision import images
from .utils import check_integrity, download_and_extract_archive, extract_archive, fault_of, verify_str_arg
from .vision import PicturesOfOneSize

__all__ = ["EMNIST", "FashionMNIST", "KMNIST", "MNIST"]

DIGIT_CLASSES = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven",
                 "8 - eight", "9 - nine"]
# The third byte of an IDX file: what its elements are.
IDX_ELEMENTS = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


class MNIST(PicturesOfOneSize):
    """Handwritten digits, 28 by 28: 60,000 for training, 10,000 for testing.

    `data` is a tensor of bytes [N, 28, 28], `targets` one of int64. With `train=False` the dataset counts as one for
    evaluation, where a random transform is refused.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"]
    resources = [("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                 ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
                 ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
                 ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c")]
    training_file = "training.pt"
    test_file = "test.pt"
    classes = DIGIT_CLASSES

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, train, transform, target_transform)
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError("Dataset not found. You can use download=True to download it\n"
                               f"  {self._fault()}")
        self.data, self.targets = self._load_data()
        if len(self.data) != len(self.targets):
            raise ValueError(f"{self.images_file} has {len(self.data)} pictures, and {self.labels_file} has "
                             f"{len(self.targets)} labels: they do not belong together")

    @property
    def raw_folder(self):
        """Where the files lie: ROOT/NAME/raw."""
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self):
        """Where old versions of torchvision kept tensors."""
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self):
        """The number of each class."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def images_file(self):
        """The path of the file of pictures."""
        return os.path.join(self.raw_folder, f"{'train' if self.train else 't10k'}-images-idx3-ubyte")

    @property
    def labels_file(self):
        """The path of the file of labels."""
        return os.path.join(self.raw_folder, f"{'train' if self.train else 't10k'}-labels-idx1-ubyte")

    def _fault(self):
        """What is wrong with the files that this split is read from, in words; None if nothing is."""
        published = {name.removesuffix(".gz"): md5 for name, md5 in self.resources}
        for path in (self.images_file, self.labels_file):
            if not check_integrity(path):
                packed = f"{path}.gz"
                fault = fault_of(packed, published.get(os.path.basename(path))) if os.path.exists(packed) \
                    else f"there is neither {path} nor {os.path.basename(packed)} beside it"
                if fault is not None:
                    return fault
        return None

    def _check_exists(self):
        return self._fault() is None

    def _load_data(self):
        return read_image_file(self.images_file), read_label_file(self.labels_file)

    def download(self):
        """Download and decompress the files that are not there, from the first mirror that has them."""
        os.makedirs(self.raw_folder, exist_ok=True)
        for filename, md5 in self.resources:
            if check_integrity(os.path.join(self.raw_folder, filename.removesuffix(".gz"))):
                continue
            errors = []
            for mirror in self.mirrors:
                try:
                    download_and_extract_archive(f"{mirror}{filename}", self.raw_folder, filename=filename, md5=md5)
                    break
                except (RuntimeError, OSError) as error:      # URLError is an OSError
                    errors.append(f"Tried {mirror}, got:\n{error}\n")
            else:
                raise RuntimeError(f"Error downloading {filename}:\n{''.join(errors)}")

    def _sample(self, index):
        return images.pillow().fromarray(array_of(self.data[index])), int(self.targets[index])

    def _batch(self, indices):
        return self.data[indices].unsqueeze(1), self.targets[indices].tolist()

    def extra_repr(self):
        return f"Split: {'Train' if self.train is True else 'Test'}"

    @property
    def train_labels(self):
        """The old name of `targets`."""
        warn("train_labels has been renamed targets")
        return self.targets

    @property
    def test_labels(self):
        """The old name of `targets`."""
        warn("test_labels has been renamed targets")
        return self.targets

    @property
    def train_data(self):
        """The old name of `data`."""
        warn("train_data has been renamed data")
        return self.data

    @property
    def test_data(self):
        """The old name of `data`."""
        warn("test_data has been renamed data")
        return self.data


class FashionMNIST(MNIST):
    """Pieces of clothing, in the form of MNIST."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = [("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                 ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
                 ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
                 ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310")]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Old Japanese characters, in the form of MNIST."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
                 ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
                 ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
                 ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134")]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class EMNIST(MNIST):
    """Handwritten letters and digits, in the form of MNIST, in six selections: `split` is one of `splits`."""

    url = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    md5 = "58c8d27c78d21e728a6bc7b3cc06412e"
    resources = []            # of the files in the archive no checksums were published
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    # Letters whose lower case looks like the upper one count as that.
    _merged_classes = set("cijklmopsuvwxyz")
    _all_classes = set(string.digits + string.ascii_letters)
    classes_split_dict = {
        "byclass": sorted(_all_classes),
        "bymerge": sorted(_all_classes - _merged_classes),
        "balanced": sorted(_all_classes - _merged_classes),
        "letters": ["N/A", *string.ascii_lowercase],
        "digits": list(string.digits),
        "mnist": list(string.digits),
    }

    def __init__(self, root, split, **kwargs):
        self.split = verify_str_arg(split, "split", self.splits)
        self.training_file, self.test_file = f"training_{split}.pt", f"test_{split}.pt"
        super().__init__(root, **kwargs)
        self.classes = self.classes_split_dict[self.split]

    @property
    def _file_prefix(self):
        return os.path.join(self.raw_folder, f"emnist-{self.split}-{'train' if self.train else 'test'}")

    @property
    def images_file(self):
        return f"{self._file_prefix}-images-idx3-ubyte"

    @property
    def labels_file(self):
        return f"{self._file_prefix}-labels-idx1-ubyte"

    def download(self):
        """Download the archive of all selections and take its files out, unless those of this one are there."""
        if self._check_exists():
            return
        os.makedirs(self.raw_folder, exist_ok=True)
        download_and_extract_archive(self.url, self.raw_folder, md5=self.md5)
        folder = os.path.join(self.raw_folder, "gzip")
        for name in os.listdir(folder):
            if name.endswith(".gz"):
                extract_archive(os.path.join(folder, name), self.raw_folder)
        shutil.rmtree(folder)


# --- IDX files ---


def read_sn3_pascalvincent_tensor(path, strict=True):
    """The tensor in an IDX file; where there is none, in the file of that name with .gz behind it.

    With `strict`, a file that is longer than its header says is refused; one that is shorter always is.
    """
    opened, path = (open, path) if os.path.exists(path) else (gzip.open, f"{path}.gz")
    try:
        with opened(path, "rb") as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is no whole gzip file: {error}") from error
    element_code, ndim = content[2:3], content[3:4]
    need(content[:2] == b"\0\0" and element_code and element_code[0] in IDX_ELEMENTS and ndim and 1 <= ndim[0] <= 3,
         f"{path} is no IDX file: it starts with {content[:4].hex(' ') or 'nothing'} instead of 00 00, a kind of "
         "element (08 for bytes) and 1 to 3 dimensions", ValueError)
    start = 4 * (ndim[0] + 1)
    need(len(content) >= start, f"{path} is cut short: it has {len(content)} bytes, and its header alone {start}",
         ValueError)
    shape = [int.from_bytes(content[at:at + 4], "big") for at in range(4, start, 4)]
    element = np.dtype(IDX_ELEMENTS[element_code[0]])
    meant = start + int(np.prod(shape, dtype=object)) * element.itemsize
    need(len(content) >= meant, f"{path} is cut short: it has {len(content)} bytes, and a tensor of shape {shape} "
                                f"needs {meant}", ValueError)
    need(len(content) == meant or not strict,
         f"{path} has {len(content) - meant} bytes behind its tensor of shape {shape}", ValueError)
    found = np.array(memoryview(content)[start:meant], dtype=np.uint8).view(element).reshape(shape)
    return from_array(found.astype(element.newbyteorder("=")))


def read_label_file(path):
    """The labels in an IDX file, int64."""
    return _bytes_of(path, 1).long()


def read_image_file(path):
    """The pictures in an IDX file, bytes [N, H, W]."""
    return _bytes_of(path, 3)


def _bytes_of(path, ndim):
    found = read_sn3_pascalvincent_tensor(path, strict=False)
    need(str(found.dtype) == "torch.uint8", f"{path}: x should be of dtype torch.uint8 instead of {found.dtype}",
         TypeError)
    need(found.ndim == ndim, f"{path}: x should have {ndim} dimension instead of {found.ndim}", ValueError)
    return found
