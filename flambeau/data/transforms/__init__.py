"""Transforms of images with torchvision's names (v2), for whole batches at once: one draw for every sample.

    functional       the functions of images that they are made of
    base             what a transform is, which samples draw what, and evaluation data
    containers       transforms of transforms
    modes            what is read between pixels
"""
from . import functional
from .base import RandomApplyTransform, Transform, check_evaluation, each, evaluating, evaluation, random_parts
from .containers import Compose, RandomApply, RandomChoice, RandomOrder
from .modes import InterpolationMode
