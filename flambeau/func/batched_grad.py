"""`autograd.grad` inside of `vmap`, and with gradients that are batched: one backward over the plain tensors."""
from ..autograd.edges import requires
from ..autograd.engine import grad_of_plain
from ..base.op import door
from ..tensor.batched import Batched, Unbatchable, over, plain_of, rebatched
from ..tensor.forms import namespace
from .batching import Batching, Slices, batched_call, batched_function, batched_node

ones_like = namespace[""]["ones_like"]


def batched_grad(outputs, inputs, given, is_grads_batched, options):
    """The gradients of `outputs` for `inputs`, some of which are batched; None where nothing is.

    The dimensions of levels that the outputs have are part of the graph. Those of the incoming gradients alone stay
    batched on the way through it.
    """
    if not any(t.__class__ is Batched for t in (*outputs, *inputs, *given)):
        return None
    if is_grads_batched:
        raise Unbatchable("vmap: autograd.grad(is_grads_batched=True)")
    roots = [plain_of(out) for out in outputs]
    levels = levels_in(roots)
    roots = [plain_of(over(out, levels))[0] if requires(out) else plain for out, (plain, _) in zip(outputs, roots,
                                                                                                strict=True)]
    numbers = tuple([level.number for level in levels])
    leaves = []
    for t in inputs:
        plain, have = plain_of(t)
        if any(number not in have for number in numbers):
            raise Unbatchable("vmap: autograd.grad for a tensor that is the same in all slices, of one that is not")
        leaves.append((plain, have))
    gs = [incoming(out, root, g, levels) for out, root, g in zip(outputs, roots, given, strict=True)]
    made = grad_of_plain(roots, [plain for plain, _ in leaves], gs, **options)
    return tuple([None if g is None else outgoing(g, have) for g, (_, have) in zip(made, leaves, strict=True)])


def levels_in(pairs):
    """All levels in pairs of (plain tensor, numbers), the outermost first."""
    sizes = {number: plain._spec.shape[at] for plain, numbers in pairs for at, number in enumerate(numbers)}
    return [Slices(number, sizes[number]) for number in sorted(sizes)]


def incoming(out, root, g, levels):
    """The gradient `g` of `out` as that of `root`, which holds all its slices; batched over the levels it has more."""
    if g is None:
        if out.numel() != 1 and requires(out):
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        return ones_like(root)
    if g.shape != out.shape:
        raise RuntimeError(f"Mismatch in shape: grad_output has a shape of {g.shape} and output has a shape of "
                           f"{out.shape}.")
    plain, have = plain_of(over(g, levels))
    own = {level.number for level in levels}
    more = tuple([number for number in have if number not in own])
    order = [at for at, number in enumerate(have) if number in more] + \
        [at for at, number in enumerate(have) if number in own]
    return rebatched(ordered(plain, order), more)


def outgoing(g, have):
    """A gradient for a plain tensor of the levels `have` as that of the batched one."""
    plain, more = plain_of(g)
    numbers = (*more, *have)
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    return rebatched(ordered(plain, order), tuple([numbers[at] for at in order]))


def ordered(plain, order):
    """`plain` with its first dimensions in another order."""
    if order == list(range(len(order))):
        return plain
    return plain.permute((*order, *range(len(order), plain.dim())))


door.batching = Batching(batched_call, batched_node, batched_function, batched_grad)
