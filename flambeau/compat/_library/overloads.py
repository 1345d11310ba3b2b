"""`torch.ops`: operators by their names, `torch.ops.NAMESPACE.NAME.OVERLOAD`, and how a program's own one is called.

`torch.ops.aten` has Flambeau's own operations under the names that PyTorch's library of operators has for them
(aten.py, which puts itself into `known_packets`). Every other namespace holds what programs define through
`torch.library`. A call of such an operator goes down the same steps as in PyTorch: arguments are bound to the schema,
overrides are asked, autograd notes the call (by the formula that was registered, over an `autograd.Function`), and the
kernel for the tensors' device runs, where gradients are off.
"""
import contextlib
import enum
import functools
import os
import threading
import types

from ...autograd.edges import requires
from ...autograd.function import Function
from ...autograd.graph import increment_version
from ...autograd.modes import modes
from ...backends.cpu.host import load_library
from ...base.errors import warn
from ...tensor.autocast import region
from ...tensor.overrides import handle_torch_function, has_torch_function
from ...tensor.tensor import Tensor
from . import schema as schemas

Tag = enum.Enum("Tag", "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated "
                       "inplace inplace_view maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides "
                       "needs_fixed_stride_order nondeterministic_bitwise nondeterministic_seeded out out_variant "
                       "pointwise pt2_compliant_tag reduction view_copy")

# Names of dispatch keys → the device whose kernel is meant.
DEVICES = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta", "MPS": "mps", "XPU": "xpu", "XLA": "xla", "IPU": "ipu",
           "HPU": "hpu", "MTIA": "mtia", "PrivateUse1": "privateuseone"}
COMPOSITE = "CompositeImplicitAutograd"         # a kernel made of differentiable operations: autograd sees those
EXPLICIT = "CompositeExplicitAutograd"          # one kernel for all devices, below autograd
AUTOGRAD = ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradMeta", "AutogradOther")
AUTOCAST = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda", "AutocastXPU": "xpu"}       # what runs where autocast is on
IGNORED = ("ADInplaceOrView", "BackendSelect", "FuncTorchBatched", "Functionalize", "Tracer", "Autocast", "Conjugate",
           "Negative", "ZeroTensor", "Python", "PythonDispatcher", "PreDispatch", "Undefined", "Named")


class _DispatchState(threading.local):
    below_autograd = False    # inside an autograd kernel that calls its operator again
    fake: tuple = ()          # the operators whose fake implementations run now, innermost last
    replace = None            # of (operator, how to run its kernel, args, kwargs): asked instead of the kernel


state = _DispatchState()


@contextlib.contextmanager
def kernels_replaced(function):
    """Inside, this thread calls `function(operator, run, args, kwargs)` instead of an operator's kernel, `run(args,
    kwargs)`."""
    def called(*args):
        state.replace = before                # a kernel may call operators, which are its own affair
        try:
            return function(*args)
        finally:
            state.replace = called

    before, state.replace = state.replace, called
    try:
        yield
    finally:
        state.replace = before


class OperatorBase:
    """What all operators have in common, for `isinstance`."""


class OpOverload(OperatorBase):
    """One operator with one schema: `torch.ops.mylib.sin.default`."""

    def __init__(self, namespace, name, overload, schema=None, tags=()):
        self._ns, self._opname, self._overloadname = namespace, name, overload or "default"
        self._declared = schema
        self.tags = list(tags)
        self.kernels: dict = {}           # dispatch key → function
        self.fake = None                  # what gives results without contents, from arguments without
        self.formula = None               # (backward, setup_context)
        self.custom = None                # the CustomOpDef, if it is one
        self.dispatch_rules: dict = {}    # class of a TorchDispatchMode → what it does with this operator
        self._function = None
        self.__name__ = f"{name}.{self._overloadname}"
        self.__qualname__ = self.__name__
        self.__module__ = f"torch._ops.{namespace}"

    @property
    def _schema(self):
        if self._declared is None:
            raise NotImplementedError(f"the schema of {self.name()} is not in Flambeau; torch.ops.{self._ns}."
                                      f"{self._opname} can be called by its documented arguments")
        return self._declared

    @property
    def _name(self):
        return f"{self._ns}::{self._opname}" + ("" if self._overloadname == "default" else f".{self._overloadname}")

    @property
    def _namespace(self):
        return self._ns

    @property
    def namespace(self):
        return self._ns

    @property
    def overloadpacket(self):
        """The operator with all its overloads."""
        return getattr(getattr(ops, self._ns), self._opname)

    _overloadpacket = overloadpacket

    @property
    def op(self):
        return self

    @property
    def is_view(self):
        return self._declared is not None and any(
            r.alias_info is not None and not r.alias_info.is_write for r in self._declared.returns)

    def name(self):
        """`namespace::name.overload`, the overload only where there is one."""
        return self._name

    def has_kernel_for_dispatch_key(self, key):
        """Whether a kernel was registered for `key`."""
        return getattr(key, "name", str(key)) in self.kernels

    def py_impl(self, key):
        """A decorator that registers a kernel for a dispatch key."""
        def register(fn):
            add_kernel(self, getattr(key, "name", str(key)), fn)
            return fn
        return register

    def __repr__(self):
        return f"<OpOverload(op='{self._ns}.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self):
        return f"{self._ns}.{self._opname}.{self._overloadname}"

    def __deepcopy__(self, memo=None):
        return self

    def __reduce__(self):
        return _found, (self._ns, self._opname, self._overloadname)

    def __call__(self, /, *args, **kwargs):
        tensors = tuple(_tensors((*args, *kwargs.values())))
        if has_torch_function(tensors):
            return handle_torch_function(self, tensors, *args, **kwargs)
        args, kwargs = self._schema.bind(args, kwargs)
        if self.custom is not None and self.custom.autocasts:
            args = self.custom.cast(args)
        return self.called(args, kwargs)

    def called(self, args, kwargs):
        """The call, its arguments bound: through autocast and autograd to the kernel."""
        for key in AUTOCAST.keys() & self.kernels.keys():
            if region.enabled.get(AUTOCAST[key]) and device_of(args, kwargs) == AUTOCAST[key]:
                positional, named = self.as_given(args, kwargs)
                return self.kernels[key](*positional, **named)
        kernel = next((self.kernels[key] for key in AUTOGRAD if key in self.kernels), None)
        if kernel is not None and not state.below_autograd and not modes.inference:
            state.below_autograd = True
            try:
                return kernel(*self.as_given(args, kwargs)[0], **kwargs)
            finally:
                state.below_autograd = False
        if COMPOSITE in self.kernels and not self.has_own(args, kwargs):
            positional, named = self.as_given(args, kwargs)
            return self.kernels[COMPOSITE](*positional, **named)
        tensors = tuple(_tensors(args))
        if modes.grad and any(requires(t) for t in tensors):
            return self.recorded(args, kwargs)
        if modes.grad and kwargs and "out" in _names(self.tags) and any(map(requires, _tensors(kwargs.values()))):
            raise RuntimeError(f"{self._opname}(): functions with out=... arguments don't support automatic "
                               "differentiation, but one of the arguments requires grad.")
        return self.run(args, kwargs)

    def has_own(self, args, kwargs):
        """Whether there is a kernel of its own for the device of these arguments."""
        return _key_of(device_of(args, kwargs)) in self.kernels

    def run(self, args, kwargs):
        """Run the kernel for the arguments' device, with gradients off."""
        if state.replace is not None:
            return state.replace(self, self.run_kernel, args, kwargs)
        return self.run_kernel(args, kwargs)

    def run_kernel(self, args, kwargs):
        device_type = device_of(args, kwargs)
        key = _key_of(device_type)
        if device_type == "meta" and self.fake is not None and key not in self.kernels:
            kernel = functools.partial(_faked, self)
        elif self.custom is not None:
            kernel = self.custom.kernel_for(device_type)
        else:
            kernel = self.kernels.get(key) or self.kernels.get(EXPLICIT) or self.kernels.get(COMPOSITE)
        if kernel is None and device_type == "meta":
            raise (NotImplementedError if self.custom is None else RuntimeError)(
                f"There was no fake impl registered for {self}: register one with torch.library.register_fake")
        if kernel is None:
            raise NotImplementedError(f"Could not run '{self._name}' with arguments from the '{key}' backend: no "
                                      "kernel was registered for it; use "
                                      f"torch.library.register_kernel({self._name!r}, {device_type!r})")
        positional, named = self.as_given(args, kwargs)
        before, modes.grad = modes.grad, False
        try:
            made = kernel(*positional, **named)
        finally:
            modes.grad = before
        written = set(self._schema.mutated())
        if written:
            by_name = {**dict(zip([a.name for a in self._schema.arguments], args)), **kwargs}
            increment_version([t for name in written for t in _tensors((by_name[name],)) if not t._storage.inference])
        if self.custom is not None:
            self.custom.check(made, args, kwargs, written)
        return tuple(made) if isinstance(made, list) and len(self._schema.returns) > 1 else made

    def as_given(self, args, kwargs):
        """The arguments as a kernel gets them: without those at the end that are the schema's own defaults."""
        declared = [a for a in self._schema.arguments if not a.kwarg_only]
        n = len(args)
        while n and _is_default(declared[n - 1], args[n - 1]):
            n -= 1
        return args[:n], {a.name: kwargs[a.name] for a in self._schema.arguments
                          if a.kwarg_only and not _is_default(a, kwargs[a.name])}

    def recorded(self, args, kwargs):
        """Run and note the call for backward."""
        if self._function is None:
            self._function = _function_for(self)
        layout, flat = [], []             # an argument that is a list of tensors counts as that many arguments
        for a in args:
            if isinstance(a, (list, tuple)) and a and all(isinstance(t, Tensor) or t is None for t in a):
                layout.append(len(a))
                flat += a
            else:
                layout.append(None)
                flat.append(a)
        call = _Call(kwargs, layout)
        made = self._function.apply(call, *flat)
        return call.rebuilt(made)


class _Call:
    """What goes with a call through an autograd.Function: keyword-only arguments, and how lists were laid out."""

    def __init__(self, kwargs, layout):
        self.kwargs, self.layout, self.results = kwargs, layout, None

    def nested(self, flat):
        """`flat` in the layout of the arguments."""
        out, at = [], 0
        for n in self.layout:
            out.append(flat[at] if n is None else list(flat[at:at + n]))
            at += 1 if n is None else n
        return out

    def opened(self, made):
        """The results of the kernel as an autograd.Function gives them, lists opened."""
        parts = made if isinstance(made, tuple) else (made,)
        self.results = isinstance(made, tuple), [len(p) if isinstance(p, list) else None for p in parts]
        return tuple(t for p in parts for t in (p if isinstance(p, list) else (p,)))

    def closed(self, flat):
        """What belongs together in `flat`, one thing for each result, as lists again."""
        out, at = [], 0
        for n in self.results[1]:
            out.append(flat[at] if n is None else list(flat[at:at + n]))
            at += 1 if n is None else n
        return out

    def rebuilt(self, made):
        parts = self.closed(made)
        return tuple(parts) if self.results[0] else parts[0]


def _function_for(op):
    """The autograd.Function of an operator, named as PyTorch names it."""
    def forward(ctx, call, *flat):
        args = call.nested(flat)
        made = op.run(args, call.kwargs)
        ctx._call, ctx._rest = call, [None if isinstance(a, (Tensor, list)) else a for a in args]
        if op.formula is not None and op.formula[1] is not None:
            named = {"keyword_only_inputs": call.kwargs} if any(a.kwarg_only for a in op._schema.arguments) else {}
            op.formula[1](ctx=ctx, inputs=tuple(args), output=made, **named)
        return call.opened(made)

    def backward(ctx, *grads):
        call = ctx._call
        if op.formula is None:
            if op.custom is not None:
                raise RuntimeError(f"Trying to backward through {op} but no autograd formula was registered. Please "
                                   "use register_autograd to add one.")
            warn(f"{op._name}: an autograd kernel was not registered to the Autograd key(s) but we are trying to "
                 "backprop through it. This may lead to silently incorrect behavior. Register one with "
                 "torch.library.register_autograd, or use the kernel under torch.no_grad().")
            return (None,) * (1 + sum(1 if n is None else n for n in call.layout))
        before = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(call.nested(before[1:]))
        try:
            made = op.formula[0](ctx, *call.closed(grads))
        finally:
            ctx.needs_input_grad = before
        made = made if isinstance(made, tuple) else (made,)
        left = zip(op._schema.arguments[len(made):], ctx._rest[len(made):])
        made += (None,) * sum(_is_default(a, given) for a, given in left)
        if len(made) != len(call.layout):
            raise RuntimeError(f"function {type(ctx).__name__} returned an incorrect number of gradients (expected "
                               f"{len(call.layout)}, got {len(made)}): the backward that was registered for {op._name} "
                               "must return one (or None) for each argument")
        flat = [None]
        for g, n in zip(made, call.layout, strict=True):
            flat += [g] if n is None else [None] * n if g is None else list(g)
        return tuple(flat)

    name = f"GeneratedBackwardFor_{op._ns}_{op._opname}_{op._overloadname}"
    return type(Function)(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def _faked(op, *args, **kwargs):
    state.fake += (op,)
    try:
        return op.fake(*args, **kwargs)
    finally:
        state.fake = state.fake[:-1]


def _is_default(argument, given):
    default = argument.default_value
    return argument.has_default_value() and (given is default or type(given) is type(default)
                                             and not isinstance(given, Tensor) and given == default)


def _names(tags):
    return {getattr(tag, "name", tag) for tag in tags}


def _tensors(args):
    for a in args:
        if isinstance(a, Tensor) or hasattr(type(a), "__torch_function__"):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from (t for t in a if isinstance(t, Tensor) or hasattr(type(t), "__torch_function__"))


def device_of(args, kwargs):
    """The type of the device that a call runs on: of its tensors, else of a `device` argument, else the CPU."""
    device_type = None
    for t in _tensors((*args, *kwargs.values())):
        if t.device.type != "cpu" or device_type is None:
            device_type = t.device.type
    if device_type is None:
        device_type = next((a.type for a in (*args, *kwargs.values()) if isinstance(a, schemas.device)), "cpu")
    return device_type


def _key_of(device_type):
    return next((key for key, device in DEVICES.items() if device == device_type), device_type)


def add_kernel(op, key, fn):
    """Let `fn` be the kernel of `op` for a dispatch key."""
    key = key or COMPOSITE
    if key not in DEVICES and key not in AUTOGRAD and key not in (COMPOSITE, EXPLICIT, *AUTOCAST, *IGNORED,
                                                                  "CompositeExplicitAutogradNonFunctional"):
        raise RuntimeError(f"could not parse dispatch key: {key}")
    if key == "CompositeExplicitAutogradNonFunctional":
        key = EXPLICIT
    op.kernels[key] = fn


class OpOverloadPacket:
    """An operator by its name, with all its overloads: `torch.ops.mylib.sin`. Called, it finds the one that fits."""

    def __init__(self, namespace, name):
        self._qualified_op_name, self.__name__, self.__qualname__ = f"{namespace}::{name}", name, name
        self.__module__ = f"torch._ops.{namespace}"
        self._ns = namespace
        self._overloads_by_name: dict = {}    # overload → OpOverload

    def overloads(self):
        """The names of the overloads."""
        return list(self._overloads_by_name)

    @property
    def _overload_names(self):
        return ["" if name == "default" else name for name in self._overloads_by_name]

    @property
    def _schemas(self):
        return {name: op._schema for name, op in self._overloads_by_name.items()}

    @property
    def op(self):
        return self

    def op_overloads(self):
        return list(self._overloads_by_name.values())

    def __getattr__(self, name):
        overloads = self.__dict__.get("_overloads_by_name", {})
        if name in overloads:
            return overloads[name]
        if name.startswith("__"):
            raise AttributeError(f"'{name}' can't be an overload name and the underlying op of "
                                 f"'{self}' has no attribute {name}.")
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'; it has "
                             f"{', '.join(overloads)}")

    def __iter__(self):
        return iter(self._overloads_by_name)

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"

    def __str__(self):
        return self._qualified_op_name.replace("::", ".")

    def __deepcopy__(self, memo=None):
        return self

    def __reduce__(self):
        return _found, (self._ns, self.__name__)

    def __call__(self, /, *args, **kwargs):
        overloads = list(self._overloads_by_name.values())
        if len(overloads) == 1 or self._ns == "aten":
            return overloads[0](*args, **kwargs)
        said = []
        for op in overloads:
            try:
                op._schema.bind(args, kwargs)
            except RuntimeError as error:
                said.append(str(error))
            else:
                return op(*args, **kwargs)
        raise RuntimeError(f"No matching overload of {self._qualified_op_name} for the given arguments:\n"
                           + "\n".join(said))


known_packets: dict = {}      # namespace → what gives a packet of PyTorch's by its name, or None


class _OpNamespace(types.ModuleType):
    """The operators of one library: `torch.ops.mylib`."""

    __file__ = "torch.ops"

    def __init__(self, name):
        super().__init__(f"torch.ops.{name}")
        self.name = name
        self._dir: list = []

    def __iter__(self):
        return iter(self._dir)

    def __getattr__(self, name):
        if name in ("__origin__", "__self__"):
            raise AttributeError(f"Invalid attribute '{name}' for '_OpNamespace' '{self.name}'")
        packet = known_packets[self.name](name) if self.name in known_packets else None
        if packet is None:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")
        setattr(self, name, packet)
        self._dir.append(name)
        return packet


class _HigherOrderNamespace(types.ModuleType):
    """`torch.ops.higher_order`: operators that take functions. Flambeau has none: those are Python's own calls here."""

    __file__ = "torch.ops"

    def __getattr__(self, name):
        raise AttributeError(f"'_HigherOrderNamespace' 'torch.ops.higher_order' object has no attribute '{name}'")


class HigherOrderOperator(OperatorBase):
    """An operator that takes functions; PyTorch's compiler is what calls them."""

    def __init__(self, name, *, cacheable=False):
        raise NotImplementedError(f"HigherOrderOperator({name!r}): Flambeau's compile records what functions do, and "
                                  "has no operators over functions; call the function itself")


class _Ops(types.ModuleType):
    """The module `torch.ops`."""

    __file__ = "_ops.py"

    def __init__(self):
        super().__init__("torch.ops")
        self.loaded_libraries: set = set()
        self.higher_order = _HigherOrderNamespace("torch.ops.higher_order")
        self._dir: list = []

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module 'torch.ops' has no attribute '{name}'")
        made = _OpNamespace(name)
        setattr(self, name, made)
        self._dir.append(name)
        return made

    def __iter__(self):
        return iter(self._dir)

    def import_module(self, module):
        """Import a Python module that defines operators."""
        import importlib
        importlib.import_module(module)

    def load_library(self, path):
        """Load a shared library. One that registers operators is made for PyTorch's C++, which is not here: OSError.

        torchvision's are defined by vision/ instead, and torchaudio's by torchaudio.py.
        """
        path = os.path.realpath(path)
        if path in self.loaded_libraries:
            return
        own = _own_operators(path)
        if own is None:
            try:
                load_library(path)
            except Exception as error:
                raise OSError(f"Could not load this library: {path}") from error
        for schema, function in own or ():
            add_kernel(define(None, schema), COMPOSITE, function)
        self.loaded_libraries.add(path)


def _own_operators(path):
    """What stands here for the library at `path`, [(schema, function)], or None."""
    folder, file = os.path.split(path)
    library = file.split(".")[0]
    if os.path.basename(folder) == "torchvision":
        from ... import vision
        return vision.OPERATORS.get(library.removesuffix("_stable"))
    if folder.endswith(os.path.join("torchaudio", "lib")):
        from .. import torchaudio
        return torchaudio.LIBRARIES.get(library)
    return None


ops = _Ops()


# --- defining --------------------------------------------------


def define(namespace, text, tags=()):
    """A new operator in `namespace` by its schema; it has no kernel yet."""
    schema = schemas.parse(text)
    if "::" in schema.name:
        namespace, schema.name = schema.name.split("::")
    own = schema.name
    packet = vars(getattr(ops, namespace)).get(own)
    overload = schema.overload_name or "default"
    if packet is not None and overload in packet._overloads_by_name:
        raise RuntimeError(f"Tried to register an operator ({namespace}::{schema}) with the same name and overload "
                           "name multiple times. Each overload's schema should only be registered with a single call "
                           "to def().")
    if packet is None:
        packet = OpOverloadPacket(namespace, own)
        setattr(getattr(ops, namespace), own, packet)
        getattr(ops, namespace)._dir.append(own)
    schema.name = f"{namespace}::{own}"
    made = packet._overloads_by_name[overload] = OpOverload(namespace, own, overload, schema, tags)
    return made


def undefine(op):
    """Take an operator away again."""
    namespace = getattr(ops, op._ns)
    packet = vars(namespace).get(op._opname)
    if packet is None or packet._overloads_by_name.get(op._overloadname) is not op:
        return
    del packet._overloads_by_name[op._overloadname]
    if not packet._overloads_by_name:
        delattr(namespace, op._opname)
        namespace._dir.remove(op._opname)


def lookup(qualname):
    """The OpOverload that `namespace::name.overload` says."""
    if "::" not in qualname:
        raise ValueError(f"Expected `qualname` to be of the form \"namespace::name\", but got {qualname}. The qualname "
                         "passed to the torch.library APIs must consist of a namespace and a name, e.g. aten::sin")
    namespace, name = qualname.split("::", 1)
    name, _, overload = name.partition(".")
    packet = vars(getattr(ops, namespace)).get(name) or getattr(getattr(ops, namespace), name, None)
    found = None if packet is None else packet._overloads_by_name.get(overload or "default")
    if found is None:
        raise RuntimeError(f"operator {qualname} does not exist; define it first, with torch.library.define or "
                           "torch.library.custom_op")
    return found


def _found(namespace, name, overload=None):
    packet = getattr(getattr(ops, namespace), name)
    return packet if overload is None else getattr(packet, overload)


for _thing in (HigherOrderOperator, OperatorBase, OpOverload, OpOverloadPacket, _OpNamespace, Tag, _found):
    _thing.__module__ = "flambeau._ops"           # PyTorch's place for them, by which pickles name them
