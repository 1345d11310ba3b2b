"""From a kernel and its schedule to the text in a dialect."""
from ..dialects.dialect import KernelDialect
from ..dialects.words import HALF_TYPES, Unrenderable
from ..ir import LEAF_WORDS, Kernel, dependencies
from .positions import PositionsWriter
from .rows import RowsWriter
from .turned import TurnedWriter

WRITERS = {"positions": PositionsWriter, "rows": RowsWriter, "turned": TurnedWriter}


def render(kernel: Kernel, schedule, name: str | None, dialect: KernelDialect) -> str:
    """The text of `kernel` as a function called `name`."""
    return WRITERS[schedule.way](kernel, schedule, name, dialect).text()


def render_part(kernel: Kernel, schedule, dialect: KernelDialect) -> str:
    """The same as a function `part(given, block, x, y)`, told which thread it is, for kernels made of several."""
    return render(kernel, schedule, None, dialect)


def check(kernel: Kernel) -> None:
    """Refuse a kernel that there is no text for: one that does more with 16-bit floats than convert them."""
    for e in dependencies(kernel):
        if e.op not in LEAF_WORDS and e.op not in ("cast", "where") and any(
                type in HALF_TYPES for type in (e.type, *(a.type for a in e.args))):
            raise Unrenderable(f"{e.op} of {e.args[0].type}")
    for one in kernel.passes:
        for reduction, *_, e in (*one.accs, *one.columns):
            if e.type in HALF_TYPES:
                raise Unrenderable(f"{reduction} of {e.type}")
