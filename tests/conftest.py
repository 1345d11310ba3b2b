"""What holds for all tests."""
import gc
import os


def pytest_configure():
    if os.environ.get("FLAMBEAU_TEST_GARBAGE"):
        from tests import garbage
        garbage.spread()


def pytest_collection_finish():
    """Leave what was read to collect the tests out of every later garbage collection: there is much of it, some tests
    collect often, and all of it stays to the end anyway."""
    gc.collect()
    gc.freeze()
