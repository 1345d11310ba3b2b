"""What draws, schedules, compiles and runs on a GPU: loaded with the first trace, not by who only asks for devices."""
from . import code, library, program, schedule
from .random import Philox

__all__ = ["Philox", "code", "library", "program", "schedule"]
