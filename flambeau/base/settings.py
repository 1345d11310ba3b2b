"""Every switch of the system with its default, in one place. Environment variables are read once, here."""
import os

EXECUTORS = ("reference",)

executor = os.environ.get("FLAMBEAU_EXECUTOR", "reference")
if executor not in EXECUTORS:
    raise ValueError(f"FLAMBEAU_EXECUTOR={executor!r}: known executors are {', '.join(EXECUTORS)}")

# A trace runs when it holds this many instructions, or would allocate this many bytes, whichever comes first.
trace_instructions = int(os.environ.get("FLAMBEAU_TRACE_INSTRUCTIONS", "2000"))
trace_bytes = int(os.environ.get("FLAMBEAU_TRACE_BYTES", str(256 << 20)))
