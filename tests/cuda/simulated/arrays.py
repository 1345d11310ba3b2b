"""An array module like CuPy over memory of a simulated device: NumPy computes, and what CuPy refuses is refused.

Arrays are no NumPy arrays, and are made NumPy's only by `get`; functions take no array of the CPU, but for those that
upload one. All arrays of a call stand on the current device. Results are arrays always, of no dimensions where NumPy
gives scalars. A call goes to the current stream: what was handed to it before is done first.
"""
import functools
import operator
import pathlib
from types import SimpleNamespace

import numpy as np

# What CuPy has of NumPy's names → the names of its arguments, None for what is no function: see ../cupy_names.py.
CUPY = {line.partition("(")[0]: line.partition("(")[2].rstrip(")").split(", ") if "(" in line else None
        for line in pathlib.Path(__file__).parents[1].joinpath("cupy_names.txt").read_text().splitlines()[1:]}
ONLY_ARRAYS = ("where", "broadcast_to", "take", "sort", "argsort", "nonzero")     # whose first argument is no number
UPLOADING = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
ON_THE_CPU = ("dtype", "finfo", "iinfo", "result_type", "promote_types", "can_cast", "broadcast_shapes", "issubdtype",
              "isscalar", "ndindex", "min_scalar_type", "common_type", "shape", "ndim", "size", "may_share_memory",
              "shares_memory")
METHODS = """all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod cumsum
diagonal dot flatten max mean min nonzero partition prod put ravel repeat reshape round searchsorted sort squeeze std
sum swapaxes take trace transpose var view fill""".split()
OPERATORS = """add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift""".split()
COMPARISONS = "lt le gt ge eq ne".split()


class ndarray:
    """Memory of a device, seen as an array. `host` is a NumPy array over it, for the simulation alone."""

    __slots__ = ("host", "memory", "module", "base", "__weakref__")
    __hash__ = None

    def __new__(cls, *given, **named):
        raise TypeError("made by functions of the module, or by a driver's `array`")

    @property
    def index(self):
        """The device's number."""
        return self.memory.index

    @property
    def flags(self):
        found = self.host.flags
        return SimpleNamespace(c_contiguous=found.c_contiguous, f_contiguous=found.f_contiguous, forc=found.forc,
                               fnc=found.fnc, owndata=self.base is None)

    @property
    def device(self):
        return SimpleNamespace(id=self.index)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.host.__array_interface__["data"][0] if self.host.size else self.memory.address,
                               mem=self.memory, device_id=self.index)

    def get(self, stream=None, order="C", out=None):
        """The contents as a NumPy array; waits."""
        self.module._settle([self])
        return self.host.copy(order)

    def set(self, array, stream=None):
        """Take over a NumPy array's contents."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(f"{array.dtype}{array.shape} for an array of {self.dtype}{self.shape}")
        self.module._settle([self])
        self.host[...] = array

    def item(self, *at):
        return self.get().item(*at)

    def tolist(self):
        return self.get().tolist()

    def tobytes(self, order="C"):
        return self.get().tobytes(order)

    def __array__(self, *given, **named):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy "
                        "array explicitly.")

    def __array_ufunc__(self, ufunc, method, *inputs, **named):
        return self.module._call(getattr(ufunc, method), inputs, named)

    def __array_function__(self, function, types, args, named):
        return self.module._call(function, args, named)

    def __getitem__(self, at):
        return self.module._call(operator.getitem, (self, at), {}, index=True)

    def __setitem__(self, at, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>: memory of the CPU is uploaded, not assigned")
        self.module._call(operator.setitem, (self, at, value), {}, index=True)

    def __len__(self):
        return len(self.host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __complex__(self):
        return complex(self.get())

    def __repr__(self):
        return f"simulated {self.get()!r}"


def _delegated(name):
    return property(lambda self: getattr(self.host, name))


def _view(name):
    return property(lambda self: self.module._wrapped(getattr(self.host, name), [self]))


def _check_named(name, named):
    """Refuse arguments that CuPy's function does not have."""
    unknown = [key for key in named if key not in (CUPY[name] or named)]
    if unknown:
        raise TypeError(f"cupy.{name}() got an unexpected keyword argument {unknown[0]!r}")


def _method(name):
    def method(self, *given, **named):
        _check_named(f"ndarray.{name}", named)
        return self.module._call(lambda host, *g, **n: getattr(host, name)(*g, **n), (self, *given), named)
    return method


def _operator(function, swapped=False):
    def method(self, other):
        if not isinstance(other, (ndarray, int, float, complex, bool, np.generic)):
            if isinstance(other, np.ndarray):
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")
            return NotImplemented
        return self.module._call(function, (other, self) if swapped else (self, other), {})
    return method


def _in_place(function):
    def method(self, other):
        self.module._call(function, (self, other), {})
        return self
    return method


for name in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes"):
    setattr(ndarray, name, _delegated(name))
for name in ("T", "real", "imag", "mT"):
    setattr(ndarray, name, _view(name))
for name in ("real", "imag"):                                # which may be written to
    setattr(ndarray, name, getattr(ndarray, name).setter(
        lambda self, value, name=name: getattr(self, name).__setitem__(..., value)))
for name in METHODS:
    setattr(ndarray, name, _method(name))
for name in OPERATORS:
    plain = name.rstrip("_")
    setattr(ndarray, f"__{plain}__", _operator(getattr(operator, name)))
    setattr(ndarray, f"__r{plain}__", _operator(getattr(operator, name), swapped=True))
    setattr(ndarray, f"__i{plain}__", _in_place(getattr(operator, f"i{plain}")))
for name in COMPARISONS:
    setattr(ndarray, f"__{name}__", _operator(getattr(operator, name)))
for name in ("neg", "pos", "invert", "abs"):
    setattr(ndarray, f"__{name}__", (lambda f: lambda self: self.module._call(f, (self,), {}))(getattr(operator, name)))


class Module:
    """The array module of a simulated driver; `numpy` is the module whose functions it calls."""

    ndarray = ndarray

    def __init__(self, driver, numpy=np, prefix=""):
        self._driver, self._numpy, self._prefix = driver, numpy, prefix

    def __getattr__(self, name):
        found = getattr(self._numpy, name)
        if self._prefix + name not in CUPY and not isinstance(found, type(np)):
            raise AttributeError(f"module 'cupy' has no attribute {self._prefix + name!r}")
        if isinstance(found, type(np)):
            made = Module(self._driver, found, f"{self._prefix}{name}.")
        elif isinstance(found, np.ufunc):
            made = UFunc(self, found)
        elif name in ON_THE_CPU or isinstance(found, type) or not callable(found):
            return found                                     # types and constants
        else:
            made = functools.partial(self._named, found, self._prefix + name)
        setattr(self, name, made)
        return made

    def asnumpy(self, array, *given, **named):
        return array.get() if isinstance(array, ndarray) else np.asarray(array)

    def get_array_module(self, *arrays):
        return self if any(isinstance(a, ndarray) for a in arrays) else np

    def may_share_memory(self, one, other):
        return np.may_share_memory(one.host, other.host)

    def shares_memory(self, one, other):
        return np.shares_memory(one.host, other.host)

    # --- the simulation

    def _named(self, function, name, *given, **named):
        _check_named(name, named)
        if name in ONLY_ARRAYS and not isinstance(given[0], ndarray):
            raise TypeError(f"cupy.{name}() takes an array, got {type(given[0]).__name__}")
        return self._call(function, given, named, uploads=name in UPLOADING)

    def _call(self, function, given, named, uploads=False, index=False):
        """What NumPy's function gives over the memory of arrays, as arrays of the current device."""
        arrays: list = []
        given = [self._plain(one, arrays, uploads or index) for one in given]
        named = {key: self._plain(one, arrays, uploads or index) for key, one in named.items()}
        self._settle(arrays)
        with np.errstate(all="ignore"):
            made = function(*given, **named)
        return self._wrapped(made, arrays)

    def _plain(self, value, arrays, uploads):
        if isinstance(value, ndarray):
            arrays.append(value)
            return value.host
        if isinstance(value, UFunc):
            return value.ufunc
        if isinstance(value, (list, tuple)):
            made = [self._plain(one, arrays, uploads) for one in value]
            return type(value)(made) if type(value) in (list, tuple) else value
        if isinstance(value, np.ndarray) and not uploads:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>: memory of the CPU among a device's")
        return value

    def _settle(self, arrays):
        """Have done what was handed to the current stream before a function looks."""
        current = self._driver.current_device()
        for array in arrays:
            if array.index != current:
                raise ValueError("Array device must be same as the current device: array device = "
                                 f"{array.index} while current = {current}")
        self._driver.settle(current)

    def _wrapped(self, made, arrays):
        if isinstance(made, (tuple, list)):
            parts = [self._wrapped(one, arrays) for one in made]
            return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
        if isinstance(made, np.generic):
            made = np.asarray(made)
        if not isinstance(made, np.ndarray):
            return made
        self.check_dtype(made.dtype)
        start = made.__array_interface__["data"][0]
        for array in arrays:                                 # a view of one of them
            memory = array.memory
            if made.size and memory.address <= start < memory.address + memory.nbytes:
                return self.over(made, memory, array if array.base is None else array.base)
        index = self._driver.current_device()
        memory = self._driver.allocate(index, made.nbytes)
        order = sorted(range(made.ndim), key=lambda d: -abs(made.strides[d]))
        dense = memory.host_array(tuple(made.shape[d] for d in order), made.dtype)
        fresh = dense.transpose(np.argsort(order)) if order else dense
        fresh[...] = made
        return self.over(fresh, memory)

    def over(self, host, memory, base=None):
        """The array that a NumPy array over `memory` stands for; of which array it is a view."""
        made = object.__new__(ndarray)
        made.host, made.memory, made.module, made.base = host, memory, self._root(), base
        return made

    def _root(self):
        return self._driver.cupy

    @staticmethod
    def check_dtype(dtype):
        """Refuse what CuPy has no arrays of."""
        dtype = np.dtype(dtype)
        if dtype.kind not in "biufc" and dtype.name != "bfloat16" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
            raise ValueError(f"Unsupported dtype {dtype}")


class UFunc:
    """A function of elements, which may also fold."""

    def __init__(self, module, ufunc):
        self._module, self.ufunc = module, ufunc
        self.nin, self.nout, self.__name__ = ufunc.nin, ufunc.nout, ufunc.__name__

    def __call__(self, *given, **named):
        return self._module._call(self.ufunc, given, named)

    def __getattr__(self, name):
        if name not in ("accumulate", "at", "outer", "reduce", "reduceat"):
            raise AttributeError(name)
        if self.__name__ not in ("add", "multiply") and name != "outer":
            raise NotImplementedError(f"`cupy_{self.__name__}.{name}` is not supported yet")
        return functools.partial(self._module._call_method, self.ufunc, name)


def _call_method(self, ufunc, name, *given, **named):
    return self._call(getattr(ufunc, name), given, named)


Module._call_method = _call_method
