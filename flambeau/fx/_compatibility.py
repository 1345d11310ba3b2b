"""`torch.fx._compatibility`: what PyTorch marks its own functions with, by whether they stay as they are."""

import inspect

__all__ = ["compatibility"]


def compatibility(is_backward_compatible):
    """A decorator that says in the documentation of a function or a class whether later versions keep it as it is."""
    directive, said = (("note", "Backwards-compatibility for this API is guaranteed.") if is_backward_compatible else
                       ("warning", "This API is experimental and is *NOT* backward-compatible."))

    def decorate(fn):
        fn.__doc__ = f"{inspect.cleandoc(fn.__doc__ or '')}\n\n.. {directive}::\n    {said}\n"
        return fn
    return decorate
