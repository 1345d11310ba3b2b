"""What `torch.library.opcheck` tries of an operator."""
from ...base.spec import device
from ...compiler import compile
from ...tensor.forms import namespace
from ...tensor.tensor import Tensor
from ...testing import assert_close


def copies(args):
    """The arguments with tensors of their own; those that ask for a gradient still do."""
    def one(a):
        if isinstance(a, Tensor):
            return a.detach().clone().requires_grad_(a.requires_grad)
        return type(a)(one(b) for b in a) if isinstance(a, (list, tuple)) else a
    if isinstance(args, dict):
        return {name: one(a) for name, a in args.items()}
    return tuple(one(a) for a in args)


def tensors(made):
    """The tensors among results or arguments."""
    parts = made.values() if isinstance(made, dict) else made if isinstance(made, (tuple, list)) else (made,)
    return [t for p in parts for t in (p if isinstance(p, (tuple, list)) else (p,)) if isinstance(t, Tensor)]


def check_schema(op, args, kwargs, atol, rtol):
    """The schema says truly what is written, and results are new."""
    args, kwargs = copies(args), copies(kwargs)
    bound, named = op._schema.bind(args, kwargs)
    by_name = {**dict(zip([a.name for a in op._schema.arguments], bound)), **named}
    before = {name: [t.detach().clone() for t in tensors((a,))] for name, a in by_name.items()}
    made = op(*args, **kwargs)
    written = set(op._schema.mutated())
    for name, a in by_name.items():
        changed = any(not namespace[""]["equal"](t.detach(), old) for t, old in zip(tensors((a,)), before[name]))
        if changed and name not in written:
            raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")
    if any(r.alias_info is not None for r in op._schema.returns):
        return
    shared = {id(t._storage) for t in tensors(by_name)}
    for t in tensors(made):
        if id(t._storage) in shared:
            raise RuntimeError(f"a result of {op} shares memory with an argument, or with another result, and its "
                               "schema does not say so")


def check_autograd(op, args, kwargs, atol, rtol):
    """There is a gradient, if one is asked for."""
    if not any(t.requires_grad for t in tensors(args)) or op._schema.is_mutable:
        return
    if op.formula is None and not {"Autograd", "AutogradCPU", "CompositeImplicitAutograd"} & set(op.kernels):
        raise AssertionError(f"{op} was given tensors that require grad and has no autograd formula; register one with "
                             "torch.library.register_autograd")


def check_fake(op, args, kwargs, atol, rtol):
    """On the meta device, results have the same looks."""
    def without(a):
        if isinstance(a, Tensor):
            return a.detach().to("meta")
        if isinstance(a, device):
            return device("meta")
        return type(a)(without(b) for b in a) if isinstance(a, (list, tuple)) else a
    real = tensors(op(*copies(args), **copies(kwargs)))
    fake = tensors(op(*[without(a) for a in args], **{name: without(a) for name, a in kwargs.items()}))
    if len(real) != len(fake):
        raise AssertionError(f"{op} gives {len(real)} tensors, its fake implementation {len(fake)}")
    for at, (a, b) in enumerate(zip(real, fake, strict=True)):
        for what in ("shape", "dtype"):
            if getattr(a, what) != getattr(b, what):
                raise AssertionError(f"result {at} of {op} has {what} {getattr(a, what)}, that of its fake "
                                     f"implementation {getattr(b, what)}")
        if a.stride() != b.stride() and a.numel() > 1:
            raise AssertionError(f"result {at} of {op} has strides {a.stride()}, that of its fake implementation "
                                 f"{b.stride()}")


def check_compiled(op, args, kwargs, atol, rtol):
    """Inside `compile` it gives the same."""
    plain = tensors(op(*copies(args), **copies(kwargs)))
    compiled = compile(lambda *args, **kwargs: op(*args, **kwargs))
    for _ in range(3):                                  # recorded, and replayed
        made = tensors(compiled(*copies(args), **copies(kwargs)))
        for a, b in zip(made, plain, strict=True):
            assert_close(a, b, atol=atol, rtol=rtol)


CHECKERS = {"test_schema": check_schema, "test_autograd_registration": check_autograd, "test_faketensor": check_fake,
            "test_aot_dispatch_dynamic": check_compiled}
