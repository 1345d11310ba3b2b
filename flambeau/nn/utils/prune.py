"""Pruning: set parts of a parameter to zero, and keep them there.

The parameter `weight` becomes `weight_orig`; a hook multiplies it with the buffer `weight_mask` before every forward,
and what comes out is the attribute `weight`. Pruning again works on what is left.
"""
from abc import ABC, abstractmethod
from collections.abc import Iterable
from numbers import Number

from ...tensor.functions import cat, ones_like, rand, rand_like, zeros_like


class BasePruningMethod(ABC):
    """A way to choose what is set to zero: subclasses say it in `compute_mask`, and what kind they are in
    `PRUNING_TYPE`, which is "unstructured" (single elements), "structured" (slices) or "global" (everything at once).
    """

    _tensor_name: str

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """The mask for `t`, with zeros wherever `default_mask` has them."""

    def apply_mask(self, module):
        """The pruned tensor, from the original and its mask."""
        name = self._tensor_name
        original = getattr(module, name + "_orig")
        return getattr(module, name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prune the tensor `name` of `module` by a method made with the arguments, after those that are there."""
        found = [(key, hook) for key, hook in module._forward_pre_hooks.items()
                 if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]
        method = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        if importance_scores is not None:
            if importance_scores.shape != original.shape:
                raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}, "
                                     f"got {importance_scores.shape} vs {original.shape}")
        else:
            importance_scores = original
        if found:
            key, before = found[0]
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            mask = container.compute_mask(importance_scores.detach(), getattr(module, name + "_mask"))
            del module._forward_pre_hooks[key]
            method = container
        else:
            mask = method.compute_mask(importance_scores.detach(), ones_like(original.detach()))
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """A pruned version of the tensor `t`."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t, got "
                                 f"{importance_scores.shape} vs {t.shape}")
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, ones_like(t) if default_mask is None else default_mask)

    def remove(self, module):
        """Make the pruned tensor a parameter again."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods, one after the other; the last is the one that `compute_mask` is about."""

    def __init__(self, *args):
        self._pruning_methods = ()
        if args and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
            self.add_pruning_method(args[0])
        else:
            for method in args[0] if args else ():
                self.add_pruning_method(method)

    def add_pruning_method(self, method):
        """Add a method for the same tensor at the end."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                             f"PruningContainer {self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, idx):
        return self._pruning_methods[idx]

    def compute_mask(self, t, default_mask):
        """`default_mask` with what the last method prunes of the part that is left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim()
            alive = mask.sum([d for d in range(t.dim()) if d != dim]) != 0
            left = (slice(None),) * dim + (alive,)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}; it is one of unstructured, structured, "
                             "global")
        made = mask.clone()
        made[left] = method.compute_mask(t[left], mask[left]).to(mask.dtype)
        return made


# --- the methods ------------------------------------------------------------------------------------------------------


def check_amount(amount):
    if not isinstance(amount, Number):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or not isinstance(amount, int) and amount > 1:
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def how_many(amount, size):
    """How many of `size` things are pruned: `amount` itself, or that part of them."""
    if isinstance(amount, int) and amount > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return int(amount) if isinstance(amount, int) else round(amount * size)


class Identity(BasePruningMethod):
    """Prunes nothing: the mask is all ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask

    @classmethod
    def apply(cls, module, name):
        """Give the tensor `name` a mask of ones."""
        return super().apply(module, name)


class _Unstructured(BasePruningMethod):
    """Single elements: subclasses say by which scores, of which the smallest or the largest go."""

    PRUNING_TYPE = "unstructured"
    largest = False

    def __init__(self, amount):
        check_amount(amount)
        self.amount = amount

    def compute_mask(self, t, default_mask):
        count = how_many(self.amount, t.nelement())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[self.scores(t).view(-1).topk(count, largest=self.largest).indices] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Prunes single elements at random."""

    largest = True

    def scores(self, t):
        return rand_like(t)

    @classmethod
    def apply(cls, module, name, amount):
        """Prune `amount` (a part, or a number) of the elements of `name`."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Unstructured):
    """Prunes the single elements that are smallest in size."""

    def scores(self, t):
        return t.abs()

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        """Prune `amount` (a part, or a number) of the elements of `name`."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(BasePruningMethod):
    """Whole slices along `dim`: subclasses say which stay."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        check_amount(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t, default_mask):
        if t.dim() <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of "
                             f"shape {t.shape} with {t.dim()} dims")
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        channels = t.shape[self.dim]
        count = how_many(self.amount, channels)
        if not count:
            return default_mask
        mask = zeros_like(t)
        mask[(slice(None),) * (self.dim % t.dim()) + (self.staying(t, channels, count),)] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Prunes whole slices along `dim` at random."""

    def staying(self, t, channels, count):
        draw = rand(channels)
        return draw > draw.kthvalue(count).values

    @classmethod
    def apply(cls, module, name, amount, dim=-1):
        """Prune `amount` (a part, or a number) of the slices of `name` along `dim`."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prunes the slices along `dim` whose norm of order `n` is smallest."""

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount, dim)
        self.n = n

    def staying(self, t, channels, count):
        rest = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return t.norm(self.n, rest).topk(channels - count).indices

    @classmethod
    def apply(cls, module, name, amount, n, dim, importance_scores=None):
        """Prune `amount` (a part, or a number) of the slices of `name` along `dim`."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module, name, mask):
        """Prune `name` by `mask`."""
        return super().apply(module, name, mask=mask)


# --- functions --------------------------------------------------------------------------------------------------------


def identity(module, name):
    """Give the tensor `name` of `module` a mask of ones; gives `module` back."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Prune `amount` (a part, or a number) of the elements at random; gives `module` back."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Prune the `amount` (a part, or a number) of elements that are smallest in size; gives `module` back.

    >>> layer = torch.nn.utils.prune.l1_unstructured(torch.nn.Linear(4, 3), "weight", amount=0.5)
    >>> int((layer.weight == 0).sum()), sorted(layer.state_dict())
    (6, ['bias', 'weight_mask', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Prune `amount` (a part, or a number) of the slices along `dim` at random; gives `module` back."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Prune the `amount` of slices along `dim` whose norm of order `n` is smallest; gives `module` back."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Prune the tensor `name` of `module` by `mask`; gives `module` back."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prune single elements of several (module, name), as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters, importance_scores = list(parameters), {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    scores = [importance_scores.get((module, name), getattr(module, name)).detach().flatten()
              for module, name in parameters]
    masks = [getattr(module, name + "_mask", ones_like(getattr(module, name))).detach().flatten()
             for module, name in parameters]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                        f"{pruning_method} of type {method.PRUNING_TYPE}")
    mask, start = container.compute_mask(cat(scores), cat(masks)), 0
    for module, name in parameters:
        tensor = getattr(module, name)
        custom_from_mask(module, name, mask[start:start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def remove(module, name):
    """Make the pruned tensor `name` an ordinary parameter, with its zeros; gives `module` back."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module):
    """Whether anything in `module` is pruned."""
    return any(isinstance(hook, BasePruningMethod) for part in module.modules()
               for hook in part._forward_pre_hooks.values())
