"""How LLVM spells types and constants."""
import math
import struct

from .ir import PART_OF_COMPLEX

# 16-bit floats are their bits: a processor without instructions for them may not even hold them as numbers.
LLVM_TYPE = {"f16": "i16", "bf16": "i16", "f32": "float", "f64": "double", "i8": "i8", "u8": "i8", "i16": "i16",
             "i32": "i32", "i64": "i64", "b1": "i1"}
BITS_OF_TYPE = {"i8": 8, "u8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64, "b1": 1, "f16": 16, "bf16": 16}


def shape(type, lanes):
    """LLVM's name of a type."""
    if type in PART_OF_COMPLEX:
        type, lanes = PART_OF_COMPLEX[type], 2 * lanes
    return LLVM_TYPE[type] if lanes == 1 else f"<{lanes} x {LLVM_TYPE[type]}>"


def mangled(type, lanes):
    """A type's name inside an intrinsic's."""
    if type in PART_OF_COMPLEX:
        type, lanes = PART_OF_COMPLEX[type], 2 * lanes
    word = {"f16": "i16", "f32": "f32", "f64": "f64", "b1": "i1", "u8": "i8", "bf16": "i16"}.get(type, type)
    return word if lanes == 1 else f"v{lanes}{word}"


def literal(value, type, lanes=1):
    """A constant in LLVM's spelling."""
    if type in ("f32", "f64"):
        value = rounded(value) if type == "f32" else float(value)
        text = "0x7FF8000000000000" if math.isnan(value) else "0x" + struct.pack(">d", value).hex().upper()
    elif type == "b1":
        text = "true" if value else "false"
    else:
        width = BITS_OF_TYPE[type]
        value = (half_bits(value, type) if type in ("f16", "bf16") else int(value)) & ((1 << width) - 1)
        text = str(value - (1 << width) if value >> (width - 1) else value)
    return text if lanes == 1 else f"splat ({LLVM_TYPE[type]} {text})"


def rounded(value):
    """`value` as the nearest float32."""
    value = float(value)
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def half_bits(value, type):
    """The bits of the float16 or bfloat16 nearest to `value`; of a bfloat16 by way of float32, as everywhere."""
    if math.isnan(value):
        return {"f16": 0x7E00, "bf16": 0x7FC0}[type]
    if type == "bf16":
        raw, = struct.unpack("I", struct.pack("f", rounded(value)))
        return raw + (0x7FFF + (raw >> 16 & 1)) >> 16
    try:
        return struct.unpack("H", struct.pack("e", value))[0]
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00
