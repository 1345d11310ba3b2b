"""Which processor kernels are compiled for: this machine's, or a lesser one that it can stand for.

`config.cpu`, or the variable `FLAMBEAU_CPU`, names it:

    native                       this machine's, with all that it has
    x86-64-v3                    a level that many machines have in common (PROCESSOR_LEVELS)
    native,-avx512fp16,-f16c     without some features, in LLVM's words, and what needs them

A feature that this machine lacks is refused, since the first kernel that used it would end the process. Everything else
about a kernel follows: vectors, and how operations are written (loops/target.py).
"""
from typing import NamedTuple

from ...loops.target import Target, target_of

_V1 = "64bit cmov cx8 fxsr mmx sse sse2"
_V2 = f"{_V1} cx16 crc32 popcnt sahf sse3 sse4.1 sse4.2 ssse3"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl"
# architecture → name, as LLVM has it too → features
PROCESSOR_LEVELS = {"x86_64": {"x86-64": _V1, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4},
                    "aarch64": {"generic": "fp-armv8 neon"}}
# what a feature cannot be without, so that taking one away takes away what is built on it
IMPLIED_FEATURES = {"sse3": "sse2", "ssse3": "sse3", "sse4.1": "ssse3", "sse4.2": "sse4.1", "avx": "sse4.2",
                    "f16c": "avx", "fma": "avx", "fma4": "avx", "xop": "avx", "avx2": "avx", "vaes": "avx2",
                    "vpclmulqdq": "avx", "avx512f": "avx2 fma f16c", "avx512fp16": "avx512bw", "avx512bf16": "avx512bw",
                    "gfni": "sse2", **dict.fromkeys(("amx-bf16", "amx-fp16", "amx-int8"), "amx-tile")}


class Processor(NamedTuple):
    """What LLVM compiles for: its name of the `cpu`, the features that are on, and all of them as it wants them."""

    triple: str
    cpu: str
    on: frozenset
    flags: str

    @property
    def target(self) -> Target:
        """What the renderer has to know."""
        return target_of(self.triple, self.on)


def choose(text, triple, cpu, features):
    """The Processor that `text` names, on a machine whose processor LLVM calls `cpu`, with `features` {name: on}."""
    name, *changes = [word.strip() for word in text.split(",")]
    architecture = triple.partition("-")[0]
    architecture = "aarch64" if architecture == "arm64" else architecture
    has, levels = {f for f, on in features.items() if on}, PROCESSOR_LEVELS.get(architecture, {})
    if name == "native":
        wanted, known = has, cpu
    elif name in levels:
        wanted, known = set(levels[name].split()), name
    else:
        raise ValueError(f"config.cpu = {text!r}: {name!r} is not known here; this machine's is 'native', and there "
                         f"are {', '.join(map(repr, levels)) or 'no others'}, each followed by features such as "
                         "',-fma' at will")
    for change in changes:
        if change[:1] not in ("-", "+") or change[1:] not in features:
            raise ValueError(f"config.cpu = {text!r}: {change!r} is no feature with '-' or '+' before it; this "
                             f"processor, {cpu}, has {', '.join(sorted(has))}")
        wanted = wanted | {change[1:]} if change[0] == "+" else wanted - {change[1:]}
    missing = wanted - has
    if missing:
        raise ValueError(f"config.cpu = {text!r}: this processor, {cpu}, lacks {', '.join(sorted(missing))}")
    wanted = _standing(wanted)
    off = [f"-{feature}" for feature in sorted(features) if feature not in wanted]
    return Processor(triple, known, frozenset(wanted), ",".join(off + [f"+{f}" for f in sorted(wanted)]))


def _standing(wanted):
    """Those features whose needs are there too."""
    while True:
        kept = {f for f in wanted if set(_needs(f).split()) <= wanted}
        if kept == wanted:
            return kept
        wanted = kept


def _needs(feature):
    if feature.startswith("avx512") and feature not in IMPLIED_FEATURES:
        return "avx512f"
    return IMPLIED_FEATURES.get(feature, "avx2" if feature.startswith("avx") and feature not in ("avx", "avx2") else "")
