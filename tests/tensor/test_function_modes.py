"""Modes by themselves: threads, compiled functions, nothing left behind; tests/torch/test_modes.py has the calls."""
import threading

import pytest

import flambeau as torch
from flambeau.overrides import BaseTorchFunctionMode, TorchFunctionMode
from flambeau.tensor import function_modes, overrides


class Count(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def test_every_operation_and_method_is_asked_about():
    """The class, not the case: whatever is declared, in a call that was seen before."""
    x = torch.rand(2, 2) + 0.1
    silent = []
    for name in method_names():
        try:
            getattr(x, name)()
            getattr(x, name)()
        except Exception:
            continue
        with Count() as mode:
            getattr(x, name)()
        if not mode.names:
            silent.append(name)
    assert not silent, silent


def test_frames_can_be_asked_for_their_variables():
    """By a debugger, or whatever prints them beside a traceback: of functions with free variables, too."""
    import sys

    class Look(BaseTorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            frame = sys._getframe()
            while frame is not None:
                self.seen += len(frame.f_locals)
                frame = frame.f_back
            return super().__torch_function__(func, types, args, kwargs)

    free = [f for f, _ in function_modes._asked() if f.__code__.co_freevars]
    with Look() as look:
        torch.bernoulli(torch.ones(2))
        assert free and all(f.__code__.co_freevars and f.__closure__ for f in free)
    assert look.seen


def method_names():
    from flambeau.tensor.forms import namespace
    return [name for name in namespace[""]
            if not name.startswith("_") and hasattr(torch.Tensor, name) and not name.endswith("_")]


def test_bodies_are_themselves_again():
    before = {id(f): f.__code__ for f, _ in function_modes._asked()}
    with BaseTorchFunctionMode():
        assert any(f.__code__ is not before[id(f)] for f, _ in function_modes._asked())
        with BaseTorchFunctionMode():
            torch.ones(2).sum()
    assert all(f.__code__ is before[id(f)] for f, _ in function_modes._asked())
    assert overrides.modes_active == 0 and overrides.regions == 0


def test_a_mode_belongs_to_its_thread():
    seen = []

    def other():
        torch.ones(2).add(1).sum().item()
        seen.append(torch.overrides._len_torch_function_stack())
    with Count() as mode:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert mode.names == []
        torch.ones(1)
    assert seen == [0] and mode.names == ["ones"]


def test_compiled_functions_show_their_calls():
    step = torch.compile(lambda x: (x * 2).sum())
    x = torch.ones(3)
    for _ in range(3):
        step(x)
    with Count() as mode:
        assert step(x).item() == 6
    assert mode.names == ["mul", "sum", "item"]
    assert step(x).item() == 6


def test_calls_remembered_before_are_not_taken_the_short_way():
    x, i = torch.ones(3), 0
    for _ in range(3):
        x + 1, x.exp(), x[i], x.sum(), x.add_(1)
    with Count() as mode:
        x + 1, x.exp(), x[i], x.sum(), x.add_(1)
    assert mode.names == ["add", "exp", "__getitem__", "sum", "add_"]


def test_all_is_disabled_inside():
    from flambeau.tensor.overrides import DisableTorchFunction
    with Count() as mode, DisableTorchFunction():
        torch.ones(2).sum()
    assert mode.names == []


def test_a_mode_without_a_handler_says_so():
    with pytest.raises(NotImplementedError, match="Silent has no __torch_function__"), \
            type("Silent", (TorchFunctionMode,), {})():
        torch.ones(1)
    with pytest.raises(RuntimeError, match="no TorchFunctionMode"):
        torch.overrides._pop_mode()
