"""Transforms beside torchvision's: what they print and refuse, the same numbers for what was drawn, and draws from the
same distributions."""
import inspect
import warnings

import numpy as np
import pytest

import flambeau
from flambeau.data import transforms
from flambeau.data.transforms import functional
from flambeau.data.transforms.elsewhere import FUNCTIONS_ELSEWHERE, TRANSFORMS_ELSEWHERE
from tests.data.transforms.table import BY_THEMSELVES, FLOATS_ONLY, SIZES_DRAWN, TABLE, made, named
from tests.torch import real_torchvision
from tests.torch.test_transforms_functional import compare, outcome, picture

v2 = real_torchvision.transforms()
torch = pytest.importorskip("torch")
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import functional as real_v1
from torchvision.transforms.v2 import functional as real

ROWS = TABLE + SIZES_DRAWN


def public(module):
    """What a module has that is torchvision's: classes, functions and constants (an optional module is None)."""
    return {name for name, held in vars(module).items() if not name.startswith("_") and held is not None
            and not inspect.ismodule(held)
            and getattr(held, "__module__", "torchvision").startswith("torchvision")}


def classes(module):
    return {name for name in public(module) if inspect.isclass(getattr(module, name))}


@pytest.mark.parametrize("theirs, ours, elsewhere", [
    (v1, transforms, {}), (v2, transforms, TRANSFORMS_ELSEWHERE), (real_v1, functional, {}),
    (real, functional, FUNCTIONS_ELSEWHERE)], ids=["transforms", "v2", "functional", "v2.functional"])
def test_every_public_name_is_here_or_refused_by_name(theirs, ours, elsewhere):
    assert {name for name in public(theirs) if not hasattr(ours, name)} == set(elsewhere)
    for name in elsewhere:
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': it is for .* pip install torchvision=="):
            getattr(ours, name)


@pytest.mark.parametrize("name", sorted(classes(v2) - set(TRANSFORMS_ELSEWHERE)))
def test_arguments(name):
    """The same names, in the same order, with the same defaults."""
    def shape(module):
        found = inspect.signature(getattr(module, name).__init__)
        return [(p.name, p.kind, p.default if p.default is inspect.Parameter.empty else str(p.default))
                for p in found.parameters.values() if p.name not in ("args", "kwargs")]
    assert shape(transforms) == shape(v2)


@pytest.mark.parametrize("row", [*ROWS, ("JPEG", (30,), {}), ("JPEG", ((20, 90),), {})], ids=named)
def test_what_it_prints(row):
    assert repr(made(transforms, row)) == repr(made(v2, row))


def test_what_containers_print():
    def make(t):
        inner = [t.CenterCrop(3), t.RandomHorizontalFlip()]
        return [t.Compose(inner), t.RandomApply(inner, p=0.2), t.RandomOrder(inner), t.RandomChoice(inner),
                t.Normalize([0.1], [0.2]), t.Lambda(len, int, str), t.ToPILImage("RGB"), t.PILToTensor(), t.ToImage()]
    assert [str(one) for one in make(transforms)] == [str(one) for one in make(v2)]


WRONG = [
    ("Resize", ([1, 2, 3],), {}), ("Resize", (None,), {}), ("CenterCrop", ([1, 2, 3],), {}),
    ("RandomCrop", (3, "x"), {}),
    ("RandomCrop", (3, 1, False, 0, "wrong"), {}), ("RandomCrop", (3, [1, 2, 3]), {}), ("Pad", ("3",), {}),
    ("Pad", (1, 0, "wrong"), {}), ("Pad", (1, "red"), {}), ("RandomResizedCrop", ([1, 2, 3],), {}),
    ("RandomResizedCrop", (3, 0.5), {}), ("RandomResizedCrop", (3, (0.1, 1.0), 1.0), {}), ("RandomRotation", (-3,), {}),
    ("RandomRotation", ([1, 2, 3],), {}), ("RandomRotation", (3,), {"center": [1]}),
    ("RandomRotation", (3,), {"center": 1}),
    ("RandomAffine", (-3,), {}), ("RandomAffine", (3, [2.0, 0]), {}), ("RandomAffine", (3, 0.5), {}),
    ("RandomAffine", (3, None, [0.0, 1.0]), {}), ("RandomAffine", (3, None, None, [1, 2, 3]), {}),
    ("RandomAffine", (3, None, None, -1), {}), ("RandomPerspective", (2,), {}), ("RandomHorizontalFlip", (1.5,), {}),
    ("ColorJitter", (-1,), {}), ("ColorJitter", ([1, 2, 3],), {}), ("ColorJitter", ([2, 1],), {}),
    ("ColorJitter", (), {"hue": 0.7}), ("ColorJitter", ("x",), {}), ("GaussianBlur", (4,), {}),
    ("GaussianBlur", (0,), {}),
    ("GaussianBlur", (3, -1.0), {}), ("GaussianBlur", (3, (2, 1)), {}), ("GaussianBlur", (3, "x"), {}),
    ("GaussianBlur", (3, (1, 2, 3)), {}), ("RandomErasing", (2,), {}), ("RandomErasing", (), {"value": "x"}),
    ("RandomErasing", (), {"value": {}}), ("RandomErasing", (), {"scale": (-1, 1)}),
    ("RandomErasing", (), {"scale": 3}),
    ("RandomErasing", (), {"ratio": 3}), ("ElasticTransform", (), {"alpha": "x"}),
    ("ElasticTransform", ([1, 2, 3],), {}),
    ("ElasticTransform", (), {"sigma": ["x"]}), ("ToDtype", ("float32",), {}), ("Compose", (3,), {}),
    ("Compose", ([],), {}),
    ("RandomApply", (3,), {}), ("RandomApply", ([],), {}), ("RandomApply", ([len], 2.0), {}),
    ("RandomChoice", ([],), {}),
    ("RandomChoice", ([len], [1, 2]), {}), ("RandomOrder", (3,), {}),
    ("RandomZoomOut", (), {"side_range": 2.0}), ("RandomZoomOut", (), {"side_range": (0.5, 2)}),
    ("RandomZoomOut", (), {"side_range": (3, 2)}), ("RandomZoomOut", ("x",), {}), ("RandomZoomOut", (), {"p": 3}),
    ("JPEG", (0,), {}), ("JPEG", (True,), {}), ("JPEG", ((1, 2, 3),), {}), ("JPEG", (2.5,), {}),
    ("JPEG", ((90, 20),), {}), ("JPEG", ((20, 101),), {}), ("JPEG", ((20, 30.0),), {}),
]


@pytest.mark.parametrize("row", WRONG, ids=named)
def test_what_is_refused_when_it_is_made(row):
    ours, theirs = (outcome(lambda module=module: made(module, row)) for module in (transforms, v2))
    assert isinstance(theirs, Exception) and type(ours) is type(theirs), (ours, theirs)
    assert str(ours) == str(theirs)


def test_what_is_refused_when_it_is_called():
    for make, given in ((lambda t: t.RandomCrop(50), (3, 9, 9)), (lambda t: t.RandomCrop(50, padding=3), (3, 9, 9)),
                        (lambda t: t.RandomErasing(1.0, value=[1.0, 2.0]), (3, 9, 9)),
                        (lambda t: t.FiveCrop(50), (3, 9, 9))):
        ours = outcome(lambda: make(transforms)(flambeau.zeros(given)))
        theirs = outcome(lambda: make(v2)(torch.zeros(given)))
        assert type(ours) is type(theirs) and str(ours) == str(theirs), (ours, theirs)
    image = Image.fromarray(picture((9, 9, 3), "uint8"))
    for module in (transforms, v2):
        with pytest.raises(TypeError, match=r"Normalize\(\) does not support PIL images"):
            module.Normalize([0.5], [0.5])(image)


# --- the same numbers for what was drawn ------------------------------------------------------------------------------


def jitter_by_torchvision(image, params, i):
    names = ("brightness", "contrast", "saturation", "hue")
    for number in params["fn_idx"][i].tolist():
        factor = params[f"{names[number]}_factor"]
        if factor is not None:
            image = getattr(real, f"adjust_{names[number]}")(image, float(factor[i]))
    return image


def distort_by_torchvision(image, params, i):
    names = ("brightness", "contrast", "saturation", "hue")
    for number in params["fn_idx"][i].tolist():
        if number >= 0:
            image = getattr(real, f"adjust_{names[number]}")(image, float(params[f"{names[number]}_factor"][i]))
    return real.permute_channels(image, params["permutation"][i].tolist())


def resize_by_torchvision(transform, image, params, i):
    return real.resize(image, params["size"][i].tolist(), transform.interpolation, antialias=transform.antialias)


def crop_by_torchvision(transform, image, params, i):
    around = params["padding"][i].tolist()
    if any(around):
        image = real.pad(image, around, transform.fill, transform.padding_mode)
    return real.crop(image, *[int(params[name][i]) for name in ("top", "left", "height", "width")])


def erase_by_torchvision(image, params, i):
    top, left, height, width = (int(params[name][i]) for name in "ijhw")
    value = torch.tensor(params["v"].numpy())
    if value.ndim == 4 or value.shape[-1] > 1:
        value = (value[i] if value.ndim == 4 else value)[..., top:top + height, left:left + width]
    return real.erase(image, top, left, height, width, value) if height and width else image


# how torchvision computes a transform `t` of an image from what was drawn, `p`, of sample `i`
BY_TORCHVISION = {
    "RandomHorizontalFlip": lambda t, x, p, i: real.horizontal_flip(x),
    "RandomVerticalFlip": lambda t, x, p, i: real.vertical_flip(x),
    "RandomCrop": crop_by_torchvision,
    "RandomResizedCrop": lambda t, x, p, i: real.resized_crop(
        x, *[int(p[name][i]) for name in ("top", "left", "height", "width")], t.size, t.interpolation, t.antialias),
    "RandomRotation": lambda t, x, p, i: real.rotate(x, float(p["angle"][i]), t.interpolation, t.expand, t.center,
    t.fill),
    "RandomAffine": lambda t, x, p, i: real.affine(
        x, float(p["angle"][i]), p["translate"][i].tolist(), float(p["scale"][i]), p["shear"][i].tolist(),
        t.interpolation, t.fill, t.center),
    "RandomPerspective": lambda t, x, p, i: real.perspective(
        x, None, None, t.interpolation, t.fill, p["coefficients"][i].tolist()),
    "ElasticTransform": lambda t, x, p, i: real.elastic(
        x, torch.tensor(p["displacement"][i:i + 1].numpy()), t.interpolation, t.fill),
    "ColorJitter": lambda t, x, p, i: jitter_by_torchvision(x, p, i),
    "RandomGrayscale": lambda t, x, p, i: real.rgb_to_grayscale(x, 3),
    "RandomChannelPermutation": lambda t, x, p, i: real.permute_channels(x, p["permutation"][i].tolist()),
    "RandomInvert": lambda t, x, p, i: real.invert(x),
    "RandomPosterize": lambda t, x, p, i: real.posterize(x, t.bits),
    "RandomSolarize": lambda t, x, p, i: real.solarize(x, t.threshold),
    "RandomAutocontrast": lambda t, x, p, i: real.autocontrast(x),
    "RandomEqualize": lambda t, x, p, i: real.equalize(x),
    "RandomAdjustSharpness": lambda t, x, p, i: real.adjust_sharpness(x, t.sharpness_factor),
    "GaussianBlur": lambda t, x, p, i: real.gaussian_blur(x, list(t.kernel_size), p["sigma"][i].tolist()),
    "RandomErasing": lambda t, x, p, i: erase_by_torchvision(x, p, i),
    "RandomPhotometricDistort": lambda t, x, p, i: distort_by_torchvision(x, p, i),
    "RandomZoomOut": lambda t, x, p, i: real.pad(x, p["padding"][i].tolist(), t.fill),
    "ScaleJitter": resize_by_torchvision, "RandomShortestSize": resize_by_torchvision,
    "RandomResize": resize_by_torchvision,
}
DRAWN = [row for row in TABLE if row[0] in BY_TORCHVISION]


def test_every_random_transform_is_compared():
    told = {name for name in classes(v2) - set(TRANSFORMS_ELSEWHERE)
            if getattr(getattr(transforms, name), "is_random", False)}
    missing = told - set(BY_TORCHVISION) - BY_THEMSELVES - {"GaussianNoise"}         # a function, which is compared
    assert not missing, f"BY_TORCHVISION, above, has no function for {', '.join(sorted(missing))}"


def test_jpeg():
    """torchvision compresses tensors by compiled code, which may not be there, and Pillow's images by Pillow: the same
    to one level, it says. Ours are Pillow's for both."""
    transform, array = transforms.JPEG((10, 95)), picture((4, 3, 37, 41), "uint8")
    batch = flambeau.tensor(array)
    params = transform.make_params([batch])
    assert len(set(params["quality"].tolist())) > 1
    made_at_once = transform._results([batch], [True], params)[0].numpy()
    for image, quality, ours in zip(array, params["quality"].tolist(), made_at_once, strict=True):
        pillow = Image.fromarray(image.transpose(1, 2, 0).copy())
        wanted = np.array(real.jpeg(pillow, quality))
        compare([ours], [wanted.transpose(2, 0, 1)])
        compare([np.array(functional.jpeg(pillow, quality))], [wanted])
    grey = picture((1, 20, 21), "uint8")
    wanted = np.array(real.jpeg(Image.fromarray(grey[0]), 30))
    compare([functional.jpeg(flambeau.tensor(grey), 30).numpy()], [wanted[None]])
    with pytest.raises(RuntimeError, match="dtype should be uint8"):
        functional.jpeg(flambeau.rand(3, 8, 8), 30)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("row", DRAWN, ids=named)
def test_batches(row, kind):
    transform = made(transforms, row)
    if row[0] in FLOATS_ONLY and kind == "uint8":
        pytest.skip("the table's numbers are between 0 and 1")
    array = picture((5, 3, 37, 41), kind)
    flambeau.manual_seed(3)
    batch = flambeau.tensor(array)
    params = transform.make_params([batch])
    flat = transform._results([batch], [True], params)
    wanted = []
    for i in range(5):
        image = torch.tensor(array[i])
        on = params["applied"][i] if "applied" in params else True
        wanted.append((BY_TORCHVISION[row[0]](transform, image, params, i) if on else image).numpy())
    compare([flat[0].numpy()], [np.stack(wanted)], 1 if row[0] in ("GaussianBlur", "ElasticTransform") else 0)


@pytest.mark.parametrize("row", [row for row in DRAWN if row[0] not in FLOATS_ONLY]
                         + SIZES_DRAWN, ids=named)
def test_pillow(row):
    transform = made(transforms, row)
    image = Image.fromarray(picture((37, 41, 3), "uint8"))
    for seed in range(3):
        flambeau.manual_seed(seed)
        params = transform.make_params([image])
        flat = transform._results([image], [True], params)
        on = params["applied"][0] if "applied" in params else True
        wanted = BY_TORCHVISION[row[0]](transform, image, params, 0) if on else image
        compare([np.array(flat[0])], [np.array(wanted)], 1 if row[0] == "ElasticTransform" else 0)


@pytest.mark.parametrize("row", SIZES_DRAWN, ids=named)
def test_sizes_that_are_drawn(row):
    """A single image has the size that it drew; a batch, whose samples drew several, is refused."""
    transform, array = made(transforms, row), picture((3, 37, 41), "uint8")
    for seed in range(4):
        flambeau.manual_seed(seed)
        params = transform.make_params([flambeau.tensor(array)])
        flat = transform._results([flambeau.tensor(array)], [True], params)
        image = torch.tensor(array)
        on = params["applied"][0] if "applied" in params else True
        wanted = BY_TORCHVISION[row[0]](transform, image, params, 0) if on else image
        compare([flat[0].numpy()], [wanted.numpy()])
    with pytest.raises(ValueError, match="the samples of a batch keep one shape, and these have drawn"):
        transform(flambeau.zeros(8, 3, 37, 41))


@pytest.mark.parametrize("row", [row for row in TABLE if row not in DRAWN and row[0] != "GaussianNoise"], ids=named)
def test_what_draws_nothing(row):
    for kind in ("uint8", "float32"):
        for shape in ((3, 37, 41), (2, 3, 37, 41)) if row[0] != "UniformTemporalSubsample" else ((5, 3, 9, 9),):
            array = picture(shape, kind)
            compare(outcome(lambda: made(transforms, row)(flambeau.tensor(array))),
                    outcome(lambda: made(v2, row)(torch.tensor(array))))
    image = Image.fromarray(picture((37, 41, 3), "uint8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(outcome(lambda: made(transforms, row)(image)), outcome(lambda: made(v2, row)(image)))


# --- draws from the same distributions --------------------------------------------------------------------------------


SAMPLES = 2000


def theirs(transform, image, names):
    torch.manual_seed(0)
    drawn = [transform.make_params([image]) for _ in range(SAMPLES)]
    return {name: np.array([np.asarray(one[name], float).ravel() for one in drawn]) for name in names}


@pytest.mark.parametrize("row, names", [
    (("RandomCrop", (20,), {}), ["top", "left"]),
    (("RandomResizedCrop", (16,), {}), ["top", "left", "height", "width"]),
    (("RandomResizedCrop", (16,), {"scale": (0.5, 1.0), "ratio": (0.3, 4.0)}), ["top", "left", "height", "width"]),
    (("RandomRotation", ((-10, 40),), {}), ["angle"]),
    (("RandomAffine", (30,), {"translate": (0.2, 0.1), "scale": (0.7, 1.3), "shear": (-5, 5, -10, 10)}),
     ["angle", "translate", "scale", "shear"]),
    (("RandomPerspective", (0.6,), {}), ["coefficients"]),
    (("ColorJitter", (0.4, 0.5, 0.6, 0.2), {}),
     ["fn_idx", "brightness_factor", "contrast_factor", "saturation_factor", "hue_factor"]),
    (("GaussianBlur", (3,), {}), ["sigma"]),
    (("RandomErasing", (), {"value": 1.0}), ["i", "j", "h", "w"]),
    (("RandomZoomOut", (), {}), ["padding"]), (("ScaleJitter", ((30, 40),), {}), ["size"]),
    (("RandomShortestSize", ([17, 25, 30], 31), {}), ["size"]), (("RandomResize", (9, 50), {}), ["size"]),
    (("JPEG", ((20, 90),), {}), ["quality"]),
], ids=str)
def test_distributions(row, names):
    """Two samples of each number that is drawn, by the test of Kolmogorov and Smirnov."""
    flambeau.manual_seed(1)
    ours = made(transforms, row).draw(SAMPLES, [flambeau.zeros(3, 37, 41)], transforms.base.streams(SAMPLES))
    real_draws = theirs(made(v2, row), torch.zeros(3, 37, 41), names)
    for name in names:
        mine, other = np.asarray(ours[name], float).reshape(SAMPLES, -1), real_draws[name]
        assert mine.shape == other.shape, name
        for column in range(mine.shape[1]):
            a, b = np.sort(mine[:, column]), np.sort(other[:, column])
            # what differs in rounding alone is one value; and a value drawn by both counts once
            a, b = a.round(9), b.astype(np.float32).astype(float).round(6)
            a = a.astype(np.float32).astype(float).round(6)
            places = np.unique(np.concatenate([a, b]))
            gap = np.abs(np.searchsorted(a, places, "right") - np.searchsorted(b, places, "right")).max() / SAMPLES
            assert gap < 1.95 * np.sqrt(2 / SAMPLES), (name, column, gap)          # once in a thousand


def test_how_often():
    for p in (0.0, 0.25, 1.0):
        flambeau.manual_seed(0)
        applied = transforms.RandomHorizontalFlip(p).make_params([flambeau.zeros(4000, 1, 1, 1)])["applied"]
        assert abs(applied.mean() - p) < 0.03 and (0 < p < 1 or applied.mean() == p)
