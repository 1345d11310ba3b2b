"""What is noticed where it happens, always: lower layers tell it through `door.noticed(what, ...)`.

Each function here is called when something rare has happened, so it may take its time: read source lines, walk graphs.
What decides that it has happened is a test that costs nothing, in the code that does the thing.
"""
import linecache
import os
import re
import sys

from ..autograd.edges import requires
from ..base.errors import PACKAGE, file_and_line, here, name_of, user_frame
from .axes import norm_of_view  # noqa: F401  # these by their names, from `door.noticed`
from .data import kept_generator, loader_started  # noqa: F401
from .finding import found, in_force, listens
from .nonfinite import seen as non_finite_seen  # noqa: F401  # by its name, from `door.noticed`
from .origins import tell_recorded  # noqa: F401
from .swallowed import error_raised  # noqa: F401

# --- results that are larger than both operands ----------------------------------------------------------------------

# Words of a line that makes a size of one on purpose: such an operand is meant to be broadcast.
MAKES_ONES = re.compile(r"\b(None|newaxis|unsqueeze|view|reshape|expand|expand_as|outer|meshgrid|unflatten|transpose|"
                        r"permute|mT|T|t|atleast_2d|atleast_3d|view_as|reshape_as)\b")
KEEPS_ONES = re.compile(r"\bkeepdims?\b")            # for a table of all pairs, or to fit the tensor it was made from
LINES_NEAR = 8                # an operand that was shaped so few lines above was shaped for this line
OWN_DOOR = tuple(os.path.join(PACKAGE, "tensor", f"{name}.py")
                 for name in ("call", "known_calls", "forms", "ufuncs", "functions", "write", "overrides",
                              "function_modes"))
DIFFERENCES = ("sub", "rsub", "eq", "ne", "lt", "le", "gt", "ge", "isclose")


def statement(site):
    """The source text of the call at `site`, of all its lines; '' where there is none."""
    file, line = file_and_line(site)
    if not line:
        return ""
    code, offset = site
    last = line
    for at, (_, end, _, _) in enumerate(code.co_positions()):
        if at == offset // 2:
            last = end or line
            break
    return "".join(linecache.getline(file, number) for number in range(line, max(line, last) + 1))


def called_by_user():
    """Whether the user called the operation that is being recorded, and no function of ours that is made of several."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in (__file__, os.path.join(PACKAGE, "__init__.py")):
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_code.co_filename not in OWN_DOOR:
            return False
        frame = frame.f_back
    return frame is not None


def shaped_for(tensor, site, differences):
    """Whether the line that made `tensor` gave it sizes of one for what is done at `site`."""
    if tensor._site is None:
        return True
    text = statement(tensor._site)
    if not differences:
        return bool(MAKES_ONES.search(text) or KEEPS_ONES.search(text))
    if not MAKES_ONES.search(text):
        return False
    (file, line), (made_in, made_at) = file_and_line(site), file_and_line(tensor._site)
    return file == made_in and 0 <= line - made_at <= LINES_NEAR


def larger_result(op, entry, inputs, site):
    """An operation on two tensors gives more elements than either has."""
    if len(inputs) != 2 or not listens("broadcast"):
        return
    a, b = inputs
    column, row = (a, b) if a._spec.ndim > b._spec.ndim else (b, a)
    shape, other = column._spec.shape, row._spec.shape
    by_one = shape == (*other, 1)                    # (n, 1) with (n,): one of them lacks, or has, a dimension
    gradient = requires(a) or requires(b)
    differences = op.__name__.strip("_") in DIFFERENCES
    if not in_force and not (by_one and (gradient or differences)):
        return
    text = statement(site)
    if not text or MAKES_ONES.search(text) or not called_by_user():
        return
    if by_one and differences:                        # an error, or what is right: seldom a table
        if shaped_for(column, site, True):
            return
    elif any(shaped_for(t, site, False) or t._requires_grad and t._node is None for t in inputs):
        return
    frame = user_frame()
    names = [name_of(t, frame) or which for t, which in zip((a, b), ("the first operand", "the second"), strict=True)]
    words = " and ".join(f"{name} is {list(t._spec.shape)}" for name, t in zip(names, (a, b), strict=True))
    out = entry.outs[0]
    name = name_of(column, frame)
    fix = f"{name or 'the column'}.squeeze(-1), or {name_of(row, frame) or 'the row'}.unsqueeze(-1), " \
          f"so that both are {list(other)} or {list(shape)}" if by_one else \
          "give both the same shape; where the table of all pairs is meant, say so in the line with unsqueeze() or None"
    found("broadcast", f"{words}, and the result is {list(out.shape)}: every element of one with every element of the "
          "other", site, [(f"{n} was made at", t._site) for n, t in zip(names, (a, b), strict=True)],
          f"{out.numel:,} elements in place of {max(a.numel(), b.numel()):,}", fix)


def loss_sizes(input, target):
    """A loss was given two sizes, which differ, and has warned of it as PyTorch does."""
    try:
        larger = input.numel() < (whole := _broadcast_numel(input.shape, target.shape)) > target.numel()
    except ValueError:                                # they do not broadcast: the loss will say so
        return
    if larger:
        found("broadcast", f"a loss of {list(input.shape)} with a target of {list(target.shape)} compares every "
              "element of one with every element of the other", here(), [("the target was made at", target._site)],
              f"{whole:,} elements in place of {input.numel():,}",
              "give both one shape: squeeze(-1) the one, or unsqueeze(-1) the other", said=True)


def _broadcast_numel(*shapes):
    longest, whole = max(map(len, shapes)), 1
    for sizes in zip(*[(1,) * (longest - len(shape)) + tuple(shape) for shape in shapes], strict=True):
        if len(set(sizes) - {1}) > 1:
            raise ValueError(shapes)
        whole *= max(sizes) if 0 not in sizes else 0
    return whole


# --- questions that were not asked ------------------------------------------------------------------------------------

LOOKS_FOR_IT = re.compile(r"\b(getattr|hasattr)\b")      # a test whether there is such a function at all


def not_called(name):
    """The truth value of a function was taken, which is always true."""
    site = here()
    text = statement(site) if site is not None else ""
    if not text or LOOKS_FOR_IT.search(text) or not re.search(rf"\b{name}\b(?!\s*\()", text):
        return                                           # by another name, or called in the same line as well
    found("not-called", f"{name} is a function, and was not called: taken for its answer it is always true", site, (),
          "the other branch never runs", f"write {name}()")


# --- a loss that was cut off ------------------------------------------------------------------------------------------

TAKES_OUT = re.compile(r"\b(item|numpy|tolist|detach|data|float)\b")


def backward_at_leaf(tensor):
    """A backward began at a leaf: it computes the gradient of that leaf for itself, and nothing else."""
    text = statement(tensor._site) if tensor._site is not None else ""
    name = name_of(tensor) or "the tensor"
    if tensor._cut is not None:
        what, cut = tensor._cut
        how = [(f"the graph was cut by {what} at", cut)]
    elif TAKES_OUT.search(text):
        how = [("it was made of plain numbers at", tensor._site)]
    else:
        return
    found("cut-loss", f"{name} is a leaf that requires grad: this backward gives the gradient of {name} for itself, "
          "which is one, and no parameter gets any", here(), how, "nothing is trained",
          "compute the loss with tensors from the parameters on, without item(), detach() or no_grad(), and leave out "
          "requires_grad")


# --- vmap -------------------------------------------------------------------------------------------------------------


def vmap_by_slices(name, size, why):
    """A function inside of `vmap` did what cannot be done for all slices at once, and is called for each."""
    found("vmap", f"vmap calls {name} once for each of {size:,} slices: {why.removeprefix('vmap: ')}", here(), (),
          "as many calls as there are slices", "write what looks at numbers with torch.where")


def vmap_without_rule(op, size):
    """An operation inside of `vmap` has no rule for all slices at once."""
    found("vmap", f"{op.__name__} has no rule for all slices of a vmap at once, and is called for each of {size:,}",
          here(), (), "as many calls as there are slices", "an operation that has one, or none inside of vmap")
