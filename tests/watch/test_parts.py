"""Parts of `flambeau.watch` that no pair of programs shows: functions that notice, labels, lending, loaders, exit."""
import copy
import functools
import inspect
import os
import pickle
import pydoc
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

import flambeau as torch
from tests.patience import PATIENCE

QUESTIONS = [torch.cuda.is_available, torch.cuda.is_initialized, torch.cuda.is_bf16_supported, torch.mps.is_available,
             torch.xpu.is_available, torch.distributed.is_available, torch.distributed.is_initialized,
             torch.backends.mps.is_available, torch.backends.cudnn.is_available, torch.accelerator.is_available]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: f"{question.__module__}.{question.__qualname__}")
def test_a_question_looks_like_the_function_it_is(question):
    method = hasattr(question, "__self__")
    assert isinstance(question, types.MethodType if method else types.FunctionType)
    assert callable(question) and (inspect.ismethod if method else inspect.isfunction)(question)
    assert inspect.isroutine(question) and inspect.getsource(question).lstrip().startswith("@_Question")
    assert all(p.default is not p.empty for p in inspect.signature(question).parameters.values())
    assert question.__name__ in pydoc.render_doc(question) and question.__doc__.startswith("Whether")
    assert functools.wraps(question)(lambda: 1).__name__ == question.__name__
    assert question == question and hash(question) == hash(question) and question is not None
    if not method:
        assert copy.copy(question) is question is copy.deepcopy(question)
        assert pickle.loads(pickle.dumps(question)) is question


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "4"])
def test_accumulate_refuses_what_is_no_number_of_passes(n):
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ValueError, match="must be how many backward passes add up"):
        optimizer.accumulate(n)
    assert optimizer.passes_per_step is None


def test_lending():
    array = np.zeros(3)
    tensor = torch.from_numpy(array, lend=True)
    view = tensor[1:]
    del tensor
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    view += 1
    assert array.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="read-only already, lent"):
        torch.from_numpy(array, lend=True)
    del view
    array[0] = 5
    with pytest.raises(ValueError, match="owns its memory"):
        torch.from_numpy(array[1:], lend=True)
    assert array.flags.writeable
    with pytest.raises(TypeError, match="expected np.ndarray"):
        torch.from_numpy([1.0], lend=True)


@pytest.mark.parametrize("names, words", [("N C", "2 names, N C, for the 4 axes"), ("N C C W", "not all different")])
def test_labels_that_do_not_fit(names, words):
    with pytest.raises(ValueError, match=words):
        torch.watch.label(torch.zeros(2, 3, 4, 5), names)


@pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d(3), torch.nn.InstanceNorm2d(3), torch.nn.GroupNorm(3, 3)])
def test_labels_refuse_a_norm_over_another_axis(norm):
    images = torch.watch.label(torch.randn(2, 4, 5, 3), ["N", "H", "W", "C"])
    assert norm(images.permute(0, 3, 1, 2)).shape == (2, 3, 4, 5)
    more = torch.watch.label(torch.randn(2, 6, 4, 4), "N C H W")
    assert norm(more[:, ::2]).shape == norm(more[:, 3:]).shape == (2, 3, 4, 4)
    for wrong, what in ((images.reshape(2, 3, 4, 5), "a mixture of axes"), (images[:, 1:], "H")):
        with pytest.raises(ValueError, match=f"labelled N H W C at test_parts.py.*that is {what}"):
            norm(wrong)


def test_what_is_not_finite_is_found_in_a_large_graph():
    """Of which only a part is held: the rest is computed again."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(2048, 64)
    with pytest.warns(torch.watch.FindingWarning, match="log made the first values that are not finite"), torch.watch():
        loss = ((net(x) - 100).log() ** 2).mean()
        loss.backward()
        optimizer.step()
    assert torch.watch.findings()[0].line.startswith("test_parts.py:")


def test_old_graphs_hold_nothing_by_being_looked_for():
    """Weak references only: memory of a step is free when the program lets go of it."""
    import weakref
    w = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)
    nodes = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (w * w).sum()
        nodes.append(weakref.ref(loss._node))
        loss.backward()
        optimizer.step()
    del loss
    assert [node() for node in nodes] == [None] * 5


@pytest.mark.parametrize("variable", ["", "strict"])
def test_swallowed_errors_are_said_at_exit(tmp_path, variable):
    path = tmp_path / "train.py"
    path.write_text("import flambeau as torch\nfor i in range(3):\n    try:\n        torch.ones(2) @ torch.ones(3)\n"
                    "    except Exception:\n        pass\nprint('done')\n")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "FLAMBEAU_WATCH": variable})
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "train.py:5: FindingWarning: 3 errors were caught here, and nobody was told: RuntimeError" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_larger_result_is_recorded_as_quickly_as_others_while_nobody_watches():
    from flambeau.base.entry import CHECKED, LONG_WAY, ONE_RESULT
    from flambeau.base.op import known
    from flambeau.tensor.forms import declared

    def way(function, op, dtype):
        x, y = torch.ones(3, 1, dtype=dtype), torch.ones(7, dtype=dtype)
        assert function(x, y).shape == (3, 7)
        return next(e for e in known[op].entries.values() if e.input_specs == (x._spec, y._spec)).way

    def ways():
        return way(torch.mul, torch.mul, torch.float32), \
            way(torch.remainder, declared["_integer_division"], torch.int64)
    assert ways() == (ONE_RESULT, CHECKED)        # whole numbers are not divided by zero
    with torch.watch(ignore=["broadcast"]):
        assert ways() == (LONG_WAY, LONG_WAY)
    assert ways() == (ONE_RESULT, CHECKED)


def test_a_bar_around_a_loader_is_not_the_line_of_its_loop(tmp_path):
    """A package that goes over the loader for the program has nothing that could be mended."""
    from flambeau.watch.data import line_of_loop
    bar = tmp_path / "site-packages" / "bar.py"
    names = {"line": line_of_loop}
    exec(compile("def bar(loader):\n    yield line()\n", str(bar), "exec"), names)
    program = tmp_path / "train.py"
    exec(compile("found = []\nfor batch in bar(None):\n    found.append(batch)\n", str(program), "exec"), names)
    (code, _), = names["found"]
    assert code.co_filename == str(program)


@pytest.mark.parametrize("begins", [5, 64, 67, 200])
def test_a_mistake_that_begins_later_is_found_within_eight_steps(begins):
    """What happens in every step is looked for in each of the first 64, and then in one of eight."""
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    seen = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(begins + 20):
            if step < begins:
                optimizer.zero_grad()
            net(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            if seen is None and torch.watch.findings():
                seen = step
    assert [found.name for found in torch.watch.findings()] == ["stale-gradients"]
    assert begins <= seen <= begins + 8


@pytest.mark.parametrize("begins", [0, 70])
def test_losses_that_are_kept_from_some_step_on(begins):
    net, kept = torch.nn.Linear(3, 1), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(begins + 80):
            optimizer.zero_grad()
            loss = net(torch.ones(2, 3)).sum()
            loss.backward()
            optimizer.step()
            if step >= begins:
                kept.append(loss)
    assert [found.name for found in torch.watch.findings()] == ["old-graph"]


def test_a_copy_of_an_optimizer_is_watched_by_itself():
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    copied = copy.deepcopy(optimizer)
    copied.param_groups[0]["params"] = list(net.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            net(torch.ones(2, 3)).sum().backward()
            copied.step()
    assert [found.name for found in torch.watch.findings()] == ["stale-gradients"] and optimizer is not copied
