"""Tracing: a function is called with proxies, while calls of modules and of wrapped functions are watched."""
import builtins
import functools
import inspect
import math
import sys
import threading
from types import CodeType, FunctionType

from ..compat.missing import missing
from ..nn import Module, Parameter
from ..tensor.tensor import Tensor
from .graph import Graph
from .proxy import ParameterProxy, Proxy, TracerBase

ScriptObject = missing("torch.ScriptObject")       # torch_geometric asks whether attributes are one
_wrapped: dict = {}           # (id of a module's globals, name) → those globals
_orig_module_call, _orig_module_getattr = Module.__call__, Module.__getattr__


class _TracingState(threading.local):
    tracing = False


_state = _TracingState()


class PHBase:
    """Marks an argument of `concrete_args` that stays an argument."""

    def __repr__(self):
        return "PH"


PH = PHBase()


def is_fx_tracing():
    """Whether a function is being traced."""
    return _state.tracing


is_fx_symbolic_tracing = is_fx_tracing


class ProxyableClassMeta(type):
    """A class whose construction becomes a node if a Proxy is among the arguments."""

    def __call__(cls, *args, **kwargs):
        tracers = {a.tracer for a in (*args, *kwargs.values()) if isinstance(a, Proxy)}
        if not tracers:
            return super().__call__(*args, **kwargs)
        return tracers.pop().create_proxy("call_function", cls, args, kwargs)


class Tracer(TracerBase):
    """Traces. A subclass may say which modules are leaves, and what becomes of each call.

    Functions of `autowrap_modules`, and `autowrap_functions`, become single nodes when they are called with a Proxy.
    """

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._autowrap_function_ids = {id(value) for module in autowrap_modules for name, value in vars(module).items()
                                       if not name.startswith("_") and callable(value)}
        self._autowrap_function_ids.update(id(function) for function in autowrap_functions)
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths = None
        self.root_module_name = ""
        self.module_stack: dict = {}
        self.tensor_attrs: dict = {}

    # --- what a subclass may change ---

    def is_leaf_module(self, m, module_qualified_name):
        """Whether a call of the module `m` is one node, instead of what its `forward` does: torch.nn's are."""
        package = __name__.partition(".")[0]
        standard = m.__module__.startswith((f"{package}.nn", "torch.nn"))
        return standard and not type(m).__name__ == "Sequential"

    def path_of_module(self, mod):
        """The path of a module below the root."""
        found = self.submodule_paths.get(mod) if self.submodule_paths else None
        if found is None:
            raise NameError(f"module is not installed as a submodule: {type(mod).__name__}")
        return found

    def call_module(self, m, forward, args, kwargs):
        """What a call of the module `m` becomes; `forward` does what it would have done."""
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """What an attribute of a module becomes: a parameter is a Proxy."""
        if isinstance(attr_val, Parameter) or self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_parameters if isinstance(attr_val, Parameter) else self.root.named_buffers
            for name, member in named():
                if member is attr_val:
                    if name not in parameter_proxy_cache:
                        # a create_proxy of the program's own need not know of a fourth kind of argument
                        shaped = {"proxy_factory_fn": functools.partial(self._shaped, name, attr_val)} \
                            if self.param_shapes_constant else {}
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **shaped)
                    return parameter_proxy_cache[name]
        return attr_val

    def _shaped(self, name, param, node):
        return ParameterProxy(self, node, name, param)

    def create_arg(self, a):
        """An argument as it stands in a node. Tensors become attributes of the root."""
        if isinstance(a, Parameter):
            for name, tensor in self.root.named_parameters():
                if tensor is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, tensor in self.root.named_buffers():
                if tensor is a:
                    return self.create_node("get_attr", name, (), {})
            path = self.tensor_attrs.get(a)
            if path is None:
                at = 0
                while hasattr(self.root, f"_tensor_constant{at}"):
                    at += 1
                path = self.tensor_attrs[a] = f"_tensor_constant{at}"
                setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        return super().create_arg(a)

    def get_fresh_qualname(self, prefix):
        """A path of the root that nothing has yet."""
        at = 0
        while hasattr(self.root, f"{prefix}{at}"):
            at += 1
        return f"{prefix}{at}"

    # --- tracing ---

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """(the function to call, its arguments as proxies), with a placeholder for each."""
        function = inspect.unwrap(root_fn)
        code = function.__code__
        names = list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
        defaults = {name: p.default for name, p in inspect.signature(function).parameters.items()
                    if p.default is not inspect.Parameter.empty}
        args = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
        hints = getattr(function, "__annotations__", {})

        def placeholder(name):
            default = (defaults[name],) if name in defaults else ()
            made = self.create_proxy("placeholder", name, default, {}, type_expr=hints.get(name))
            if concrete_args is None or name not in concrete_args or concrete_args[name] is PH:
                return made
            value = concrete_args[name]
            if isinstance(value, (tuple, list, dict)):
                raise NotImplementedError(f"concrete_args: {name} is a {type(value).__name__}; only numbers, texts, "
                                          "flags and None can be made part of the graph. Write a module that gives it "
                                          "to this one.")
            self.create_proxy("call_function", assert_same, (made, value, f"{name} has been specialized to have value "
                                                             f"{value!r} but got another value"), {})
            return value
        args += [placeholder(name) for name in names]
        if code.co_flags & inspect.CO_VARARGS:
            args.append(self.create_proxy("placeholder", "*" + code.co_varnames[len(names) + is_module], (), {}))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            at = len(names) + is_module + bool(code.co_flags & inspect.CO_VARARGS)
            args.append(self.create_proxy("placeholder", "**" + code.co_varnames[at], (), {}))
        if code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            function = positional(function, len(args))
        return function, args

    def trace(self, root, concrete_args=None):
        """The graph of what a module's `forward`, or a function, does."""
        before, _state.tracing = _state.tracing, True
        try:
            if isinstance(root, Module):
                self.root = root
                fn = getattr(type(root), getattr(self, "traced_func_name", "forward"))
                self.root_module_name = root._get_name()
                self.submodule_paths = {mod: name for name, mod in root.named_modules()}
            else:
                self.root, fn = Module(), root
                self.submodule_paths = None
            self.graph = Graph(tracer_cls=type(self))
            self.tensor_attrs = Found(self.root)
            fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
            proxies: dict = {}

            def call(module, *args, **kwargs):
                def forward(*args, **kwargs):
                    return _orig_module_call(module, *args, **kwargs)
                _autowrap_check(patches, getattr(getattr(module, "forward", None), "__globals__", {}),
                                self._autowrap_function_ids)
                return self.call_module(module, forward, args, kwargs)

            def get(module, name):
                return self.getattr(name, _orig_module_getattr(module, name), proxies)
            with _Patcher() as patches:
                patches.patch_method(Module, "__call__", call)
                patches.patch_method(Module, "__getattr__", get)
                _patch_wrapped_functions(patches)
                _autowrap_check(patches, getattr(fn, "__globals__", {}), self._autowrap_function_ids)
                for module in self._autowrap_search:
                    _autowrap_check(patches, vars(module), self._autowrap_function_ids)
                returned = fn(*args)
            hint = getattr(inspect.unwrap(fn), "__annotations__", {}).get("return")
            self.create_node("output", "output", (self.create_arg(returned),), {}, type_expr=hint)
            self.submodule_paths = None
        finally:
            _state.tracing = before
        return self.graph


class Found(dict):
    """The tensors that are plain attributes of a module or of those below it, with their paths."""

    def __init__(self, root):
        super().__init__()
        for prefix, module in root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self[value] = f"{prefix}.{name}" if prefix else name


class _Patcher:
    """Things put in the place of others for the time of a `with`. Tracers of other packages use it, and
    the two functions below, by these names: torch_geometric's `to_hetero`."""

    def __init__(self):
        self.done: list = []
        self.visited: set = set()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for undo in reversed(self.done):
            undo()
        self.done.clear()

    def patch(self, frame_dict, name, new_fn, deduplicate=True):
        missing = name not in frame_dict
        before = frame_dict.get(name)
        self.done.append(lambda: frame_dict.pop(name, None) if missing else frame_dict.__setitem__(name, before))
        frame_dict[name] = new_fn

    def patch_method(self, cls, name, new_fn, deduplicate=True):
        before = getattr(cls, name)
        self.done.append(lambda: setattr(cls, name, before))
        setattr(cls, name, new_fn)


def _patch_wrapped_functions(patcher):
    """Let the functions that `wrap` was told of be single nodes."""
    for (_, name), namespace in list(_wrapped.items()):
        patcher.patch(namespace, name, wrapped(namespace.get(name, getattr(builtins, name, None))))


def _autowrap_check(patcher, frame_dict, function_ids):
    """Let the functions with these ids be single nodes where `frame_dict` has them."""
    if not function_ids or id(frame_dict) in patcher.visited:
        return
    patcher.visited.add(id(frame_dict))
    for name, value in list(frame_dict.items()):
        if not name.startswith("_") and id(value) in function_ids and callable(value):
            patcher.patch(frame_dict, name, wrapped(value))


def wrapped(function):
    """`function`, but as a node where a Proxy is among its arguments."""
    if getattr(function, "_fx_wrapped", False):
        return function

    @functools.wraps(function, updated=())
    def form(*args, **kwargs):
        found = _proxy_in((args, kwargs))
        if found is None:
            return function(*args, **kwargs)
        made = found.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made
    form._fx_wrapped = True
    return form


def _proxy_in(args):
    """The first Proxy in a nest of arguments."""
    todo = [args]
    while todo:
        a = todo.pop()
        if isinstance(a, Proxy):
            return a
        if isinstance(a, (tuple, list)):
            todo += a
        elif isinstance(a, dict):
            todo += a.values()
        elif isinstance(a, slice):
            todo += (a.start, a.stop, a.step)
    return None


def wrap(fn_or_name):
    """Have a function of the calling module traced as one node, not through; by name, or as a decorator."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def assert_same(given, expected, words):
    """Refuse an argument that is not what the graph was made for."""
    if given is not expected and given != expected:
        raise AssertionError(words)


def positional(function, count):
    """The function with its keyword-only arguments, `*args` and `**kwargs` as ordinary ones, in order."""
    code = function.__code__
    flags = code.co_flags & ~inspect.CO_VARARGS & ~inspect.CO_VARKEYWORDS
    made = FunctionType(_with(code, count, flags), function.__globals__, function.__name__, None, function.__closure__)
    return functools.update_wrapper(made, function, updated=())


def _with(code: CodeType, count, flags):
    return code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
