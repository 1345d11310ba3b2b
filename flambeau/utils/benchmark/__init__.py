"""`torch.utils.benchmark`: how long a statement takes. `Timer(stmt, setup, globals).blocked_autorange()`, `Compare`."""
from ...compat.missing import rest_of
from .utils.common import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from .utils.compare import Colorize, Compare
from .utils.timer import Language, Timer, timer

__all__ = ["Colorize", "Compare", "Language", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit",
           "set_torch_threads", "timer", "trim_sigfig", "unit_to_english"]
__getattr__ = rest_of("torch.utils.benchmark",
                      CallgrindStats="run the program under valgrind --tool=callgrind yourself",
                      Fuzzer="draw arguments with hypothesis, or with random")
