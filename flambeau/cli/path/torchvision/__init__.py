"""`torchvision` for a process that `multiprocessing` has started afresh: the installed one, or Flambeau's part."""
import importlib
import sys

import torch  # the Flambeau of the folder beside this one, which then knows where torchvision is

del sys.modules[__name__]
importlib.import_module("torchvision")
