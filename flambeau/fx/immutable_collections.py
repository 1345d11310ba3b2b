"""Lists and dicts for the arguments of a node, which only the node changes: it keeps count of which node uses which."""

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self, *args, **kwargs):
    raise TypeError(f"'{type(self).__name__}' object does not support mutation. If you are attempting to modify the "
                    "kwargs or args of a torch.fx.Node object, instead create a new copy of it and assign the copy to "
                    "the node:\n    new_args = ...  # copy and mutate args\n    node.args = new_args")


class immutable_list(list):
    """A list that cannot be changed."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __setitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self):
        return hash(tuple(self))

    def __reduce__(self):
        return immutable_list, (list(self),)


class immutable_dict(dict):
    """A dict that cannot be changed."""

    clear = pop = popitem = setdefault = update = __delitem__ = __setitem__ = __ior__ = _refuse

    def __hash__(self):
        return hash(tuple(self.items()))

    def __reduce__(self):
        return immutable_dict, (dict(self),)
