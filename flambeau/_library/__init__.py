"""Operators by their names: how they are kept and called (overloads.py), those of PyTorch (aten.py), and those that
programs define: what a schema says (schema.py), how annotations say it (infer_schema.py), and `custom_op`
(custom_ops.py). `flambeau/library.py` is what programs see.
"""
