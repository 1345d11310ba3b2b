"""The names of the packages for training, beside PyTorch's: what is public there is here, with the same arguments.

Public is what stands in a module's `__all__`, or without one what the module itself defines. A name that is left out
stands below with the reason, and so does each difference in arguments; a line that is no longer true fails as well.
"""
import enum
import importlib
import inspect
import pkgutil
import re

import pytest

from flambeau.compat.missing import Missing

torch = pytest.importorskip("torch")

SPACES = """
    amp amp.autocast_mode amp.grad_scaler autograd autograd.forward_ad autograd.function autograd.functional
    autograd.grad_mode autograd.gradcheck autograd.graph distributions func nn nn.attention nn.attention.bias
    nn.common_types nn.functional nn.init nn.modules nn.parallel nn.parameter nn.utils optim serialization
    utils.checkpoint utils.data utils.data.dataloader utils.data.dataset utils.data.distributed utils.data.sampler
""".split()
for package in ("distributions", "nn.modules", "nn.utils", "optim"):
    path = importlib.import_module(f"torch.{package}").__path__
    SPACES += [f"{package}.{found.name}" for found in pkgutil.iter_modules(path) if not found.name.startswith("_")]
SPACES.remove("nn.modules.linear_cross_entropy")          # registers operators of PyTorch's dispatcher, nothing public

# Names that are not here, and why. A star stands for every class or module.
LEFT_OUT = {
    "data pipes, which PyTorch itself no longer develops":
        "utils.data: DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation "
        "guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled",
    "several devices or processes":
        "nn.parallel: gather parallel_apply replicate scatter; "
        "nn.DataParallel: gather parallel_apply replicate scatter; "
        "nn.parallel.DistributedDataParallel: broadcast_buffers gather join join_device join_hook join_process_group "
        "register_comm_hook scatter to_kwargs will_sync_module_buffers; "
        "autograd.graph: set_override_stale_capture_stream set_warn_on_accumulate_grad_stream_mismatch",
    "accelerators of other makers": "*: ipu mtia xpu",
    "kernels for low precision or for one model":
        "nn.functional: ScalingType SwizzleType scaled_grouped_mm scaled_mm",
    "there is one kernel for attention, and no choice":
        "nn.attention: activate_flash_attention_impl current_flash_attention_impl list_flash_attention_impls "
        "register_flash_attention_impl restore_flash_attention_impl",
    "a budget for what a compiled region keeps": "autograd.graph: region_activation_memory_budget",
    "parts of the reentrant way or of its implementation":
        "utils.checkpoint: CheckpointFunction DefaultDeviceType GraphExecGroup check_backward_validity "
        "detach_variable",
    "gradients always have the layout of their tensor": "autograd autograd.grad_mode: enforce_grad_layout_policy",
    "functions with instances, which PyTorch has given up":
        "autograd autograd.function: NestedIOFunction; autograd.function: BackwardCFunction; "
        "autograd.Function autograd.function.InplaceFunction: clear_saved_tensors_on_access "
        "dirty_tensors generate_vmap_rule mark_dirty "
        "mark_non_differentiable mark_shared_storage materialize_grads maybe_clear_saved_tensors metadata name "
        "needs_input_grad next_functions non_differentiable register_hook register_prehook requires_grad "
        "save_for_backward save_for_forward saved_for_forward saved_tensors saved_variables set_materialize_grads "
        "to_save vmap; autograd.function.FunctionCtx: mark_shared_storage",
    "a saved tensor that was written is an error, always": "autograd.graph: allow_mutation_on_saved_tensors",
    "deprecated in PyTorch for gradcheck itself":
        "autograd.gradcheck: get_analytical_jacobian get_numerical_jacobian "
        "get_numerical_jacobian_wrt_specific_input",
    "inner parts of a context":
        "autograd.enable_grad autograd.forward_ad.dual_level autograd.inference_mode autograd.no_grad "
        "autograd.set_grad_enabled autograd.set_multithreading_enabled: clone",
    "names of types, for annotations":
        "*: OptimizerPostHook OptimizerPreHook; optim.lr_scheduler.SequentialLR: recursive_undo",
    "helpers that came to be public": "func: debug_unwrap rearrange; nn.functional: assert_int_or_pair",
}

# Arguments that differ, and why. Further arguments at the end that may be left out, and keywords, are no difference.
DIFFERENT = {
    "autograd.graph.Node.metadata": "an attribute, as it is of every node of PyTorch's; its class has a method",
    "nn.functional.adaptive_max_pool1d_with_indices": "it gives the indices, whatever that argument is",
    "serialization.save": "pickle is imported when it is used, and the default of pickle_module is None until then",
}


def flat_table(table):
    """The table by the place of a name: {place: names}."""
    places = {}
    for text in table.values():
        for part in text.split(";"):
            where, names = part.split(":")
            for place in where.split():
                places.setdefault(place, set()).update(names.split())
    return places


ABSENT = flat_table(LEFT_OUT)


def both(space):
    return [importlib.import_module(f"{lib}.{space}") for lib in ("flambeau", "torch")]


def public(module):
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    own = (module.__name__, "torch._C._nn")
    return sorted(name for name, held in vars(module).items() if not name.startswith("_") and callable(held)
                  and str(getattr(held, "__module__", "")).startswith(own))


def is_here(module, name):
    return hasattr(module, name) and not isinstance(getattr(module, name), Missing)       # it can be named, not used


def arguments(thing):
    """(kind, name, default) in order; None where a callable does not say, as PyTorch's wrapped and native ones."""
    try:
        found = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    if [p.name for p in found if p.name != "self"] == ["args", "kwargs"]:
        return None
    return [(p.kind.name, p.name, "" if p.default is p.empty else shown(p.default)) for p in found]


def shown(default):
    if isinstance(default, tuple):
        return repr(tuple(default))                           # a torch.Size() is as good as ()
    if callable(default) and hasattr(default, "__name__"):
        return default.__name__                               # our operations are no functions of Python's
    return re.sub(r"(torch|flambeau)\.|<.* object at .*>", "", repr(default))


@pytest.mark.parametrize("space", SPACES)
def test_names(space):
    mine, theirs = both(space)
    missing = {name for name in public(theirs) if hasattr(theirs, name) and not is_here(mine, name)}
    assert missing == ABSENT.get(space, set())


def classes():
    """Public classes, each at the first place where it is found."""
    found = {}
    for space in SPACES:
        module = importlib.import_module(f"torch.{space}")
        for name in public(module):
            held = getattr(module, name, None)
            if isinstance(held, type) and not issubclass(held, (torch.Tensor, enum.Enum)):
                found.setdefault(held, f"{space}.{name}")
    return found


def callables():
    """Public functions and classes, and the public methods of classes that are not inherited from public ones."""
    seen = {}
    for space in SPACES:
        module = importlib.import_module(f"torch.{space}")
        for name in public(module):
            held = getattr(module, name, None)
            if isinstance(held, type) or inspect.isroutine(held):
                seen.setdefault(held, f"{space}.{name}")
    for cls, place in classes().items():
        for name, held in vars(cls).items():
            if not name.startswith("_") and inspect.isfunction(held):
                seen.setdefault(held, f"{place}.{name}")
    return seen


def ours(place):
    """What is at a dotted place of ours; None if nothing is."""
    parts = place.split(".")
    for at in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(f"flambeau.{'.'.join(parts[:at])}")
        except ImportError:
            continue
        for name in parts[at:]:
            found = getattr(found, name, None)
            if isinstance(found, Missing):
                return None
        return found
    return None


def test_members():
    wrong = {}
    for cls, place in classes().items():
        mine = ours(place)
        if mine is not None and not issubclass(mine, enum.Enum):
            missing = {name for name in dir(cls) if not name.startswith("_") and not hasattr(mine, name)}
            if missing - ABSENT["*"] != ABSENT.get(place, set()):
                wrong[place] = missing - ABSENT["*"] ^ ABSENT.get(place, set())
    assert not wrong


def fits(got, want):
    """Whether what is called by `want` can be called by `got`, with the same meaning as far as arguments tell."""
    if got is None:
        return False
    required = {p for p in want if p[0] == "KEYWORD_ONLY"}
    in_order = [p for p in want if p not in required]
    further = [p for p in got if p not in want]
    return required <= set(got) and [p for p in got if p in in_order] == in_order and all(
        p[2] and (p[0] == "KEYWORD_ONLY" or got.index(p) >= len(in_order)) for p in further)


def test_arguments():
    wrong = {}
    for theirs, place in callables().items():
        mine, want = ours(place), arguments(theirs)
        if mine is not None and want is not None and not fits(arguments(mine), want):
            wrong[place] = arguments(mine), want
    assert wrong.keys() == DIFFERENT.keys(), {place: wrong[place] for place in wrong.keys() - DIFFERENT.keys()}
