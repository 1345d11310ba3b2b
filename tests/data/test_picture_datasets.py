"""Datasets of pictures: what is read, how batches are taken, what is refused, and in which words."""
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau.data import datasets, transforms
from flambeau.data.datasets import utils
from flambeau.utils.data import DataLoader

from .on_disk import digits, idx, write_cifar, write_folders, write_mnist

pytest.importorskip("PIL")

PIPELINE = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])


# --- MNIST ---


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
def test_idx_files(tmp_path, name):
    write_mnist(tmp_path, name)
    made = getattr(datasets, name)(str(tmp_path), train=False)
    pictures, labels = digits(20, 1)
    assert (made.data.numpy() == pictures).all() and made.targets.tolist() == labels.tolist()
    picture, label = made[3]
    assert picture.mode == "L" and (np.array(picture) == pictures[3]).all() and label == labels[3]
    assert type(label) is int and len(made) == 20 and made.class_to_idx[made.classes[4]] == 4
    assert repr(made) == f"Dataset {name}\n    Number of datapoints: 20\n    Root location: {tmp_path}\n    Split: Test"


def test_emnist(tmp_path):
    write_mnist(tmp_path, "EMNIST", prefix=("emnist-letters-train", "emnist-letters-test"))
    made = datasets.EMNIST(tmp_path, "letters", train=True)
    assert len(made) == 60 and made.classes[:3] == ["N/A", "a", "b"]
    assert len(datasets.EMNIST.classes_split_dict["balanced"]) == 47
    with pytest.raises(ValueError, match="Unknown value 'greek' for argument split. Valid values are {'byclass', "):
        datasets.EMNIST(tmp_path, "greek")


def test_packed_files_are_read_once_their_checksum_is_right(tmp_path):
    sums = write_mnist(tmp_path, packed=True)
    mine = type("MNIST", (datasets.MNIST,), {"resources": list(sums.items())})
    assert len(mine(tmp_path)) == 60
    with pytest.raises(RuntimeError, match="Dataset not found. You can use download=True to download it\n.* MD5 "):
        datasets.MNIST(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)Dataset not found\. You can use.*train-images-idx3-ubyte"):
        datasets.MNIST(tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)Dataset not found or corrupted\. You can.*there is no .*data_batch_1"):
        datasets.CIFAR10(tmp_path)


@pytest.mark.parametrize("held, says", [
    (b"", "starts with nothing"),
    (b"\x89PNG\r\n", "starts with 89 50 4e 47"),
    (b"\0\0\x08\x03\0\0", "cut short: it has 6 bytes, and its header alone 16"),
    (idx(np.zeros((5, 28, 28)))[:-1], r"cut short: it has 3935 bytes, and a tensor of shape \[5, 28, 28\] needs 3936"),
    (idx(np.zeros(5)), "x should have 3 dimension instead of 1"),
    (b"\0\0\x0d\x01\0\0\0\0", "dtype torch.uint8 instead of torch.float32"),
])
def test_bad_idx_files_are_named(tmp_path, held, says):
    write_mnist(tmp_path)
    file = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    file.write_bytes(held)
    with pytest.raises((ValueError, TypeError), match=f"(?s){file.name}.*{says}"):
        datasets.MNIST(tmp_path)


def test_pictures_and_labels_that_do_not_belong_together(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(59)))
    with pytest.raises(ValueError, match="60 pictures.*59 labels"):
        datasets.MNIST(tmp_path)


def test_elements_of_all_kinds(tmp_path):
    from flambeau.data.datasets.mnist import read_sn3_pascalvincent_tensor
    for number, kind in ((9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")):
        array = np.array([[1, -2, 3], [4, 5, -6]], kind)
        path = tmp_path / kind
        path.write_bytes(bytes([0, 0, number, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + array.tobytes())
        found = read_sn3_pascalvincent_tensor(str(path))
        assert found.numpy().dtype == array.dtype.newbyteorder("=") and (found.numpy() == array).all()
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="1 bytes behind"):
        read_sn3_pascalvincent_tensor(str(path))


# --- downloads ---


def test_downloads_only_where_asked_and_whole(tmp_path):
    sums = write_mnist(tmp_path / "mirror", packed=True)
    source = (tmp_path / "mirror" / "MNIST" / "raw").as_uri() + "/"
    bad = (tmp_path / "nowhere").as_uri() + "/"
    mine = type("MNIST", (datasets.MNIST,), {"resources": list(sums.items()), "mirrors": [bad, source]})
    with pytest.raises(RuntimeError, match="Dataset not found"):
        mine(tmp_path / "here")
    assert not (tmp_path / "here").exists()
    assert len(mine(tmp_path / "here", download=True)) == 60 and len(mine(tmp_path / "here", train=False)) == 20
    assert not list((tmp_path / "here").rglob("*.partial"))
    # another checksum: nothing is left behind, and every mirror is named
    wrong = type("MNIST", (mine,), {"resources": [(name, "0" * 32) for name in sums], "mirrors": [source]})
    with pytest.raises(RuntimeError, match=f"(?s)Error downloading train-images.*Tried {source}.*MD5 checksum"):
        wrong(tmp_path / "there", download=True)
    assert not [path for path in (tmp_path / "there").rglob("*") if path.is_file()]


@pytest.mark.parametrize("filters", [True, False])         # Python has filters for tar files since 3.11.4
def test_archives(tmp_path, monkeypatch, filters):
    if filters and not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python extracts tar files without filters")
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("b")
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a", "a")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / "a" / "b.txt", "a/b.txt")
    for name in ("t.tar.gz", "z.zip"):
        there = utils.extract_archive(str(tmp_path / name), str(tmp_path / f"out-{name}"))
        assert (Path(there) / "a" / "b.txt").read_text() == "b" and sorted(Path(there).iterdir()) == [Path(there) / "a"]
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "a" / "b.txt", "../outside.txt")
    with pytest.raises(tarfile.TarError, match=r"\.\./outside\.txt"):
        utils.extract_archive(str(tmp_path / "evil.tar"), str(tmp_path / "in"))
    assert not (tmp_path / "outside.txt").exists() and not list((tmp_path / "in").iterdir())
    (tmp_path / "link").symlink_to("/etc/passwd")
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        archive.add(tmp_path / "link", "a/link")
    with pytest.raises(tarfile.TarError, match="link"):
        utils.extract_archive(str(tmp_path / "link.tar"), str(tmp_path / "in"))
    assert not list((tmp_path / "in").iterdir())
    with pytest.raises(RuntimeError, match="Unknown compression or archive type: '.rar'"):
        utils.extract_archive("x.rar")


# --- CIFAR ---


@pytest.mark.parametrize("kind", [datasets.CIFAR10, datasets.CIFAR100])
def test_cifar(tmp_path, kind):
    mine = write_cifar(tmp_path, kind)
    train, test = mine(tmp_path), mine(tmp_path, train=False)
    assert train.data.shape == (50, 32, 32, 3) and test.data.shape == (20, 32, 32, 3) and len(train.targets) == 50
    picture, label = test[2]
    assert picture.mode == "RGB" and (np.array(picture) == test.data[2]).all() and label == test.targets[2]
    assert train.class_to_idx["class 3"] == 3 and "Split: Train" in repr(train)


def test_a_file_of_cifar_is_not_opened_before_its_checksum_is_right(tmp_path):
    mine = write_cifar(tmp_path, datasets.CIFAR10)

    class Opened:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "opened",))

    (tmp_path / mine.base_folder / "data_batch_3").write_bytes(pickle.dumps(Opened()))
    with pytest.raises(RuntimeError, match="(?s)not found or corrupted.*data_batch_3 has the MD5 .* instead of"):
        mine(tmp_path)
    assert not (tmp_path / "opened").exists()


# --- folders ---


def test_folders_of_pictures(tmp_path):
    write_folders(tmp_path)
    made = datasets.ImageFolder(str(tmp_path))
    assert made.classes == ["ant", "bee"] and made.targets == [0, 0, 0, 1, 1, 1] and made.imgs is made.samples
    assert [path.rpartition("/")[2] for path, _ in made.samples] == ["0.JPEG", "1.png", "2.JPEG"] * 2
    picture, label = made[4]
    assert picture.mode == "RGB" and picture.size == (24, 20) and label == 1
    (tmp_path / "cow").mkdir()
    with pytest.raises(FileNotFoundError, match="no valid file for the classes cow. Supported extensions are: .jpg"):
        datasets.ImageFolder(tmp_path)
    assert len(datasets.ImageFolder(tmp_path, allow_empty=True)) == 6
    texts = datasets.DatasetFolder(tmp_path, lambda path: Path(path).read_text(), (".txt",), allow_empty=True)
    assert texts[0] == ("not a picture", 0)
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder in"):
        datasets.ImageFolder(tmp_path / "cow")
    with pytest.raises(ValueError, match="Both extensions and is_valid_file"):
        datasets.DatasetFolder(tmp_path, str)


def test_bad_pictures_are_named(tmp_path):
    write_folders(tmp_path)
    (tmp_path / "ant" / "3.png").write_bytes(b"no picture")
    whole = (tmp_path / "ant" / "1.png").read_bytes()
    (tmp_path / "ant" / "4.png").write_bytes(whole[:len(whole) // 2])
    made = datasets.ImageFolder(tmp_path)
    for i in (3, 4):
        with pytest.raises(OSError, match=f"{i}.png"):
            made[i]


# --- whole batches ---


def batches(dataset, **settings):
    return [[x.clone(), y.tolist()] for x, y in DataLoader(dataset, batch_size=7, **settings)]


@pytest.mark.parametrize("steps", [
    [transforms.ToTensor()], [transforms.PILToTensor()], PIPELINE.transforms,
    [transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True), transforms.Normalize((0.5,), (0.5,))],
    [transforms.Pad(2), transforms.CenterCrop(20), transforms.ToTensor()],
])
def test_a_batch_is_what_its_samples_are(tmp_path, steps):
    write_mnist(tmp_path)
    made = datasets.MNIST(tmp_path, transform=transforms.Compose(steps))
    asked = []
    made._sample, alone = lambda index: asked.append(index), [made[i] for i in range(len(made))]
    for (x, y), start in zip(batches(made), range(0, 60, 7)):
        assert torch.equal(x, torch.stack([image for image, _ in alone[start:start + 7]]))
        assert y == [label for _, label in alone[start:start + 7]]
    assert not asked                                          # no sample was made by itself


def test_what_is_not_taken_whole(tmp_path):
    write_mnist(tmp_path)

    class Numbered(datasets.MNIST):
        def __getitem__(self, index):
            return *super().__getitem__(index), index

        raw_folder = str(tmp_path / "MNIST" / "raw")

    _, _, numbers = next(iter(DataLoader(Numbered(tmp_path, transform=PIPELINE), batch_size=5)))
    assert numbers.tolist() == [0, 1, 2, 3, 4]
    flat = transforms.Compose([*PIPELINE.transforms, transforms.Lambda(torch.flatten)])
    assert next(iter(DataLoader(datasets.MNIST(tmp_path, transform=flat), batch_size=5)))[0].shape == (5, 784)
    doubled = datasets.MNIST(tmp_path, transform=PIPELINE, target_transform=lambda target: target * 2)
    assert next(iter(DataLoader(doubled, batch_size=60)))[1].tolist() == (doubled.targets * 2).tolist()


def test_evaluation_data_is_not_augmented(tmp_path):
    write_mnist(tmp_path)
    flipped = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    assert len(datasets.MNIST(tmp_path, transform=flipped)) == 60
    with pytest.raises(RuntimeError, match=r"RandomHorizontalFlip\(p=0.5\) is random, and MNIST\(train=False\)"):
        datasets.MNIST(tmp_path, train=False, transform=flipped)
    later = datasets.MNIST(tmp_path, train=False, transform=PIPELINE)
    later.transform = flipped
    for ask in (lambda: later[0], lambda: later.__getitems__([0, 1])):
        with pytest.raises(RuntimeError, match="evaluation data"):
            ask()


def test_random_steps_are_each_samples_own(tmp_path):
    """A batch gives what its samples give one by one, with what each draws from its own stream."""
    from flambeau.utils.data.sample_random import addressing
    mine = write_cifar(tmp_path, datasets.CIFAR10)
    made = mine(tmp_path, transform=transforms.Compose([
        transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.5,) * 3, (0.25,) * 3)]))
    indices = [4, 17, 2, 33, 8]
    with addressing(1, 2, indices):
        whole = made.__getitems__(indices)
    with addressing(1, 2, indices) as batch:
        alone = batch.each(made)
    made.transform.transforms.append(transforms.Lambda(lambda image: image))      # which is not taken whole
    with addressing(1, 2, indices):
        asked = made.__getitems__(indices)
    for one in (alone, asked):
        for (image, label), (own, own_label) in zip(one, whole):
            assert torch.equal(image, own) and label == own_label


@pytest.mark.parametrize("steps", [
    [transforms.RandomCrop(28, padding=3), transforms.RandomHorizontalFlip(), transforms.ToTensor()],      # taken whole
    [transforms.RandAugment(), transforms.Resize(20), transforms.ToTensor()],
])
def test_any_number_of_workers_gives_the_same_bits(tmp_path, steps):
    write_mnist(tmp_path)
    made = datasets.MNIST(tmp_path, transform=transforms.Compose(steps))
    runs = []
    for settings in ({}, {"num_workers": 2, "multiprocessing_context": "thread"}, {"num_workers": 2}):
        torch.manual_seed(5)
        runs.append(batches(made, shuffle=True, **settings))
    for run in runs[1:]:
        assert all(torch.equal(x, other) and y == other_y
                   for (x, y), (other, other_y) in zip(runs[0], run, strict=True))
    torch.manual_seed(6)
    assert not torch.equal(batches(made, shuffle=True)[0][0], runs[0][0][0])


# --- FakeData ---


def test_fake_data():
    made = datasets.FakeData(5, (3, 8, 6), 4, transform=transforms.ToTensor())
    before = torch.get_rng_state()
    image, label = made[2]
    assert image.shape == (3, 8, 6) and type(label) is int and torch.equal(torch.get_rng_state(), before)
    assert torch.equal(made.__getitems__([0, 2])[1][0], image) and made.__getitems__([2])[0][1] == label
    assert torch.equal(datasets.FakeData(5, (3, 8, 6), transform=transforms.ToTensor(), random_offset=2)[0][0], image)
    with pytest.raises(IndexError, match="FakeData index out of range"):
        made[5]
    assert len(list(iter(datasets.FakeData(3, (1, 4, 4))))) == 3


def test_one_or_the_other():
    with pytest.raises(ValueError, match="Only transforms or transform/target_transform can be passed as argument"):
        datasets.VisionDataset(transforms=lambda *sample: sample, transform=str)
    with pytest.raises(NotImplementedError, match="VisionDataset has no __len__"):
        len(datasets.VisionDataset())
    standard = datasets.StandardTransform(PIPELINE, None)
    assert repr(standard).splitlines()[:2] == ["StandardTransform", "Transform: Compose("]
