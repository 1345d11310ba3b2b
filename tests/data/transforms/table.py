"""Every transform with arguments that make it do something: (name, positional and named arguments).

`made(module, row)` makes one of any module with torchvision's names. Tests that walk over the table meet a new row
without naming it, and test_every.py a new transform without one.
"""
from flambeau.data import transforms

EVERY = {name: made for name, made in vars(transforms).items() if isinstance(made, type)
         and issubclass(made, transforms.Transform)}
BASES = {"Transform", "RandomApplyTransform"}

TABLE = [
    ("Resize", (17,), {}), ("Resize", ([20, 30],), {"interpolation": "bicubic"}),
    ("Resize", (None,), {"max_size": 31}), ("Resize", (12,), {"antialias": False, "interpolation": "nearest"}),
    ("CenterCrop", (15,), {}), ("CenterCrop", ([50, 9],), {}),
    ("Pad", (3,), {"fill": 7}), ("Pad", ([1, 2, 3, 4],), {"padding_mode": "reflect"}),
    ("FiveCrop", (9,), {}), ("TenCrop", ([9, 7],), {"vertical_flip": True}),
    ("Grayscale", (), {"num_output_channels": 3}), ("RGB", (), {}), ("Identity", (), {}),
    ("RandomHorizontalFlip", (), {"p": 0.6}), ("RandomVerticalFlip", (), {}),
    ("RandomCrop", (20,), {}), ("RandomCrop", ([25, 19],), {"padding": 4, "fill": 3}),
    ("RandomCrop", ([45, 20],), {"pad_if_needed": True, "padding_mode": "edge"}),
    ("RandomResizedCrop", (16,), {}), ("RandomResizedCrop", ([24, 40],), {"interpolation": "bicubic"}),
    ("RandomResizedCrop", (16,), {"scale": (0.9, 1.0), "ratio": (3.0, 3.5)}),
    ("RandomRotation", (40,), {}), ("RandomRotation", ((10, 20),), {"interpolation": "bilinear", "fill": [1.0, 2.0,
    3.0]}),
    ("RandomAffine", (30,), {"translate": (0.2, 0.1), "scale": (0.7, 1.3), "shear": (-5, 5, -10, 10)}),
    ("RandomAffine", (0,), {"shear": 15, "interpolation": "bilinear", "center": [3, 4]}),
    ("RandomPerspective", (), {"p": 0.8}),
    ("RandomPerspective", (0.2,), {"p": 1.0, "interpolation": "nearest", "fill": 9}),
    ("ElasticTransform", (), {"alpha": 30.0, "sigma": 3.0}),
    ("ColorJitter", (0.4,), {}), ("ColorJitter", (0.4, 0.5, 0.6, 0.2), {}), ("ColorJitter", (), {"hue": 0.3}),
    ("ColorJitter", (), {"contrast": (0.2, 0.4), "saturation": 0.5}),
    ("RandomGrayscale", (), {"p": 0.5}), ("RandomChannelPermutation", (), {}),
    ("RandomInvert", (), {}), ("RandomPosterize", (3,), {}), ("RandomSolarize", (0.6,), {}),
    ("RandomAutocontrast", (), {}), ("RandomEqualize", (), {}), ("RandomAdjustSharpness", (1.7,), {}),
    ("GaussianBlur", (5,), {}), ("GaussianBlur", ([3, 7],), {"sigma": (0.5, 3.0)}),
    ("GaussianNoise", (), {"sigma": 0.2}),
    ("RandomErasing", (), {"p": 0.7}), ("RandomErasing", (), {"value": [0.1, 0.2, 0.3], "p": 1.0}),
    ("RandomErasing", (), {"value": "random", "p": 0.7}),
    ("RandomPhotometricDistort", (), {}), ("RandomPhotometricDistort", (), {"hue": (-0.2, 0.3), "p": 0.8}),
    ("RandomZoomOut", (7, (2.0, 2.0)), {"p": 1.0}), ("RandomZoomOut", ([1.0, 2.0, 3.0], [1.5, 1.5]), {"p": 1.0}),
    ("ScaleJitter", ((30, 40), (1.5, 1.5)), {}), ("RandomShortestSize", (21,), {"max_size": 22}),
    ("RandomResize", (17, 18), {"interpolation": "bicubic"}), ("UniformTemporalSubsample", (3,), {}),
]
# What gives images of a size that is drawn, and so only single ones: a batch has one shape.
SIZES_DRAWN = [
    ("RandomZoomOut", (), {"p": 0.7}), ("ScaleJitter", ((30, 40),), {"interpolation": "nearest"}),
    ("RandomShortestSize", ([17, 25, 30],), {}), ("RandomResize", (9, 50), {"antialias": False}),
]
ONLY_SIZES = {row[0] for row in SIZES_DRAWN} - {"RandomZoomOut"}      # draw nothing else
RANDOM = [row for row in TABLE if EVERY[row[0]].is_random and row[0] not in ONLY_SIZES]
FLOATS_ONLY = {"RandomSolarize", "RandomErasing"}          # by the numbers above, which are between 0 and 1
# What has tests of its own: containers, what chooses or mixes, and what takes other inputs than images of one kind.
BY_THEMSELVES = set("""
    AugMix AutoAugment Compose ConvertImageDtype CutMix JPEG Lambda LinearTransformation MixUp Normalize PILToTensor
    RandAugment RandomApply RandomChoice RandomOrder ToDtype ToImage ToPILImage ToPureTensor ToTensor TrivialAugmentWide
    """.split())


def named(row):
    name, args, kwargs = row
    return f"{name}({', '.join([*map(repr, args), *[f'{key}={value!r}' for key, value in kwargs.items()]])})"


def made(module, row):
    name, args, kwargs = row
    return getattr(module, name)(*args, **kwargs)
