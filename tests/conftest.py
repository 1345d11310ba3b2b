"""What holds for all tests."""
import gc
import os


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


def pytest_collection_finish():
    """Leave what was read to collect the tests out of every later garbage collection: there is much of it, some tests
    collect often, and all of it stays to the end anyway."""
    gc.collect()
    gc.freeze()
