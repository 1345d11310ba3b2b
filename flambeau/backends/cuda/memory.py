"""What is known of a GPU's memory: bytes in use and held by the pool, their peaks, and the words when there is no more.

Programs get their memory of recycle.py, which knows how much of it is in use. CuPy's own arrays get theirs of the pool,
which says how much is in use by going through its blocks. To do that at every allocation would cost more than the
allocation; so an Account only adds up what was given out, which is never too little, and looks when the sum is about to
be a peak. What the pool holds shrinks only when it is trimmed, so its peak is looked at then and when it is asked for.

Observers are told of what came back when a run is over. Of CuPy's own arrays it is not known which of them came back,
but how many bytes the pool has in use is known: the latest of them that make up the difference are taken to be gone.
"""
import re

from ...base import observers
from ...base.locks import new_lock
from ...base.spec import device as device_type
from ..cpu.memory.allocator import OutOfMemoryError, bytes_in_words
from .configuration import configuration
from .driver_interface import PoolStatistics
from .recycle import ROUNDED_TO_BYTES, Recycler


class Account:
    """What is known of the memory of one device, `index` of `driver`.

    Programs get their memory of the `recycler`, which knows how much is in use. `others` is the bytes that CuPy's own
    arrays have, or more: what came back of them since the pool was last asked is not taken off.
    """

    def __init__(self, driver, index):
        self.driver, self.index = driver, index
        self.recycler = Recycler(driver, index)
        self.idle_holders = []        # functions that let go of memory which lies idle elsewhere
        self.configured = configuration()
        self.fraction = self.configured.per_process_memory_fraction
        self._gives_back = bool(self.configured.garbage_collection_threshold) or \
            self.configured.max_idle_bytes is not None
        self.others = self.peak = self.reserved_peak = 0
        self._surely = True           # `others` is what it is, not more
        self.calls = self.bytes = self.calls_before = self.bytes_before = 0
        self.retries = self.failures = 0
        self._taking = False          # whether the driver is asked for memory by the recycler
        self.loose: list = []         # Allocations of CuPy's own arrays, of which observers were told

    def allocated(self, nbytes, recycled=False):
        """`nbytes` were handed out."""
        self.calls += 1
        self.bytes += nbytes
        if not recycled:
            self.others += nbytes
            self._surely = False
        self._raise_peak()
        if self.fraction < 1 and self.driver.pool(self.index).used_bytes > self.limit():
            raise MemoryError(f"Out of memory allocating {nbytes:,} bytes")      # and with it the memory goes back
        if not recycled and not self._taking and (observers.allocated is not None or observers.freed is not None):
            self.loose.append(self._tell(-(-nbytes // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES))

    def _raise_peak(self):
        """The peak after something was handed out."""
        used = self.recycler.in_use() + self.others
        if used > self.peak:
            if self._surely:
                self.peak = used
            else:
                self._count()

    def _tell(self, nbytes, address=0):
        made = observers.Allocation(nbytes, device_type("cuda", self.index), address)
        if (tell := observers.allocated) is not None:
            tell(made)
        return made

    def notice_freed(self):
        """Tell observers of what came back since it was last looked."""
        others = self.pool().used_bytes - self.recycler.in_use()          # which puts back what came back
        surplus = sum(one.nbytes for one in self.loose) - others
        for at in range(len(self.loose) - 1, -1, -1):
            if self.loose[at].nbytes <= surplus:
                surplus -= self.loose[at].nbytes
                observers.tell_freed(self.loose.pop(at))

    def pool(self):
        """Bytes in use, and those that the pool has from the device; what lies idle in recycle.py is not in use."""
        used, reserved = self.driver.pool(self.index)
        return PoolStatistics(max(used - self.recycler.idle_bytes(), 0), reserved)

    def _count(self):
        """See how much is in use now."""
        used = self.pool().used_bytes
        self.others, self._surely, self.peak = max(used - self.recycler.in_use(), 0), True, max(self.peak, used)

    def _give_back(self):
        """Give idle memory back, where the configuration bounds it: there is more from the device than before."""
        (used, reserved), conf = self.pool(), self.configured
        if conf.garbage_collection_threshold and reserved > conf.garbage_collection_threshold * self.limit() or \
                conf.max_idle_bytes is not None and reserved - used > conf.max_idle_bytes:
            self.trim()

    def trim(self):
        """Give back to the device what lies idle; how many bytes that were."""
        before = self.driver.pool(self.index).reserved_bytes
        self.reserved_peak = max(self.reserved_peak, before)
        for let_go in self.idle_holders:
            let_go()
        self.recycler.clear()
        self.driver.trim(self.index)
        return before - self.driver.pool(self.index).reserved_bytes

    def limit(self):
        """How many bytes this process may have."""
        return int(self.driver.properties(self.index).total_memory * self.fraction)

    def reset_peaks(self):
        """Count the peaks from now on."""
        self.peak, self.reserved_peak = self.pool()

    def reset_sums(self):
        """Count what was given out from now on."""
        self.calls_before, self.bytes_before = self.calls, self.bytes

    def stats(self):
        """The numbers, under the names of `torch.cuda.memory_stats()`."""
        used, reserved = self.pool()
        self.peak, self.reserved_peak = max(self.peak, used), max(self.reserved_peak, reserved)
        given = self.bytes - self.bytes_before
        out = {"allocation.all.allocated": self.calls - self.calls_before, "num_alloc_retries": self.retries,
               "num_ooms": self.failures, "max_split_size": -1}
        for what in ("allocated_bytes", "active_bytes", "requested_bytes"):
            out |= {f"{what}.all.current": used, f"{what}.all.peak": self.peak, f"{what}.all.allocated": given,
                    f"{what}.all.freed": max(given - used, 0)}
        out |= {"reserved_bytes.all.current": reserved, "reserved_bytes.all.peak": self.reserved_peak,
                "inactive_split_bytes.all.current": reserved - used}
        return dict(sorted(out.items()))

    # --- no room

    def failure(self, nbytes, spec=None, said=""):
        """The error that says there is no room for `nbytes` bytes, or for what CuPy has `said`."""
        self.failures += 1
        found = re.search(r"allocating ([\d,]+) bytes", said)
        if nbytes is None and found is not None:
            nbytes = int(found[1].replace(",", ""))
        used, reserved = self.pool()
        free, total = self.driver.memory_info(self.index)
        idle = max(reserved - used, 0)
        allowed = "" if self.fraction >= 1 else f" The process may have {self.fraction:.2%} of it " \
            f"({bytes_in_words(self.limit())}), by set_per_process_memory_fraction()."
        if nbytes is None:
            asked = "Tried to allocate more than there is"
        else:
            asked = f"Tried to allocate {bytes_in_words(nbytes)}"
        others = max(total - free - reserved, 0)
        error = OutOfMemoryError(
            f"CUDA out of memory. {asked}. GPU {self.index} has a total capacity of {bytes_in_words(total)} of which "
            f"{bytes_in_words(free)} is free; this process uses {bytes_in_words(used)}, its cache holds "
            f"{bytes_in_words(idle)} idle, and {bytes_in_words(others)} are CUDA's own and other processes'.{allowed} "
            + self._about_cache(nbytes, idle, free))
        error.nbytes, error.spec, error.device = nbytes, spec, device_type("cuda", self.index)
        return error

    def _about_cache(self, nbytes, idle, free):
        """Whether what lay idle would have sufficed; it has been given back before."""
        if nbytes is None or nbytes > idle + free:
            return "What lay idle in the cache was given back before that, and would not have sufficed."
        return ("What lay idle in the cache was given back before that, and would have sufficed in one piece: "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins the pieces.")

    def allocate(self, nbytes, spec=None, stream=None):
        """`nbytes` of the driver's memory; what lies idle is given back, and it is tried again, before it fails."""
        try:
            return self._taken(nbytes, stream)
        except MemoryError:
            self.retries += 1
            self.trim()
        try:
            return self._taken(nbytes, stream)
        except MemoryError:
            raise self.failure(nbytes, spec) from None

    def allocate_idle(self, sizes):
        """Memory of each of these sizes, None where nothing of that size lies idle, all at once; None where each has to
        be asked for by itself, since it is observed or bounded."""
        if self.fraction < 1 or observers.allocated is not None or observers.freed is not None:
            return None
        found, nbytes = self.recycler.idle_ones(sizes)
        self.calls += sum(one is not None for one in found)
        self.bytes += nbytes
        self._raise_peak()
        return found

    def _taken(self, nbytes, stream):
        self._taking = True
        try:
            made, fresh = self.recycler.allocate(nbytes, stream)
        finally:
            self._taking = False
        if observers.allocated is not None or observers.freed is not None:
            self.recycler.told[made.address] = self._tell(made.nbytes, made.address)
        if fresh:                                 # the driver told us: it is the recycler's now
            self.others -= made.nbytes
            if self._gives_back:
                self._give_back()
        else:
            self.allocated(nbytes, recycled=True)
        return made


_accounts: dict = {}            # index → the Account of the driver that is in use
_starting = new_lock()


def account(driver, index):
    """The Account of a device of `driver`, which counts from the first time it is asked for."""
    found = _accounts.get(index)
    if found is None or found.driver is not driver:
        with _starting:
            found = _accounts.get(index)
            if found is None or found.driver is not driver:
                found = _accounts[index] = Account(driver, index)
                driver.on_allocation = counted
    return found


def _notice_freed():
    for found in list(_accounts.values()):
        if found.recycler.told or found.loose:
            found.notice_freed()


def _observe():
    """The last who observed memory may have ended."""
    if observers.allocated is None and observers.freed is None:
        for found in list(_accounts.values()):
            found.recycler.told.clear()
            found.loose.clear()


observers.catch_up.append(_notice_freed)
observers.on_change.append(_observe)


def counted(index, nbytes):
    """The driver gave out memory."""
    found = _accounts.get(index)
    if found is not None:
        found.allocated(nbytes)
