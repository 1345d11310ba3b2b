"""Running programs of native steps, large steps on several threads.

`threads.run(program, steps, table, scalars)` is one native call, given addresses. Step by step the program says, in
words of 64 bits,

    fn, tiles, grain, buffers, scalars, ints, (table index, byte offset) * buffers, scalar index * scalars, ints...

and `fn(ptr buffers, ptr ints, ptr scalars, begin, end, ptr room)` does the tiles begin..end of its step (see
loops/step.py). A step of at most
`grain` tiles runs on the caller's thread; the tiles of a larger one are cut in pieces of `grain`, of which the caller
and the workers have a share each, the same in every step that is cut alike. They take their pieces one by one, and then
some of others'. A step whose grain is negative is done only if the first word of its last buffer is not 0.

`threads.clocked(times)` gives a function that does the same and writes times: when it began, and when each step was
through. It is another native function, so that `run` has no test for it.

Workers are native threads that never touch Python. They are made when the first large step runs, watch for work for a
moment after each step, and then sleep. One program at a time has them; another that runs meanwhile works alone.
"""
import ctypes
import functools
import os

from ...base import observers, settings
from ...base.errors import need
from ...base.locks import in_child, new_lock
from ..cpu_quota import processors, quota, time_granted  # noqa: F401  (what programs want to know of the processor)

PUBLIC = ("get_num_threads", "set_num_threads", "get_num_interop_threads", "set_num_interop_threads")

_lock = new_lock()            # a signal handler may come again, in the middle
_choosing = new_lock()        # how many threads; who starts the runtime waits for a thread that asks for that
_native = None                # the compiled `run`
_clocked = None               # the compiled `run_clocked`
_clock = None                 # where the clock is that it asks
_pool = None                  # the runtime's variable that points at the pool in use
_threads = None               # how many threads a program may use; None: not asked yet
_interop = None


def run(program, steps, table, scalars):
    """Run `steps` steps of the program at address `program`: buffers from `table`, numbers from `scalars`."""
    if _native is None:
        start()               # which puts the native function in the place of this one
    _native(program, steps, table, scalars)


def address():
    """Where the native function is that `run` calls."""
    start()
    return ctypes.cast(_native, ctypes.c_void_p).value


def clocked(times):
    """A function like `run` that writes to the array `times` what `observers.clock` says: at first, and after each
    step. It is one native call too: no interrupt comes between its beginning and its end."""
    return functools.partial(_clocked, times.buffer_info()[0], _clock)


def start():
    """Make the native runtime ready, if it is not."""
    global run, _native, _clocked, _clock, _pool
    with _lock:
        if _native is None:
            machine_code, _ = _compiling()
            names = "pool", "run", "run_clocked", "make_room_key", *["now"] * (os.name == "posix")
            found = machine_code.functions(dict.fromkeys(names, text()))
            _pool = ctypes.c_void_p.from_address(found["pool"])
            need(ctypes.CFUNCTYPE(ctypes.c_int)(found["make_room_key"])() == 0,
                 "the system gives no more memory of their own to threads: too many libraries have asked for it")
            machine_code.undisturbed(_renew)
            pointer, given = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
            signature, more = ctypes.CFUNCTYPE(None, *given), ctypes.CFUNCTYPE(None, pointer, pointer, *given)
            _clock = found["now"] if os.name == "posix" else python_clock()
            _clocked = more(found["run_clocked"])
            _native = run = signature(found["run"])


def _compiling():
    """The modules `machine_code` and `runtime`, which the reference never needs."""
    from . import machine_code, runtime
    return machine_code, runtime


def text():
    """The runtime as LLVM compiles it."""
    machine_code, runtime = _compiling()
    return machine_code.QUICK_MARK + runtime.text()


def python_clock():
    """`observers.clock` as native code may call it, for systems of which we know no native clock."""
    return ctypes.CFUNCTYPE(ctypes.c_int64)(observers.clock)


def _renew(retire=True):
    """Give programs that start from now on a new pool, and let the workers of the old one end where `retire`."""
    if os.name != "posix":
        return
    _, runtime = _compiling()
    libc, old = ctypes.CDLL(None), _pool.value
    libc.calloc.restype = ctypes.c_void_p
    nbytes = runtime.POOL_BYTES + 64
    block = libc.calloc(ctypes.c_size_t(1), ctypes.c_size_t(nbytes))  # never freed: workers may outlive Python
    if not block:
        raise MemoryError("no memory for a thread pool")
    pool = block + 63 & -64
    for name, primitive in (("mutex", "mutex"), ("work", "cond"), ("done", "cond")):
        libc[f"pthread_{primitive}_init"](ctypes.c_void_p(pool + runtime.POOL_FIELDS[name]), None)
    ctypes.c_int64.from_address(pool + runtime.POOL_FIELDS["wanted"]).value = get_num_threads() - 1
    _pool.value = pool
    if old and retire:
        mutex = ctypes.c_void_p(old + runtime.POOL_FIELDS["mutex"])
        libc.pthread_mutex_lock(mutex)
        ctypes.c_int64.from_address(old + runtime.POOL_FIELDS["retired"]).value = 1
        libc.pthread_cond_broadcast(ctypes.c_void_p(old + runtime.POOL_FIELDS["work"]))
        libc.pthread_mutex_unlock(mutex)


@in_child
def _after_fork():
    """No worker came along."""
    if _native is not None:
        _renew(retire=False)


def get_num_threads():
    """How many threads a large step runs on."""
    global _threads
    if _threads is None:
        with _choosing:                   # another thread may be setting it
            if _threads is None:
                _threads = min(processors(), quota(), settings.num_threads or processors())
    return _threads


def set_num_threads(num):
    """Run large steps on `num` threads, or on as many as the quota of the control group allows, if that is less."""
    global _threads
    _positive("set_num_threads", num)
    with _choosing:
        _threads = min(int(num), quota())
    with _lock:
        if _native is not None:
            machine_code, _ = _compiling()
            machine_code.undisturbed(_renew)


def get_num_interop_threads():
    """How many threads run operations side by side, as PyTorch counts them. Here one program runs after the other."""
    return _interop or processors()


def set_num_interop_threads(num):
    """Accepted, and without effect: nothing runs on threads between operations."""
    global _interop
    _positive("set_num_interop_threads", num)
    need(_interop is None, "cannot set number of interop threads after set_num_interop_threads was called")
    _interop = int(num)


def _positive(name, num):
    need(hasattr(num, "__index__") and type(num) is not bool, f"{name} expects an int, but got {type(num).__name__}")
    need(num > 0, f"{name} expects a positive integer")
