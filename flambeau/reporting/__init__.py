"""`flambeau.report("run.html")`: one page about a run. See recorder.py, what is collected; data.py, what is made of it;
page.py, page.css and page.js, how it is shown."""
from .recorder import RunReport

__all__ = ["RunReport", "report"]


def report(path="report.html", *, title=None, warmup=2, steps=5):
    """Write a page about what the program does from here on: a RunReport, which records at once.

        with flambeau.report("run.html") as run:
            train()
            run.log(accuracy=0.93)

    Without `with`, the page is written by `close()`, or when Python ends. Losses and the times of steps are noted for
    the whole run; time by line, memory and the graph for `steps` optimizer steps after the first `warmup`, or for all
    of it where there are no optimizer steps.
    """
    return RunReport(path, title=title, warmup=warmup, steps=steps).start()
