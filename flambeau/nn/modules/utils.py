"""Small helpers of the layers: one number for every dimension, and prefixes of state dicts."""
from collections.abc import Iterable

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n, name="parse"):
    """A function that makes an n-tuple of one number, and leaves several as they are."""
    def parse(x):
        return tuple(x) if isinstance(x, Iterable) else (x,) * n
    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (
    _ntuple(n, name) for n, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1))


def _reverse_repeat_tuple(t, n):
    """Each entry `n` times, the last first: padding by dimension as `pad` takes it."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size, defaults):
    """`out_size` with each None replaced by the size the input has in that dimension."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [size if size is not None else given
            for size, given in zip(out_size, defaults[len(defaults) - len(out_size):], strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Take `prefix` off the keys of a state dict, in place: the state of `model.module` becomes that of `model`.

    >>> state = {"module.weight": 1, "bias": 2}
    >>> torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    >>> state
    {'bias': 2, 'weight': 1}
    """
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in [key for key in metadata if key and (key.startswith(prefix) or key == prefix.replace(".", ""))]:
        metadata[key[len(prefix):]] = metadata.pop(key)
