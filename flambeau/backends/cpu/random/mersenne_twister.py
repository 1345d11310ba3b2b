"""The words of a Mersenne twister, made by compiled code in the memory of NumPy's own; all compiled code that draws.

NumPy makes one word at a time, and dropout wants millions: a twist goes by vectors here, tempering too, and a coin is
tossed by comparing whole numbers. The words are the same, and so is the state that is left. No thread waits for LLVM: a
long draw asks for the code, and until it is there, and where there is none, NumPy draws.

Nanoseconds for a word, and for a coin of float32 (two words), on a Neoverse N1: NumPy 5.5 and 20; here 1.3 and 3.3.
"""
import ctypes

import numpy as np

from ....base import settings
from ....base.locks import in_child
from ..llvm_writer import LLVMWriter
from . import box_muller, libm, samplers

STATE_WORDS, SHIFT = 624, 397      # of the twister: a word follows from those 624, 623 and 227 words before it
POSITION_BYTES = 4 * STATE_WORDS   # where NumPy's state has the number of the next word
LANES = 16                         # words at a time; a vector of some machine vectors
MIN_NATIVE_WORDS = 1 << 13         # that are worth asking for compiled code
MIN_NATIVE_SAMPLES = 16            # that are worth a call of it, where it is there
MANY_NATIVE_SAMPLES = 256          # that are worth asking for it, be it in several draws
COINS_AT_ONCE = 512                # whose words lie on the stack meanwhile
COIN_BITS = 53                     # of the two words that a coin is made of

_functions: dict = {}              # name → the compiled function, when they are there
_asked = False                     # whether they were asked for
_samples = 0                       # how many were drawn that a compiled function would have made


def words(stream, count):
    """The next `count` words of a `numpy.random.MT19937`, uint32."""
    if not _ready(count):
        return np.asarray(stream.random_raw(count)).astype(np.uint32)
    out = np.empty(count, np.uint32)
    _functions["words"](_address(stream), out.ctypes.data, count)
    return out


def coins(stream, probability, count):
    """`count` float32, one where the next two words, as a number in [0, 1), are below `probability`, else zero; None
    where there is no code for it."""
    if not _ready(2 * count):
        return None
    out = np.empty(count, np.float32)
    below = -int(-probability * 2.0**COIN_BITS // 1)          # u < p of whole numbers: below the next one up
    _functions["coins"](_address(stream), out.ctypes.data, count, below)
    return out


def native(name, count):
    """The compiled function that helps to make `count` samples, or None. It is asked for when many were made."""
    global _samples
    if settings.executor == "reference":
        return None
    if _functions:
        return _functions.get(name) if count >= MIN_NATIVE_SAMPLES else None
    _samples += count
    if _samples >= MANY_NATIVE_SAMPLES:
        _ask()
    return None


def sample(name, stream, count, *arrays_and_numbers):
    """Have the compiled sampler `name` of samplers.py draw `count` samples; False where there is no code for it."""
    run = native(name, count)
    if run is None:
        return False
    given = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in arrays_and_numbers]
    run(_address(stream), *given)
    return True


def _signatures(target):
    """{name: what it is given} of the functions of `text`, for a processor."""
    pointer, whole, double, single = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_float
    mapping = (pointer, pointer, pointer, whole)
    given = {"words": (pointer, pointer, whole), "coins": (pointer, pointer, whole, whole),
             "map64": mapping, "map32": mapping, **samplers.signatures()}
    if target.fma:
        given |= {"scale64": (pointer, whole, double, double), "normals": (pointer, pointer, whole, single, single)}
    return given


def _address(stream):
    return stream.ctypes.state_address


def _ready(count):
    """Whether compiled code is to draw `count` words."""
    if count < MIN_NATIVE_WORDS or settings.executor == "reference":
        return False
    _ask()
    return bool(_functions)


def _ask():
    """Have the code made, if it was not yet."""
    global _asked
    if not _asked:
        _asked = True
        from ..compile_thread import beforehand
        beforehand(make_ready)


def _machine_code():
    """What compiles, which the reference never needs."""
    from .. import machine_code
    return machine_code


def make_ready():
    """Compile it, and see that NumPy's state is laid out as it is read here; where it is not, NumPy goes on drawing."""
    global _functions
    machine_code = _machine_code()
    signatures = _signatures(machine_code.target())
    addresses = machine_code.functions(dict.fromkeys(signatures, text()), asked=False)
    found = {name: ctypes.CFUNCTYPE(None, *signatures[name])(address) for name, address in addresses.items()}
    one, other = (np.random.MT19937(5) for _ in range(2))
    one.random_raw(STATE_WORDS + 5)
    key = one.state["state"]
    laid = np.ctypeslib.as_array(ctypes.cast(_address(one), ctypes.POINTER(ctypes.c_uint32)), (STATE_WORDS + 1,))
    if np.array_equal(laid[:-1], key["key"]) and laid[-1] == key["pos"]:
        made = np.empty(3 * STATE_WORDS, np.uint32)
        found["words"](_address(other), made.ctypes.data, made.size)
        again = np.random.MT19937(5)
        if np.array_equal(made, again.random_raw(made.size)):
            _functions = found


@in_child
def _ask_again():
    """What was asked for beforehand did not come along."""
    global _asked
    _asked = False


# --- the text ---------------------------------------------------------------------------------------------------------


def text():
    """`words` and `coins`, in LLVM's language, and what makes other samples."""
    machine_code = _machine_code()
    target = machine_code.target()
    return "\n".join([_twist(), _words(), _coins(), libm.text(target), box_muller.text(target),
                      samplers.text(target, STATE_WORDS, POSITION_BYTES)])


def _splat(number, type, lanes):
    return f"splat ({type} {number})" if lanes > 1 else str(number)


def _vector(type, lanes):
    return f"<{lanes} x {type}>" if lanes > 1 else type


def _twisted(w, this, following, shifted, lanes):
    """The word that follows from the words at three pointers; of several in a row."""
    t = _vector("i32", lanes)
    a, b, c = [w.load(t, pointer, 4) for pointer in (this, following, shifted)]
    high = w(f"and {t} {a}, {_splat(-2**31, 'i32', lanes)}")
    low = w(f"and {t} {b}, {_splat(2**31 - 1, 'i32', lanes)}")
    half = w(f"lshr {t} {w(f'or {t} {high}, {low}')}, {_splat(1, 'i32', lanes)}")
    odd = w(f"sub {t} {_splat(0, 'i32', lanes)}, {w(f'and {t} {b}, ' + _splat(1, 'i32', lanes))}")
    mixed = w(f"xor {t} {half}, {w(f'and {t} {odd}, ' + _splat(0x9908b0df - 2**32, 'i32', lanes))}")
    w.store(t, w(f"xor {t} {mixed}, {c}"), this, 4)


def _twist():
    """Make the next 624 words of the state from the last, in their place."""
    w = LLVMWriter("define internal void @twist(ptr %state)")

    def walk(first, last, away):
        """The words from `first` to `last`, each with the one that lies `away`: by vectors, and what is left singly."""
        whole = first + (last - first) // LANES * LANES
        for start, end, lanes in ((first, whole, LANES), (whole, last, 1)):
            with w.loop(start, end, lanes) as k:
                pointers = [w.at("i32", "%state", w.add(k.i, more)) for more in (0, 1, away)]
                _twisted(w, *pointers, lanes)

    walk(0, STATE_WORDS - SHIFT, SHIFT)
    walk(STATE_WORDS - SHIFT, STATE_WORDS - 1, SHIFT - STATE_WORDS)
    _twisted(w, w.at("i32", "%state", STATE_WORDS - 1), "%state", w.at("i32", "%state", SHIFT - 1), 1)
    return w.text()


def _words():
    """Write `count` words to `out`."""
    w = LLVMWriter("define void @words(ptr %state, ptr %out, i64 %count)")
    position = w.at("i8", "%state", POSITION_BYTES)
    start = w(f"sext i32 {w.load('i32', position)} to i64")
    rounds = w.add(1, w.count_of(w.add(start, "%count"), STATE_WORDS))         # more than it takes: the last do nothing
    with w.loop(0, rounds, carry=[("i64", start), ("i64", 0)]) as turn:
        at, done = turn.values
        empty = w.is_("eq", at, STATE_WORDS)
        with w.when(w.both(empty, w.is_("slt", done, "%count"))):
            w.do("call void @twist(ptr %state)")
        at = w.pick(w.both(empty, w.is_("slt", done, "%count")), 0, at)
        count = w.least(w.sub(STATE_WORDS, at), w.sub("%count", done))
        whole = w.down(count, LANES)
        for low, high, lanes in ((0, whole, LANES), (whole, count, 1)):
            with w.loop(low, high, lanes) as k:
                t = _vector("i32", lanes)
                y = w.load(t, w.at("i32", w.at("i32", "%state", at), k.i), 4)
                for shift, by, mask in (("lshr", 11, -1), ("shl", 7, 0x9d2c5680), ("shl", 15, 0xefc60000),
                                        ("lshr", 18, -1)):
                    moved = w(f"{shift} {t} {y}, {_splat(by, 'i32', lanes)}")
                    if mask != -1:
                        moved = w(f"and {t} {moved}, {_splat(mask - 2**32, 'i32', lanes)}")
                    y = w(f"xor {t} {y}, {moved}")
                w.store(t, y, w.at("i32", w.at("i32", "%out", done), k.i), 4)
        turn.next = [w.add(at, count), w.add(done, count)]
    w.store("i32", w(f"trunc i64 {turn.values[0]} to i32"), position)
    return "declare i64 @llvm.smin.i64(i64, i64)\n" + w.text()


def _coins():
    """Write `count` coins to `out`: one where the two words, the high one first, give a number below `below`."""
    w = LLVMWriter("define void @coins(ptr %state, ptr %out, i64 %count, i64 %below)")
    room = w.spare(f"[{2 * COINS_AT_ONCE} x i32]")
    with w.loop(0, "%count", COINS_AT_ONCE) as block:
        count = w.least(COINS_AT_ONCE, w.sub("%count", block.i))
        w.do(f"call void @words(ptr %state, ptr {room}, i64 {w.mul(count, 2)})")
        whole = w.down(count, LANES)
        for low, high, lanes in ((0, whole, LANES), (whole, count, 1)):
            with w.loop(low, high, lanes) as k:
                t, flag, out = _vector("i64", lanes), _vector("i1", lanes), _vector("float", lanes)
                pair = w.load(t, w.at("i64", room, k.i), 4)
                turned = w(f"or {t} {w(f'shl {t} {pair}, ' + _splat(32, 'i64', lanes))}, "
                           f"{w(f'lshr {t} {pair}, ' + _splat(32, 'i64', lanes))}")
                unit = w(f"and {t} {turned}, {_splat(2**COIN_BITS - 1, 'i64', lanes)}")
                below = "%below"
                if lanes > 1:
                    one = w(f"insertelement {t} poison, i64 %below, i64 0")
                    below = w(f"shufflevector {t} {one}, {t} poison, <{lanes} x i32> zeroinitializer")
                heads = w(f"icmp slt {t} {unit}, {below}")
                w.store(out, w(f"uitofp {flag} {heads} to {out}"),
                        w.at("float", w.at("float", "%out", block.i), k.i), 4)
    return w.text()
