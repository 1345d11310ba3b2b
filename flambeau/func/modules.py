"""Modules as functions of their parameters."""
import functools

from ..nn import modules, utils
from ..tensor.forms import namespace

__all__ = ["functional_call", "functionalize", "replace_all_batch_norm_modules_", "stack_module_state"]
stack = namespace[""]["stack"]


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """What `module` gives with the tensors of a dictionary, or of several, in place of its own by the same names.

    >>> linear = torch.nn.Linear(2, 1)
    >>> weights = {"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([0.5])}
    >>> torch.func.functional_call(linear, weights, torch.tensor([10.0, 1.0]))
    tensor([12.5000])
    """
    given = parameter_and_buffer_dicts
    if isinstance(given, (list, tuple)):
        for part in given:
            if not isinstance(part, dict):
                raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        merged = [key for part in given for key in part]
        twice = {key for key in merged if merged.count(key) > 1}
        if twice:
            raise ValueError(f"{sorted(twice)} appeared in multiple dictionaries; behavior of functional call is "
                             "ambiguous")
        given = {key: tensor for part in given for key, tensor in part.items()}
    elif not isinstance(given, dict):
        raise ValueError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
                         f"{type(given)}")
    return utils.stateless._functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models):
    """(the parameters of all models, their buffers), each stacked by name, to call one of them over all with `vmap`."""
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(model.training for model in models) or not any(model.training for model in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(model) is not type(models[0]) for model in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(each):
        return {name: _stack_leaves([state[name] for state in each]) for name in each[0]}
    return (stacked([dict(model.named_parameters()) for model in models]),
            stacked([dict(model.named_buffers()) for model in models]))


def _stack_leaves(tensors):
    """The tensors stacked; a leaf of its own if they are leaves."""
    if any(t.requires_grad != tensors[0].requires_grad for t in tensors):
        raise RuntimeError("Expected tensors from each model to have the same .requires_grad")
    if tensors[0].requires_grad and all(t.is_leaf for t in tensors):
        return stack(tensors).detach().requires_grad_()
    return stack(tensors)


def functionalize(func, *, remove="mutations"):
    """`func`. Nothing need be removed: what is written in place is recorded as a new value here anyway."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. "
                           "Valid options are: remove='mutations' and remove='mutations_and_views'")

    @functools.wraps(func)
    def made(*args, **kwargs):
        return func(*args, **kwargs)
    return made


def replace_all_batch_norm_modules_(root):
    """Let the batch norms in `root` keep no running statistics, in place: `vmap` could not update them. `root`."""
    for module in root.modules():
        if isinstance(module, modules.batchnorm._BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
