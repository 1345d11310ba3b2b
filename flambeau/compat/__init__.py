"""PyTorch's names that are not ours. What programs import by its path (`flambeau.hub`) stands at the top.

What packages import of PyTorch's insides is here under the same names: `flambeau.compat._C` stands for `torch._C`, and
so on, as `torch.ao` and `torch.onnx` do, of which little is here. PyTorch promises none of it, so there is only what
packages need, and each name says which. A name either does what PyTorch's does, or answers truthfully (there is one
process, nothing is being traced), or raises NotImplementedError. All of it is imported when it is asked for.

- missing.py      what Flambeau lacks: what such a module or name answers
- _library/       operators by their names (`torch.ops`), and how programs define their own; torchaudio.py: torchaudio's
- checks, devices, switches, symbolic, type_names and star: names of `torch` itself, from flambeau/__init__.py
- annotations, functorch: the modules that base/module_locations.py sends here
"""
