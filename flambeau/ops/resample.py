"""Resizing and sampling: images and signals at other positions than their own.

Resizing goes dimension by dimension, by the tables of base/axis_maps.py. Sampling at free positions weighs the corners
around each.
"""
import itertools
import math
import numbers

from ..base import dtypes
from ..base.axis_maps import byte_sum, taps_of
from ..base.errors import need, warn
from ..base.op import Composite, Op
from .corners import _sampled, _sampled_drop, _sampled_slopes, product
from .maxpool import NOWHERE, _drop_weighted, pick_inside
from .pad import _resized
from .pieces import cat, stack
from .pool import _adaptive_avg_pool2d, _adaptive_avg_pool3d, adaptive_avg_pool1d, mapped, need_dtype
from .ranges import linspace
from .view import ints

RESAMPLED_AXES = {1: "W", 2: "HW", 3: "DHW"}


class _resized_bytes(Op):
    """`_resized` in whole numbers, for images of bytes."""

    exact = True

    def meta(input, maps): return mapped(input, maps)

    def ref(xp, input, maps):
        for axis in range(-1, -len(maps) - 1, -1):
            if maps[axis][1] != maps[axis][2]:               # PyTorch leaves a dimension alone whose size stays
                input = byte_sum(xp, input, axis, taps_of(maps[axis]))
        return input


# --- resizing ---------------------------------------------------------------------------------------------------------


class _upsample_nearest1d(_resized):        node = "UpsampleNearest1DBackward0"
class _upsample_nearest2d(_resized):        node = "UpsampleNearest2DBackward0"
class _upsample_nearest3d(_resized):        node = "UpsampleNearest3DBackward0"
class _upsample_nearest_exact1d(_resized):  node = "UpsampleNearestExact1DBackward0"
class _upsample_nearest_exact2d(_resized):  node = "UpsampleNearestExact2DBackward0"
class _upsample_nearest_exact3d(_resized):  node = "UpsampleNearestExact3DBackward0"
class _upsample_linear1d(_resized):         node = "UpsampleLinear1DBackward0"
class _upsample_bilinear2d(_resized):       node = "UpsampleBilinear2DBackward0"
class _upsample_trilinear3d(_resized):      node = "UpsampleTrilinear3DBackward0"
class _upsample_bicubic2d(_resized):        node = "UpsampleBicubic2DBackward0"
class _upsample_bilinear2d_aa(_resized):    node = "UpsampleBilinear2DAaBackward0"
class _upsample_bicubic2d_aa(_resized):     node = "UpsampleBicubic2DAaBackward0"
class _upsample_lanczos2d_aa(_resized):     node = "UpsampleLanczos2DAaBackward0"


NEAREST = {"nearest": (_upsample_nearest1d, _upsample_nearest2d, _upsample_nearest3d),
           "nearest-exact": (_upsample_nearest_exact1d, _upsample_nearest_exact2d, _upsample_nearest_exact3d)}
# mode → number of dimensions, name of the map, operation
SMOOTH = {"linear": (1, "linear", _upsample_linear1d), "bilinear": (2, "linear", _upsample_bilinear2d),
          "trilinear": (3, "linear", _upsample_trilinear3d), "bicubic": (2, "cubic", _upsample_bicubic2d)}
ANTIALIAS = {"bilinear": ("linear", _upsample_bilinear2d_aa), "bicubic": ("cubic", _upsample_bicubic2d_aa),
             "lanczos": ("lanczos", _upsample_lanczos2d_aa)}
AREA = (adaptive_avg_pool1d, _adaptive_avg_pool2d, _adaptive_avg_pool3d)


def wanted_size(input, size, scale_factor, n):
    """(output sizes or None, scales or None) of `interpolate`, one per dimension."""
    need(size is None or scale_factor is None, "only one of size or scale_factor should be defined", ValueError)
    need(size is not None or scale_factor is not None, "either size or scale_factor should be defined", ValueError)
    for given, what, shape in ((size, "output", "output size of"), (scale_factor, "scale_factor", "scale_factor of "
                                                                    "shape")):
        need(not isinstance(given, (tuple, list)) or len(given) == n, f"Input and {what} must have the same number of "
             f"spatial dimensions, but got input with spatial dimensions of {list(input.shape[2:])} and {shape} "
             f"{given}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and {n} numbers here, or one for "
             "all.", ValueError)
    if size is not None:
        sizes = list(ints((size,), "size"))
        return sizes if isinstance(size, (tuple, list)) else sizes * n, None
    scales = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * n
    for scale in scales:
        need(isinstance(scale, numbers.Real), "argument 'scale_factor' must be float or tuple of floats, not "
                                              f"{type(scale).__name__}", TypeError)
    return None, [float(s) for s in scales]


def need_resizable(input, sizes, n):
    """Refuse an empty image, or one that would become empty."""
    old = input.shape[2:]
    need(min(*old, *sizes) > 0, "Input and output sizes should be greater than 0, but got input "
         f"({', '.join(f'{axis}: {s}' for axis, s in zip(RESAMPLED_AXES[n], old, strict=True))}) output "
         f"({', '.join(f'{axis}: {s}' for axis, s in zip(RESAMPLED_AXES[n], sizes, strict=True))})")
    need(input.shape[1] > 0, f"Non-empty {n + 2}D data tensor expected but got a tensor with sizes {list(input.shape)}")


class _interpolate(Composite):
    """`input` [N, C, *size] resized to `size`, or by `scale_factor`.

    >>> torch.nn.functional.interpolate(torch.tensor([[[0., 1.]]]), scale_factor=2, mode="linear")
    tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
    """

    names = "nn.functional.interpolate"
    forms = "function"

    def of(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
           antialias=False):
        need(align_corners is None or mode not in ("nearest", "area", "nearest-exact"), "align_corners option can only "
             f"be set with the interpolating modes: linear | bilinear | bicubic | trilinear, not {mode}", ValueError)
        n = input.dim() - 2
        sizes, scales = wanted_size(input, size, scale_factor, n)
        need(not recompute_scale_factor or size is None, "recompute_scale_factor is not meaningful with an explicit "
             "size.",
             ValueError)
        need(not antialias or mode in ANTIALIAS and n == 2, "Anti-alias option is restricted to bilinear, bicubic, and "
             f"lanczos modes and requires a 4-D tensor as input, got {mode} and {input.dim()} dimensions", ValueError)
        if sizes is None:
            sizes = [int(s * scale) for s, scale in zip(input.shape[2:], scales, strict=True)]
            if recompute_scale_factor or mode == "area":
                scales = None
        return resized(input, n, sizes, scales or [None] * n, mode, bool(align_corners), antialias)


def resized(input, n, sizes, scales, mode, align_corners, antialias):
    """`interpolate` after its arguments are understood."""
    need(mode not in SMOOTH or mode == "bicubic" or n not in (1, 2, 3) or SMOOTH[mode][0] == n, f"Got {n + 2}D input, "
         f"but {mode} mode needs {SMOOTH.get(mode, (0,))[0] + 2}D input", NotImplementedError)
    known = mode in NEAREST or mode == "area" or mode in SMOOTH or mode in ANTIALIAS
    need(known and n in (1, 2, 3) and (n == 2 or mode not in ("bicubic", "lanczos")), "Input Error: Only 3D, 4D and 5D "
         f"input Tensors supported (got {n + 2}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | "
         f"lanczos | area | nearest-exact (got {mode})", NotImplementedError)
    if mode == "area":
        return AREA[n - 1](input, sizes)
    if mode == "lanczos":
        need(not align_corners, "Lanczos mode does not support align_corners=True", ValueError)
        need(antialias, "Lanczos mode requires antialias=True", ValueError)
    need_resizable(input, sizes, n)
    dtype = input.dtype
    byte = dtype is dtypes.uint8
    pairs = list(zip(input.shape[2:], sizes, scales, strict=True))
    if mode in NEAREST:
        need_dtype(dtype, dtype.category == 2 or byte, f"upsample_nearest{n}d")
        exact = mode == "nearest-exact"
        if n == 2 and not exact:              # an image that stays as large, or becomes twice so, does at any scale
            pairs = [(old, new, None if new in (old, 2 * old) else scale) for old, new, scale in pairs]
        maps = [("nearest", old, new, scale, dtype is dtypes.float64, exact) for old, new, scale in pairs]
        return NEAREST[mode][n - 1](input, tuple(maps))
    if antialias:
        map_name, op = ANTIALIAS[mode]
        need_dtype(dtype, dtype.category == 2 and dtype.itemsize > 2 or byte, f"upsample_{mode}2d_aa")
        maps = [("smooth", old, new, align_corners, scale, map_name) for old, new, scale in pairs]
    else:
        _, map_name, op = SMOOTH[mode]
        need_dtype(dtype, dtype.category == 2 or byte and n == 2, f"upsample_{mode}{n}d")
        maps = [(map_name, old, new, align_corners, scale) for old, new, scale in pairs]
    return (_resized_bytes if byte else op)(input, tuple(maps))


def deprecated(name):
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


class _upsample(Composite):
    """`interpolate` by its old name."""

    names = "nn.functional.upsample"
    forms = "function"

    def of(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
        deprecated("upsample")
        return _interpolate(input, size, scale_factor, mode, align_corners)


class _upsample_nearest(Composite):
    """`interpolate` to the nearest, by an old name."""

    names = "nn.functional.upsample_nearest"
    forms = "function"

    def of(input, size=None, scale_factor=None):
        deprecated("upsample_nearest")
        return _interpolate(input, size, scale_factor, "nearest")


class _upsample_bilinear(Composite):
    """`interpolate` bilinearly with aligned corners, by an old name."""

    names = "nn.functional.upsample_bilinear"
    forms = "function"

    def of(input, size=None, scale_factor=None):
        deprecated("upsample_bilinear")
        return _interpolate(input, size, scale_factor, "bilinear", True)


# --- sampling at free positions ---------------------------------------------------------------------------------------


def unnormalised(above, size, align_corners):
    """(positions in [-1, 1], given by how far they are `above` -1, as positions among `size` elements; their speed)"""
    if align_corners:
        return above / 2 * (size - 1), (size - 1) / 2
    return (above * size - 1) / 2, size / 2


def put_inside(at, size, padding_mode, align_corners):
    """(positions brought inside as `padding_mode` says, their slope: 1, -1 or 0)"""
    slope = 1.0
    if padding_mode == 2:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if not span:
            return at * 0, at.detach() * 0
        sign = (at.detach() >= low) * 2.0 - 1
        away = (at - low) * sign
        turns = (away.detach() / span).floor()
        odd = turns % 2 == 1
        rest = away - turns * span
        at = (span - rest).where(odd, rest) + low
        slope = sign * (1 - 2 * odd.to(at.dtype))
    if padding_mode:
        clamped = at.detach().clamp(0, size - 1)
        free = (at.detach() > 0) & (at.detach() < size - 1)
        at, slope = at.where(free, clamped), free.to(at.dtype) * slope
    return at, slope


def pixel_of(x, size, padding_mode, align_corners):
    """(the pixels that positions `x` in [-1, 1] are at along one dimension, what they move by with x)

    An identity grid points at pixels up to rounding, and which side of a pixel that is decides the slope: as PyTorch
    rounds, then, which is once after x + 1.
    """
    at, speed = unnormalised((x + 1).to(dtypes.float64), size, align_corners)
    at = at.to(x.dtype)
    at, slope = put_inside(at, size, padding_mode, align_corners)
    return at, slope * speed


def axis_corners(x, size, mode, padding_mode, align_corners):
    """What positions `x` in [-1, 1] read along one dimension, nearest or by a cubic: a list of (index, weight, the
    weight's slope in x)."""
    if mode == 1:
        return [(pixel_of(x, size, padding_mode, align_corners)[0].detach().round(), None, None)]
    wide = dtypes.float64                       # a position is a large number with a small part that counts
    exact, speed = unnormalised(x.to(wide) + 1, size, align_corners)
    before = exact.detach().floor()
    t = exact - before
    return [(put_inside(before + k - 1, size, padding_mode, align_corners)[0].trunc(), weight, slope * speed)
            for k, (weight, slope) in enumerate(cubic(t))]


def cubic(t, a=-0.75):
    """(weight, slope) of the elements at -1, 0, 1, 2 for a position `t` between 0 and 1."""
    def near(x): return ((a + 2) * x - (a + 3)) * x * x + 1, (3 * (a + 2) * x - 2 * (a + 3)) * x
    def far(x):  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, (3 * a * x - 10 * a) * x + 8 * a
    (w0, s0), (w1, s1), (w2, s2), (w3, s3) = far(t + 1), near(t), near(1 - t), far(2 - t)
    return (w0, s0), (w1, s1), (w2, -s2), (w3, -s3)


def corners(grid, sizes, mode, padding_mode, align_corners):
    """For each corner around the positions `grid` [N, P, n]: (flat index [N, 1, P], NOWHERE outside; weight; slopes).

    Weight and slopes are those of the position, outside too, and None of the nearest.
    """
    n = len(sizes)
    axes = [axis_corners(grid.select(2, n - 1 - d).unsqueeze(1), size, mode, padding_mode, align_corners)
            for d, size in enumerate(sizes)]
    for corner in itertools.product(*axes):
        flat, inside = 0, None
        for (index, _, _), size in zip(corner, sizes, strict=True):
            here = (index >= 0) & (index <= size - 1)
            inside = here if inside is None else inside & here
            flat = flat * size + index.masked_fill(~here, 0).to(dtypes.int64)
        flat = flat.masked_fill(~inside, NOWHERE)
        if mode == 1:
            yield flat, None, None
            continue
        slopes = [product([other[2] if i == d else other[1] for i, other in enumerate(corner)]) for d in range(n)]
        yield flat, product([w for _, w, _ in corner]), slopes


def pixels(grid, sizes, padding_mode, align_corners):
    """([N, n, P]: at which pixels the positions `grid` [N, P, n] are, slowest dimension first; what they move by)"""
    n = len(sizes)
    axes = [pixel_of(grid.select(2, n - 1 - d), size, padding_mode, align_corners) for d, size in enumerate(sizes)]
    return stack([at for at, _ in axes], 1), [moved for _, moved in axes]


def flat_inputs(input, grid):
    """`input` [N, C, P] in at least single precision; `grid` [N, P, n] as it is, or in double if it is of 16 bits."""
    wide = dtypes.float32 if input.dtype.itemsize == 2 else input.dtype
    shape, fine = input.shape, grid.to(dtypes.float64) if grid.dtype.itemsize == 2 else grid
    return (input.to(wide).reshape(shape[0], shape[1], math.prod(shape[2:])),
            fine.reshape(shape[0], math.prod(grid.shape[1:-1]), len(shape) - 2))


def need_sampled(input, grid, interpolation_mode):
    """Refuse what cannot be sampled, in PyTorch's words."""
    n = input.dim() - 2
    need(input.dtype is grid.dtype, f"expected scalar type {input.dtype.cname} but found {grid.dtype.cname}")
    need(input.shape[0] == grid.shape[0], "grid_sampler(): expected grid and input to have same batch size, but got "
         f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    need(grid.shape[-1] == n, f"grid_sampler(): expected grid to have size {n} in last dimension, but got grid with "
         f"sizes {list(grid.shape)}")
    for d, size in enumerate(input.shape[2:], 2):
        need(size > 0, "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
             f"{list(input.shape)} with dimension {d} being empty")
    need(n in (2, 3) and input.dim() == grid.dim(), "grid_sampler(): expected 4D or 5D input and grid with same number "
         f"of dimensions, but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    need(interpolation_mode != 2 or n == 2, "grid_sampler(): bicubic interpolation only supports 4D input")
    need_dtype(input.dtype, input.dtype.category == 2, f"grid_sampler_{n}d_cpu_kernel_impl")


class grid_sampler_2d(Composite):
    """`input` [N, C, H, W] at the positions `grid` [N, H', W', 2], each (x, y) from -1 to 1."""

    forms = "function"
    node = "GridSampler2DBackward0"

    def of(input, grid, interpolation_mode, padding_mode, align_corners):
        need_sampled(input, grid, interpolation_mode)
        flat, positions = flat_inputs(input, grid)
        if interpolation_mode == 0:
            at, _ = pixels(positions, input.shape[2:], padding_mode, align_corners)
            out = _sampled(flat, at.to(flat.dtype), tuple(input.shape[2:]))
            return out.to(input.dtype).reshape(*input.shape[:2], *grid.shape[1:-1])
        out = 0
        for index, weight, _ in corners(positions, input.shape[2:], interpolation_mode, padding_mode, align_corners):
            found = pick_inside(flat, index)
            out = out + (found if weight is None else found * weight.to(flat.dtype))
        return out.to(input.dtype).reshape(*input.shape[:2], *grid.shape[1:-1])

    def grads(g, needs, input, grid, interpolation_mode, padding_mode, align_corners):
        flat, positions = flat_inputs(input, grid)
        g = g.to(flat.dtype).reshape(*flat.shape[:2], positions.shape[1])
        if interpolation_mode == 0:
            sizes, d_input, d_grid = tuple(input.shape[2:]), None, None
            at, moves = pixels(positions, sizes, padding_mode, align_corners)
            at = at.to(flat.dtype)
            if needs[0]:
                d_input = _sampled_drop(g, at, sizes).reshape(input.shape).to(input.dtype)
            if needs[1]:
                slopes = _sampled_slopes(g, flat, at, sizes)
                parts = [slopes.select(1, d) * moved for d, moved in enumerate(moves)]
                d_grid = stack(parts[::-1], 2).reshape(grid.shape).to(grid.dtype)
            return d_input, d_grid
        found = list(corners(positions, input.shape[2:], interpolation_mode, padding_mode, align_corners))
        d_input = d_grid = None
        if needs[0]:
            index = cat([index for index, _, _ in found], 1)
            weight = g.new_ones(index.shape) if interpolation_mode == 1 else cat([w for _, w, _ in found], 1)
            d_input = _drop_weighted(g, index, weight.to(g.dtype), flat.shape[2]).reshape(input.shape).to(input.dtype)
        if needs[1] and interpolation_mode == 1:
            d_grid = grid.new_zeros(grid.shape)
        elif needs[1]:
            pulls = [((pick_inside(flat, index) * g).sum(1, keepdim=True), slopes) for index, _, slopes in found]
            parts = [sum([pull * slopes[d] for pull, slopes in pulls]).squeeze(1) for d in range(positions.shape[2])]
            d_grid = stack(parts[::-1], 2).reshape(grid.shape).to(grid.dtype)
        return d_input, d_grid


class grid_sampler_3d(grid_sampler_2d):
    """`input` [N, C, D, H, W] at the positions `grid` [N, D', H', W', 3], each (x, y, z) from -1 to 1."""

    node = "GridSampler3DBackward0"


class grid_sampler(Composite):
    """`input` at the positions `grid`; modes by number: bilinear, nearest, bicubic, and zeros, border, reflection."""

    forms = "function"

    def of(input, grid, interpolation_mode, padding_mode, align_corners):
        run = grid_sampler_3d if input.dim() == 5 else grid_sampler_2d
        return run(input, grid, interpolation_mode, padding_mode, align_corners)


class _grid_sample(Composite):
    """`input` [N, C, H, W] at the positions `grid` [N, H', W', 2], each (x, y) from -1 to 1; also in three dimensions.

    >>> image = torch.tensor([[[[0., 1.], [2., 3.]]]])
    >>> torch.nn.functional.grid_sample(image, torch.zeros(1, 1, 1, 2), align_corners=False)
    tensor([[[[1.5000]]]])
    """

    names = "nn.functional.grid_sample"
    forms = "function"

    def of(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
        modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
        need(mode in modes, "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but "
             f"got: '{mode}'", ValueError)
        need(padding_mode in paddings, "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
             f"'reflection', but got: '{padding_mode}'", ValueError)
        if align_corners is None:
            warn_corners()
        return grid_sampler(input, grid, modes.index(mode), paddings.index(padding_mode), bool(align_corners))


def warn_corners():
    warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
         "specify align_corners=True if the old behavior is desired. See the documentation of grid_sample for "
         "details.")


def base_grid(theta, size, align_corners):
    """Positions [N, P, n + 1] of a regular grid, x first, and a one for the shift."""
    n = len(size) - 2
    rows = []
    for d in range(n - 1, -1, -1):
        steps = size[2 + d]
        row = linspace(-1, 1, steps, dtype=theta.dtype, device=theta.device) if steps > 1 else theta.new_zeros(1)
        if not align_corners:
            row = row * (steps - 1) / steps
        rows.append(row.reshape([-1 if i == d else 1 for i in range(n)]).expand(size[2:]))
    rows.append(theta.new_ones(size[2:]))
    return stack(rows, -1).reshape(1, -1, n + 1).expand(size[0], -1, -1)


class affine_grid_generator(Composite):
    """Where an affine map `theta` [N, n, n + 1] sends each place of a grid of `size` [N, C, *size]."""

    forms = "function"

    def of(theta, size, align_corners):
        made = base_grid(theta, size, align_corners).bmm(theta.transpose(1, 2))
        return made.reshape(size[0], *size[2:], len(size) - 2)

    def d_theta(g, theta, size, align_corners):
        base = base_grid(theta.detach(), size, align_corners)
        return base.transpose(1, 2).bmm(g.reshape(size[0], -1, len(size) - 2)).transpose(1, 2)


class _affine_grid(Composite):
    """The grid for `grid_sample` that an affine map `theta` [N, 2, 3] makes of an image of `size` [N, C, H, W]."""

    names = "nn.functional.affine_grid"
    forms = "function"

    def of(theta, size, align_corners=None):
        size = ints((size,), "size")
        if align_corners is None:
            warn_corners()
        need(theta.dtype.category == 2, "Expected theta to have floating point type, but got "
             f"{theta.dtype}", ValueError)
        need(len(size) in (4, 5), "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
             f"respectively. Got size {size}.", NotImplementedError)
        n = len(size) - 2
        need(theta.dim() == 3 and tuple(theta.shape[1:]) == (n, n + 1), f"Expected a batch of {n}D affine matrices of "
             f"shape Nx{n}x{n + 1} for size {size}. Got {theta.shape}.", ValueError)
        need(min(size) > 0, f"Expected non-zero, positive output size. Got {size}", ValueError)
        need(theta.shape[0] == size[0], f"Expected one affine matrix for each of the {size[0]} images, but got "
             f"{theta.shape[0]}")
        return affine_grid_generator(theta, size, bool(align_corners))
