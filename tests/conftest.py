"""What holds for all tests."""
import functools
import gc
import os
from pathlib import Path

import pytest

ON_GPU = Path(__file__).parent / "cuda"                   # tests that take a GPU if there is one


def pytest_configure():
    try:
        from hypothesis import settings
    except ImportError:                                   # where only the programs of packages are run
        pass
    else:                                                 # the same cases in every run, and as long as they take
        settings.register_profile("suite", derandomize=True, deadline=None)
        settings.load_profile("suite")
    if os.environ.get("FLAMBEAU_TEST_GARBAGE"):
        from tests import garbage
        garbage.spread()


def pytest_addoption(parser):
    parser.addoption("--each-executor", action="store_true",
                     help="run the tests that leave the executor open with each one that can be chosen")


def pytest_generate_tests(metafunc):
    if metafunc.config.getoption("--each-executor") and ON_GPU not in metafunc.definition.path.parents \
            and metafunc.definition.get_closest_marker("pinned") is None:
        metafunc.fixturenames.insert(0, "chosen_executor")        # before what other fixtures make with it
        metafunc.parametrize("chosen_executor", ["native", "reference"], indirect=True)


def pytest_collection_modifyitems(config, items):
    """Single cases of a test may be pinned, too: those run once."""
    if config.getoption("--each-executor"):
        items[:] = [item for item in items if item.get_closest_marker("pinned") is None
                    or getattr(item, "callspec", None) is None
                    or item.callspec.params.get("chosen_executor") != "reference"]


@pytest.fixture
def chosen_executor(request, monkeypatch):
    """The executor that every trace is run by, also in processes that a test starts."""
    from flambeau import config
    if request.node.get_closest_marker("pinned") is not None:
        yield
        return
    monkeypatch.setenv("FLAMBEAU_EXECUTOR", request.param)
    with config.using(executor=request.param):
        yield


def pytest_collection_finish():
    """Leave what was read to collect the tests out of every later garbage collection: there is much of it, some tests
    collect often, and all of it stays to the end anyway."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def later_collections_are_short():
    """Nor do the collections of a module go through what the modules before it have left: plans, kernels, tables."""
    gc.collect()
    gc.freeze()


@functools.cache
def has_gpu():
    from flambeau.backends.cuda import chain
    return chain.broken() is None


@pytest.fixture(autouse=True)
def no_gpu(request, monkeypatch):
    """Tests say what holds on a machine without a GPU, wherever they run; but for those in tests/cuda, and for all of
    them with FLAMBEAU_TEST_GPU=1."""
    if os.environ.get("FLAMBEAU_TEST_GPU") or ON_GPU in request.path.parents or not has_gpu():
        return
    from flambeau.backends.cuda import chain, driver
    monkeypatch.setenv(chain.VISIBLE, "")                 # for the processes that a test starts
    monkeypatch.setattr(driver, "_driver", None)
    monkeypatch.setattr(chain, "_failure", chain.Broken("driver", "it is hidden from tests outside of tests/cuda",
                                                        "set FLAMBEAU_TEST_GPU=1"))


@pytest.fixture(autouse=True)
def no_registered_accelerator(monkeypatch):
    """A device that one test registers is not the accelerator of others, which may run in the same process."""
    from flambeau.backends import devices
    monkeypatch.setattr(devices, "accelerators", ["cuda"])
