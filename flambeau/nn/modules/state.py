"""A module's state: `state_dict` and `load_state_dict`.

Both walk the tree of modules by the methods `_save_to_state_dict` and `_load_from_state_dict`, which a module that
keeps its state in another way overrides.
"""
import os
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any, TypeVar

from ...autograd.modes import no_grad
from ...base.errors import warn
from ...tensor.overrides import is_tensor_like
from ..parameter import Parameter, is_lazy
from .hooks import Table, _WrappedHook, add_hook, hooks_in

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns: the keys it did not find, and those it did not know."""

    __slots__ = ()

    def __repr__(self):
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


class Stateful:
    """The part of a module that is about its state."""

    _version = 1
    _state_dict_pre_hooks, _state_dict_hooks, _load_state_dict_pre_hooks, _load_state_dict_post_hooks = (
        Table(False) for _ in range(4))
    T_destination = TypeVar("T_destination", bound=dict[str, Any])

    def get_extra_state(self):
        """What is to be saved besides tensors; a module with such state overrides it and `set_extra_state`."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called: a module with "
                           "extra state overrides it.")

    def set_extra_state(self, state):
        """Take back what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called: a module with "
                           "extra state overrides it.")

    # --- saving ---

    def register_state_dict_pre_hook(self, hook):
        """Call `hook(module, prefix, keep_vars)` before the module's state is taken."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """Call `hook(module, state_dict, prefix, local_metadata)` afterwards; it changes `state_dict` in place."""
        hook._from_public_api = True
        return add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook):
        """The same for a hook that may return another dictionary."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously "
                               "registered via register_state_dict_post_hook")
        return add_hook(self._state_dict_hooks, hook)

    def _saved(self):
        """(name, tensor) of what belongs to the module's own state."""
        yield from ((name, p) for name, p in self._parameters.items() if p is not None)
        yield from ((name, b) for name, b in self._buffers.items()
                    if b is not None and name not in self._non_persistent_buffers_set)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Put this module's own state into `destination`, without its submodules'."""
        for name, tensor in self._saved():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if _overrides(self, "get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """The parameters and persistent buffers of the module and its submodules by name, over the same memory.

        >>> list(torch.nn.Linear(2, 3).state_dict())
        ['weight', 'bias']
        """
        if args:
            warn("Positional args are being deprecated, use kwargs instead. Refer to "
                 "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for "
                 "details.", FutureWarning)
            given = dict(zip(("destination", "prefix", "keep_vars"), args))
            return self.state_dict(**{"destination": destination, "prefix": prefix, "keep_vars": keep_vars, **given})
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in hooks_in(self, "_state_dict_pre_hooks"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in hooks_in(self, "_state_dict_hooks"):
            made = hook(self, destination, prefix, local_metadata)
            if made is not None:
                if getattr(hook, "_from_public_api", False):
                    raise RuntimeError("state_dict post-hook must return None")
                destination = made
        return destination

    # --- loading ---

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return add_hook(self._load_state_dict_pre_hooks, _WrappedHook(hook, self if with_module else None))

    def register_load_state_dict_pre_hook(self, hook):
        """Call `hook` before the module's state is loaded.

        It gets (module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs).
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook):
        """Call `hook(module, incompatible_keys)` after the module's state is loaded; it may change the keys."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        """Take this module's own state out of `state_dict`, without its submodules'; the lists take what is wrong."""
        for hook in hooks_in(self, "_load_state_dict_pre_hooks"):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = dict(self._saved())
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, key, tensor, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if _overrides(self, "set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, dot, _ = key[len(prefix):].partition(".")
                    if first not in (self._modules if dot else own):
                        unexpected_keys.append(key)

    def _load_one(self, name, key, tensor, given, assign, error_msgs):
        """Load one parameter or buffer, or say why not."""
        if not is_tensor_like(given):
            error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object '
                              f"from checkpoint but received {type(given)}")
            return
        if not is_lazy(tensor):
            if tensor.shape == () and given.shape == (1,):      # numbers were saved like this once
                given = given[0]
            if given.shape != tensor.shape:
                error_msgs.append(f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
                                  f"the shape in current model is {tensor.shape}.")
                return
            if tensor.is_meta and not given.is_meta and not assign:
                warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                     "current model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the "
                     "state dictionary to their corresponding key in the module instead of copying them in place?)")
        try:
            with no_grad():
                if not assign:
                    tensor.copy_(given)
                    return
                if isinstance(tensor, Parameter):
                    wanted = tensor.requires_grad
                    given = given.requires_grad_(wanted) if isinstance(given, Parameter) else Parameter(given, wanted)
                setattr(self, name, given)
        except Exception as error:
            error_msgs.append(f'While copying the parameter named "{key}", whose dimensions in the model are '
                              f"{tensor.size()} and whose dimensions in the checkpoint are {given.size()}, an "
                              f"exception occurred : {error.args}.")

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy the tensors of `state_dict` into the module's own; with `assign`, take them instead.

        With `strict`, keys that are missing or unexpected are an error; else they are in the result. A tensor of
        another shape is always an error. All that is wrong is said at once, after what fits was loaded.

        >>> a, b = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
        >>> a.load_state_dict(b.state_dict())
        <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            fix = f" Read the file first: load_state_dict(torch.load({str(state_dict)!r}))."
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}."
                            + (fix if isinstance(state_dict, (str, os.PathLike)) else ""))
        found = _IncompatibleKeys([], [])
        error_msgs: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)              # hooks may change it
        if metadata is not None:
            state_dict._metadata = metadata
        _load(self, state_dict, "", metadata or {}, assign, found, error_msgs)
        if strict:
            for words, keys in (("Unexpected", found.unexpected_keys), ("Missing", found.missing_keys)):
                if keys:
                    names = ", ".join(f'"{key}"' for key in keys)
                    error_msgs.insert(0, f"{words} key(s) in state_dict: {names}. ")
            error_msgs += prefix_hint(*found)
        if error_msgs:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                               + "\n\t".join(error_msgs))
        return found


def prefix_hint(missing, unexpected):
    """What to do where the keys differ by one prefix only, as those of a model that was saved inside of another do."""
    if missing and len(missing) == len(unexpected):
        for longer, shorter, words in ((unexpected, missing, "without it"), (missing, unexpected, "with it")):
            prefix = longer[0].removesuffix(shorter[0])
            if prefix.endswith(".") and sorted(longer) == sorted(prefix + key for key in shorter):
                owner = "those of the state_dict" if words == "without it" else "those of the module"
                return [f'The keys differ by "{prefix}", which {owner} begin with: {words}, the state_dict would fit. ']
    return []


def _load(module, state_dict, prefix, metadata, assign, found, error_msgs):
    """Load `module` and all below it."""
    local_metadata = metadata.get(prefix[:-1], {})
    if assign:
        local_metadata = {**local_metadata, "assign_to_params_buffers": assign}
    module._load_from_state_dict(state_dict, prefix, local_metadata, True, *found, error_msgs)
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            inner = {key: value for key, value in state_dict.items() if key.startswith(below)}
            _load(child, inner, below, metadata, assign, found, error_msgs)
    for hook in hooks_in(module, "_load_state_dict_post_hooks"):
        if hook(module, found) is not None:
            raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                                 "return new values, if incompatible_keys need to be modified, it should be done "
                                 "inplace.")


def _overrides(module, method):
    return getattr(type(module), method) is not getattr(Stateful, method)
