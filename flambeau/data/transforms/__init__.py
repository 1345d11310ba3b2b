"""Transforms of images with torchvision's names (v2), for whole batches at once: one draw for every sample.

    functional       the functions of images that they are made of
    base             what a transform is, which samples draw what, and evaluation data
    containers       transforms of transforms
    geometry         transforms that move pixels
    colour           transforms of colours
    misc             normalising, blur, noise, erasing, dtypes, Pillow's images
    modes            what is read between pixels
    auto             augmentations that choose their operations by themselves
    mixing           batches whose samples are mixed with each other
    single_draws     `get_params` of the transforms that have it
    elsewhere        what torchvision has besides, refused by name
"""
from . import functional, single_draws
from .arguments import query_chw, query_size
from .auto import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from .base import (
    RandomApplyTransform,
    Transform,
    check_evaluation,
    each,
    evaluating,
    evaluation,
    random_parts,
    streams,
)
from .colour import (
    RGB,
    ColorJitter,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from .containers import Compose, RandomApply, RandomChoice, RandomOrder
from .elsewhere import TRANSFORMS_ELSEWHERE, not_here
from .functional.dispatch import check_type, has_all, has_any
from .geometry import (
    CenterCrop,
    ElasticTransform,
    FiveCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResize,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    TenCrop,
)
from .misc import (
    JPEG,
    ConvertImageDtype,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Lambda,
    LinearTransformation,
    Normalize,
    PILToTensor,
    RandomErasing,
    ToDtype,
    ToImage,
    ToPILImage,
    ToPureTensor,
    ToTensor,
    UniformTemporalSubsample,
)
from .mixing import CutMix, MixUp
from .modes import InterpolationMode


def __getattr__(name):
    raise not_here(__name__, name, TRANSFORMS_ELSEWHERE, globals())
