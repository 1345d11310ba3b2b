"""Datasets that are folders of files: one folder for each class, named after it."""
import os

from ...base.errors import need
from ...vision import images
from .vision import VisionDataset

__all__ = ["DatasetFolder", "ImageFolder", "default_loader", "find_classes", "make_dataset", "pil_loader"]

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename, extensions):
    """Whether the name ends, in whatever case, with one of the `extensions`."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename):
    """Whether the name is that of a picture."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory):
    """The folders in `directory`, sorted, and the number of each."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    need(classes, f"Couldn't find any class folder in {directory}.", FileNotFoundError)
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(directory, class_to_idx=None, extensions=None, is_valid_file=None, allow_empty=False):
    """(path, class) of every file below the folders of the classes, in order: those with one of the `extensions`, or
    those of which `is_valid_file(path)` says so."""
    directory = os.path.expanduser(directory)
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    need(class_to_idx, "'class_to_index' must have at least one entry to collect any samples.", ValueError)
    need((extensions is None) != (is_valid_file is None),
         "Both extensions and is_valid_file cannot be None or not None at the same time", ValueError)
    if extensions is not None:
        def is_valid_file(path): return has_file_allowed_extension(path, extensions)
    found, empty = [], []
    for name in sorted(class_to_idx):
        before = len(found)
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if is_valid_file(path):
                    found.append((path, class_to_idx[name]))
        if len(found) == before:
            empty.append(name)
    if empty and not allow_empty:
        said = f"Found no valid file for the classes {', '.join(empty)}. "
        if extensions is not None:
            said += f"Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}"
        raise FileNotFoundError(said)
    return found


class DatasetFolder(VisionDataset):
    """Files in a folder for each class; `loader(path)` reads one.

    Which files count is said by their `extensions`, or by `is_valid_file(path)`. `classes` are the folders' names in
    order, `class_to_idx` their numbers, `samples` the pairs of path and class, `targets` the classes alone.
    """

    def __init__(self, root, loader, extensions=None, transform=None, target_transform=None, is_valid_file=None,
                 allow_empty=False):
        super().__init__(root, transform=transform, target_transform=target_transform)
        classes, class_to_idx = self.find_classes(self.root)
        samples = self.make_dataset(self.root, class_to_idx=class_to_idx, extensions=extensions,
                                    is_valid_file=is_valid_file, allow_empty=allow_empty)
        self.loader = loader
        self.extensions = extensions
        self.classes = classes
        self.class_to_idx = class_to_idx
        self.samples = samples
        self.targets = [target for _, target in samples]

    @staticmethod
    def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty=False):
        """(path, class) of every sample; a subclass may find them in another way."""
        # Without it the function would look for the classes itself, past what a subclass has for `find_classes`.
        need(class_to_idx is not None, "The class_to_idx parameter cannot be None.", ValueError)
        return make_dataset(directory, class_to_idx, extensions=extensions, is_valid_file=is_valid_file,
                            allow_empty=allow_empty)

    def find_classes(self, directory):
        """The classes and their numbers; a subclass may find them in another way."""
        return find_classes(directory)

    def __getitem__(self, index):
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def __len__(self):
        return len(self.samples)


def pil_loader(path):
    """The picture in the file as one of Pillow's, in red, green and blue.

    A file that is none, or damaged, is Pillow's UnidentifiedImageError, an OSError, which names it and says why.
    """
    pillow = images.pillow()
    with open(path, "rb") as file:
        with images.damaged_is(pillow.UnidentifiedImageError, os.fspath(path)):
            try:
                return pillow.open(file).convert("RGB")
            except pillow.UnidentifiedImageError:
                words = f"{os.fspath(path)} is not a picture that Pillow can read"
                raise pillow.UnidentifiedImageError(words) from None


def default_loader(path):
    """`pil_loader`: what `ImageFolder` reads a file with."""
    return pil_loader(path)


class ImageFolder(DatasetFolder):
    """Pictures in a folder for each class: root/dog/1.png, root/dog/more/2.png, root/cat/1.jpg."""

    def __init__(self, root, transform=None, target_transform=None, loader=default_loader, is_valid_file=None,
                 allow_empty=False):
        super().__init__(root, loader, IMG_EXTENSIONS if is_valid_file is None else None, transform=transform,
                         target_transform=target_transform, is_valid_file=is_valid_file, allow_empty=allow_empty)
        self.imgs = self.samples
