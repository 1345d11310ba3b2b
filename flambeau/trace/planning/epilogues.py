"""A relu behind a small product, done with the product.

On a GPU a small product is a kernel of our own, and what takes time is not what a kernel computes but that there is
one. So where the sum of a product and a bias (`k.affine`) is read by a relu and by nothing else, they are one step.
"""
from ...base.shapes import contiguous_strides
from .fuse import Fuser


def join_relus(nodes, wanted, graph):
    """The `nodes` that the slots `wanted` need, with relus joined to products where the device's library has that."""
    products = [node for node in nodes if node.op == "library" and node.attr[:2] == ("affine", ("bias",))]
    if not products:
        return nodes
    handed_out = {id(graph.slots.get(slot)) for slot in wanted}
    readers: dict = {}
    for node in nodes:
        for arg in node.args:
            readers.setdefault(id(arg), []).append(node)
    changed = [_join(node, readers, handed_out, graph.device_of(node).backend) for node in products]
    return Fuser.needed(graph, wanted) if any(changed) else nodes


def _join(product, readers, handed_out, backend):
    """Join the relu of a product to it; whether there was one."""
    total, = product.attr[2]
    last = _relu(total, readers, handed_out)
    if last is None or not backend.has("affine", product.dtype, *[
            [(x.shape, contiguous_strides(x.shape)) for x in nodes] for nodes in (product.args, (total,))], ("relu",)):
        return False
    last.op, last.args, last.attr = "output", (product,), 0
    product.attr = "affine", ("relu",), (last,)
    return True


def _relu(total, readers, handed_out):
    """The node of what `relu` makes of a sum that nothing else reads, in the sum's dtype; None where there is none."""
    def reader_of(node):
        found = readers.get(id(node), ())
        return found[0] if len(found) == 1 and id(node) not in handed_out else None

    source, found = total, reader_of(total)
    if found is not None and found.op == "cast":              # 16 bits, which are widened to compute with them
        source, found = found, reader_of(found)
    if found is None or found.op != "max" or found.args[0] is not source or found.shape != total.shape \
            or found.args[1].op != "const" or found.args[1].attr != 0:
        return None
    if source is not total:
        found = reader_of(found)
    return found if found is not None and found.dtype is total.dtype and found.op in ("max", "cast") else None
