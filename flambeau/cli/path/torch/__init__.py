"""`torch` for a process that `multiprocessing` has started afresh: it puts the Flambeau around it in its own place."""
import os
import sys

stands_in = True              # so that it is not taken for the real one
_root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
sys.path.insert(0, _root)
try:
    from flambeau.cli.facade import install_as_torch
finally:
    sys.path.remove(_root)

install_as_torch()
