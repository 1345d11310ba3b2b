"""Operators that programs define: what a schema says (schema.py), how annotations say it
(infer_schema.py), and `custom_op` (custom_ops.py).

`flambeau/_ops.py` keeps them and calls them; `flambeau/library.py` is what programs see.
"""
