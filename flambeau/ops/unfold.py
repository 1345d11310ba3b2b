"""Sliding blocks of an image as columns, and back: `unfold` and `fold`."""
import math

from ..base import dtypes
from ..base.errors import need
from ..base.op import Composite, Op
from ..base.spec import spec
from .conv import add_up, columns
from .slices import taken
from .view import ints


def block_counts(size, kernel, stride, padding, dilation):
    """How many windows fit along each dimension (not positive: none)."""
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1
                  for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)])


def need_blocks(kernel_size, dilation, padding, stride):
    """Refuse sizes that make no window."""
    for words, given, low in (("kernel size should be greater than zero, but got kernel", kernel_size, 1),
                              ("dilation should be greater than zero, but got dilation", dilation, 1),
                              ("padding should be non-negative, but got pad", padding, 0),
                              ("stride should be greater than zero, but got stride", stride, 1)):
        need(min(given) >= low, f"{words}_height: {given[0]} {words.split()[-1]}_width: {given[1]}")


def need_moved(dtype, name):
    need(dtype.category != 1, f"\"{name}_out_cpu\" not implemented for '{dtype.cname}'", NotImplementedError)


class _im2col(Op):
    """The windows of `input` [N, C, H, W] (or [C, H, W]) as columns: [N, C * prod(kernel), blocks]."""

    node = "Im2ColBackward0"
    called = "unfold"

    def meta(input, kernel_size, dilation, padding, stride):
        need_blocks(kernel_size, dilation, padding, stride)
        need(input.ndim in (3, 4) and 0 not in input.shape[-3:], "Expected 3D or 4D (batch mode) tensor with possibly "
             f"0 batch size and other non-zero dimensions for input, but got: {list(input.shape)}")
        blocks = block_counts(input.shape[-2:], kernel_size, stride, padding, dilation)
        need(min(blocks) > 0, f"Given input with spatial size {input.shape[-2:]}, kernel_size={kernel_size}, "
                              f"dilation={dilation}, padding={padding}, calculated shape of the array of sliding "
                              f"blocks as {blocks}, but its components must be at least one.")
        need_moved(input.dtype, "im2col")
        shape = (*input.shape[:-3], input.shape[-3] * math.prod(kernel_size), math.prod(blocks))
        return spec(input.dtype, shape, None, input.device)

    def ref(xp, input, kernel_size, dilation, padding, stride):
        x = input.reshape(-1, *input.shape[-3:])
        blocks = block_counts(input.shape[-2:], kernel_size, stride, padding, dilation)
        cols = columns(xp, x, kernel_size, blocks, stride, padding, dilation, 1)
        made = cols.reshape(cols.shape[1], x.shape[0], math.prod(blocks)).swapaxes(0, 1)
        return made.reshape(*input.shape[:-3], *made.shape[1:])

    def d_input(g, input_spec, kernel_size, dilation, padding, stride):
        return _col2im(g, input_spec.shape[-2:], kernel_size, dilation, padding, stride)

    def body(k, input, kernel_size, dilation, padding, stride):
        size = input.shape[-2:]
        planes, blocks = math.prod(input.shape[:-2]), block_counts(size, kernel_size, stride, padding, dilation)
        shape = planes, *kernel_size, *blocks
        at, inside = None, None
        for d in range(2):
            place = k.index(3 + d, shape) * stride[d] + k.index(1 + d, shape) * dilation[d] - padding[d]
            if padding[d]:
                here = (place >= 0) & (place < size[d])
                inside = here if inside is None else inside & here
            at = place if at is None else at * size[1] + place
        made = taken(k, k.reshape(input, (planes, math.prod(size))), shape, at, inside)
        return k.reshape(made, (*input.shape[:-3], input.shape[-3] * math.prod(kernel_size), math.prod(blocks)))


class _col2im(Op):
    """Columns [N, C * prod(kernel), blocks] (or without N) added up where windows of an [N, C, H, W] came from."""

    node = "Col2ImBackward0"
    called = "fold"

    def meta(input, output_size, kernel_size, dilation, padding, stride):
        need_blocks(kernel_size, dilation, padding, stride)
        need(input.ndim in (2, 3) and 0 not in input.shape[-2:], "Expected 2D or 3D (batch mode) tensor for input with "
             f"possibly 0 batch size and non-zero dimensions for input, but got: {list(input.shape)}")
        rows, count = input.shape[-2:]
        at = input.ndim - 2
        need(rows % math.prod(kernel_size) == 0, f"Expected size of input's dimension {at} to be divisible by the "
             f"product of kernel_size, but got input.size({at})={rows} and kernel_size={kernel_size}.")
        blocks = block_counts(output_size, kernel_size, stride, padding, dilation)
        need(math.prod(blocks) == count and min(blocks) > 0, f"Given output_size={output_size}, "
             f"kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}, expected size of "
             f"input's dimension {at + 1} to match the calculated number of sliding blocks {blocks[0]} * {blocks[1]} = "
             f"{math.prod(blocks)}, but got input.size({at + 1})={count}.")
        need_moved(input.dtype, "col2im")
        shape = (*input.shape[:-2], rows // math.prod(kernel_size), *output_size)
        return spec(input.dtype, shape, None, input.device)

    def ref(xp, input, output_size, kernel_size, dilation, padding, stride):
        blocks = block_counts(output_size, kernel_size, stride, padding, dilation)
        x = input.reshape(-1, *input.shape[-2:]).swapaxes(0, 1)
        channels = x.shape[0] // math.prod(kernel_size)
        cols = x.reshape(channels, *kernel_size, x.shape[1], *blocks)
        made = add_up(xp, cols, output_size, stride, padding, dilation)
        return made.reshape(*input.shape[:-2], *made.shape[1:])

    def d_input(g, kernel_size, dilation, padding, stride):
        return _im2col(g, kernel_size, dilation, padding, stride)

    def body(k, input, output_size, kernel_size, dilation, padding, stride):
        blocks = block_counts(output_size, kernel_size, stride, padding, dilation)
        planes = math.prod(input.shape[:-1]) // math.prod(kernel_size)
        if input.dtype.category < 2 and input.dtype is not dtypes.int64:
            return NotImplemented                              # NumPy's sums of them are of int64
        near = dilation == (1, 1)               # then only every `stride`-th place of a window can reach an element
        counts = [-(-n // s) if near else n for n, s in zip(kernel_size, stride, strict=True)]
        shape = planes, *output_size, *counts
        tap, block, inside = 0, 0, None
        for d in range(2):
            place, nth = k.index(1 + d, shape) + padding[d], k.index(3 + d, shape)
            if near:
                last = k.idiv(place, stride[d])
                place, number = place - (last - nth) * stride[d], last - nth
                here = (place < kernel_size[d]) & (number >= 0) & (number < blocks[d])
            else:
                number, here = window_of(k, place - nth * dilation[d], stride[d], blocks[d])
                place = nth
            inside = here if inside is None else inside & here
            tap, block = place + tap * kernel_size[d], number + block * blocks[d]
        at = tap * math.prod(blocks) + block
        flat = k.reshape(input, (planes, math.prod(kernel_size) * math.prod(blocks)))
        made = k.sum(taken(k, flat, shape, at, inside), (3, 4), keepdim=False)
        return k.reshape(made, (*input.shape[:-2], input.shape[-2] // math.prod(kernel_size), *output_size))


def window_of(k, start, stride, count):
    """In a body: the number of the window that begins at `start`, and whether there is one."""
    number = start if stride == 1 else k.idiv(start, stride)
    there = (start >= 0) & (number < count)
    return number, there if stride == 1 else there & (number * stride == start)


def pair(given, what):
    """Two ints from an int or two of them."""
    made = ints((given,), what) * (1 if isinstance(given, (tuple, list)) else 2)
    need(len(made) == 2, f"It is expected {what} equals to 2, but got size {len(made)}: {list(made)}")
    return made


class _unfold(Composite):
    """The sliding blocks of `input` [N, C, H, W] (or [C, H, W]) as columns [N, C * prod(kernel_size), blocks]."""

    names = "nn.functional.unfold"
    forms = "function"

    def of(input, kernel_size, dilation=1, padding=0, stride=1):
        need(input.dim() > 2, "Dimension out of range (expected an input of 3 or 4 dimensions, but got "
             f"{input.dim()})", IndexError)
        return _im2col(input, pair(kernel_size, "kernel_size"), pair(dilation, "dilation"), pair(padding, "padding"),
                       pair(stride, "stride"))


class _fold(Composite):
    """The sum of sliding blocks [N, C * prod(kernel_size), blocks] at their places in an [N, C, *output_size]."""

    names = "nn.functional.fold"
    forms = "function"

    def of(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
        return _col2im(input, pair(output_size, "output_size"), pair(kernel_size, "kernel_size"),
                       pair(dilation, "dilation"), pair(padding, "padding"), pair(stride, "stride"))
