"""What every transform is: `Transform`, and `RandomApplyTransform` for those that happen with a probability.

A transform is called with a sample, which may be nested: an image, (image, label), {"image": …}. It takes out the
images, draws what is random, once for each sample of a batch, and puts the results where the images were:

    forward(*inputs)                 the sample taken apart and put together
      check_inputs(flat_inputs)      refuses what it cannot take
      make_params(flat_inputs)       torchvision's name for what is drawn; asks
        draw(n, inputs, random)      for a dictionary of arrays, whose first axis is the samples
      transform(inpt, params)        one input, a batch at once

A tensor [N, ..., C, H, W] is a batch of N samples, and each draws from its own stream (`utils/data/sample_random.py`).
A tensor [C, H, W] and an image of Pillow's are one sample.
"""
import contextvars
import enum
import threading
from contextlib import contextmanager

from ...base.pytree import tree_flatten, tree_unflatten
from ...nn import Module
from ...tensor.create import from_array
from ...tensor.functions import where
from ...tensor.tensor import Tensor
from ...utils.data import sample_random
from .functional.dispatch import check_type, has_any, is_pillow, samples_of


class Transform(Module):
    """The base of all transforms; also of your own, which say `transform`, and `draw` where they are random.

    >>> from flambeau.data import transforms
    >>> class Darker(transforms.Transform):
    ...     def draw(self, n, inputs, random):
    ...         return {"factor": random.uniform(low=0.5)[:, 0]}
    ...     def transform(self, inpt, params):
    ...         return transforms.functional.adjust_brightness(inpt, transforms.each(params["factor"], inpt))
    >>> Darker()(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    is_random = False                               # whether it draws: those that say `draw` do; see Note [Evaluation]
    _transformed_types = (Tensor, is_pillow)        # classes, or functions that say whether they take an input

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        if "draw" in cls.__dict__ and "is_random" not in cls.__dict__:
            cls.is_random = True

    def check_inputs(self, flat_inputs):
        """Refuse inputs, all of the sample in a list, that this transform cannot take."""

    def draw(self, n, inputs, random):
        """What is drawn for `n` samples from their streams `random`: {name: an array whose first axis is n}."""
        return {}

    def make_params(self, flat_inputs):
        """What `transform` is given: by default what is drawn, once for each sample of the first of the inputs."""
        if type(self).draw is Transform.draw:           # streams may start from the default generator: leave it alone
            return {}
        n = samples_of(flat_inputs[0]) if flat_inputs else 1
        return self.draw(n, flat_inputs, streams(n))

    def transform(self, inpt, params):
        """One input, a whole batch of it, transformed."""
        raise NotImplementedError(f"{type(self).__name__} is a Transform and has to say transform(inpt, params)")

    def forward(self, *inputs):
        whole = inputs if len(inputs) > 1 else inputs[0]
        flat, structure = tree_flatten(whole)
        self.check_inputs(flat)
        if self.is_random:
            refuse_evaluation(self)
        taken = self._needs_transform_list(flat)
        params = self.make_params([one for one, yes in zip(flat, taken, strict=True) if yes])
        return tree_unflatten(self._results(flat, taken, params), structure)

    def _results(self, flat, taken, params):
        return [self.transform(one, params) if yes else one for one, yes in zip(flat, taken, strict=True)]

    def _needs_transform_list(self, flat_inputs):
        """Which inputs are transformed: images of Pillow's; without any, the first tensor, since others are labels."""
        first_tensor = not has_any(flat_inputs, is_pillow)
        taken = []
        for one in flat_inputs:
            yes = check_type(one, self._transformed_types)
            if yes and isinstance(one, Tensor):
                yes, first_tensor = first_tensor, False
            taken.append(yes)
        return taken

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self.__dict__.items()
                         if not name.startswith("_") and name != "training"
                         and isinstance(value, (bool, int, float, str, tuple, list, enum.Enum)))


class RandomApplyTransform(Transform):
    """A transform that happens to a sample with probability `p`, and else leaves it as it is."""

    is_random = True

    def __init__(self, p=0.5):
        if not 0.0 <= p <= 1.0:
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        super().__init__()
        self.p = p

    def make_params(self, flat_inputs):
        n = samples_of(flat_inputs[0]) if flat_inputs else 1
        random = streams(n)
        applied = random.uniform()[:, 0] < self.p
        return {**self.draw(n, flat_inputs, random), "applied": applied}

    def _results(self, flat, taken, params):
        applied = params["applied"]
        if not applied.any():
            return flat
        return [self.transform_some(one, params, applied) if yes else one
                for one, yes in zip(flat, taken, strict=True)]

    def transform_some(self, inpt, params, applied):
        """`transform` of the samples that are `applied` to. The others are computed too: a batch has one shape, so
        that the same compiled code serves for all of them."""
        made = self.transform(inpt, params)
        return made if applied.all() else where(mask_of(applied, inpt), made, inpt)


def mask_of(chosen, image):
    """A mask [n] as a tensor that meets the samples of the batch `image`."""
    return from_array(chosen.reshape(-1, *[1] * (image.ndim - 1)).copy(), where=image.device)


def each(drawn, inpt):
    """What was drawn for the samples of `inpt`, for a function of images: a Python number for a single image."""
    return drawn if isinstance(inpt, Tensor) and inpt.ndim > 3 else drawn[0].item()


# --- the streams that are drawn from ----------------------------------------------------------------------------------


_narrowed = threading.local()          # `streams`: of the part of a batch that a container hands on


def streams(n):
    """The random numbers of the `n` samples that are transformed now."""
    now = getattr(_narrowed, "streams", None)
    return now if now is not None and len(now) == n else sample_random.sample_random(n)


@contextmanager
def narrowed(random):
    """While transforms are handed the samples that `random` belongs to."""
    before = getattr(_narrowed, "streams", None)
    _narrowed.streams = random
    try:
        yield
    finally:
        _narrowed.streams = before


# --- Evaluation -------------------------------------------------------------------------------------------------------

# Note [Evaluation]: what is measured must not change from one measurement to the next. A dataset that is declared as
# evaluation data says so while it makes a sample (`evaluating`), and every random transform looks before it draws
# (`refuse_evaluation`). It is a context variable since loaders may make samples in threads, each with its own.
_evaluated = contextvars.ContextVar("evaluated", default=None)


@contextmanager
def evaluating(dataset):
    """While a sample of `dataset`, which is evaluation data, is made: a random transform raises and names both."""
    before = _evaluated.set(dataset)
    try:
        yield
    finally:
        _evaluated.reset(before)


def refuse_evaluation(transform):
    """Raise if a sample of evaluation data is being made: `transform` is random."""
    dataset = _evaluated.get()
    if dataset is not None:
        raise random_evaluation(transform, dataset)


def random_evaluation(transform, dataset):
    return RuntimeError(f"{transform} is random, and {name_of(dataset)} is evaluation data: what is measured would "
                        "change from one time to the next. Give evaluation data a transform of its own, such as "
                        "Compose([Resize(256), CenterCrop(224), ToDtype(torch.float32, scale=True)]).")


def name_of(dataset):
    """A dataset in a message: its class, and what it says about its part of the data."""
    told = [f"{name}={getattr(dataset, name)!r}" for name in ("split", "train") if hasattr(dataset, name)]
    return f"{type(dataset).__name__}({', '.join(told)})" if told else f"the {type(dataset).__name__}"


def random_parts(transform):
    """The random transforms in `transform`, which may be a container of others."""
    found, waiting = [], [transform]
    while waiting:
        one = waiting.pop()
        if getattr(one, "is_random", False):
            found.append(one)
        elif isinstance(getattr(one, "transforms", None), (list, tuple)):
            waiting.extend(reversed(one.transforms))
        elif isinstance(one, Module):
            waiting.extend(reversed(list(one.children())))
        else:                                           # datasets wrap the two transforms of a sample into one object
            waiting.extend(part for name in ("transform", "target_transform")
                           if (part := getattr(one, name, None)) is not None)
    return found


def check_evaluation(transform, dataset):
    """Refuse at once to transform evaluation data by something random."""
    for random in random_parts(transform) if transform is not None else ():
        raise random_evaluation(random, dataset)


class EvaluationDataset:
    """A dataset declared as evaluation data. It gives the same samples, and no random transform may take part."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, index):
        with evaluating(self.dataset):
            return self.dataset[index]

    def __getitems__(self, indices):
        with evaluating(self.dataset):
            many = getattr(self.dataset, "__getitems__", None)
            return many(indices) if many is not None else [self.dataset[index] for index in indices]

    def __len__(self):
        return len(self.dataset)

    def __getattr__(self, name):
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __repr__(self):
        return f"evaluation({self.dataset!r})"


def evaluation(dataset):
    """`dataset` declared as evaluation data: a random transform in it is refused, now or when it is met.

    >>> from flambeau.data import transforms
    >>> class Squares(torch.utils.data.Dataset):
    ...     transform = transforms.RandomHorizontalFlip()
    ...     def __getitem__(self, index): return self.transform(torch.zeros(3, 4, 4))
    ...     def __len__(self): return 10
    >>> transforms.evaluation(Squares())
    Traceback (most recent call last):
        ...
    RuntimeError: RandomHorizontalFlip(p=0.5) is random, and the Squares is evaluation data...
    """
    for name in ("transforms", "transform"):
        check_evaluation(getattr(dataset, name, None), dataset)
    return EvaluationDataset(dataset)
