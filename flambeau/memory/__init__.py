"""Memory by line, by module and by role: who holds it now, how it came to its peak, what more samples would need."""
from .looking import snapshot, tensors, why_alive
from .model import (
    BatchEstimate,
    Holding,
    MemoryEvent,
    MemoryOfDevice,
    MemoryRecord,
    MemorySnapshot,
    Peak,
    Tally,
)
from .recording import estimate, record, summary

__all__ = ["BatchEstimate", "Holding", "MemoryEvent", "MemoryOfDevice", "MemoryRecord", "MemorySnapshot", "Peak",
           "Tally", "estimate", "record", "snapshot", "summary", "tensors", "why_alive"]
