"""Datasets and drawn pictures beside torchvision's: what is read from the same files, words, errors, and pixels."""
import inspect
import re

import numpy as np
import pytest

import flambeau
from flambeau.data import datasets as ours, pictures
from tests.data.on_disk import digits, write_cifar, write_folders, write_mnist
from tests.torch.real_torchvision import real_torchvision

torchvision = real_torchvision()
torch = pytest.importorskip("torch")
from torchvision import datasets as theirs, utils


def both(name):
    return getattr(ours, name), getattr(theirs, name)


def compared(mine, real):
    """Every sample of both is the same."""
    assert len(mine) == len(real) and repr(mine) == repr(real)
    for (picture, label), (real_picture, real_label) in zip(mine, real):
        assert picture.mode == real_picture.mode and (np.array(picture) == np.array(real_picture)).all()
        assert label == real_label and type(label) is type(real_label)


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST", "EMNIST"])
@pytest.mark.parametrize("train", [True, False])
def test_idx_files(tmp_path, name, train):
    prefix = ("emnist-digits-train", "emnist-digits-test") if name == "EMNIST" else ("train", "t10k")
    write_mnist(tmp_path, name, prefix=prefix)
    more = {"split": "digits"} if name == "EMNIST" else {}
    mine, real = (kind(str(tmp_path), train=train, **more) for kind in both(name))
    compared(mine, real)
    assert mine.classes == real.classes and mine.class_to_idx == real.class_to_idx
    assert mine.raw_folder == real.raw_folder
    assert (mine.data.numpy() == real.data.numpy()).all() and str(mine.targets.dtype) == str(real.targets.dtype)
    for old in ("train_labels", "test_data"):
        with pytest.warns(UserWarning, match="renamed"):
            getattr(mine, old)


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_cifar(tmp_path, name):
    mine, real = (write_cifar(tmp_path, kind)(str(tmp_path)) for kind in both(name))
    compared(mine, real)
    assert mine.classes == real.classes and mine.targets == real.targets and (mine.data == real.data).all()


def test_folders(tmp_path):
    write_folders(tmp_path)
    mine, real = (kind(str(tmp_path)) for kind in both("ImageFolder"))
    compared(mine, real)
    assert mine.samples == real.samples and mine.class_to_idx == real.class_to_idx and mine.targets == real.targets


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("settings", [{"image_size": (3, 9, 7), "random_offset": 3},
                                      {"image_size": (1, 40, 30), "target_transform": lambda target: target + 1}])
def test_fake_data(settings):
    mine, real = (kind(6, num_classes=5, **settings) for kind in both("FakeData"))
    for (picture, label), (real_picture, real_label) in zip(mine, real):
        # randn agrees to 1e-6, so that a number next to a whole one may be cut off to the one below
        differ = (np.array(picture).astype(int) - np.array(real_picture)) % 256
        assert set(np.unique(differ)) <= {0, 1, 255} and (differ == 0).mean() > 0.99
        assert picture.mode == real_picture.mode
        assert label == real_label and type(label) is type(real_label)


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100", "DatasetFolder", "EMNIST", "FakeData", "FashionMNIST",
                                  "ImageFolder", "KMNIST", "MNIST", "VisionDataset"])
def test_signatures(name):
    mine, real = (inspect.signature(kind) for kind in both(name))
    assert list(mine.parameters) == list(real.parameters)
    for one, other in zip(mine.parameters.values(), real.parameters.values()):
        assert one.kind == other.kind
        assert one.default == other.default or callable(one.default)
    public = {name for name in dir(both(name)[1]) if not name.startswith("_")}
    assert public <= {name for name in dir(both(name)[0]) if not name.startswith("_")} | {"functions"}


@pytest.mark.parametrize("call", [
    lambda d, path: d.MNIST(path), lambda d, path: d.CIFAR10(path), lambda d, path: d.ImageFolder(path),
    lambda d, path: d.ImageFolder(path / "nowhere"), lambda d, path: d.EMNIST(path, "greek"),
    lambda d, path: d.EMNIST(path, 3), lambda d, path: d.FakeData(2)[2],
    lambda d, path: d.DatasetFolder(path / "a", str),
    lambda d, path: d.DatasetFolder(path / "a", str, (".png",), is_valid_file=str),
    lambda d, path: d.ImageFolder(path / "a"), lambda d, path: d.folder.make_dataset(path / "a", {}, ".png"),
    lambda d, path: d.DatasetFolder.make_dataset(path / "a", None, ".png"),
    lambda d, path: d.utils.extract_archive(str(path / "x.rar")),
    lambda d, path: d.utils.extract_archive(str(path / "x")),
    lambda d, path: d.VisionDataset(transforms=str, transform=str),
])
def test_refusals(tmp_path, call):
    (tmp_path / "a" / "b").mkdir(parents=True)
    raised = []
    for module in (ours, theirs):
        with pytest.raises(Exception) as error:
            call(module, tmp_path)
        raised.append((type(error.value), str(error.value)))
    assert raised[0][0] is raised[1][0], raised
    assert raised[0][1].startswith(raised[1][1].split(".")[0]), raised


# --- pictures ---


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(0.4, 0.5, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(9, 3, 5, 7), (1, 3, 5, 7), (2, 1, 5, 7), (3, 5, 7), (1, 5, 7), (5, 7),
                                   (8, 4, 2, 2)])
@pytest.mark.parametrize("settings", [
    {}, {"nrow": 3, "padding": 0}, {"normalize": True}, {"pad_value": 0.5, "nrow": 2},
    {"normalize": True, "scale_each": True}, {"normalize": True, "value_range": (0, 1)}])
def test_grids(shape, settings):
    array = floats(*shape)
    mine = pictures.make_grid(flambeau.from_numpy(array), **settings)
    real = utils.make_grid(torch.from_numpy(array), **settings)
    assert mine.shape == tuple(real.shape) and np.abs(mine.numpy() - real.numpy()).max() < 1e-6
    assert (flambeau.from_numpy(array).numpy() == array).all()


def test_grids_of_lists_and_bytes():
    array = digits(5)[0][:, None]
    mine = pictures.make_grid([flambeau.from_numpy(one) for one in array], nrow=2, pad_value=9)
    real = utils.make_grid([torch.from_numpy(one) for one in array], nrow=2, pad_value=9)
    assert (mine.numpy() == real.numpy()).all()
    for wrong in (3, [3]):
        for make in (pictures.make_grid, utils.make_grid):
            with pytest.raises(TypeError, match="tensor or list of tensors expected, got"):
                make(wrong)


@pytest.mark.parametrize("name", ["x.png", "x.bmp"])
def test_saved_pictures(tmp_path, name):
    array = floats(6, 3, 9, 8)
    pictures.save_image(flambeau.from_numpy(array), tmp_path / f"mine-{name}", nrow=4, normalize=True)
    utils.save_image(torch.from_numpy(array), tmp_path / f"real-{name}", nrow=4, normalize=True)
    assert (tmp_path / f"mine-{name}").read_bytes() == (tmp_path / f"real-{name}").read_bytes()


IMAGE = (np.random.default_rng(1).random((3, 40, 50)) * 255).astype(np.uint8)
BOXES = np.array([[3, 4, 20, 30], [10, 2, 45, 39], [0, 0, 5, 5]], np.float32)


@pytest.mark.parametrize("settings", [
    {}, {"width": 3, "colors": "red"}, {"fill": True, "colors": ["red", (0, 255, 0), "#0000ff"]},
    {"labels": ["one", None, "three"]}, {"labels": ["a", "b", "c"], "fill_labels": True, "label_colors": "white"},
    {"labels": ["a", "b", "c"], "fill_labels": True, "label_background_colors": ["red", "blue", "black"]},
])
@pytest.mark.parametrize("kind", ["bytes", "floats", "grey"])
def test_boxes(settings, kind):
    image = {"bytes": IMAGE, "floats": (IMAGE / 255).astype(np.float32), "grey": IMAGE[:1]}[kind]
    mine = pictures.draw_bounding_boxes(flambeau.from_numpy(image), flambeau.from_numpy(BOXES), **settings)
    real = utils.draw_bounding_boxes(torch.from_numpy(image), torch.from_numpy(BOXES), **settings)
    assert str(mine.dtype) == str(real.dtype) and np.abs(mine.numpy() - real.numpy().astype(float)).max() < 1e-6


def test_turned_boxes():
    boxes = np.array([[10, 10, 30, 15, 26, 33, 6, 28]], np.float32)
    mine = pictures.draw_bounding_boxes(flambeau.from_numpy(IMAGE), flambeau.from_numpy(boxes), colors="red")
    real = utils.draw_bounding_boxes(torch.from_numpy(IMAGE), torch.from_numpy(boxes), colors="red")
    # where a dash ends differs by a rounding of its place
    assert (mine.numpy() != real.numpy()).any(0).sum() <= 4


@pytest.mark.parametrize("settings", [{}, {"alpha": 0.3, "colors": "blue"}, {"colors": ["red", (1, 2, 3)]}])
@pytest.mark.parametrize("floating", [False, True])
def test_masks(settings, floating):
    image = (IMAGE / 255).astype(np.float32) if floating else IMAGE
    masks = np.random.default_rng(2).random((2, 40, 50)) > 0.6
    for each in (masks, masks[0]):
        mine = pictures.draw_segmentation_masks(flambeau.from_numpy(image), flambeau.from_numpy(each), **settings)
        real = utils.draw_segmentation_masks(torch.from_numpy(image), torch.from_numpy(each), **settings)
        assert np.abs(mine.numpy() - real.numpy().astype(float)).max() < 1e-6


@pytest.mark.parametrize("settings", [{}, {"connectivity": [(0, 1), (1, 2)], "colors": "red", "radius": 3, "width": 1}])
def test_points(settings):
    points = np.array([[[5, 6], [20, 22], [40, 10]], [[8, 30], [12, 33], [45, 35]]], np.float32)
    seen = np.array([[1, 1, 0], [1, 1, 1]], bool)
    mine = pictures.draw_keypoints(flambeau.from_numpy(IMAGE), flambeau.from_numpy(points),
                                   visibility=flambeau.from_numpy(seen), **settings)
    real = utils.draw_keypoints(torch.from_numpy(IMAGE), torch.from_numpy(points), visibility=torch.from_numpy(seen),
                                **settings)
    assert (mine.numpy() == real.numpy()).all()


def test_flows():
    flow = floats(2, 2, 13, 17)
    for each in (flow, flow[0]):
        mine, real = pictures.flow_to_image(flambeau.from_numpy(each)), utils.flow_to_image(torch.from_numpy(each))
        assert np.abs(mine.numpy().astype(int) - real.numpy()).max() <= 1
        assert (mine.numpy() == real.numpy()).mean() > 0.99


@pytest.mark.parametrize("call", [
    lambda u, t, x: u.draw_bounding_boxes(3, x), lambda u, t, x: u.draw_bounding_boxes(x, t.zeros(1, 4)),
    lambda u, t, x: u.draw_bounding_boxes(x[0].int(), t.zeros(1, 4)),
    lambda u, t, x: u.draw_bounding_boxes(x[0], t.tensor([[5, 5, 1, 1]])),
    lambda u, t, x: u.draw_bounding_boxes(x[0], t.zeros(2, 4), labels=["a"]),
    lambda u, t, x: u.draw_bounding_boxes(x[0], t.zeros(2, 4), colors=["red"]),
    lambda u, t, x: u.draw_bounding_boxes(x[0], t.zeros(2, 4), colors=(1, 2)),
    lambda u, t, x: u.draw_segmentation_masks(x[0], t.zeros(5, 5)),
    lambda u, t, x: u.draw_segmentation_masks(x[0], t.zeros(5, 5, dtype=t.bool)),
    lambda u, t, x: u.draw_segmentation_masks(x[0], t.zeros(1, 1, 8, 8, dtype=t.bool)),
    lambda u, t, x: u.draw_keypoints(x[0], t.zeros(3, 2)),
    lambda u, t, x: u.draw_keypoints(x[0], t.zeros(1, 3, 2), visibility=t.zeros(1, 2)),
    lambda u, t, x: u.flow_to_image(t.zeros(3, 4, 4)), lambda u, t, x: u.flow_to_image(t.zeros(2, 4, 4).double()),
    lambda u, t, x: u.make_grid(x, normalize=True, value_range=[0, 1]),
])
def test_what_cannot_be_drawn(call):
    raised = []
    for module, library in ((pictures, flambeau), (utils, torch)):
        with pytest.raises(Exception) as error:
            call(module, library, library.zeros(2, 3, 8, 8))
        raised.append((type(error.value), re.sub(r"flambeau\.[\w.]*Tensor|torch\.Tensor", "Tensor", str(error.value))))
    assert raised[0] == raised[1]


def test_names():
    assert set(pictures.__all__) == {name for name in utils.__all__ if not name.startswith("_")}
