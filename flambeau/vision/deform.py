"""`deform_conv2d`: a convolution whose kernel reads where `offset` moves its taps, between the pixels.

The pixels around each tap are rows of a table (see rows.py), and their weights are differentiable functions of the
offsets. So the columns that a convolution multiplies with its kernel are one `weighted_rows`, and gradients follow.
"""
from ..autograd.engine import grad as gradient
from ..autograd.modes import enable_grad
from ..base.errors import need
from ..tensor.functions import arange, stack
from .rows import weighted_rows


def deform_conv2d(input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups,
                  offset_groups, use_mask):
    """`input` [B, C, H, W] convolved by `weight`, each tap moved by its (y, x) in `offset`, and times its `mask`.

    `offset` is [B, 2 * offset_groups * kernel pixels, out_h, out_w] and `mask`, if used, half as deep; each group of
    offsets moves the taps for its share of the channels.
    """
    check(input, weight, offset, mask, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups,
          offset_groups, use_mask)
    dtype = input.dtype
    if dtype.itemsize == 2:
        input, weight, offset, mask, bias = (t.float() for t in (input, weight, offset, mask, bias))
    images, channels, height, width = input.shape
    outs, _, kernel_h, kernel_w = weight.shape
    out_h, out_w = offset.shape[2:]
    taps = kernel_h * kernel_w

    # [B, groups of offsets, taps, (y, x), out_h, out_w] → positions [B, out_h, out_w, taps, groups of offsets]
    moved = offset.reshape(images, offset_groups, taps, 2, out_h, out_w).permute(0, 4, 5, 2, 1, 3)
    tap_y = (arange(kernel_h) * dilation_h).repeat_interleave(kernel_w).reshape(taps, 1)
    tap_x = (arange(kernel_w) * dilation_w).repeat(kernel_h).reshape(taps, 1)
    y = (arange(out_h) * stride_h - pad_h).reshape(out_h, 1, 1, 1) + tap_y + moved[..., 0]
    x = (arange(out_w) * stride_w - pad_w).reshape(out_w, 1, 1) + tap_x + moved[..., 1]

    image = arange(images).reshape(images, 1, 1, 1, 1) * height
    group = arange(offset_groups)
    index, factor = [], []
    for row, share_y in neighbours(y, height):
        for column, share_x in neighbours(x, width):
            index.append(((image + row) * width + column) * offset_groups + group)
            factor.append(share_y * share_x)
    index, factor = stack(index, -1), stack(factor, -1)
    if use_mask:
        factor = factor * mask.reshape(images, offset_groups, taps, out_h, out_w).permute(0, 3, 4, 2, 1).unsqueeze(-1)

    table = input.permute(0, 2, 3, 1).reshape(images * height * width * offset_groups, channels // offset_groups)
    columns = weighted_rows(table.contiguous(), index.reshape(-1, 4), factor.reshape(-1, 4))
    columns = columns.reshape(images * out_h * out_w, taps, groups, channels // groups).permute(2, 0, 1, 3)
    kernel = weight.reshape(groups, outs // groups, channels // groups, taps).permute(0, 3, 2, 1)
    out = columns.reshape(groups, images * out_h * out_w, -1) @ kernel.reshape(groups, -1, outs // groups)
    out = out.reshape(groups, images, out_h, out_w, outs // groups).permute(1, 0, 4, 2, 3)
    return (out.reshape(images, outs, out_h, out_w) + bias.reshape(1, outs, 1, 1)).to(dtype)


def neighbours(position, size):
    """(index, weight) of the pixel before each `position` along an axis and of the one after it; outside is none."""
    low = position.detach().floor()
    above = position - low
    for at, share in ((low, 1 - above), (low + 1, above)):
        inside = (at >= 0) & (at <= size - 1)
        yield (at * inside).nan_to_num(0, 0, 0).long().clamp(0, size - 1), share.masked_fill(~inside, 0)


def _deform_conv2d_backward(grad, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h,
                            dilation_w, groups, offset_groups, use_mask):
    """The gradients of `input`, `weight`, `offset`, `mask` and `bias`."""
    with enable_grad():
        leaves = [t.detach().requires_grad_() for t in (input, weight, offset, mask, bias)]
        out = deform_conv2d(*leaves, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups,
                            use_mask)
    made = gradient(out, leaves, grad, allow_unused=True)
    return tuple(t.new_zeros(t.shape) if g is None else g for t, g in zip(leaves, made, strict=True))


def check(input, weight, offset, mask, stride, padding, dilation, groups, offset_groups, use_mask):
    """Refuse shapes that do not belong together."""
    for name, t in (("input", input), ("weight", weight), ("offset", offset), ("mask", mask)):
        if name != "mask" or use_mask:
            need(t.dim() == 4, f"{name} must have 4 dimensions, got {list(t.shape)}")
    kernel, size, taps = weight.shape[2:], input.shape[2:], weight.shape[2] * weight.shape[3]
    need(min(kernel) > 0, f"weight_h: {kernel[0]} weight_w: {kernel[1]}; both must be positive")
    need(min(stride) > 0, f"stride_h: {stride[0]} stride_w: {stride[1]}; both must be positive")
    need(min(padding) >= 0, f"pad_h: {padding[0]} pad_w: {padding[1]}; neither may be negative")
    need(min(dilation) > 0, f"dilation_h: {dilation[0]} dilation_w: {dilation[1]}; both must be positive")
    need(weight.shape[1] * groups == input.shape[1], f"weight has {weight.shape[1]} input channels in each of {groups} "
                                                     f"groups, and input has {input.shape[1]} channels")
    need(weight.shape[0] % groups == 0, f"{weight.shape[0]} output channels cannot be cut into {groups} groups")
    need(input.shape[1] % offset_groups == 0, f"{input.shape[1]} channels cannot be cut into {offset_groups} groups of "
                                              "offsets")
    out = tuple((n + 2 * p - (d * (k - 1) + 1)) // s + 1
                for n, p, d, k, s in zip(size, padding, dilation, kernel, stride, strict=True))
    need(offset.shape[1] == offset_groups * 2 * taps, f"offset.shape[1] is not valid: got: {offset.shape[1]} expected: "
                                                      f"{offset_groups * 2 * taps}")
    need(offset.shape[0] == len(input), f"invalid batch size of offset: {offset.shape[0]} for {len(input)} images")
    need(tuple(offset.shape[2:]) == out, f"offset output dims: {tuple(offset.shape[2:])} - computed output dims: {out}")
    if use_mask:
        need(mask.shape[1] == offset_groups * taps, f"mask.shape[1] is not valid: got: {mask.shape[1]} expected: "
                                                    f"{offset_groups * taps}")
        need(mask.shape[0] == len(input), f"invalid batch size of mask: {mask.shape[0]} for {len(input)} images")
        need(tuple(mask.shape[2:]) == out, f"mask output dims: {tuple(mask.shape[2:])} - computed output dims: {out}")
    need(min(out) > 0, f"Calculated output size too small - out_h: {out[0]} out_w: {out[1]}")
