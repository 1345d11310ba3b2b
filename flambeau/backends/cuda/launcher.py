"""Launches in a row by one native call, which LLVM compiles for the CPU as it does backends/cpu/runtime.py.

A program is an array of words of 64 bits, launch by launch:

    function, grid x, y, z, block x, y, z, shared bytes, pointers, ints, numbers,
    (table index, byte offset) * pointers, ints..., number index * numbers

`run(program, launches, table, cells, stream)` goes through it. For each launch it puts the kernel's Params together on
its stack, a word for each pointer (an address of the table and the offset), each integer and each number (a cell), and
calls cuLaunchKernel with them (CU_LAUNCH_PARAM_BUFFER_POINTER). It stops at the first launch that is refused, and says
which. `update(graph, nodes, count, table, before, cells)` puts new Params into the nodes of a captured graph, those of
launches that read a cell which is another one than `before`.

Measured with a launcher that does nothing (aarch64): 20 ns a launch, and 3 µs for a program of one from Python.
"""
import ctypes
import weakref
from array import array

from ...base.locks import new_lock
from ..backend import DeviceFailed
from ..cpu import machine_code

WORDS_BEFORE_SLOTS = 11           # of a launch, up to the number of its numbers

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

; Whether a launch reads a number that has changed.
define internal i1 @changed(ptr %words, ptr %before, ptr %cells) #0 {
entry:
  %pointers.p = getelementptr i64, ptr %words, i64 8
  %ints.p = getelementptr i64, ptr %words, i64 9
  %numbers.p = getelementptr i64, ptr %words, i64 10
  %pointers = load i64, ptr %pointers.p
  %ints = load i64, ptr %ints.p
  %numbers = load i64, ptr %numbers.p
  %places = getelementptr i64, ptr %words, i64 11
  %place.words = shl i64 %pointers, 1
  %values = getelementptr i64, ptr %places, i64 %place.words
  %indices = getelementptr i64, ptr %values, i64 %ints
  br label %check
check:
  %n = phi i64 [0, %entry], [%n.next, %same]
  %any = icmp slt i64 %n, %numbers
  br i1 %any, label %look, label %no
look:
  %which.p = getelementptr i64, ptr %indices, i64 %n
  %which = load i64, ptr %which.p
  %old.p = getelementptr i64, ptr %before, i64 %which
  %new.p = getelementptr i64, ptr %cells, i64 %which
  %old = load i64, ptr %old.p
  %new = load i64, ptr %new.p
  %differs = icmp ne i64 %old, %new
  br i1 %differs, label %yes, label %same
same:
  %n.next = add i64 %n, 1
  br label %check
yes:
  ret i1 true
no:
  ret i1 false
}

; Put the Params of a launch into its node of a graph; CUDA_KERNEL_NODE_PARAMS_v2 is
; { function, grid x, y, z, block x, y, z, shared bytes, kernelParams, extra, kern, ctx }, the last two unused.
define internal i32 @put(ptr %call, ptr %graph, ptr %node, ptr %words, ptr %table, ptr %cells) #0 {
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
  %kernel.params = alloca ptr
  %given = alloca [9 x i64], align 16
  %next = call ptr @fill(ptr %words, i64 %pointers, i64 %ints, i64 %numbers, ptr %table, ptr %cells, ptr %params)
  store ptr %params, ptr %kernel.params
  %function = load ptr, ptr %words
  store ptr %function, ptr %given
  %grid.x = call i32 @word(ptr %words, i64 1)
  %grid.y = call i32 @word(ptr %words, i64 2)
  %grid.z = call i32 @word(ptr %words, i64 3)
  %block.x = call i32 @word(ptr %words, i64 4)
  %block.y = call i32 @word(ptr %words, i64 5)
  %block.z = call i32 @word(ptr %words, i64 6)
  %shared = call i32 @word(ptr %words, i64 7)
  %given.2 = getelementptr i32, ptr %given, i64 2
  %given.3 = getelementptr i32, ptr %given, i64 3
  %given.4 = getelementptr i32, ptr %given, i64 4
  %given.5 = getelementptr i32, ptr %given, i64 5
  %given.6 = getelementptr i32, ptr %given, i64 6
  %given.7 = getelementptr i32, ptr %given, i64 7
  %given.8 = getelementptr i32, ptr %given, i64 8
  %given.9 = getelementptr i32, ptr %given, i64 9
  store i32 %grid.x, ptr %given.2
  store i32 %grid.y, ptr %given.3
  store i32 %grid.z, ptr %given.4
  store i32 %block.x, ptr %given.5
  store i32 %block.y, ptr %given.6
  store i32 %block.z, ptr %given.7
  store i32 %shared, ptr %given.8
  store i32 0, ptr %given.9
  %given.kernel.params = getelementptr i64, ptr %given, i64 5
  %given.extra = getelementptr i64, ptr %given, i64 6
  %given.kern = getelementptr i64, ptr %given, i64 7
  %given.ctx = getelementptr i64, ptr %given, i64 8
  store ptr %kernel.params, ptr %given.kernel.params
  store ptr null, ptr %given.extra
  store ptr null, ptr %given.kern
  store ptr null, ptr %given.ctx
  %error = call i32 %call(ptr %graph, ptr %node, ptr %given)
  ret i32 %error
}

; Go through pairs (node, words of its launch), and put new Params into those that read a number that has changed.
define i32 @updates(ptr %call, ptr %graph, ptr %nodes, i64 %count, ptr %table, ptr %before, ptr %cells) #0 {
entry:
  br label %loop
loop:
  %at = phi i64 [0, %entry], [%at.next, %fine]
  %more = icmp slt i64 %at, %count
  br i1 %more, label %look, label %end
look:
  %pair = getelementptr [2 x ptr], ptr %nodes, i64 %at
  %node = load ptr, ptr %pair
  %words.p = getelementptr ptr, ptr %pair, i64 1
  %words = load ptr, ptr %words.p
  %differs = call i1 @changed(ptr %words, ptr %before, ptr %cells)
  br i1 %differs, label %put, label %fine
put:
  %error = call i32 @put(ptr %call, ptr %graph, ptr %node, ptr %words, ptr %table, ptr %cells)
  %refused = icmp ne i32 %error, 0
  br i1 %refused, label %stop, label %fine
fine:
  %at.next = add i64 %at, 1
  br label %loop
stop:
  ret i32 %error
end:
  ret i32 0
}
attributes #0 = { nounwind }
"""

_lock = new_lock()
_launchers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()       # driver → Launcher


class Launcher:
    """The native functions, over a driver's cuLaunchKernel, whose `address` comes first, its cuGraphLaunch, and what
    changes the nodes of its graphs, `updater`."""

    def __init__(self, driver):
        self._driver = weakref.ref(driver)
        pointer, words = ctypes.c_void_p, ctypes.c_int64
        found = machine_code.functions({"launches": TEXT, "updates": TEXT})
        self.address = driver.launcher()
        self.run = ctypes.CFUNCTYPE(words, pointer, pointer, words, pointer, pointer, pointer)(found["launches"])
        self.run.errcheck = self._check_launches
        self.update = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer, words, pointer, pointer, pointer)(
            found["updates"])
        self.update.errcheck = self._check_update
        self.updater = driver.graph_updater()
        self.run_graph = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(driver.graph_launcher())
        self.run_graph.errcheck = self._check_graph

    def _check_launches(self, status, function, given):
        if status:
            self._refuse(status & 0xFFFF_FFFF, "launching a kernel", status >> 32)

    def _check_update(self, status, function, given):
        if status:
            self._refuse(status, "changing a graph", None)

    def _check_graph(self, status, function, given):
        if status:
            self._refuse(status, "launching a graph", None)

    def _refuse(self, status, what, task):
        try:
            self._driver().check(status, what)
        except DeviceFailed as error:
            error.task = task
            raise


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

    def add(self, function, grid, block, shared_bytes, slots, ints, numbers):
        """One launch more: `slots` are (index of the table, bytes behind), `numbers` indices of cells."""
        add = self.words.extend
        self.starts.append(len(self.words))
        add((function, *grid, *block, shared_bytes, len(slots), len(ints), len(numbers)))
        for index, offset in slots:
            add((index, offset))
        add(ints)
        add(numbers)
        self.launches += 1
        self.start = self.words.buffer_info()[0]

    def address(self, launch):
        """Where the words of a launch stand."""
        return self.start + 8 * self.starts[launch]

    def numbers(self, launch):
        """The indices of the cells that a launch reads."""
        start = self.starts[launch]
        pointers, ints, numbers = self.words[start + 8:start + WORDS_BEFORE_SLOTS]
        first = start + WORDS_BEFORE_SLOTS + 2 * pointers + ints
        return self.words[first:first + numbers]
