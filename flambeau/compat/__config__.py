"""`torch.__config__`: what the library was built with, in words, as programs print it in reports of mistakes."""
import flambeau

from ..cli.info import report

__all__ = ["parallel_info", "show"]


def show():
    """What computes here: the facts that `flambeau info` gives."""
    return f"Flambeau, in the place of PyTorch:\n{report()}\n"


def parallel_info():
    """With how many threads operations are computed."""
    return (f"Flambeau:\n\tat::get_num_threads() : {flambeau.get_num_threads()}\n"
            f"\tat::get_num_interop_threads() : {flambeau.get_num_interop_threads()}\n")
