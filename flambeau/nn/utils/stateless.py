"""Call a module with other tensors in the place of its parameters and buffers."""
from contextlib import contextmanager

from ...base.errors import warn
from ...tensor.tensor import Tensor

__all__ = ["functional_call"]

ABSENT = object()


def owner_of(module, path):
    """(the submodule that holds the tensor called `path`, its name there)"""
    *parents, name = path.split(".")
    if not name:
        raise KeyError('tensor name can\'t be empty string ""')
    for parent in parents:
        found = getattr(module, parent, None)
        if found is None:
            raise AttributeError(f"{type(module).__name__} has no attribute `{parent}`")
        if not hasattr(found, "_parameters"):
            raise TypeError(f"submodule `{parent}` of {type(module).__name__}: {found!r} is not an instance of "
                            "torch.nn.Module")
        module = found
    return module, name


def put(module, name, value):
    """Set or, with ABSENT, delete the tensor `name` of `module`; gives what stood there."""
    table = module._parameters if name in module._parameters else module._buffers
    if name in table:
        old = table[name]
        table[name] = value
        return old
    old = getattr(module, name, ABSENT)
    if old is not ABSENT and old is not None and not isinstance(old, Tensor):
        raise TypeError(f"attribute `{name}` of {type(module).__name__}: {old!r} is not an instance of torch.Tensor")
    if value is ABSENT:
        delattr(module, name)
    else:
        setattr(module, name, value)
    return old


def untied(module, given):
    """`given` with what it says of one name said of all names of the same tensor."""
    names: dict = {}
    for prefix, owner in paths(module):
        for table in (owner._parameters, owner._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    names.setdefault(id(tensor), []).append(f"{prefix}{name}")
    full = dict(given)
    for group in names.values():
        if len(group) == 1:                               # which most are
            continue
        said = [name for name in group if name in given]
        if len({id(given[name]) for name in said}) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(said)}, which are tied. Consider "
                             "using tie_weights=False")
        if said:
            full.update(dict.fromkeys(group, given[said[0]]))
    return full


def paths(module):
    """(what the names of its tensors begin with, module) of a module and all below it, under each of their names."""
    stack = [("", module)]
    while stack:
        prefix, owner = stack.pop()
        yield prefix, owner
        stack += [(f"{prefix}{name}.", child) for name, child in owner._modules.items() if child is not None]


def check_names(module, given):
    """Refuse, in strict mode, names that are missing or unknown."""
    known = {name for name, _ in (*module.named_parameters(remove_duplicate=False),
                                  *module.named_buffers(remove_duplicate=False))}
    words = [f"\n\t{what} key(s): {', '.join(map(repr, sorted(names)))}."
             for what, names in (("Unexpected", given.keys() - known), ("Missing", known - given.keys())) if names]
    if words:
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:" + "".join(words))


@contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False, stack_weights=False):
    """Within it, `module` has these tensors in the place of its own. What it puts there itself, as batch norm may
    do, is found in the dictionary afterwards."""
    given = untied(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    if strict:
        check_names(module, given)
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{value!r} is not an instance of torch.Tensor: the value for '{name}'")
    owners = {name: owner_of(module, name) for name in given}
    before: list = []
    try:
        for name, value in given.items():
            before.append((name, put(*owners[name], value)))
        yield
    finally:
        for name, old in reversed(before):
            new = put(*owners[name], old)
            if name in parameters_and_buffers:
                parameters_and_buffers[name] = new


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Call `module` with these tensors in place of its parameters and buffers. Use `torch.func.functional_call`."""
    warn("`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
         "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
         FutureWarning)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """What `functional_call` and `torch.func.functional_call` do."""
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))
