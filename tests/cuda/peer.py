"""Two devices to compare: ours, and PyTorch's.

On a machine with an NVIDIA GPU both are `cuda`. Where there is none, `FLAMBEAU_TEST_CUDA=simulated` puts ours on the
simulated driver and PyTorch on the CPU, and `FLAMBEAU_TEST_CUDA=cpu` both on the CPU, which tries the tests themselves.
Otherwise these tests are skipped, and say why.
"""
import contextlib
import os

import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

import flambeau

HOW = os.environ.get("FLAMBEAU_TEST_CUDA", "gpu")
OURS = "cpu" if HOW == "cpu" else "cuda"
THEIRS = "cuda" if HOW == "gpu" else "cpu"
STAYS_OPEN = []                                       # simulated devices, until the process ends


def missing():
    """Why nothing can be compared here, or None."""
    if HOW == "gpu" and not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no CUDA device here"
    if HOW == "gpu" and not flambeau.cuda.is_available():
        return "flambeau.cuda.is_available() is False here"
    return None


def prepare():
    """Skip the module that calls this where there is nothing to compare with; otherwise make both ready."""
    why = missing()
    if why is not None:
        pytest.skip(why, allow_module_level=True)
    if HOW == "simulated":
        from .simulated import simulating
        if not STAYS_OPEN:
            STAYS_OPEN.append(simulating(devices=2))
            STAYS_OPEN[0].__enter__()
    # PyTorch's convolutions round their factors to ten bits otherwise. Its own tests freeze the public switch.
    torch._C._set_cudnn_allow_tf32(False)
    flambeau.backends.cudnn.allow_tf32 = False


@contextlib.contextmanager
def on_devices():
    """Whatever either library makes without a device is made on its own."""
    with flambeau.device(OURS), torch.device(THEIRS):
        yield


def seed(number):
    """The same place in every stream of random numbers, of both libraries."""
    torch.default_generator.manual_seed(number)
    if THEIRS == "cuda":
        torch.cuda.manual_seed_all(number)
    flambeau.manual_seed(number)


def is_tensor(x):
    return isinstance(x, (torch.Tensor, flambeau.Tensor))


def lib_of(tensor):
    return torch if isinstance(tensor, torch.Tensor) else flambeau


def there(x, memo=None):
    """`x` with its tensors as leaves on the devices of their libraries."""
    def move(t):
        device = THEIRS if lib_of(t) is torch else OURS
        moved = t.detach().clone() if device == "cpu" else t.detach().to(device)       # memory of its own, either way
        return moved.requires_grad_(t.requires_grad)
    return there_with(move, x, memo)


def there_with(move, x, memo=None):
    """`x` with every tensor moved; one tensor met twice stays one tensor."""
    memo = {} if memo is None else memo

    def once(t):
        if id(t) not in memo:
            memo[id(t)] = t, move(t)                  # the first too, so that its id stays its own
        return memo[id(t)][1]
    return mapped(x, once)


def home(x):
    """`x` with its tensors on the CPU."""
    return mapped(x, lambda t: t.detach().cpu().resolve_conj().resolve_neg())


def mapped(x, change):
    """Nested containers with `change` applied to every tensor; devices and generators are those to be compared."""
    if is_tensor(x):
        return change(x)
    if isinstance(x, (torch.Size, flambeau.Size)):
        return x
    if isinstance(x, (list, tuple)):
        parts = [mapped(part, change) for part in x]
        if hasattr(x, "_fields"):
            return type(x)(*parts)
        return type(x)(parts)
    if isinstance(x, dict):
        return {key: mapped(part, change) for key, part in x.items()}
    if isinstance(x, slice):
        return slice(mapped(x.start, change), mapped(x.stop, change), mapped(x.step, change))
    if isinstance(x, (torch.device, flambeau.device)) and x.type == "cpu":
        return torch.device(THEIRS) if isinstance(x, torch.device) else flambeau.device(OURS)
    if isinstance(x, torch.Generator):
        return torch.Generator(THEIRS).manual_seed(x.initial_seed())
    if isinstance(x, flambeau.Generator):
        return flambeau.Generator(OURS).manual_seed(x.initial_seed())
    return x


def devices(x):
    """The kinds of device of all tensors in `x`, in order."""
    found = []
    mapped(x, lambda t: found.append(t.device.type) or t)
    return found
