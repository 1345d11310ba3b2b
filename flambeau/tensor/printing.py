"""The text of a tensor, letter for letter as PyTorch prints it.

`format_tensor` writes the whole text: a prefix, a body, and what the body leaves unsaid (dtype,
device, gradient). The body is `format_array`: keep the edges of what is too long to show, write every
kept element as a cell, then bracket the cells from the innermost dimension outwards. All of it works
on NumPy arrays; the widths that line the columns up come from the kept elements alone, so printing a
tensor of any size reads only what is printed.
"""

import math
from contextlib import contextmanager

import numpy as np

MODULE_NAME = "torch"      # the name in `dtype=torch.float64`: programs compare printed text with PyTorch's
TENSOR_PREFIX = "tensor("  # what opens a tensor or Parameter whose class is not the user's own

PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
OPTIONS = {**PROFILES["default"], "sci_mode": None}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None,
                     profile=None, sci_mode=None):
    """Choose how tensors print from now on.

    precision: digits after the point of a floating point number (4).
    threshold: a tensor with more elements than this prints only its edges (1000).
    edgeitems: how many elements to keep at either end of a dimension then (3).
    linewidth: characters before a row breaks (80).
    profile: "default", "short" or "full", a set of the four above; those given beside it win.
    sci_mode: True or False for scientific notation always or never. None, or a call that does not
        say, lets the numbers decide.

    >>> set_printoptions(precision=2)
    >>> print(format_array(np.array([1.12345]), "float32"))
    [1.12]
    >>> set_printoptions(profile="default")
    >>> print(format_array(np.array([1.12345]), "float32"))
    [1.1235]
    """
    OPTIONS.update(PROFILES.get(profile, {}))       # PyTorch lets an unknown profile pass
    given = dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth)
    OPTIONS.update({name: value for name, value in given.items() if value is not None})
    OPTIONS["sci_mode"] = sci_mode                  # a call that is silent about it resets it, as in PyTorch


def get_printoptions():
    """The options in force, as a dictionary that `set_printoptions(**options)` takes back."""
    return dict(OPTIONS)


@contextmanager
def printoptions(**options):
    """Print with these options inside the `with` block, and as before after it."""
    before = get_printoptions()
    try:
        set_printoptions(**options)
        yield
    finally:
        OPTIONS.update(before)


def format_tensor(array, dtype_name, default_dtype_name="float32", device="cpu", requires_grad=False,
                  grad_fn_name=None, is_meta=False, shape=None, prefix=TENSOR_PREFIX, *,
                  parameter=False, marked=False, extras=()):
    """Everything `repr(tensor)` says.

    array: the elements, or only their `kept_positions`, or None where there are none (`is_meta`).
    shape: the tensor's shape; needed where `array` is not the whole of it.
    prefix: "tensor(", or the class's name and "(" for a subclass.
    parameter: the class is Parameter or derives from it.
    marked: it does not, but the tensor was made a Parameter and kept its class.
    extras: further things to say at the end, such as `tangent=...`.

    >>> print(format_tensor(np.ones(2), "float64", requires_grad=True))
    tensor([1., 1.], dtype=torch.float64, requires_grad=True)
    """
    shape = tuple(array.shape if shape is None else shape)
    empty = 0 in shape
    # Elements show by themselves that they are int64 or bool, or complex of the default's precision.
    # Without elements to look at, nothing but the default dtype goes without saying.
    unsaid = {default_dtype_name}
    if not (is_meta or empty):
        unsaid |= {"int64", "bool", "complex128" if default_dtype_name == "float64" else "complex64"}

    notes = []
    if device != "cpu":
        notes.append(f"device='{device}'")
    if is_meta or (len(shape) != 1 if empty else not OPTIONS["edgeitems"]):
        notes.append(f"size={shape}")
    if dtype_name not in unsaid:
        notes.append(f"dtype={MODULE_NAME}.{dtype_name}")
    if grad_fn_name is not None:
        notes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        notes.append("requires_grad=True")
    notes.extend(extras)

    body = "..." if is_meta else format_array(array, dtype_name, len(prefix), shape)
    text = append_notes(prefix + body, notes, len(prefix)) + ")"
    if (parameter or marked) and prefix != TENSOR_PREFIX:
        text = f"Parameter({text})"
    return "Parameter containing:\n" + text if parameter else text


def append_notes(text, notes, indent):
    """`text` with `notes` after it, each on a line of its own where the last line has no room left."""
    column = len(text) - text.rfind("\n") + 1       # two past the line's end: PyTorch breaks that early
    for note in notes:
        if column + len(note) + 2 > OPTIONS["linewidth"]:
            text += ",\n" + " " * indent + note
            column = indent + len(note)
        else:
            text += ", " + note
            column += len(note) + 2
    return text


def format_array(array, dtype_name, indent=7, shape=None):
    """The elements of `array` in brackets, after `indent` characters on the first line.

    shape: the whole shape, where `array` holds only the `kept_positions` of it.

    >>> print(format_array(np.arange(1200).reshape(3, 400), "int64", indent=0))
    [[   0,    1,    2,  ...,  397,  398,  399],
     [ 400,  401,  402,  ...,  797,  798,  799],
     [ 800,  801,  802,  ..., 1197, 1198, 1199]]
    """
    shape = tuple(array.shape if shape is None else shape)
    if 0 in shape:
        return "[]"
    kept = kept_positions(shape)
    if kept is not None:
        if not OPTIONS["edgeitems"]:
            return "[...]"
        if array.shape == shape:
            array = array[np.ix_(*kept)]    # one gather; slicing axis by axis would copy whole rows
    texts, width = cells(array, dtype_name)
    return bracket(texts, width, array.shape, shape, indent)


def kept_positions(shape):
    """Which positions of each dimension are printed: index arrays, or None for a tensor printed in full.

    A caller whose elements are far away (on another device, or not computed yet) can fetch these alone.
    """
    if not shape or math.prod(shape) <= OPTIONS["threshold"]:
        return None
    edge = OPTIONS["edgeitems"]
    return [np.r_[:edge, size - edge:size] if size > 2 * edge else np.arange(size) for size in shape]


def cells(array, dtype_name):
    """Every element of `array` as text, in order, and the number of columns to set aside for one."""
    flat = array.reshape(-1)
    if dtype_name.startswith("complex"):
        flat = widen(flat, np.complex128)
        reals, real_width = float_cells(flat.real)
        imags, imag_width = float_cells(flat.imag)
        signed = [text if text[0] in "+-" else "+" + text for text in map(str.lstrip, imags)]
        return [f"{real}{imag}j" for real, imag in zip(reals, signed)], real_width + imag_width + 1
    if dtype_name.startswith(("float", "bfloat")):
        # PyTorch leaves out zeros by comparing in the dtype itself, and this one's zero is its smallest number.
        return float_cells(widen(flat, np.float64), zero=2.0**-127 if dtype_name == "float8_e8m0fnu" else 0)
    texts = [str(value) for value in flat.tolist()]
    return justify(texts, texts)


def widen(values, dtype):
    """`values` as `dtype`, without the warning that NumPy gives for a signalling nan."""
    with np.errstate(invalid="ignore"):
        return values.astype(dtype)


def float_cells(values, zero=0):
    """The float64 `values` as text in the one notation that suits them all, and the columns for one."""
    telling = values[np.isfinite(values) & (values != zero)]    # the others read well in any notation
    if wants_exponent(telling):
        spec, point = f".{OPTIONS['precision']}e", ""
    elif (telling == np.ceil(telling)).all():
        spec, point = ".0f", "."                            # 3. says that it is a float
    else:
        spec, point = f".{OPTIONS['precision']}f", ""

    def write(value):
        text = format(value, spec)
        return text + point if math.isfinite(value) else text

    return justify(map(write, values.tolist()), map(write, telling.tolist()))


def wants_exponent(telling):
    """Whether the nonzero finite numbers `telling` need exponents: they are far apart, huge or tiny."""
    if not telling.size:
        return False
    if OPTIONS["sci_mode"] is not None:
        return OPTIONS["sci_mode"]
    sizes = np.abs(telling)
    low, high = float(sizes.min()), float(sizes.max())
    return high / low > 1000 or high > 1e8 or low < 1e-4


def justify(texts, telling):
    """`texts` moved right to the width of the longest of `telling`, and that width.

    A text that is longer than that keeps its length: in PyTorch a nan or a zero widens no column.
    """
    width = max(map(len, telling), default=1)
    return [text.rjust(width) for text in texts], width


def bracket(texts, width, kept, shape, indent):
    """`texts`, the elements of an array of shape `kept`, in brackets, with dots where `shape` has more."""
    last = len(shape) - 1
    for axis in range(last, -1, -1):
        size = kept[axis]
        groups = [texts[start:start + size] for start in range(0, len(texts), size)]
        if size < shape[axis]:
            dots = " ..." if axis == last else "..."
            groups = [[*group[:size // 2], dots, *group[size // 2:]] for group in groups]
        if axis == last:
            room = max(1, int((OPTIONS["linewidth"] - indent - axis) // (width + 2)))
            groups = [[", ".join(group[start:start + room]) for start in range(0, len(group), room)]
                      for group in groups]
        # Rows follow each other on the next line, matrices after one blank line, and so on.
        between = "," + "\n" * max(1, last - axis) + " " * (indent + axis + 1)
        texts = ["[" + between.join(group) + "]" for group in groups]
    return texts[0]


def format_with_spec(tensor, spec, plain=True):
    """What `format(tensor, spec)` gives: a 0-dimensional tensor formats as its number.

    Any other takes an empty spec only. plain: the class is Tensor itself; PyTorch does not look
    inside a Parameter or another subclass.
    """
    if plain and tensor.dim() == 0 and not tensor.is_meta:
        return format(tensor.item(), spec)
    return object.__format__(tensor, spec)
