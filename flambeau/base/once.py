"""What is made when it is first asked for, by threads that may ask all at once: modules, and the results of functions.

Note [First use]: no thread may meet a thing half made, nor two things where one is meant, whichever threads come first.

- A table's entry, a slot or a flag that says "ready" is the last that is written: what it stands for is made in
  variables, and published by one assignment. Two threads that make the same give the same, and waste the time of one.
- Where it matters that there is one (its identity counts, or it changes), it is published by `setdefault`, and a thread
  that comes second takes what the first has left: `cache` does that for a function.
- What may be done only once (a library is opened, a pool of threads started) is done under a lock of base/locks.py, and
  looked for again once that is held. No lock is held over an import of ours, since another thread may be importing that
  module, and need the lock for it; nor while another thread is waited for that may need it.
- A module is imported by an `import` or by `imported`, which wait for a thread that is at it. `sys.modules` shows one
  that is half made.
- A package is imported before what is in it. Python has a lock for each module that is being imported, and imports a
  package for the sake of a module inside it while it holds the module's. A thread that begins with the package takes
  them the other way round, and one of the two is told of a deadlock, or given a module half made. tests/test_layers.py
  reads the imports of the package for that; programs whose threads import it first do `import flambeau` first.
"""
import functools
from importlib import import_module


def imported(name, package):
    """The module `name` of `package`, which is imported if need be: the packages that it is inside of first."""
    for part in name.split("."):
        package += f".{part}"
        found = import_module(package)
    return found


def cache(function):
    """`functools.cache`, whose results are one object for all threads. `function` takes its arguments by position."""
    made: dict = {}

    @functools.cache
    def given(*key):
        return made.setdefault(key, function(*key))

    def clear():
        made.clear()
        plain_clear()
    plain_clear, given.cache_clear = given.cache_clear, clear
    return functools.update_wrapper(given, function)
