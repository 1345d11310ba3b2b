"""Rows of matrices that are not visible outside, made a little longer where a library multiplies them faster so.

cuBLAS takes its quick kernels for matrices whose rows begin at multiples of 16 bytes. Rows of 50,257 elements of two
bytes do not, and products with them take several times as long. What a plan makes and uses up itself need not be
contiguous, so such rows get room for a few elements more, which are not read or written. What is handed out, or seen
through views, by operations of their own, or in shapes that put rows together, stays as it is.
"""
from ...base.spec import spec as make_spec
from .fuse import LEAF_KINDS, MEMORY_KINDS, OWN_STEP_KINDS, RESHAPING_KINDS, RESULT_KINDS, memory, root

MIN_PADDED_BYTES = 1 << 20         # of a matrix; with less, little is gained
UNPADDED_KINDS = LEAF_KINDS | MEMORY_KINDS | RESULT_KINDS | (OWN_STEP_KINDS - {"gemm"})


def pad_rows(nodes, wanted, device_of):
    """Give nodes that are multiplied, or come of a product, a layout with padded rows where their device asks for that.

    `nodes` are all of a plan, and `wanted` those that are handed out, by their id.
    """
    found = {}
    for node in nodes:
        multiple = device_of(node).backend.product_row_bytes if node.op == "gemm" else 0
        if multiple:
            for one in (node, *map(root, node.args)):
                if one.op not in UNPADDED_KINDS and id(one) not in wanted and _is_uneven(one, multiple):
                    found[id(one)] = one, multiple
    if not found:
        return
    seen_as = {key: [] for key in found}          # the shapes in which each is seen
    for node in nodes:
        base = root(node)
        if node.op in RESHAPING_KINDS and id(base) in found:
            seen_as[id(base)].append(node)
        if node.op in MEMORY_KINDS or node.op in OWN_STEP_KINDS and node.op != "gemm":
            for arg in node.args:
                found.pop(id(root(arg)), None)
    for key, (node, multiple) in found.items():
        before, node.layout = node.layout, _padded(node, multiple, device_of(node))
        if any(memory(seen) is None for seen in seen_as[key]):
            node.layout = before


def _is_uneven(node, multiple):
    """Whether a large matrix lies row by row, and its rows do not begin at multiples of so many bytes."""
    size = node.dtype.itemsize
    return node.ndim >= 2 and node.shape[-1] * size % multiple != 0 and node.numel * size >= MIN_PADDED_BYTES \
        and (node.layout is None or node.layout.contiguous)


def _padded(node, multiple, device):
    length, strides = node.shape[-1], [1]
    step = -(-length * node.dtype.itemsize // multiple) * multiple // node.dtype.itemsize
    for size in reversed(node.shape[1:-1]):
        strides.append(step)
        step *= size
    return make_spec(node.dtype, node.shape, (step, *reversed(strides)), device)
