"""What the writer of GPU kernels (loops/gpu) asks of the language that it writes: a `KernelDialect`.

Its fields are the words that each language has for itself. Its methods are statements and, from words.py, expressions,
in C++, which most of these languages are; one that is not says them in its own way. `type_name` is a type as the
language spells it; `address` is a pointer's name and what is added to it.
"""
from collections.abc import Iterable, Iterator, Sequence

from .helpers import HELPERS, HELPERS_CALLED, helper, spelled_out
from .words import KernelWords


class KernelDialect(KernelWords):
    """A language of GPUs: what it calls things, and how its statements read."""

    block: str                        # the number of a thread's block
    thread: tuple                     # a thread's number in its block, along x and along y
    inline: str                       # says that a function is written where it is called
    outlined: str                     # says that it is not
    kernel: str                       # the head of a kernel, given its `name` and the `bounds` of its blocks
    shared: str                       # says that the threads of a block have an array together
    barrier: str                      # where the threads of a block wait for each other
    warp_barrier: str                 # where those of a warp do
    shuffles: dict                    # "from", "down", "across" → the `value` that another thread of the warp has
    byte: str                         # the type that memory of every type may be looked at as
    max_given_words: int              # of eight bytes, that a kernel can be given
    warp = 32                         # threads that shuffle with each other
    shuffled_as_int: tuple = ("b1", "i8", "u8", "i16")         # types that shuffles are not there for
    device_macro, instructions = "", {}     # helpers that are instructions where the macro is known: name → lines

    # --- the whole

    def given(self, pointers: list, ints: list, numbers: list) -> Iterator[str]:
        """Lines that declare what a kernel is given: (name, type) of accesses, integers, (name, type) of numbers."""
        yield "struct Given {"
        for type, names in (("u64", [name for name, _ in pointers]), ("i64", ints)):
            if names:
                yield f"  {self.types[type]} {', '.join(names)};"
        for name, type in numbers:
            yield f"  {self.types[type]} {name};"
        yield "};"

    def kernel_head(self, name: str, bounds: tuple) -> str:
        """The head of a kernel whose blocks have the threads that `bounds` says."""
        return self.kernel.format(name=name, bounds=", ".join(map(str, bounds)))

    def part_head(self, position: tuple) -> str:
        """The head of the function of a part of a kernel, which is told its position."""
        position_words = ", ".join(f"const {self.types['i32']} {name}" for name in position)
        return f"static {self.inline} void part(const Given &given, {position_words})"

    def helpers(self, names: Iterable[str]) -> list:
        """The functions `names`, each after those that it calls."""
        names = dict.fromkeys(each for name in sorted(names) for each in (*HELPERS_CALLED.get(name, ()), name))
        return [helper(self, name) if name in HELPERS else spelled_out(self, name) for name in names]

    # --- statements

    def constant(self, type_name: str, name: str, text: object) -> str:
        """A name for a value."""
        return f"const {type_name} {name} = {text};"

    def variable(self, type_name: str, name: str, text: object) -> str:
        """A name for values to come, and the first of them."""
        return f"{type_name} {name} = {text};"

    def pointer(self, type_name: str, name: str, text: object) -> str:
        """A name for the memory at `text`, of elements of one type."""
        return f"{type_name} *const {name} = ({type_name} *){text};"

    def shared_arrays(self, type_name: str, *arrays: tuple) -> str:
        """Arrays that the threads of a block have together, each (its name, its sizes…)."""
        named = ", ".join(name + "".join(f"[{n}]" for n in sizes) for name, *sizes in arrays)
        return f"{self.shared} {type_name} {named};"

    def loop(self, type_name: str | None, name: str, first: str | None, condition: str, step: int | None = None) -> str:
        """The head of a loop that goes one by one, or by a step; with a `type_name`, its variable is new."""
        begin = f"{type_name} {name} = {first}" if type_name is not None else ""
        return f"for ({begin}; {condition}; {f'++{name}' if step is None else f'{name} += {step}'})"

    def unroll(self, times: int | None = None) -> str:
        """A line before a loop that says how many turns of it are written out; all of them if there is no number."""
        return "#pragma unroll" + (f" {times}" if times is not None else "")

    # --- memory and threads

    def element(self, address: Sequence[str]) -> str:
        """What is at an address."""
        return f"*({' + '.join(address)})"

    def element_as(self, type_name: str, address: Sequence[str]) -> str:
        """What is at an address, of a type that its pointer is not of."""
        return f"*({type_name} *)({' + '.join(address)})"

    def bytes_from(self, name: str, offset: int) -> str:
        """The address that is so many bytes after the start of an array."""
        return f"(({self.byte} *){name} + {offset})"

    def shuffle(self, how: str, type: str, value: str, by: int, width: int) -> str:
        """The value of another thread: the one `by` further "down", the one "across" a bit, or all have it "from" one.
        Threads shuffle among `width` of them."""
        if type not in self.shuffled_as_int:
            return self.shuffles[how].format(value=value, by=by, width=width)
        value = self.convert(self.types["i32"], value)
        return self.convert(self.types[type], self.shuffles[how].format(value=value, by=by, width=width))

    # --- neighbours that go with one load or store

    def pack(self, type_name: str, size: int) -> str:
        """The type of so many neighbours."""
        return f"Pack<{type_name}, {size}>"

    def in_pack(self, name: str, i: int) -> str:
        """One of them."""
        return f"{name}.x[{i}]"

    def packed(self, type_name: str, values: Sequence[str]) -> str:
        """Values as neighbours; a pack of zeros has none."""
        return f"{self.pack(type_name, len(values))}{{{{{', '.join(values)}}}}}"

    def load_pack(self, type_name: str, size: int, address: Sequence[str]) -> str:
        """What lies side by side from an address on, a multiple of its bytes."""
        return self.element_as(f"const {self.pack(type_name, size)}", address)

    def store_pack(self, type_name: str, address: Sequence[str], values: Sequence[str]) -> str:
        """A statement that writes values side by side from such an address on."""
        return f"{self.element_as(self.pack(type_name, len(values)), address)} = {self.packed(type_name, values)};"

    def take_pack(self, type_name: str, size: int, address: Sequence[str], aligned: str) -> str:
        """As load_pack, if `aligned`; one by one else."""
        return f"take<{type_name}, {size}>({' + '.join(address)}, {aligned})"

    def give_pack(self, type_name: str, address: Sequence[str], values: Sequence[str], aligned: str) -> str:
        """As store_pack, if `aligned`; one by one else."""
        return f"give({' + '.join(address)}, {self.packed(type_name, values)}, {aligned});"
