"""`torch.library`: operators of one's own, and what is registered for them.

`custom_op` makes an operator of a Python function. `Library` and `define` declare one by its schema, `impl` gives it
kernels. Both kinds are called as `torch.ops.namespace.name` (compat/_library/overloads.py tells how), have gradients by
`register_autograd`, and shapes on the meta device by `register_fake`.
"""
import contextlib
import re
import weakref

from . import _ops
from .base.errors import warn
from .compat._library import overloads
from .compat._library.check import CHECKERS
from .compat._library.custom_ops import OPDEFS, CustomOpDef, custom_op
from .compat._library.infer_schema import infer_schema
from .compat._library.schema import parse

__all__ = ["Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract",
           "infer_schema", "register_autocast", "register_fake", "register_torch_dispatch", "register_vmap",
           "triton_op", "wrap_triton"]

RESERVED_NAMESPACES = ("prim",)
NAMELESS_SCHEMA = re.compile(r"\(.*\) -> .*")
_waiting: dict = {}           # qualified name of an operator that is not defined yet → what to do when it is
_kept: list = []              # libraries that nothing else holds


class Library:
    """Operators of the namespace `ns`: kind "DEF" or "FRAGMENT" defines new ones, "IMPL" adds kernels to others'.

    They go when the library goes.
    """

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in RESERVED_NAMESPACES and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        self.ns, self.kind, self.dispatch_key = ns, kind, getattr(dispatch_key, "name", dispatch_key)
        self._ops: list = []
        self._impls: list = []
        self.m = self
        weakref.finalize(self, _take_away, self._ops, self._impls)

    def __repr__(self):
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema, alias_analysis="", *, tags=()):
        """Declare an operator: `define("sum(Tensor self) -> Tensor")`. Its name is returned."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL":
            raise RuntimeError(f"define(): cannot define a new operator, {schema.partition('(')[0]!r}, in a library of "
                               "kind IMPL; use DEF or FRAGMENT")
        if self.ns == "aten":
            raise NotImplementedError("define(): Flambeau's own operations are declared in flambeau/ops, and stand in "
                                      "torch.ops.aten by themselves; use another namespace")
        made = _ops.define(self.ns, schema, tags if isinstance(tags, (tuple, list)) else (tags,))
        self._ops.append(made)
        for act in _waiting.pop(made._name, ()):
            act(made)
        return parse(schema).name + (f".{made._overloadname}" if made._overloadname != "default" else "")

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=True):
        """Give an operator its kernel for a dispatch key ("CPU", "Meta", "Autograd"; "": made of other operations)."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise NotImplementedError("impl(with_keyset=True): there are no sets of dispatch keys here; write a kernel "
                                      "that takes the operator's arguments alone, and gradients with register_autograd")
        key = getattr(dispatch_key, "name", dispatch_key) or self.dispatch_key
        name = _own_name(op_name, self.ns, "impl")
        if self.ns == "aten":
            raise NotImplementedError(f"impl({name!r}): the kernels of Flambeau's own operations cannot be replaced; "
                                      "define an operator in a namespace of your own")

        def act(op):
            if not allow_override and (key or overloads.COMPOSITE) in op.kernels:
                raise RuntimeError("This is not allowed since there's already a kernel registered from python "
                                   f"overriding {name}'s behavior for {key} dispatch key and {self.ns} namespace.")
            if fn is not fallthrough_kernel:
                overloads.add_kernel(op, key, fn)
                self._impls.append((op, key or overloads.COMPOSITE, fn))
        _when_defined(f"{self.ns}::{name}", act)

    def _register_fake(self, op_name, fn, _stacklevel=1, *, allow_override=True):
        _ops.lookup(f"{self.ns}::{_own_name(op_name, self.ns, 'register_fake')}").fake = fn

    def fallback(self, fn, dispatch_key="", *, with_keyset=False):
        """A kernel for all operators: not here."""
        raise NotImplementedError("Library.fallback: Flambeau has no table of dispatch keys to fall back on; use a "
                                  "torch.overrides.TorchFunctionMode to see every call")

    def _destroy(self):
        _take_away(self._ops, self._impls)


def _take_away(ops, impls):
    for op, key, fn in impls:
        if op.kernels.get(key) is fn:
            del op.kernels[key]
    for op in ops:
        _ops.undefine(op)
    ops.clear()
    impls.clear()


@contextlib.contextmanager
def _scoped_library(*args, **kwargs):
    """A Library for the time of a `with`."""
    made = Library(*args, **kwargs)
    try:
        yield made
    finally:
        made._destroy()


def fallthrough_kernel():
    """Given to `Library.impl`: this key has no kernel of its own."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


# --- one operator at a time --------------------------------------------------


def define(qualname, schema, alias_analysis="", *, lib=None, tags=()):
    """Declare an operator: `define("mylib::sin", "(Tensor x) -> Tensor")`."""
    if isinstance(qualname, Library):             # the old form: a decorator that defines and implements
        def decorate(fn):
            qualname.impl(qualname.define(schema, alias_analysis), fn)
            return fn
        return decorate
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    namespace, name = _parts(qualname)
    if not NAMELESS_SCHEMA.fullmatch(schema):
        raise ValueError("define(qualname, schema, ...): expected schema to look like e.g. \"(Tensor x) -> Tensor\" "
                         f"but got \"{schema}\"")
    _library_for(namespace, lib).define(name + schema, tags=tags)
    return None


def impl(qualname, types, func=None, *, lib=None):
    """Give an operator its kernel for device types: "cpu", or "default" for all. Without `func`, a decorator."""
    if isinstance(qualname, Library):             # the old form: impl(lib, name, dispatch_key)
        def decorate(fn):
            qualname.impl(types, fn, func or "")
            return fn
        return decorate
    keys = [_key_for(device_type) for device_type in ((types,) if isinstance(types, str) else types)]
    namespace, name = _parts(qualname)

    def register(fn):
        use = _library_for(namespace, lib)
        for key in keys:
            use.impl(name, fn, key)
    return register if func is None else register(func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Give an operator its kernel for device types (None: for all)."""
    found = _custom(op, "register_kernel")
    if isinstance(found, CustomOpDef):
        return found.register_kernel(device_types, func) if func is not None else found.register_kernel(device_types)
    return impl(found, "default" if device_types is None else device_types, func, lib=lib)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=True):
    """Say what an operator's results look like: `func` gets tensors on the meta device and returns such."""
    found = _custom(op, "register_fake")

    def register(fn):
        if isinstance(found, CustomOpDef):
            return found.register_fake(fn)
        namespace, name = _parts(found)
        _library_for(namespace, lib)._register_fake(name, fn)
        return fn
    return register if func is None else register(func)


def impl_abstract(qualname, func=None, *, lib=None, _stacklevel=1):
    """The old name of `register_fake`."""
    warn("`torch.library.impl_abstract` was renamed to `torch.library.register_fake`. Please use that instead; we will "
         "remove `torch.library.impl_abstract` in a future version of PyTorch.", FutureWarning)
    return register_fake(qualname, func, lib=lib)


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Give an operator its gradient: `backward(ctx, *grads)`, with what `setup_context(ctx, inputs, output)` saved."""
    found = _custom(op, "register_autograd")
    if isinstance(found, CustomOpDef):
        return found.register_autograd(backward, setup_context=setup_context)
    found = _ops.lookup(found)
    schema = found._schema
    if schema.mutated() or any(r.alias_info is not None for r in schema.returns):
        raise RuntimeError(f"Cannot register autograd formula for non-functional operator {found} with schema "
                           f"{schema}. Please create a functional operator and register an autograd formula for that.")
    if any(a.kwarg_only and a.type.base == "Tensor" for a in schema.arguments):
        raise NotImplementedError("register_autograd with kwarg-only Tensor args. In the original definition of the "
                                  f"op, please make your tensors not kwarg-only. Got: {schema}")
    found.formula = (backward, setup_context)
    return None


def register_vmap(op, func=None, /, *, lib=None):
    """Say how an operator works on a batch. Flambeau's `vmap` calls it slice by slice, and needs no rule."""
    found = _custom(op, "register_vmap")
    if isinstance(found, CustomOpDef):
        return found.register_vmap(func)
    _ops.lookup(found)
    return (lambda fn: None) if func is None else None


def register_autocast(op, device_type, cast_inputs, /, *, lib=None):
    """Cast the floating tensors that a custom op is given to `cast_inputs` where autocast is on for `device_type`."""
    found = _custom(op, "register_autocast")
    if not isinstance(found, CustomOpDef):
        raise NotImplementedError(f"register_autocast({found!r}): only for operators made by torch.library.custom_op")
    return found.register_autocast(device_type, cast_inputs)


def register_torch_dispatch(op, torch_dispatch_class, func=None, /, *, lib=None):
    """Let `func(mode, func, types, args, kwargs)` handle an operator under a TorchDispatchMode of that class."""
    found = _custom(op, "register_torch_dispatch")
    found = found._opoverload if isinstance(found, CustomOpDef) else _ops.lookup(found)

    def register(fn):
        found.dispatch_rules[torch_dispatch_class] = fn
        return fn
    return register if func is None else register(func)


def get_ctx():
    """Inside a fake implementation, what makes sizes that depend on data: the meta device has none. Outside, None."""
    if not overloads.state.fake:
        return None
    op = overloads.state.fake[-1]
    raise RuntimeError(f"Attempted to call get_ctx() for the meta implementation for {op._name}. You're trying to run "
                       "this operator with meta Tensors, but this operator may return an output Tensor with "
                       "data-dependent shape. Meta Tensors don't support operators with outputs that have "
                       "data-dependent shapes.")


def get_kernel(op, dispatch_key):
    """The kernel of an operator for a dispatch key."""
    if not isinstance(op, (str, _ops.OpOverload)):
        raise ValueError(f"get_kernel({op}): got unexpected type for op: {type(op)}")
    found = _ops.lookup(op) if isinstance(op, str) else op
    key = getattr(dispatch_key, "name", dispatch_key)
    kernel = found.kernels.get(key)
    if kernel is None and found.custom is not None:
        kernel = found.custom.kernel_for(overloads.DEVICES.get(key))
    if kernel is None:
        raise RuntimeError(f"{found._name} has no kernel of its own for {key}")
    return kernel


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """An operator of a function that may start Triton kernels, on a device that has any; elsewhere a `custom_op`.

    What is registered for the CPU runs there. `wrap_triton`, where a kernel would be started, refuses.
    """
    def define(fn):
        made = custom_op(name, fn, mutates_args=mutates_args, schema=schema)
        made.register_fake(fn)                    # as in PyTorch, which requires that it can be traced
        return made
    return define if fn is None else define(fn)


def wrap_triton(triton_kernel, /):
    """A Triton kernel for tracing: there is no GPU, and no Triton, here."""
    raise NotImplementedError("wrap_triton: Flambeau runs no Triton kernels; use torch.library.custom_op with a kernel "
                              "for the CPU")


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(op, args, kwargs=None, *, test_utils=CHECKS, raise_exception=True, atol=None, rtol=None):
    """Try whether an operator does what was registered for it: {check: "SUCCESS" or what is wrong}.

    `test_schema`: it writes the arguments its schema says, and no others, and its results are new tensors.
    `test_autograd_registration`: it has a gradient, if an argument asks for one.
    `test_faketensor`: on the meta device it gives the shapes, strides and dtypes that it gives on real tensors.
    `test_aot_dispatch_dynamic`: it gives the same inside `torch.compile`.
    """
    if isinstance(op, CustomOpDef):
        op = op._opoverload
    if isinstance(op, _ops.OpOverloadPacket):
        op = next(iter(op._overloads_by_name.values()))
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(names) - set(CHECKS)
    if unknown:
        raise ValueError(f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of {CHECKS} but "
                         "it was not")
    found = {}
    for name in names:
        try:
            CHECKERS[name](op, args, kwargs or {}, atol, rtol)
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                words = f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                raise OpCheckError(words) from error
            found[name] = error
    return found


class OpCheckError(Exception):
    """What `opcheck` raises."""


# --- names --------------------------------------------------


def _parts(qualname):
    if qualname.count("::") != 1:
        raise ValueError(f"Expected `qualname` to be of the form \"namespace::name\", but got {qualname}. The qualname "
                         "passed to the torch.library APIs must consist of a namespace and a name, e.g. aten::sin")
    return qualname.split("::")


def _own_name(op, namespace, what):
    """The name of an operator inside its namespace, with its overload."""
    if isinstance(op, _ops.OpOverload):
        op = op._name
    if not isinstance(op, str):
        raise RuntimeError(f"{what} should be passed either a name or an OpOverload object as the first argument, got "
                           f"{type(op)}")
    return op.removeprefix(f"{namespace}::").removesuffix(".default")


def _library_for(namespace, lib):
    if lib is None:
        lib = Library(namespace, "FRAGMENT")
        _kept.append(lib)
    return lib


def _key_for(device_type):
    """The dispatch key of a device type."""
    if device_type == "default":
        return overloads.EXPLICIT
    is_key = device_type in overloads.DEVICES or device_type.startswith(("Composite", "Autograd"))
    return device_type if is_key else overloads._key_of(device_type)


def _custom(op, what):
    """The CustomOpDef that is meant, else the qualified name."""
    if not isinstance(op, (str, _ops.OpOverload, CustomOpDef)):
        raise ValueError(f"{what}({op}): got unexpected type for op: {type(op)}")
    if isinstance(op, CustomOpDef):
        return op
    name = op if isinstance(op, str) else op._name
    return OPDEFS.get(name) or name


def _when_defined(qualname, act):
    """Do `act` with an operator now, or as soon as it is defined: kernels may be given first."""
    try:
        found = _ops.lookup(qualname)
    except RuntimeError:
        _waiting.setdefault(qualname, []).append(act)
    else:
        act(found)
