"""The functions of images beside torchvision's: tensors and Pillow's images, bytes and floats, odd sizes, batches."""
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.data.transforms import functional as F
from tests.thorough import sample
from tests.torch import real_torchvision

real_torchvision.transforms()
torch = pytest.importorskip("torch")
from PIL import Image
from torchvision.transforms.v2 import functional as real

SHAPES = [(3, 37, 41), (2, 3, 37, 41), (1, 37, 41), (2, 2, 3, 37, 41)]
KINDS = ["uint8", "float32", "float64"]
CORNERS = [[0, 0], [40, 0], [40, 36], [0, 36]], [[3, 4], [37, 1], [33, 30], [2, 35]]


def calls():
    """(name, positional and named arguments)"""
    def call(name, *args, **kwargs): return name, args, kwargs
    yield from [call("adjust_brightness", 1.3), call("adjust_brightness", 0.4), call("adjust_contrast", 1.7),
                call("adjust_contrast", 0.3), call("adjust_saturation", 0.6), call("adjust_saturation", 1.6),
                call("adjust_hue", 0.2), call("adjust_hue", -0.45), call("adjust_sharpness", 0.3),
                call("adjust_sharpness", 1.9), call("adjust_gamma", 0.7), call("adjust_gamma", 2.0, 1.5),
                call("posterize", 3), call("posterize", 8), call("autocontrast"), call("equalize"), call("invert"),
                call("rgb_to_grayscale"), call("rgb_to_grayscale", 3), call("grayscale_to_rgb"),
                call("horizontal_flip"), call("vertical_flip"),
                call("permute_channels", [2, 0, 1]), call("gaussian_blur", 5),
                call("gaussian_blur", [3, 7], [0.4, 2.0]),
                call("center_crop", [20, 20]), call("center_crop", [50, 20]), call("center_crop", [7]),
                call("crop", 3, 4, 10, 12), call("crop", -3, -4, 50, 60), call("crop", 30, 30, 20, 30),
                call("pad", 3), call("pad", [1, 2], fill=7), call("pad", [1, 2, 3, 4], fill=[1.0, 2.0, 3.0]),
                call("pad", [1, 2, 3, 4], padding_mode="edge"), call("pad", [1, 2, 3, 4], padding_mode="reflect"),
                call("pad", [1, 2, 3, 4], padding_mode="symmetric"), call("pad", [-1, 2, 3, -2]),
                call("pad", [-1, 2, 3, -2], padding_mode="symmetric"), call("five_crop", [9, 8]),
                call("ten_crop", 11, vertical_flip=True), call("resize", 20, max_size=25),
                call("resize", None, max_size=25), call("resized_crop", 3, 4, 20, 17, [24, 24]),
                call("resized_crop", 3, 4, 20, 17, [8, 9], interpolation="bicubic"), call("get_dimensions"),
                call("get_size"), call("get_num_channels")]
    for size in ([20], [20, 50], [64, 13], [74, 82], [37, 20], [100], [5, 5]):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos"):
            for antialias in (True, False)[:1 if mode == "lanczos" else 2]:
                yield call("resize", size, interpolation=mode, antialias=antialias)
    for mode in ("nearest", "bilinear"):
        for fill in (None, 0, [1.0, 2.0, 3.0]):
            for angle in (0, 90, 180, 270, 13, -33.3):
                yield call("rotate", angle, interpolation=mode, fill=fill)
                yield call("rotate", angle, interpolation=mode, fill=fill, expand=True)
                yield call("affine", angle, [3, -2], 1.2, [10.0, -5.0], interpolation=mode, fill=fill)
                yield call("affine", angle, [0, 0], 0.7, [0.0, 0.0], interpolation=mode, fill=fill, center=[5, 7])
            yield call("perspective", *CORNERS, interpolation=mode, fill=fill)


def test_every_function_is_compared():
    """By a call above, or in a test of its own here or in the file of the transforms."""
    here = Path(__file__)
    text = "".join(path.read_text(encoding="utf-8") for path in (here, here.with_name("test_transforms.py")))
    missing = [name for name in F.IMAGE_FORMS if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"calls(), above, has none of {', '.join(missing)}"


CASES = [(*one, shape, kind) for one in calls() for shape in SHAPES for kind in KINDS]


def told(case):
    name, args, kwargs, *rest = case
    return f"{name}({', '.join([*map(repr, args), *[f'{k}={v!r}' for k, v in kwargs.items()]])}) {rest}"


def picture(shape, kind):
    rng = np.random.default_rng(len(shape))
    made = rng.integers(0, 256, shape).astype(np.uint8)
    made[..., :9, :9] = 200
    return made if kind == "uint8" else (made / 255).astype(kind)


def outcome(run):
    """What it gives as arrays, or the class of what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = run()
        except Exception as error:
            return error
    return [np.array(one) if isinstance(one, Image.Image) or not hasattr(one, "numpy") else one.numpy()
            for one in (made if isinstance(made, tuple) else [made])]


# float32: sums in another order. Bytes are exact but where a sum of floats that ends in a half is rounded.
# In these a product and a sum may be rounded as one; whether PyTorch does that is a matter of the processor.
ROUNDED = {"gaussian_blur": 1, "adjust_gamma": 1, "affine": 1}


def compare(ours, theirs, levels=0):
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{theirs!r}, and ours: {ours!r}"
        return
    assert not isinstance(ours, Exception), ours
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6)
        else:
            apart = np.abs(a.astype(int) - b.astype(int))
            assert apart.max(initial=0) <= levels and (apart > 0).mean() < 1e-3, (apart.max(), (apart > 0).mean())


@pytest.mark.parametrize("case", sample(CASES, 7), ids=told)
def test_tensors(case):
    name, args, kwargs, shape, kind = case
    array = picture(shape, kind)
    compare(outcome(lambda: getattr(F, name)(flambeau.tensor(array), *args, **kwargs)),
            outcome(lambda: getattr(real, name)(torch.tensor(array), *args, **kwargs)), ROUNDED.get(name, 0))


@pytest.mark.parametrize("threshold", [0, 100, 255])
def test_solarize(threshold):
    for kind in KINDS:
        array = picture(SHAPES[1], kind)
        bound = threshold if kind == "uint8" else threshold / 255
        compare(outcome(lambda: F.solarize(flambeau.tensor(array), bound)),
                outcome(lambda: real.solarize(torch.tensor(array), bound)))


PILLOW = [one for one in calls() if one[0] != "adjust_gamma" or len(one[1]) == 1]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("case", sample(PILLOW, 3), ids=told)
def test_pillow(case, mode):
    name, args, kwargs = case
    array = picture((37, 41, 3) if mode == "RGB" else (37, 41), "uint8")
    image = Image.fromarray(array)
    compare(outcome(lambda: getattr(F, name)(image, *args, **kwargs)),
            outcome(lambda: getattr(real, name)(image, *args, **kwargs)))


# --- one number for each sample ---------------------------------------------------------------------------------------


EACH = {
    "adjust_brightness": lambda rng: (rng.uniform(0.2, 2, 5),),
    "adjust_contrast": lambda rng: (rng.uniform(0.2, 2, 5),),
    "adjust_saturation": lambda rng: (rng.uniform(0.2, 2, 5),), "adjust_hue": lambda rng: (rng.uniform(-0.5, 0.5, 5),),
    "adjust_sharpness": lambda rng: (rng.uniform(0, 3, 5),), "adjust_gamma": lambda rng: (rng.uniform(0.3, 3, 5),),
    "posterize": lambda rng: (rng.integers(0, 9, 5),), "rotate": lambda rng: (rng.uniform(-180, 180, 5),),
    "affine": lambda rng: (rng.uniform(-180, 180, 5), rng.integers(-9, 9, (5, 2)), rng.uniform(0.5, 2, 5),
                           rng.uniform(-30, 30, (5, 2))),
    "resized_crop": lambda rng: (rng.integers(0, 9, 5), rng.integers(0, 9, 5), rng.integers(1, 28, 5),
                                 rng.integers(1, 30, 5), [17, 19]),
    "crop": lambda rng: (rng.integers(-5, 9, 5), rng.integers(-5, 9, 5), 22, 25),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EACH)
def test_a_number_for_each_sample(name, kind):
    array, rng = picture((5, 3, 37, 41), kind), np.random.default_rng(3)
    args = EACH[name](rng)

    def of(i, arg): return arg if not isinstance(arg, np.ndarray) else arg[i].tolist()
    one_by_one = [getattr(real, name)(torch.tensor(array[i]), *[of(i, arg) for arg in args]).numpy() for i in range(5)]
    compare(outcome(lambda: getattr(F, name)(flambeau.tensor(array), *args)), [np.stack(one_by_one)],
            ROUNDED.get(name, 0))


# --- conversions ------------------------------------------------------------------------------------------------------


DTYPES = ["uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_to_dtype(source, target):
    rng = np.random.default_rng(0)
    array = rng.random((3, 5, 7)).astype(source) if source.startswith("float") else \
        rng.integers(0, np.iinfo(source).max, (3, 5, 7), endpoint=True).astype(source)
    beyond = source == "float16" and target in ("int32", "int64")        # full brightness there is beyond float16
    for scale in (False, True)[:1 if beyond else 2]:
        ours = outcome(lambda: F.to_dtype(flambeau.tensor(array), getattr(flambeau, target), scale))
        theirs = outcome(lambda: real.to_dtype(torch.tensor(array), getattr(torch, target), scale))
        compare(ours, theirs)


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "I", "F", "LA", "RGBA", "CMYK", "P", "HSV", "I;16"])
def test_pictures_and_tensors(mode):
    array = picture((9, 11, 3), "uint8")
    image = Image.fromarray(array)
    image = image.convert("L").convert("I").convert(mode) if mode == "I;16" else image.convert("L").convert(mode) \
        if mode in ("I", "F", "LA") else image.convert(mode)
    for name in ("pil_to_tensor", "to_tensor", "to_image"):
        real_form = getattr(real, name)
        compare(outcome(lambda: getattr(F, name)(image)), outcome(lambda: real_form(image)))
    ours, theirs = (outcome(lambda f=f: f.to_pil_image(f.pil_to_tensor(image), mode=image.mode)) for f in (F, real))
    compare(ours, theirs)


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 5, 7), (2, 5, 7), (4, 5, 7), (5, 5, 7), (5, 7), (7,), (1, 3, 5, 7)])
@pytest.mark.parametrize("kind", ["uint8", "float32", "int16", "int32", "int64"])
@pytest.mark.parametrize("mode", [None, "RGB", "L", "F", "YCbCr"])
def test_to_pil_image(shape, kind, mode):
    array = picture(shape, "float32" if kind == "float32" else "uint8") if len(shape) > 1 else np.zeros(shape)
    array = array.astype(kind)

    def run(f, make):
        made = f.to_pil_image(make(array), mode=mode)
        return flambeau.tensor(np.frombuffer(made.mode.encode() + made.tobytes(), np.uint8).copy())
    compare(outcome(lambda: run(F, flambeau.tensor)), outcome(lambda: run(real, torch.tensor)))


# --- refusals ---------------------------------------------------------------------------------------------------------


WRONG = [
    ("adjust_brightness", (-1.0,)), ("adjust_contrast", (-0.1,)), ("adjust_saturation", (-2,)), ("adjust_hue", (0.6,)),
    ("adjust_gamma", (-1,)), ("posterize", (9,)), ("posterize", (2.5,)), ("solarize", (300,)),
    ("rgb_to_grayscale", (2,)),
    ("resize", ([3, 4], "wrong")), ("resize", ([3, 4], 2, 5)), ("resize", (10, "bilinear", 5)), ("resize", (None,)),
    ("rotate", (30, "bicubic")), ("rotate", (30, "nearest", False, None, [1.0, 2.0])), ("affine", (0, 3, 1.0, [0, 0])),
    ("affine", (0, [1, 2, 3], 1.0, [0, 0])), ("affine", (0, [1, 2], -1.0, [0, 0])),
    ("affine", (0, [1, 2], 1.0, [1, 2, 3])),
    ("perspective", (None, None)), ("perspective", (CORNERS[0], None)), ("pad", ([1, 2, 3],)), ("pad", ("3",)),
    ("pad", (3, 0, "wrong")), ("gaussian_blur", (4,)), ("gaussian_blur", ([3, 3, 3],)), ("gaussian_blur", (3, -1.0)),
    ("gaussian_blur", (3, [1.0, 2.0, 3.0])), ("five_crop", (99,)), ("normalize", ([0.5], [0.5])),
    ("permute_channels", ([0, 1],)), ("adjust_sharpness", (-1,)), ("gaussian_noise", (0.0, -1.0)),
]


@pytest.mark.parametrize("name, args", WRONG)
def test_refusals(name, args):
    """The same class of exception, and a sentence that begins like torchvision's."""
    array = picture(SHAPES[0], "uint8")
    theirs = outcome(lambda: getattr(real, name)(torch.tensor(array), *args))
    ours = outcome(lambda: getattr(F, name)(flambeau.tensor(array), *args))
    assert isinstance(theirs, Exception), "torchvision takes it"
    assert isinstance(ours, type(theirs)), (ours, theirs)
    assert str(ours).split("(")[0][:25] == str(theirs).split("(")[0][:25], (str(ours), str(theirs))


def test_normalize():
    array = picture(SHAPES[1], "float32")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    compare(outcome(lambda: F.normalize(flambeau.tensor(array), mean, std)),
            outcome(lambda: real.normalize(torch.tensor(array), mean, std)))
    ours = flambeau.tensor(array)
    assert F.normalize(ours, mean, std, inplace=True) is ours
    compare([ours.numpy()], [real.normalize(torch.tensor(array), mean, std).numpy()])
    compare(outcome(lambda: F.normalize(flambeau.tensor(array), mean, [0.1, 0.0, 0.3])), ValueError())


def test_noise():
    array = picture(SHAPES[1], "uint8")
    noise = np.random.default_rng(0).standard_normal(array.shape).astype(np.float32)
    original, torch.randn_like = torch.randn_like, lambda image, **kind: torch.tensor(noise)
    try:
        theirs = real.gaussian_noise(torch.tensor(array), 0.1, 0.2).numpy()
        floats = real.gaussian_noise(torch.tensor(array / 255, dtype=torch.float32), 0.1, 0.2, False).numpy()
    finally:
        torch.randn_like = original
    compare([F.gaussian_noise(flambeau.tensor(array), 0.1, 0.2, noise=flambeau.tensor(noise)).numpy()], [theirs])
    compare([F.gaussian_noise(flambeau.tensor((array / 255).astype(np.float32)), 0.1, 0.2, False,
                              noise=flambeau.tensor(noise)).numpy()], [floats])


def test_elastic():
    rng = np.random.default_rng(0)
    moved = (rng.random((1, 37, 41, 2)) * 0.2 - 0.1).astype(np.float32)
    for kind in KINDS:
        for mode in ("nearest", "bilinear"):
            for fill in (None, 0):
                array = picture(SHAPES[1], kind)
                compare(outcome(lambda: F.elastic(flambeau.tensor(array), flambeau.tensor(moved), mode, fill)),
                        outcome(lambda: real.elastic(torch.tensor(array), torch.tensor(moved), mode, fill)), 1)
