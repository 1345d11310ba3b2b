"""`custom_op`: a Python function as an operator of its own, with what else is registered for it."""
import contextlib
import inspect

from ...amp import is_autocast_available
from ...amp.autocast_mode import is_autocast_enabled
from ...tensor.tensor import Tensor
from . import overloads
from .infer_schema import infer_schema

OPDEFS: dict = {}             # qualified name → CustomOpDef


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Make an operator `torch.ops.namespace.name` of a function; a decorator, or called with the function.

    `name` is "namespace::name". The arguments' types come from the function's annotations, or from `schema`.
    `mutates_args` names the tensors that it writes to. With `device_types` it is the kernel for those alone.
    """
    def define(fn):
        text = schema if schema is not None else infer_schema(fn, mutates_args=mutates_args, tags=tags)
        namespace, _, own = name.partition("::")
        if not own:
            raise ValueError(f"custom_op(): the name must look like \"namespace::name\", got {name!r}")
        made = CustomOpDef(namespace, own, text, fn, tags)
        if schema is not None:
            written = set(made._opoverload._schema.mutated())
            if written != set(mutates_args):
                raise ValueError(f"Attempted to create a custom op with `mutates_args={mutates_args}` and "
                                 f"`schema={schema}. The schema suggests that the op mutates {written} which is "
                                 "different from what was provided to us in `mutates_args`. Please make these "
                                 "consistent.")
        made.register_kernel(device_types)(fn)
        return made
    return define if fn is None else define(fn)


class CustomOpDef:
    """An operator made by `custom_op`. Call it as the function; its methods register the rest."""

    def __init__(self, namespace, name, schema, fn, tags=None):
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._tags = () if tags is None else tuple(tags) if isinstance(tags, (tuple, list)) else (tags,)
        self._kernels: dict = {}          # device type (None: any) → kernel
        self._disabled: set = set()
        self.autocasts: dict = {}         # device type → dtype
        self._vmap_fn = None
        before = OPDEFS.get(self._qualname)
        if before is not None:
            overloads.undefine(before._opoverload)
        tags = overloads.Tag.pt2_compliant_tag, *self._tags
        self._opoverload = overloads.define(namespace, f"{name}{schema}", tags)
        if any(a.kwarg_only and a.type.base == "Tensor" for a in self._opoverload._schema.arguments) \
                and overloads.Tag.out not in self._tags:
            overloads.undefine(self._opoverload)
            raise NotImplementedError("custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. "
                                      f"Got: {schema}")
        self._opoverload.custom = self
        OPDEFS[self._qualname] = self

    @property
    def _qualname(self):
        return f"{self._namespace}::{self._name}"

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args, **kwargs):
        return self._opoverload(*args, **kwargs)

    # --- registering ---

    def register_kernel(self, device_types, fn=None, /):
        """Let a function be the kernel for these device types; a decorator, or called with the function."""
        def register(fn):
            for device_type in (None,) if device_types is None else (device_types,) if isinstance(device_types, str) \
                    else device_types:
                self._kernels[device_type] = fn
            return fn
        return register if fn is None else register(fn)

    def register_fake(self, fn, /):
        """Say what the results look like: the function is called with tensors on the meta device and returns such."""
        self._opoverload.fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None):
        """Give the operator a gradient: `backward(ctx, *grads)`; `setup_context(ctx, inputs, output)` saves for it."""
        schema = self._opoverload._schema
        if schema.mutated() and not _functional_results(schema):
            raise RuntimeError(f"Cannot register autograd formula for non-functional operator {self} with schema "
                               f"{schema}. Please create a functional operator and register an autograd formula for "
                               "that.")
        self._opoverload.formula = (backward, setup_context)

    def register_vmap(self, func=None):
        """Say how the operator works on a batch. Flambeau's `vmap` calls it slice by slice, and needs no rule."""
        def register(func):
            self._vmap_fn = func
        return register if func is None else register(func)

    def register_autocast(self, device_type, cast_inputs):
        """Cast the floating tensors among the arguments to `cast_inputs` where autocast is on for `device_type`."""
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise ValueError(f"Device type '{device_type}' does not support autocast.")
        self.autocasts[device_type] = cast_inputs

    def register_torch_dispatch(self, torch_dispatch_class, fn=None, /):
        """Let `fn(mode, func, types, args, kwargs)` handle the operator under a TorchDispatchMode of that class."""
        def register(fn):
            self._opoverload.dispatch_rules[torch_dispatch_class] = fn
            return fn
        return register if fn is None else register(fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type, enabled=True):
        """Inside, the kernel for `device_type` is used, or passed over for the one that was given for any."""
        before = device_type in self._disabled
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            (self._disabled.add if before else self._disabled.discard)(device_type)

    # --- calling ---

    def kernel_for(self, device_type):
        """The kernel for a device type, None if there is none. Without a fake one, the meta device has no kernel."""
        if device_type == "meta":
            schema = self._opoverload._schema
            return self._kernels.get("meta") or ((lambda *args, **kwargs: None) if not schema.returns else None)
        if device_type in self._kernels and device_type not in self._disabled:
            return self._kernels[device_type]
        return self._kernels.get(None)

    def check(self, made, args, kwargs, written):
        """Refuse results that share memory with the arguments or with each other."""
        if any(r.alias_info is not None for r in self._opoverload._schema.returns):
            return
        storages = {id(t._storage) for t in overloads._tensors((*args, *kwargs.values())) if isinstance(t, Tensor)}
        for t in overloads._tensors(made if isinstance(made, tuple) else (made,)):
            if id(t._storage) in storages:
                where = getattr(inspect.getmodule(self._init_fn), "__name__", "???")
                raise RuntimeError(f"{self._qualname} (with implementation in {where}): The output of this custom "
                                   "operator (1) must not also be an input to this custom operator and (2) may not "
                                   "alias any inputs to this custom operator or other returns. The most common way to "
                                   "trigger this error is if we have y = custom_op(x) and y and x are the same Tensor. "
                                   "Please instead return a clone of the offending output tensor(s) (e.g. return "
                                   "x.clone()) or refactor the custom operator to not return y.")
            storages.add(id(t._storage))

    def cast(self, args):
        """The arguments as autocast wants them."""
        device_type = overloads.device_of(args, {})
        dtype = self.autocasts.get(device_type)
        if dtype is None or not is_autocast_enabled(device_type):
            return args

        def one(a):
            if isinstance(a, Tensor):
                return a.to(dtype) if a.is_floating_point() and a.dtype.itemsize < 8 else a
            return [one(b) for b in a] if isinstance(a, (list, tuple)) else a
        return [one(a) for a in args]


def _functional_results(schema):
    """Whether the operator only gives new tensors."""
    return not schema.mutated() and not any(r.alias_info is not None for r in schema.returns)
