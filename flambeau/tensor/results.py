"""What calls give back: several results as the tuples that PyTorch has."""
_result_types: dict = {}      # "name field field" → the named tuple type


def named(op, outs):
    """Several results as PyTorch returns them: a named tuple where it has one, else a plain tuple."""
    if op.returns is None:
        return tuple(outs)
    made = op.__dict__.get("result_type")
    if made is None:
        made = op.result_type = result_tuple(op.returns)
    return made._make(outs)


def result_tuple(words):
    """The named tuple type for "name field field"; one type for equal words."""
    made = _result_types.get(words)
    if made is None:
        from collections import namedtuple
        name, *fields = words.split()
        made = namedtuple(name, fields, module="flambeau.return_types")
        made.__repr__ = _result_words
        made = _result_types.setdefault(words, made)
    return made


def _result_words(result):
    """A result tuple as PyTorch prints it."""
    lines = ",\n".join(f"{field}={part!r}" for field, part in zip(result._fields, result, strict=True))
    return f"torch.return_types.{type(result).__name__}(\n{lines})"
