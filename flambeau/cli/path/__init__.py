"""A folder for sys.path, so that a fresh process of a program under `flambeau run` finds our `torch` in it."""
