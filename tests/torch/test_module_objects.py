"""Every module as an object, beside PyTorch's: copied, pickled, moved, saved, frozen, hooked and compiled.

What a module computes is compared in test_modules.py; here is what programs do with modules. A case is a class of
PyTorch's own table (`module_db`, or what test_modules.py adds to it) with its first sample that can be called.
"""
import copy
import functools
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal.common_modules import module_db

from tests.torch.harness import assert_same, by_path, fb, tensors
from tests.torch.test_modules import EXTRA, backward, built, carried, flat, leaf_copy, same_text

INFOS = {info.name.removeprefix("nn."): info for info in module_db}
NAMES = sorted({*INFOS, *EXTRA})
# Results of low precision: roundings of the inputs and of every step add up, in another order than PyTorch's.
LOW = {"half": "float16", "bfloat16": "bfloat16", "double": "float64"}


@functools.cache
def sample_of(name):
    """The class and its first sample that can be called."""
    if name in EXTRA:
        return getattr(torch.nn, name), EXTRA[name][0]
    info = INFOS[name]
    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=False)
        return info.module_cls, next(sample for sample in found if sample.forward_input is not None)


class Pair:
    """One sample in both libraries: the modules, in evaluation, and how they are called with equal arguments."""

    def __init__(self, name):
        cls, self.sample = sample_of(name)
        self.mine, self.theirs = (module.float().eval() for module in built(cls, self.sample.constructor_input))
        self.lazy = any(torch.nn.parameter.is_lazy(p) for p in self.theirs.parameters())

    def arguments(self, dtype=None):
        """(ours, PyTorch's): positional and keyword arguments, floating tensors in `dtype`."""
        given = self.sample.forward_input
        theirs = leaf_copy([list(given.args), given.kwargs])
        if dtype is not None:
            theirs = cast(theirs, dtype)
        return carried(theirs), theirs

    def results(self, mine=None, theirs=None, dtype=None):
        a, b = self.arguments(dtype)
        return called(mine or self.mine, a), called(theirs or self.theirs, b)

    def agree(self, mine=None, theirs=None, looser=4):
        got, want = self.results(mine, theirs)
        assert_same(got, want, looser=looser)


def cast(x, dtype):
    """Floating tensors of a sample in another dtype."""
    if isinstance(x, torch.Tensor):
        return x.detach().to(dtype).requires_grad_(x.requires_grad) if x.is_floating_point() else x
    if isinstance(x, torch.nn.utils.rnn.PackedSequence):
        return x.to(dtype)
    if type(x) in (list, tuple):
        return type(x)([cast(part, dtype) for part in x])
    return {key: cast(part, dtype) for key, part in x.items()} if type(x) is dict else x


def called(module, arguments):
    args, kwargs = arguments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [part for part in flat(module(*args, **kwargs)) if part is not None]


def every(test):
    return pytest.mark.parametrize("name", NAMES)(test)


def names_of(module):
    return [[name for name, _ in getattr(module, f"named_{kind}")()]
            for kind in ("parameters", "buffers", "modules", "children")]


@every
def test_copies(name):
    """deepcopy and pickle give modules that print alike, hold memory of their own, and compute the same."""
    pair = Pair(name)
    pair.results()                                       # a lazy module has its parameters after the first call
    for made in (copy.deepcopy(pair.mine), pickle.loads(pickle.dumps(pair.mine))):
        assert type(made) is type(pair.mine) and names_of(made) == names_of(pair.theirs)
        same_text(made, pair.theirs)
        assert made.training is False
        pair.agree(made)
        for old, new in zip(pair.mine.parameters(), made.parameters(), strict=True):
            assert type(new) is type(old) and new.requires_grad == old.requires_grad
            assert new.data_ptr() != old.data_ptr() or not new.numel()


@every
def test_attributes(name):
    """The public attributes of the object, by name and in order of the tree."""
    pair = Pair(name)
    assert names_of(pair.mine) == names_of(pair.theirs)
    for ours, torchs in zip(pair.mine.modules(), pair.theirs.modules(), strict=True):
        public = [key for key in vars(torchs) if not key.startswith("_")]
        assert not [key for key in public if not hasattr(ours, key)]
        for key in public:
            if isinstance(getattr(torchs, key), (int, float, str, tuple, type(None))):
                assert getattr(ours, key) == getattr(torchs, key), key


@every
@pytest.mark.parametrize("method", LOW)
def test_precision(name, method):
    """`half`, `bfloat16`, `double` and `to` change floating state only, and a call computes in that dtype."""
    pair, dtype = Pair(name), getattr(torch, LOW[method])
    if pair.lazy:
        pair.results()
    getattr(pair.theirs, method)()
    moved = copy.deepcopy(pair.mine).to(getattr(fb, LOW[method]))
    assert getattr(pair.mine, method)() is pair.mine
    for made in (pair.mine, moved):
        got = {key: str(held.dtype) for key, held in made.state_dict().items()}
        assert got == {key: str(held.dtype) for key, held in pair.theirs.state_dict().items()}
    a, b = pair.arguments(dtype)
    try:
        want = called(pair.theirs, b)
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented for" in str(error):
            return                                       # PyTorch has no such kernel on this device
        raise
    # Rounded at other steps than PyTorch's: what is as near to the same call in double precision is right as well.
    wide = copy.deepcopy(pair.theirs).double()
    precise = functools.cache(lambda: called(wide, cast(leaf_copy(pair.arguments(dtype)[1]), torch.double)))
    assert_same(called(pair.mine, a), want, precise=precise, looser=4)


@every
def test_meta(name):
    """`to("meta")` keeps shapes and dtypes without memory; `to_empty` gives memory, a state dict the values."""
    pair = Pair(name)
    pair.results()
    held = copy.deepcopy(pair.mine.state_dict())
    shapes = {key: (t.shape, t.dtype) for key, t in held.items()}
    pair.mine.to("meta")
    assert all(t.is_meta for t in [*pair.mine.parameters(), *pair.mine.buffers()])
    assert {key: (t.shape, t.dtype) for key, t in pair.mine.state_dict().items()} == shapes
    pair.mine.to_empty(device="cpu")
    assert all(t.device.type == "cpu" for t in [*pair.mine.parameters(), *pair.mine.buffers()])
    if len(held) == len(list(pair.mine.parameters())) + len(list(pair.mine.buffers())):
        pair.mine.load_state_dict(held)
        pair.agree()


@every
def test_state_through_files(name, tmp_path):
    """PyTorch's file loads here and ours there; afterwards both compute the same."""
    pair = Pair(name)
    pair.results()
    with torch.no_grad():
        for number, t in enumerate([*pair.theirs.parameters(), *pair.theirs.buffers()]):
            if t.is_floating_point() and t.numel():
                t.mul_(0.9).add_(0.01 * (number + 1))
    torch.save(pair.theirs.state_dict(), tmp_path / "theirs.pt")
    assert str(pair.mine.load_state_dict(fb.load(tmp_path / "theirs.pt"))) == "<All keys matched successfully>"
    pair.agree()
    cls, sample = sample_of(name)
    other, again = (module.float().eval() for module in built(cls, sample.constructor_input))
    fb.save(pair.mine.state_dict(), tmp_path / "mine.pt")
    found = torch.load(tmp_path / "mine.pt", weights_only=True)
    assert found._metadata == pair.theirs.state_dict()._metadata
    again.load_state_dict(found)
    pair.agree(theirs=again)
    # through NumPy, with assign
    other.load_state_dict({key: fb.from_numpy(t.numpy().copy()) for key, t in pair.theirs.state_dict().items()},
                          assign=not pair.lazy)
    pair.agree(other)


@every
def test_whole_modules_in_files(name, tmp_path):
    """A module saved as it is: each library reads the other's if it is told to trust the file."""
    pair = Pair(name)
    pair.results()
    torch.save(pair.theirs, tmp_path / "theirs.pt")
    names = fb.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "theirs.pt")
    with fb.serialization.safe_globals([(by_path(found), found) for found in names]):
        listed = fb.load(tmp_path / "theirs.pt")
    for mine in (listed, fb.load(tmp_path / "theirs.pt", weights_only=False)):
        pair.agree(mine)
        same_text(mine, pair.theirs)
        fired = []
        mine.register_forward_hook(lambda *seen, fired=fired: fired.append(1))
        pair.agree(mine)
        assert fired == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                  # that it holds more than tensors
        fb.save(pair.mine, tmp_path / "mine.pt")
    theirs = torch.load(tmp_path / "mine.pt", weights_only=False)
    pair.agree(theirs=theirs)
    same_text(pair.mine, theirs)
    assert list(theirs.register_forward_hook(print).hooks_dict_ref()) and copy.deepcopy(theirs).train().training


@every
def test_freezing(name):
    """`requires_grad_(False)` and `zero_grad` reach every parameter; so do `train` and `eval` every module."""
    pair = Pair(name)
    pair.results()
    for module in (pair.mine, pair.theirs):
        assert module.train() is module and all(m.training for m in module.modules())
        assert module.train(False) is module and not any(m.training for m in module.modules())
        lib = fb if module is pair.mine else torch
        backward(lib, tensors(called(module, pair.arguments()[lib is torch])), 3)
    kept = [[p.grad is None for p in module.parameters()] for module in (pair.mine, pair.theirs)]
    assert kept[0] == kept[1]
    pair.mine.zero_grad(set_to_none=False)
    assert all(p.grad is None or not p.grad.any() for p in pair.mine.parameters())
    assert [p.grad is None for p in pair.mine.parameters()] == kept[1]
    pair.mine.zero_grad()
    assert all(p.grad is None for p in pair.mine.parameters())
    assert pair.mine.requires_grad_(False) is pair.mine
    assert not any(p.requires_grad for p in pair.mine.parameters())
    pair.theirs.requires_grad_(False)
    assert [t.requires_grad for t in pair.results()[0]] == [t.requires_grad for t in pair.results()[1]]
    with pytest.raises(RuntimeError, match="should never be called"):
        pair.mine.get_extra_state()


def hooked(lib, module, arguments):
    """The calls of all hooks on all modules of a tree, in order, with what they see."""
    seen = []

    def shapes(given):
        return [None if t is None else tuple(t.shape) for t in flat(given) if t is None or isinstance(t, lib.Tensor)]

    for path, part in module.named_modules():
        part.register_forward_pre_hook(lambda m, given, path=path: seen.append(("pre", path, shapes(given))))
        part.register_forward_hook(lambda m, given, out, path=path: seen.append(("forward", path, shapes(out))))
        part.register_full_backward_pre_hook(lambda m, g, path=path: seen.append(("grad pre", path, shapes(g))))
        part.register_full_backward_hook(
            lambda m, gin, gout, path=path: seen.append(("grad", path, shapes(gin), shapes(gout))))
    backward(lib, tensors(called(module, arguments)), 3)
    return seen


@every
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_hooks(name):
    """Hooks of all kinds fire equally often, in the same order and with tensors of the same shapes."""
    pair = Pair(name)
    pair.results()
    a, b = pair.arguments()
    if getattr(pair.mine, "inplace", False):
        pytest.skip("a hook on gradients makes views of the arguments, which must not be written")
    assert hooked(fb, pair.mine, a) == hooked(torch, pair.theirs, b)


@every
def test_compiled(name):
    """A compiled module, called until it replays, agrees with PyTorch's eager one."""
    pair = Pair(name)
    pair.results()
    made = fb.compile(pair.mine)
    for _ in range(3):
        pair.agree(made)
    assert list(made.state_dict()) == [f"_orig_mod.{key}" for key in pair.theirs.state_dict()]
