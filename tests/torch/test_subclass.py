"""Who is asked: every attribute and method of Tensor, and what Python does with a tensor, on a class with a
`__torch_function__` of its own, beside PyTorch."""
import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fb

# Constants here, and the private cells behind `grad` and a view's base.
CONSTANT = {"is_ipu", "is_mkldnn", "is_nested", "is_quantized", "is_sparse", "is_vulkan", "is_xla", "is_xpu", "_base",
            "_grad"}
NAMES = sorted(name for name in set(dir(torch.Tensor)) & set(dir(fb.Tensor)) if name not in CONSTANT)
CALLS = {
    "len": lambda m, s, one: len(s), "iter": lambda m, s, one: list(s), "in": lambda m, s, one: 1.0 in s,
    "bool": lambda m, s, one: bool(one), "float": lambda m, s, one: float(one), "int": lambda m, s, one: int(one),
    "complex": lambda m, s, one: complex(one), "repr": lambda m, s, one: repr(s), "hash": lambda m, s, one: hash(s),
    "format": lambda m, s, one: f"{one}", "numpy.asarray": lambda m, s, one: np.asarray(s),
    "set data": lambda m, s, one: setattr(s, "data", m.ones(2, 3)),
    "set grad": lambda m, s, one: setattr(s, "grad", None),
    "set requires_grad": lambda m, s, one: setattr(s, "requires_grad", True), "item": lambda m, s, one: s[0],
    "set item": lambda m, s, one: s.__setitem__(0, 1.0), "equality": lambda m, s, one: s == s,
    "torch.numel": lambda m, s, one: m.numel(s), "is_tensor": lambda m, s, one: m.is_tensor(s),
    "reflected": lambda m, s, one: 2 ** s, "reduce": lambda m, s, one: s.__reduce_ex__(2),
    "parameter": lambda m, s, one: pickle.dumps(m.nn.Parameter(m.ones(2))), "copy": lambda m, s, one: copy.copy(s),
    **{name: lambda m, s, one, name=name: getattr(s, name)() for name in """size stride dim numel is_contiguous data_ptr
       storage_offset element_size detach clone type tolist numpy nelement ndimension get_device is_floating_point
       is_complex is_signed untyped_storage is_shared is_inference is_pinned requires_grad_ cpu unique norm sum
       __dlpack_device__ _is_view retain_grad""".split()},
    **{name: lambda m, s, one, name=name: getattr(s, name)(s)
       for name in "is_same_size is_set_to type_as equal".split()},
}


def asked(m, look):
    """Whether the class was asked while `look` was at it; errors do not count."""
    seen = []

    class Asked(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})
    s, one = m.arange(6.0).reshape(2, 3).as_subclass(Asked), m.ones(1).as_subclass(Asked)
    seen.clear()
    try:
        look(m, s, one)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        pass
    return bool(seen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_attributes(name):
    look = lambda m, s, one: getattr(s, name)
    assert asked(fb, look) == asked(torch, look)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    assert asked(fb, CALLS[name]) == asked(torch, CALLS[name])


def test_what_it_is_asked_for():
    """A property by its `__get__`, a method by itself, as programs compare them."""
    for m in (torch, fb):
        seen = []

        class Asked(m.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None, seen=seen):
                seen.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})
        s = m.ones(2, 3).as_subclass(Asked)
        seen.clear()
        assert tuple(s.shape) == (2, 3) and s.dtype is m.float32 and len(s) == 2 and s.dim() == 2 and s.grad is None
        assert seen == [m.Tensor.shape.__get__, m.Tensor.dtype.__get__, m.Tensor.__len__, m.Tensor.dim,
                        m.Tensor.grad.__get__]


def test_a_class_answers_for_its_attributes():
    for m in (torch, fb):
        class Padded(m.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None, m=m):
                if func == m.Tensor.shape.__get__:
                    return m.Size((7,))
                return super().__torch_function__(func, types, args, kwargs or {})
        assert m.ones(2, 3).as_subclass(Padded).shape == (7,)


def test_make_subclass_is_static():
    for m in (torch, fb):
        class Named(m.Tensor):
            pass
        made = m.Tensor._make_subclass(Named, m.ones(2), True)
        assert type(made) is Named and made.requires_grad and type(Named._make_subclass(Named, m.ones(2))) is Named
