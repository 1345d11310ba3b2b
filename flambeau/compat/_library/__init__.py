"""Operators by their names: how they are kept and called (overloads.py), those of PyTorch (aten.py), and those that
programs define: what a schema says (schema.py), how annotations say it (infer_schema.py), and `custom_op`
(custom_ops.py). `flambeau/library.py` is what programs see.
"""
from ...base.lazy import import_when_asked, names_there
from ...base.names import attribute_error

__getattr__ = import_when_asked(__name__, {name: f"compat._library.{name}" for name in ("custom_ops", "infer_schema")},
                                lambda name: attribute_error("torch._library", name, lambda: names_there(__name__)))
