"""`torchvision` for a process that `multiprocessing` has started afresh: the installed one, or Flambeau's part."""
import importlib
import sys

importlib.import_module("torch")          # of the folder beside this one: Flambeau, which then finds torchvision
del sys.modules[__name__]
importlib.import_module("torchvision")
