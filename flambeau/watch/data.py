"""What is found about data: memory that NumPy wrote to after a tensor was made of it, loaders that repeat or starve."""
import sys
import weakref
import zlib

from ..base.errors import PACKAGE, here, is_packaged
from ..base.observers import Observer
from .finding import found, in_force
from .step_hooks import steps_taken
from .steps import is_recording

TENSORS_REMEMBERED = 32       # that share memory with NumPy
BYTES_COMPARED = 1 << 16      # of each; of more, as many bytes evenly spread
LOOKS_BETWEEN = 4
STARVED_SHARE = 0.4           # of the time of an epoch that was spent waiting
STARVED_BATCHES, STARVED_SECONDS = 32, 1.0


class SharedMemory(Observer):
    """Looks at tensors over the memory of arrays: whether their bytes changed without a write through a tensor."""

    def __init__(self):
        self.remembered = []  # (weak reference to a storage, its version, checksum, site)
        self.looks = 0

    def shared(self, storage):
        """A storage was made over the memory of an array."""
        self.remembered.append((weakref.ref(storage), storage.version, _checksum(storage), here()))
        del self.remembered[:-TENSORS_REMEMBERED]

    def step_began(self, optimizer):
        """Compare."""
        self.compare()

    def looked(self, value):
        """Compare, now and then."""
        self.looks += 1
        if self.looks % LOOKS_BETWEEN == 0:
            self.compare()

    def close(self):
        """Compare for the last time."""
        self.compare()

    def compare(self):
        """Say which memory has changed."""
        if not self.remembered or is_recording():
            return
        remembered, self.remembered = self.remembered, []
        for one in remembered:
            ref, version, checksum, site = one
            storage = ref()
            if storage is None or storage.version != version or storage.readonly or not storage.has_outside_arrays():
                continue
            if _checksum(storage) == checksum:
                self.remembered.append(one)
                continue
            found("shared-memory", "the array that this tensor was made of was written to afterwards: the tensor has "
                  "changed with it, and no version shows it", site, [("it was noticed at", here())],
                  "what was computed from the tensor before, and after, belongs to different data",
                  "torch.tensor(array) copies; torch.from_numpy(array, lend=True) makes the array read-only while the "
                  "tensor lives")


def _checksum(storage):
    memory = storage.value.bytes_on_host()
    return zlib.crc32(memory if memory.size <= BYTES_COMPARED else
                      memory[::memory.size // BYTES_COMPARED].copy())


# --- loaders ----------------------------------------------------------------------------------------------------------

_epochs: list = []            # of the latest epochs of loaders: (its Waiting, steps taken at its start, site, workers)
EPOCHS_REMEMBERED = 8


def loader_started(loader):
    """An epoch begins: `door.noticed("loader_started", loader)`."""
    if in_force:
        tell_starved()
        _epochs.append((loader.waiting, steps_taken(), line_of_loop(), loader.num_workers))


def line_of_loop():
    """The line of the program's own loop: a bar around the loader is a package's, where there is nothing to mend."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) and not is_packaged(file):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return here()


def tell_starved():
    """Say which epochs were spent waiting, of those that are over."""
    for one in list(_epochs):
        waiting, before, site, workers = one
        if waiting.steps and waiting._ended is not None or len(_epochs) > EPOCHS_REMEMBERED:
            _epochs.remove(one)
            if waiting.steps >= STARVED_BATCHES and waiting.seconds >= STARVED_SECONDS \
                    and waiting.share >= STARVED_SHARE and steps_taken() - before >= waiting.steps // 2:
                found("starved", f"{waiting.share:.0%} of an epoch of {waiting.steps} steps was spent waiting for "
                      "batches", site, (), f"{waiting.seconds:.1f} seconds in which nothing was computed",
                      f"num_workers={max(2, 2 * workers)}, a cheaper __getitem__, or whole batches at a time",
                      raises=False)                       # it depends on what else the machine does


def kept_generator(words, harm, fix):
    """A dataset keeps a generator of random numbers, which its loader has found."""
    found("same-random-numbers", f"{words}: {harm}", here(), (),
          "samples of different workers get the same noise, crops or masks, or none can be had again", fix)
