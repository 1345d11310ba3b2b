"""Every switch of the system with its default, in one place. Environment variables are read once, here.

`flambeau.config` shows them, and sets them while the program runs; SWITCHES is what it knows about them.
"""
import os


def _integer(variable, default):
    """The integer that an environment variable says."""
    text = os.environ.get(variable, "")
    try:
        return int(text or default)
    except ValueError:
        raise ValueError(f"{variable}={text!r}: must be an integer") from None


EXECUTORS = ("auto", "reference", "native")

executor = os.environ.get("FLAMBEAU_EXECUTOR", "auto")
if executor not in EXECUTORS:
    raise ValueError(f"FLAMBEAU_EXECUTOR={executor!r}: known executors are {', '.join(EXECUTORS)}")

# What the traceback of an error that ends the program shows: the program's lines alone where it is a refusal, or all.
TRACEBACKS = ("short", "full")
tracebacks = os.environ.get("FLAMBEAU_TRACEBACKS", "short")
if tracebacks not in TRACEBACKS:
    raise ValueError(f"FLAMBEAU_TRACEBACKS={tracebacks!r}: must be one of {', '.join(TRACEBACKS)}")

# A trace runs when it holds this many instructions, or its results would be this many bytes, whichever comes first.
# Most results of a fused trace are never written to memory, so there may be more of them than memory has room for.
trace_instructions = _integer("FLAMBEAU_TRACE_INSTRUCTIONS", 2000)
trace_bytes = _integer("FLAMBEAU_TRACE_BYTES", 2 << 30)

# How many bytes of the CPU's memory may lie idle in the cache; negative: a quarter of what the process may have.
cache_bytes = _integer("FLAMBEAU_CACHE_BYTES", -1)

# Compiled kernels are kept in this folder for later processes; an empty FLAMBEAU_CACHE_DIR keeps none. The oldest are
# dropped when there are more bytes than this.
object_dir = os.environ.get("FLAMBEAU_CACHE_DIR")
if object_dir is None:
    _home = os.environ.get("XDG_CACHE_HOME", "")
    object_dir = os.path.join(_home if os.path.isabs(_home) else os.path.expanduser("~/.cache"), "flambeau")
    object_dir = object_dir if os.path.isabs(object_dir) else ""       # no home folder: `~` stays as it is
object_dir = object_dir and os.path.abspath(os.path.expanduser(object_dir))
object_bytes = 256 << 20

# A folder of kernels that `flambeau precompile` made: they are used, and nothing is compiled
# (backends/kernel_store/precompiled.py).
precompiled = os.environ.get("FLAMBEAU_PRECOMPILED", "").strip()
precompiled = precompiled and os.path.abspath(os.path.expanduser(precompiled))

# Which processor kernels are compiled for; backends/cpu/processor.py has the words.
cpu = os.environ.get("FLAMBEAU_CPU", "").strip() or "native"

# How the CPU convolves: with fewer multiplications where that pays (backends/cpu/library/winograd.py), or along taps
# always.
CONVOLUTIONS = ("auto", "direct")
convolutions = os.environ.get("FLAMBEAU_CONVOLUTIONS", "auto")
if convolutions not in CONVOLUTIONS:
    raise ValueError(f"FLAMBEAU_CONVOLUTIONS={convolutions!r}: must be one of {', '.join(CONVOLUTIONS)}")

# How many threads to use at most; 0: as many as there are processors.
num_threads = os.environ.get("FLAMBEAU_NUM_THREADS", "")
if num_threads and not (num_threads.isdecimal() and int(num_threads)):
    raise ValueError(f"FLAMBEAU_NUM_THREADS={num_threads!r}: must be a positive integer")
_openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()   # may be a list, one number for each level
num_threads = int(num_threads or (_openmp if _openmp.isdecimal() else 0))

# How much `flambeau.watch` looks for: nothing, what costs nothing, everything, or everything with errors for findings.
WATCHES = {"0": "off", "": "free", "1": "full", "strict": "strict"}
watch = os.environ.get("FLAMBEAU_WATCH", "")
if watch not in WATCHES:
    raise ValueError(f"FLAMBEAU_WATCH={watch!r}: must be 0, 1 or strict")
watch = WATCHES[watch]
watch_ignore = os.environ.get("FLAMBEAU_WATCH_IGNORE", "")            # names of findings, with commas between
# Which device has to be there, or `import flambeau` raises: see cli/expected.py.
expect_device = os.environ.get("FLAMBEAU_EXPECT_DEVICE", "").strip()

# Whether `use_deterministic_algorithms` was asked for.
deterministic = False

# name → (environment variable, or None; what it says)
SWITCHES = {
    "executor": ("FLAMBEAU_EXECUTOR", "what runs traces: 'reference', 'native', or 'auto', which is native but for "
                                      "small traces seen for the first time"),
    "num_threads": ("FLAMBEAU_NUM_THREADS", "how many threads a large step runs on; never more than the quota of the "
                                            "control group"),
    "tracebacks": ("FLAMBEAU_TRACEBACKS", "what an error that ends the program prints: 'short', without Flambeau's "
                                          "frames where it refused something, or 'full'"),
    "cpu": ("FLAMBEAU_CPU", "which processor kernels are compiled for: 'native', or one that this can stand for, such "
                            "as 'x86-64-v3', or 'native,-fma'"),
    "convolutions": ("FLAMBEAU_CONVOLUTIONS", "how the CPU convolves: 'direct', or 'auto', which takes Winograd's "
                                              "minimal filtering where that is faster"),
    "trace_instructions": ("FLAMBEAU_TRACE_INSTRUCTIONS", "a trace runs when it has so many instructions"),
    "trace_bytes": ("FLAMBEAU_TRACE_BYTES", "a trace runs when its results would be so many bytes"),
    "cache_bytes": ("FLAMBEAU_CACHE_BYTES", "how many bytes of memory may lie idle in the allocator's cache; negative: "
                                            "a quarter of what the process may have"),
    "object_dir": ("FLAMBEAU_CACHE_DIR", "where compiled kernels are kept for later processes; empty: nowhere"),
    "watch": ("FLAMBEAU_WATCH", "what flambeau.watch looks for: 'off' (0), 'free' what costs nothing, 'full' (1) all, "
                                "'strict' all, as errors"),
    "watch_ignore": ("FLAMBEAU_WATCH_IGNORE", "names of findings that are never said, with commas between them"),
    "object_bytes": (None, "how many bytes of compiled kernels are kept there; the longest unused are dropped"),
}
