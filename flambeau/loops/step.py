"""The form of a native step: a function of machine code that does the tiles from `begin` to `end`.

`buffers` are addresses, `ints` what the step is told, `scalars` numbers of the program, and `room` is the thread's.

Note [A thread's room]: what a step copies or keeps for a while, and whose size is known only when it runs, lies in a
room of its thread's own, never on the stack. Stacks are small where a program made them so: a thread of Python's may
have 64 KiB, one of musl's 128. And what is reserved there beyond the end is not refused, but taken from whatever lies
below. The runtime has one room of MAX_ROOM_BYTES for each worker, and for each other thread from the first program on
that it runs; the system gives pages to it as they are written. A step has all of it until it returns.

The planner of a step keeps what it puts there within that bound (`in_room`), and the steps look once more
(LLVMWriter.rooms): one that asked for more would end the process there, and write nowhere.

What is left on the stack are frames whose size the text fixes. PROBED has LLVM touch each page of a large one in turn,
so that a stack which ends meanwhile is a fault in the guard page at its end, wherever the frame would have reached.
"""
STEP_ARGUMENTS = "ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %end, ptr %room"
MAX_ROOM_BYTES = 2 << 20
ROOM_ALIGNMENT = 64           # of a room, and of each piece of it: a line of the cache, and the widest vector
PROBED = '"probe-stack"="inline-asm"'


def room_bytes(size, *counts):
    """How many bytes of a room pieces of so many elements take, of `size` bytes each."""
    return sum(-(-count * size // ROOM_ALIGNMENT) * ROOM_ALIGNMENT for count in counts)


def in_room(size, *counts):
    """Whether a room has so many bytes."""
    return room_bytes(size, *counts) <= MAX_ROOM_BYTES
