"""Batched tensors: what a tensor is inside of `func.vmap`, one for all slices.

Note [Batched tensors]: a Batched has the shape, the strides and the dtype that each slice has, and a value that holds
all slices, with a dimension more, always the first. The value may be a Batched of an outer `vmap`. No operation is
recorded over a Batched: where one would be (`call_primitive`), a rule of func/batching records what does the same to
all slices at once, over the values. Composites are run, and come to such calls themselves. So autograd sees plain
tensors alone, and a backward needs no rules, but for one whose incoming gradients are batched (jacrev).

A Batched has no contents of its own, and the place of a Value is taken by one that refuses to be looked at: whatever
asks for numbers (`item`, `if`, NumPy, an operation whose result's shape depends on data) raises Unbatchable, and `vmap`
then goes through the slices one by one. No compiled way takes a Batched either: its class is not in `tensor_types`.
"""
from weakref import ref

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..base.op import door
from ..base.spec import spec
from ..trace.value import Storage, TensorBase, Value
from .overrides import one_of_ours
from .tensor import Tensor

LOOKED = ("vmap: It looks like you're calling .item() on a Tensor, or using one in some data-dependent control flow. "
          "We don't support vmap over calling .item() on a Tensor, please try to rewrite what you're doing with other "
          "operations.")
ENDLESS = 1 << 62             # bytes of a storage that no look reaches out of
_slices: dict = {}            # spec of a value → spec of its slices


class Unbatchable(RuntimeError):
    """What was called inside of `vmap` cannot be done for all slices at once."""


class Level:
    """A `vmap` that is running: how many others are around it, how many slices it has, what its random numbers are, and
    which storages were written inside."""

    __slots__ = ("number", "randomness", "size", "written")

    def __init__(self, number, size, randomness="error"):
        self.number, self.size, self.randomness, self.written = number, size, randomness, []

    def wrote(self, storage):
        """A storage was written."""
        self.written.append(ref(storage))


class levels_of:
    """Inside, one more `vmap` runs, over so many slices."""

    def __init__(self, size, randomness="error"):
        self.size, self.randomness = size, randomness

    def __enter__(self):
        before = self.before = modes.levels
        level = Level(before[-1].number + 1 if before else 1, self.size, self.randomness)
        modes.levels = (*before, level)
        self.level = level
        return level

    def __exit__(self, *exc):
        modes.levels = self.before
        if self.before and self.level.written:
            self.before[-1].written += self.level.written

    def something_stays(self):
        """Whether what was written is still there, and so was not made inside of a function that has failed."""
        return any(written() is not None for written in self.level.written)


class _Unseen:
    """Stands where a pending Value has its trace, and refuses to run."""

    def run(self, value):
        raise Unbatchable(LOOKED)


class Batched(Tensor):
    """All slices of a tensor inside of `vmap`: see Note [Batched tensors] in tensor/batched.py."""

    _value = None
    _level = 0

    requires_grad = property(lambda self: requires(self._value), Tensor.requires_grad.fset)
    is_leaf = property(lambda self: self._value.is_leaf)
    grad_fn = property(lambda self: self._value.grad_fn)

    def requires_grad_(self, requires_grad=True):
        self._value.requires_grad_(requires_grad)
        follow_value(self)
        return self

    def detach(self):
        return batched(self._value.detach(), self._level)

    data = property(lambda self: batched(self._value.data, self._level))

    def __repr__(self, *, tensor_contents=None):
        return f"BatchedTensor(lvl={self._level}, bdim=0, value=\n    {self._value!r}\n)"

    def __format__(self, form):
        return repr(self)

    def __reduce_ex__(self, protocol):
        raise Unbatchable(LOOKED)

    def __deepcopy__(self, memo):
        return self.clone().detach().requires_grad_(self.requires_grad)


def _not_here(name):
    def method(self, *args, **kwargs):
        raise Unbatchable(f"vmap: Tensor.{name} has no meaning for all slices at once")
    return method


for name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad", "detach_", "data_ptr", "set_",
             "resize_", "untyped_storage", "storage", "__dlpack__", "numpy", "__array__", "as_subclass", "backward"):
    setattr(Batched, name, _not_here(name))
for name in ("grad", "retains_grad", "_version", "output_nr"):
    setattr(Batched, name, property(_not_here(name), _not_here(name)))
del name
one_of_ours.append(Batched)


def slice_spec(whole):
    """The spec of the slices of a value."""
    found = _slices.get(whole)
    if found is None:
        if len(_slices) > 20_000:
            _slices.clear()
        found = _slices[whole] = spec(whole.dtype, whole.shape[1:], whole.strides[1:], whole.device)
    return found


def batched(value, level):
    """A Batched over `value`, whose first dimension has the slices of the `vmap` number `level`."""
    made = TensorBase.__new__(Batched)
    own = value._spec
    unseen = Value()
    unseen.trace, unseen.slot, unseen.spec, unseen._memory, unseen.array = _unseen, -1, own, None, None
    made._storage = Storage.of(unseen, ENDLESS, own.device)
    made._spec = slice_spec(own)
    made._offset = 0
    made._site = value._site
    made._value, made._level = value, level
    follow_value(made)
    return made


_unseen = _Unseen()


def follow_value(made):
    """Have a Batched say of its history what its value says."""
    value = made._value
    made._node, made._nr, made._cut = value._node, value._nr, value._cut
    made._requires_grad = requires(value)


def plain_of(tensor):
    """(the plain tensor that holds all slices, the numbers of the levels that its first dimensions belong to)"""
    numbers = []
    while tensor.__class__ is Batched:
        numbers.append(tensor._level)
        tensor = tensor._value
    return tensor, tuple(numbers[::-1])


def rebatched(plain, numbers):
    """The Batched over a plain tensor whose first dimensions belong to the levels `numbers`, the outermost first."""
    for number in numbers:
        plain = batched(plain, number)
    return plain


def over(tensor, levels):
    """`tensor` as a Batched of all `levels`, which have a number and a size: an expanded look, where it was not."""
    plain, have = plain_of(tensor)
    missing = [level for level in levels if level.number not in have]
    if not missing:
        return tensor
    numbers = sorted((*have, *[level.number for level in missing]))
    sizes = {level.number: level.size for level in missing}
    shape = list(plain.shape)
    for at, number in enumerate(numbers):
        if number in sizes:
            plain = plain.unsqueeze(at)
            shape.insert(at, sizes[number])
    return rebatched(plain.expand(shape), numbers)


# --- writing ----------------------------------------------------------------------------------------------------------


def written(self, result, what, assign):
    """Write `result` into `self`, one of which at least is a Batched; `assign` is that of write.py."""
    if self.__class__ is not Batched or result.__class__ is Batched and result._level > self._level:
        raise Unbatchable(f"vmap: {what}: vmap: inplace arithmetic(self, *extra_args) is not possible because there "
                          "exists a Tensor `other` in extra_args that has more elements than `self`. This happened "
                          "due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try "
                          "to use out-of-place operators instead of inplace arithmetic.")
    value, made = self._value, result
    if result.__class__ is Batched and result._level == self._level:
        made = result._value
        lacking = self._spec.ndim - result._spec.ndim
        if lacking:
            made = made.reshape((made.shape[0], *(1,) * lacking, *made.shape[1:]))
    door.before_write(value, what)
    assign(value, made, what)
    follow_value(self)
    return self


def as_it_was(self, keep):
    """A Batched over what `keep` keeps of the contents of `self`, which are about to be written."""
    plain, numbers = plain_of(self)
    return rebatched(keep(plain), numbers)
