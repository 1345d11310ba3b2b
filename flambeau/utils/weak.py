"""`torch.utils.weak`: dictionaries that hold their keys weakly and know them by identity, as tensors have to be.

A tensor compares elementwise, so that an ordinary weak dictionary, which compares keys, cannot hold one.
"""
import weakref
from collections.abc import MutableMapping

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to another of the same object, and to nothing else."""

    __slots__ = ("_id",)

    def __init__(self, key, callback=None):
        self._id = id(key)
        super().__init__(key, callback)

    def __hash__(self):
        return self._id

    def __eq__(self, other):
        here, there = self(), other() if isinstance(other, weakref.ref) else None
        if here is not None and there is not None:
            return here is there
        return self is other                  # one of them is gone: its number may be another object's by now


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary of keys by identity, which it holds weakly: a key that nothing else holds is gone."""

    def __init__(self, dict=None, ref_type=WeakIdRef):
        self.ref_type = ref_type
        self.data: dict = {}
        self_ref = weakref.ref(self)

        def remove(gone):
            owner = self_ref()
            if owner is not None:
                owner.data.pop(gone, None)
        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key):
        return self.data[self.ref_type(key)]

    def __setitem__(self, key, value):
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key):
        del self.data[self.ref_type(key)]

    def __contains__(self, key):
        try:
            return self.ref_type(key) in self.data
        except TypeError:                     # of a kind that cannot be held weakly
            return False

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        for ref in list(self.data):
            key = ref()
            if key is not None:
                yield key

    def keyrefs(self):
        """The weak references to the keys."""
        return list(self.data)

    def copy(self):
        """A dictionary with the same keys and values."""
        made = WeakIdKeyDictionary(ref_type=self.ref_type)
        made.update(self)
        return made

    __copy__ = copy

    def __deepcopy__(self, memo):
        from copy import deepcopy
        made = type(self)(ref_type=self.ref_type)
        for key, value in self.items():
            made[key] = deepcopy(value, memo)
        return made

    def __or__(self, other):
        if not isinstance(other, MutableMapping | dict):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other):
        self.update(other)
        return self

    def __eq__(self, other):
        if not isinstance(other, MutableMapping | dict):
            return NotImplemented
        return {id(key): value for key, value in self.items()} == {id(key): value for key, value in other.items()}

    def __repr__(self):
        return f"<{type(self).__name__} at {id(self):#x}>"


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor):
        self.ref = weakref.ref(tensor)

    def __call__(self):
        return self.ref()
