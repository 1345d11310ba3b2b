"""Datasets of pictures as they lie on disk, with torchvision's folders, names, arguments and errors.

    vision      the base class, and pictures of one size that lie in memory, which give whole batches
    folder      a folder of files for each class: DatasetFolder, ImageFolder
    mnist       MNIST, FashionMNIST, KMNIST, EMNIST
    cifar       CIFAR10, CIFAR100
    fakedata    pictures of random numbers, for trying things
    utils       checksums, downloads, archives

Nothing is downloaded unless `download=True` asks for it.
"""
from ...base.names import attribute_error
from .cifar import CIFAR10, CIFAR100
from .fakedata import FakeData
from .folder import DatasetFolder, ImageFolder
from .mnist import EMNIST, KMNIST, MNIST, FashionMNIST
from .vision import StandardTransform, VisionDataset

__all__ = ["CIFAR10", "CIFAR100", "DatasetFolder", "EMNIST", "FakeData", "FashionMNIST", "ImageFolder", "KMNIST",
           "MNIST", "StandardTransform", "VisionDataset"]


def __getattr__(name):
    # torchvision's datasets are classes, and there are many.
    hint = "the datasets of the package run on Flambeau: flambeau provide-torch, then pip install torchvision==0.28.0"
    raise attribute_error("flambeau.data.datasets", name, globals().keys, hint if name[:1].isupper() else "")
