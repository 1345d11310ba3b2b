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
from . import auto, colour, containers, functional, geometry, misc, mixing, single_draws
from .arguments import query_chw, query_size
from .auto import AutoAugmentPolicy
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
from .elsewhere import TRANSFORMS_ELSEWHERE, not_here
from .functional.dispatch import check_type, has_all, has_any
from .modes import InterpolationMode

# A transform is public by being made in one of these modules, under a name without an underscore.
globals().update({name: made for module in (auto, colour, containers, geometry, misc, mixing)
                  for name, made in vars(module).items()
                  if isinstance(made, type) and issubclass(made, Transform) and not name.startswith("_")})


def __getattr__(name):
    raise not_here(__name__, name, TRANSFORMS_ELSEWHERE, globals())
