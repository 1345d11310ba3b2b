"""CIFAR-10 and CIFAR-100: coloured pictures, 32 by 32, in pickled arrays below ROOT/cifar-10-batches-py.

Unpickling runs what a file says, so a file is opened only after its checksum was found right.
"""
import os
import pickle

import numpy as np

from ...tensor.create import from_array
from ...vision import images
from .utils import check_integrity, download_and_extract_archive, fault_of
from .vision import PicturesOfOneSize

__all__ = ["CIFAR10", "CIFAR100"]


class CIFAR10(PicturesOfOneSize):
    """Pictures of ten kinds of things: 50,000 for training, 10,000 for testing.

    `data` is an array of bytes [N, 32, 32, 3], `targets` a list. With `train=False` the dataset counts as one for
    evaluation, where a random transform is refused.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = [["data_batch_1", "c99cafc152244af753f735de768cd75f"],
                  ["data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"],
                  ["data_batch_3", "54ebc095f3ab1f0389bbae665268c751"],
                  ["data_batch_4", "634d18415352ddfa80567beed471001a"],
                  ["data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"]]
    test_list = [["test_batch", "40351d587109b95175f43aff81a1287e"]]
    meta = {"filename": "batches.meta", "key": "label_names", "md5": "5ff9c542aee3614f3951f8cda6e48888"}

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, train, transform, target_transform)
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it\n"
                               f"  {self._fault()}")
        parts, self.targets = [], []
        for name, _ in self.train_list if train else self.test_list:
            entry = self._unpickled(name)
            parts.append(np.asarray(entry["data"]))
            self.targets.extend(entry["labels"] if "labels" in entry else entry["fine_labels"])
        self.data = np.vstack(parts).reshape(-1, 3, 32, 32).transpose((0, 2, 3, 1))
        self._load_meta()

    def _unpickled(self, name):
        with open(os.path.join(self.root, self.base_folder, name), "rb") as file:
            return pickle.load(file, encoding="latin1")

    def _load_meta(self):
        path = os.path.join(self.root, self.base_folder, self.meta["filename"])
        if not check_integrity(path, self.meta["md5"]):
            raise RuntimeError("Dataset metadata file not found or corrupted. You can use download=True to download it"
                               f"\n  {fault_of(path, self.meta['md5'])}")
        self.classes = self._unpickled(self.meta["filename"])[self.meta["key"]]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _check_integrity(self):
        return all(check_integrity(os.path.join(self.root, self.base_folder, name), md5)
                   for name, md5 in self.train_list + self.test_list)

    def _fault(self):
        """What is wrong with the first file that is not as it was published, in words."""
        faults = (fault_of(os.path.join(self.root, self.base_folder, name), md5)
                  for name, md5 in self.train_list + self.test_list)
        return next(filter(None, faults), None)

    def download(self):
        """Download the archive and take its files out, unless they are there."""
        if not self._check_integrity():
            download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.tgz_md5)

    def _sample(self, index):
        return images.pillow().fromarray(self.data[index]), self.targets[index]

    def _batch(self, indices):
        return from_array(np.ascontiguousarray(self.data[indices].transpose(0, 3, 1, 2))), \
            [self.targets[index] for index in indices]

    def extra_repr(self):
        return f"Split: {'Train' if self.train is True else 'Test'}"


class CIFAR100(CIFAR10):
    """Pictures of a hundred kinds of things: 50,000 for training, 10,000 for testing."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [["train", "16019d7e3df5f24257cddd939b257f8d"]]
    test_list = [["test", "f0ef6b0ae62326f3e7ffdfab6717acfc"]]
    meta = {"filename": "meta", "key": "fine_label_names", "md5": "7973b15100ade9c7d40fb424638fde48"}
