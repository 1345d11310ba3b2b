"""How much work an instruction is: the bytes that it moves at least, and its operations on numbers.

Steps of plans know theirs (trace/planning/steps.py). This is for instructions that run without a plan, for the share
that an instruction has of a step it was fused into, and for operations as they are called.
"""
from math import prod

COPYING = frozenset("_copy _to_copy clone contiguous _expand _view _alias".split())


def bytes_of(entry):
    """What such an instruction reads and makes."""
    return sum(spec.nbytes for spec in (*entry.input_specs, *(entry.outs or ())))


def flops_of(entry, params=()):
    """Its operations on numbers: of a product or convolution two for each multiplication, else one for each number
    that it makes or, where it makes fewer, reads."""
    name, specs, outs = entry.op.__name__, entry.input_specs, entry.outs or ()
    if not outs or name in COPYING:
        return 0
    if name in PRODUCTS:
        return PRODUCTS[name](specs, outs)
    return max(spec.numel for spec in (*specs, *outs))


def weight_of(entry):
    """What its share of a step is reckoned by."""
    return max([1, *[spec.numel for spec in (*entry.input_specs, *(entry.outs or ()))]]) + flops_of(entry) // 16


def _convolution(specs, outs):
    x, weight = specs[:2]
    # of one result: the whole filter, or in a transposed convolution, of one number that is read
    wide = x if x.shape[1] == weight.shape[0] and outs[0].shape[1] != weight.shape[0] else outs[0]
    return 2 * wide.numel * weight.numel // max(weight.shape[0], 1)


PRODUCTS = {
    "mm": lambda specs, outs: 2 * outs[0].numel * specs[0].shape[-1],
    "bmm": lambda specs, outs: 2 * outs[0].numel * specs[0].shape[-1],
    "_bmm_as_it_lies": lambda specs, outs: 2 * outs[0].numel * specs[0].shape[-1],
    "mv": lambda specs, outs: 2 * specs[0].numel,
    "dot": lambda specs, outs: 2 * specs[0].numel,
    "addmm": lambda specs, outs: 2 * outs[0].numel * specs[1].shape[-1],
    "_affine": lambda specs, outs: 2 * outs[0].numel * specs[1].shape[-1],
    "baddbmm": lambda specs, outs: 2 * outs[0].numel * specs[1].shape[-1],
    "addbmm": lambda specs, outs: 2 * outs[0].numel * specs[1].shape[0] * specs[1].shape[-1],
    "_convolution": _convolution,
    "_convolution_weight": lambda specs, outs: 2 * specs[1].numel * prod(outs[0].shape[1:]),
}
