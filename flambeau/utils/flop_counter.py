"""`torch.utils.flop_counter`: how many floating point operations products, convolutions and attention take.

A multiplication and an addition count as two. The operations that are counted are those that Flambeau records, in
forward and backward, under the names that PyTorch's counter has for them. Attention and recurrent layers are counted as
the products they are made of; PyTorch counts nothing for its own kernels of these on the CPU.
"""
import functools
from collections import defaultdict
from math import prod

from .._ops import OpOverloadPacket, ops
from ..autograd.modes import modes
from ..base.errors import warn
from ..base.pytree import tree_map
from ..tensor.forms import declared
from ..tensor.function_modes import watching
from ..tensor.tensor import Tensor
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

aten = ops.aten
UNIT_SUFFIXES = ["", "K", "M", "B", "T"]
flop_registry: dict = {}      # operator → formula of the shapes of its arguments


def shapes_of(args):
    """Arguments with shapes for tensors."""
    return tree_map(lambda a: a.shape if isinstance(a, Tensor) else a, args)


def shape_wrapper(formula):
    """A formula of shapes as one of tensors."""
    @functools.wraps(formula)
    def by_tensors(*args, out_val=None, **kwargs):
        return formula(*shapes_of(args), out_shape=shapes_of(out_val), **shapes_of(kwargs))
    return by_tensors


def register_flop_formula(targets, get_raw=False):
    """A decorator: the function says how many operations `targets` (operators of `torch.ops`) take.

    It gets the shapes of the arguments, and that of the result as `out_shape`; with `get_raw` the tensors themselves,
    and `out_val`.
    """
    def register(formula):
        wrapped = formula if get_raw else shape_wrapper(formula)
        for target in targets if isinstance(targets, (list, tuple)) else (targets,):
            if not isinstance(target, OpOverloadPacket):
                raise ValueError("register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                                 f"torch.ops.mylib.foo), got {target} which is of type {type(target)}")
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = wrapped
        return wrapped
    return register


@register_flop_formula(aten.mm)
def mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs):
    """Of a product of matrices."""
    (m, k), n = a_shape, b_shape[1]
    return 2 * m * k * n


@register_flop_formula(aten.addmm)
def addmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs):
    """Of a product of matrices that is added to something."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape, b_shape, out_shape=None, **kwargs):
    """Of products of matrices."""
    b, m, k = a_shape
    return 2 * b * m * k * b_shape[2]


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs):
    """Of products of matrices that are added to something."""
    b, m, k = a_shape
    return 2 * b * m * k * b_shape[2]


def conv_flop_count(x_shape, w_shape, out_shape, transposed=False):
    """Of a convolution: the whole filter at every place of the result (transposed: of the input)."""
    return 2 * x_shape[0] * prod((x_shape if transposed else out_shape)[2:]) * prod(w_shape)


@register_flop_formula([aten.convolution, aten._convolution])
def conv_flop(x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed, *args, out_shape=None, **kwargs):
    """Of a convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


@register_flop_formula(aten.convolution_backward)
def conv_backward_flop(grad_out_shape, x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed,
                       _output_padding,
                       _groups, output_mask, out_shape, **kwargs):
    """Of the gradients of a convolution: one for the input, one for the filter, as `output_mask` says."""
    def swapped(shape):
        return [shape[1], shape[0], *shape[2:]]
    count = 0
    if output_mask[0]:
        count += conv_flop_count(grad_out_shape, w_shape, out_shape[0], not transposed)
    if output_mask[1]:
        wide, narrow = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        count += conv_flop_count(swapped(wide), swapped(narrow), swapped(out_shape[1]))
    return count


@register_flop_formula([aten._scaled_dot_product_efficient_attention, aten._scaled_dot_product_flash_attention,
                        aten._scaled_dot_product_cudnn_attention])
def sdpa_flop(query_shape, key_shape, value_shape, *args, out_shape=None, **kwargs):
    """Of attention: scores, and values weighed by them."""
    b, h, s, d = query_shape
    return 2 * b * h * s * key_shape[2] * (d + value_shape[3])


def stacked(shape):
    """The shape of a batch of matrices with one dimension for the batch."""
    return (prod(shape[:-2]), *shape[-2:])


# Flambeau's operation → (the operator it counts as, its arguments as that one's)
FLOPS_OF_OPERATION = {declared[name]: counted for name, counted in {
    "mm": (aten.mm, lambda a, b: (a, b)),
    "bmm": (aten.bmm, lambda a, b: (a, b)),
    "_bmm_as_it_lies": (aten.bmm, lambda a, b: (stacked(a.shape), stacked(b.shape))),
    "addmm": (aten.addmm, lambda *args: args[:3]),
    "_affine": (aten.addmm, lambda *args: args[:3]),
    "baddbmm": (aten.baddbmm, lambda *args: args[:3]),
    "addbmm": (aten.baddbmm, lambda *args: args[:3]),
    "_convolution": (aten.convolution, lambda *args: args),
}.items()}
WEIGHT_GRADIENT = declared["_convolution_weight"]


class FlopCounterMode:
    """A context that counts: `get_total_flops()`, and `get_flop_counts()` by module and operation.

    With `display`, a table is printed at the end, of modules down to `depth`; that needs the package tabulate.
    `custom_mapping` has formulas for further operators, those of `torch.library` too.
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        if mods is not None:
            warn("mods argument is not needed anymore, you can stop passing it")
        self.flop_registry = {**flop_registry, **{
            op: formula if getattr(formula, "_get_raw", False) else shape_wrapper(formula)
            for op, formula in (custom_mapping or {}).items()}}
        self.mod_tracker = ModuleTracker()

    def get_total_flops(self):
        """How many operations were counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """{module: {operator: how many}}, with "Global" for all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth=None):
        """The counts as a table."""
        try:
            import tabulate
        except ImportError:
            raise ImportError("FlopCounterMode prints its table with the package tabulate: pip install tabulate, or "
                              "use FlopCounterMode(display=False) and get_flop_counts()") from None
        tabulate.PRESERVE_WHITESPACE = True
        depth = (self.depth if depth is None else depth) or 999_999
        total = self.get_total_flops()
        unit = max(0, min(len(UNIT_SUFFIXES) - 1, (len(str(total)) - 2) // 3))

        def rows_of(name, indent):
            counts = self.flop_counts[name]
            shown = [(name, sum(counts.values())), *((f" - {op}", n) for op, n in counts.items())]
            return [[" " * indent + words, f"{n / 1000 ** unit:.3f}{UNIT_SUFFIXES[unit]}",
                     f"{n / total:.2%}" if total else "0%"] for words, n in shown]
        names = sorted(name for name in self.flop_counts if name != "Global" and name.count(".") < depth)
        rows = [row for name in names for row in rows_of(name, name.count("."))]
        if "Global" in self.flop_counts and not any(sum(self.flop_counts[name].values()) >= total for name in names):
            rows = rows_of("Global", 0) + [[" " + row[0], *row[1:]] for row in rows]
        return tabulate.tabulate(rows or [["Global", "0", "0%"]], headers=["Module", "FLOP", "% Total"],
                                 colalign=("left", "right", "right"))

    def __enter__(self):
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self._watching = watching(self._note)
        self._watching.__enter__()
        return self

    def __exit__(self, *exc):
        self._watching.__exit__(*exc)
        self.mod_tracker.__exit__(*exc)
        if self.display:
            print(self.get_table(self.depth))

    def _note(self, op, args, made):
        """An operation was recorded."""
        if op is WEIGHT_GRADIENT:
            wide, narrow, size = args[:3]
            self._add(aten.convolution_backward, conv_flop_count(*(
                [s[1], s[0], *s[2:]] for s in (wide.shape, narrow.shape, size))))
        elif op in FLOPS_OF_OPERATION:
            operator, arranged = FLOPS_OF_OPERATION[op]
            count = self.flop_registry[operator](*arranged(*args), out_val=made)
            backward = operator is aten.convolution and modes.backward_pass is not None
            self._add(aten.convolution_backward if backward else operator, count)

    def _add(self, operator, count):
        for name in sorted(self.mod_tracker.parents):
            self.flop_counts[name][operator] += count

    def _count_flops(self, operator, out, args, kwargs):
        """Count an operator by its formula."""
        if operator in self.flop_registry:
            self._add(operator, self.flop_registry[operator](*args, **kwargs, out_val=out))
        return out
