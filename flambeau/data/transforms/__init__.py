"""Transforms of images with torchvision's names (v2), for whole batches at once: one draw for every sample.

    functional       the functions of images that they are made of
    base             what a transform is, which samples draw what, and evaluation data
    containers       transforms of transforms
    modes            what is read between pixels
    auto             augmentations that choose their operations by themselves
    mixing           batches whose samples are mixed with each other
"""
from . import functional
from .auto import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from .base import RandomApplyTransform, Transform, check_evaluation, each, evaluating, evaluation, random_parts
from .containers import Compose, RandomApply, RandomChoice, RandomOrder
from .mixing import CutMix, MixUp
from .modes import InterpolationMode
