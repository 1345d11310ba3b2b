"""Launches in a row by one native call, which LLVM compiles for the CPU as it does backends/native_runtime.py.

A program is an array of words of 64 bits, launch by launch:

    function, grid x, y, z, block x, y, z, shared bytes, pointers, ints, numbers,
    (table index, byte offset) * pointers, ints..., number index * numbers

`run(program, launches, table, cells, stream)` goes through it. For each launch it puts the kernel's Params together on
its stack, a word for each pointer (an address of the table and the offset), each integer and each number (a cell), and
calls cuLaunchKernel with them (CU_LAUNCH_PARAM_BUFFER_POINTER). It stops at the first launch that is refused, and says
which. `params(program, launches, table, cells, out)` writes the Params of the launches to memory instead, one after the
other, for the kernels of a captured graph.

Measured with a launcher that does nothing: 15 ns a launch of three pointers and a number (aarch64).
"""
import ctypes
import weakref
from array import array

from ...base.locks import new_lock
from .. import cpu
from ..backend import DeviceFailed
from .driver import DeviceError

WORDS_BEFORE_PLACES = 11           # of a launch, up to the number of its numbers

TEXT = """
; The Params of one launch: pointers, ints, numbers. Gives the words that come after those of the launch.
define internal ptr @fill(ptr %words, i64 %pointers, i64 %ints, i64 %numbers, ptr %table, ptr %cells, ptr %params) #0 {
entry:
  %places = getelementptr i64, ptr %words, i64 11
  %place.words = shl i64 %pointers, 1
  %values = getelementptr i64, ptr %places, i64 %place.words
  %indices = getelementptr i64, ptr %values, i64 %ints
  %next = getelementptr i64, ptr %indices, i64 %numbers
  %params.ints = getelementptr i64, ptr %params, i64 %pointers
  %params.numbers = getelementptr i64, ptr %params.ints, i64 %ints
  %any.pointers = icmp sgt i64 %pointers, 0
  br i1 %any.pointers, label %pointer, label %pointers.end
pointer:
  %p = phi i64 [0, %entry], [%p.next, %pointer]
  %place = getelementptr [2 x i64], ptr %places, i64 %p
  %index = load i64, ptr %place
  %offset.p = getelementptr i64, ptr %place, i64 1
  %offset = load i64, ptr %offset.p
  %base.p = getelementptr i64, ptr %table, i64 %index
  %base = load i64, ptr %base.p
  %address = add i64 %base, %offset
  %slot = getelementptr i64, ptr %params, i64 %p
  store i64 %address, ptr %slot
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %pointers
  br i1 %p.more, label %pointer, label %pointers.end
pointers.end:
  %any.ints = icmp sgt i64 %ints, 0
  br i1 %any.ints, label %int, label %ints.end
int:
  %i = phi i64 [0, %pointers.end], [%i.next, %int]
  %value.p = getelementptr i64, ptr %values, i64 %i
  %value = load i64, ptr %value.p
  %int.slot = getelementptr i64, ptr %params.ints, i64 %i
  store i64 %value, ptr %int.slot
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %ints
  br i1 %i.more, label %int, label %ints.end
ints.end:
  %any.numbers = icmp sgt i64 %numbers, 0
  br i1 %any.numbers, label %number, label %end
number:
  %n = phi i64 [0, %ints.end], [%n.next, %number]
  %which.p = getelementptr i64, ptr %indices, i64 %n
  %which = load i64, ptr %which.p
  %cell.p = getelementptr i64, ptr %cells, i64 %which
  %cell = load i64, ptr %cell.p
  %number.slot = getelementptr i64, ptr %params.numbers, i64 %n
  store i64 %cell, ptr %number.slot
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %numbers
  br i1 %n.more, label %number, label %end
end:
  ret ptr %next
}

; The word number `at` of a launch, as 32 bits.
define internal i32 @word(ptr %words, i64 %at) #0 {
entry:
  %p = getelementptr i64, ptr %words, i64 %at
  %wide = load i64, ptr %p
  %narrow = trunc i64 %wide to i32
  ret i32 %narrow
}

; One launch: puts an error in `status`, 0 for none, and gives the words after it.
define internal ptr @launch(ptr %call, ptr %words, ptr %table, ptr %cells, ptr %stream, ptr %status) #0 {
entry:
  %pointers.p = getelementptr i64, ptr %words, i64 8
  %ints.p = getelementptr i64, ptr %words, i64 9
  %numbers.p = getelementptr i64, ptr %words, i64 10
  %pointers = load i64, ptr %pointers.p
  %ints = load i64, ptr %ints.p
  %numbers = load i64, ptr %numbers.p
  %some = add i64 %pointers, %ints
  %all = add i64 %some, %numbers
  %params = alloca i64, i64 %all, align 16
  %size = alloca i64
  %extra = alloca [5 x ptr], align 16
  %bytes = shl i64 %all, 3
  store i64 %bytes, ptr %size
  %next = call ptr @fill(ptr %words, i64 %pointers, i64 %ints, i64 %numbers, ptr %table, ptr %cells, ptr %params)
  %extra.1 = getelementptr ptr, ptr %extra, i64 1
  %extra.2 = getelementptr ptr, ptr %extra, i64 2
  %extra.3 = getelementptr ptr, ptr %extra, i64 3
  %extra.4 = getelementptr ptr, ptr %extra, i64 4
  store ptr inttoptr (i64 1 to ptr), ptr %extra          ; CU_LAUNCH_PARAM_BUFFER_POINTER
  store ptr %params, ptr %extra.1
  store ptr inttoptr (i64 2 to ptr), ptr %extra.2        ; CU_LAUNCH_PARAM_BUFFER_SIZE
  store ptr %size, ptr %extra.3
  store ptr null, ptr %extra.4                           ; CU_LAUNCH_PARAM_END
  %function = load ptr, ptr %words
  %grid.x = call i32 @word(ptr %words, i64 1)
  %grid.y = call i32 @word(ptr %words, i64 2)
  %grid.z = call i32 @word(ptr %words, i64 3)
  %block.x = call i32 @word(ptr %words, i64 4)
  %block.y = call i32 @word(ptr %words, i64 5)
  %block.z = call i32 @word(ptr %words, i64 6)
  %shared = call i32 @word(ptr %words, i64 7)
  %error = call i32 %call(ptr %function, i32 %grid.x, i32 %grid.y, i32 %grid.z, i32 %block.x, i32 %block.y,
                          i32 %block.z, i32 %shared, ptr %stream, ptr null, ptr %extra)
  store i32 %error, ptr %status
  ret ptr %next
}

; Launch after launch: 0, or the number of the first that was refused in the upper half and its error in the lower.
define i64 @launches(ptr %call, ptr %program, i64 %launches, ptr %table, ptr %cells, ptr %stream) #0 {
entry:
  %status = alloca i32
  %any = icmp sgt i64 %launches, 0
  br i1 %any, label %loop, label %end
loop:
  %at = phi i64 [0, %entry], [%at.next, %fine]
  %words = phi ptr [%program, %entry], [%words.next, %fine]
  %words.next = call ptr @launch(ptr %call, ptr %words, ptr %table, ptr %cells, ptr %stream, ptr %status)
  %error = load i32, ptr %status
  %refused = icmp ne i32 %error, 0
  br i1 %refused, label %stop, label %fine
fine:
  %at.next = add i64 %at, 1
  %more = icmp slt i64 %at.next, %launches
  br i1 %more, label %loop, label %end
stop:
  %upper = shl i64 %at, 32
  %lower = zext i32 %error to i64
  %both = or i64 %upper, %lower
  ret i64 %both
end:
  ret i64 0
}

; The Params of launches, one after the other.
define void @params(ptr %program, i64 %launches, ptr %table, ptr %cells, ptr %out) #0 {
entry:
  %any = icmp sgt i64 %launches, 0
  br i1 %any, label %loop, label %end
loop:
  %left = phi i64 [%launches, %entry], [%left.next, %loop]
  %words = phi ptr [%program, %entry], [%words.next, %loop]
  %params = phi ptr [%out, %entry], [%params.next, %loop]
  %pointers.p = getelementptr i64, ptr %words, i64 8
  %ints.p = getelementptr i64, ptr %words, i64 9
  %numbers.p = getelementptr i64, ptr %words, i64 10
  %pointers = load i64, ptr %pointers.p
  %ints = load i64, ptr %ints.p
  %numbers = load i64, ptr %numbers.p
  %some = add i64 %pointers, %ints
  %all = add i64 %some, %numbers
  %words.next = call ptr @fill(ptr %words, i64 %pointers, i64 %ints, i64 %numbers, ptr %table, ptr %cells, ptr %params)
  %params.next = getelementptr i64, ptr %params, i64 %all
  %left.next = sub i64 %left, 1
  %more = icmp sgt i64 %left.next, 0
  br i1 %more, label %loop, label %end
end:
  ret void
}
attributes #0 = { nounwind }
"""

_lock = new_lock()
_launchers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()       # driver → Launcher


class Launcher:
    """The native functions, over a driver's cuLaunchKernel, whose `address` comes first, and its cuGraphLaunch."""

    def __init__(self, driver):
        self._driver = weakref.ref(driver)
        pointer, words = ctypes.c_void_p, ctypes.c_int64
        found = cpu.functions({"launches": TEXT, "params": TEXT})
        self.address = driver.launcher()
        self.run = ctypes.CFUNCTYPE(words, pointer, pointer, words, pointer, pointer, pointer)(found["launches"])
        self.run.errcheck = self._check_launches
        self.params = ctypes.CFUNCTYPE(None, pointer, words, pointer, pointer, pointer)(found["params"])
        self.run_graph = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(driver.graph_launcher())
        self.run_graph.errcheck = self._check_graph

    def _check_launches(self, status, function, given):
        if status:
            self._refuse(status & 0xFFFF_FFFF, "launching a kernel", status >> 32)

    def _check_graph(self, status, function, given):
        if status:
            self._refuse(status, "launching a graph", None)

    def _refuse(self, status, what, task):
        try:
            self._driver().check(status, what)
        except DeviceError as error:
            raise DeviceFailed(str(error), task) from error


def of(driver):
    """The Launcher of a driver."""
    with _lock:
        if driver not in _launchers:
            _launchers[driver] = Launcher(driver)
        return _launchers[driver]


class LaunchWords:
    """The words of launches in a row: `start` is where they stand, `launches` how many they are."""

    def __init__(self):
        self.words, self.launches, self.start = array("q"), 0, 0
        self.starts: list = []             # where each launch begins, in words

    def add(self, function, grid, block, shared_bytes, places, ints, numbers):
        """One launch more: `places` are (index of the table, bytes behind), `numbers` indices of cells."""
        add = self.words.extend
        self.starts.append(len(self.words))
        add((function, *grid, *block, shared_bytes, len(places), len(ints), len(numbers)))
        for index, offset in places:
            add((index, offset))
        add(ints)
        add(numbers)
        self.launches += 1
        self.start = self.words.buffer_info()[0]

    def address(self, launch):
        """Where the words of a launch stand."""
        return self.start + 8 * self.starts[launch]

    def params_words(self, launch):
        """How many words the Params of a launch are."""
        start = self.starts[launch]
        return sum(self.words[start + 8:start + WORDS_BEFORE_PLACES])

    def numbers(self, launch):
        """The indices of the cells that a launch reads."""
        start = self.starts[launch]
        pointers, ints, numbers = self.words[start + 8:start + WORDS_BEFORE_PLACES]
        first = start + WORDS_BEFORE_PLACES + 2 * pointers + ints
        return self.words[first:first + numbers]
