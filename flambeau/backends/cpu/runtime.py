"""The text of the native runtime: walking a program, and sharing a step between threads. See threads.py.

Written by hand in LLVM's language with phis where they are needed, because it is compiled without passes over it.
`%pool.name` is the address of a field of the pool: the sum is written into each function that says it.
"""
import os
import re
import signal
import sys
from string import Template

from ...loops.step import MAX_ROOM_BYTES, PROBED, ROOM_ALIGNMENT
from ...loops.target import pause_of, pausing

WORKER_SPIN_NANOSECONDS = 100_000  # that a worker watches for more work; Python takes some 20,000 between calls
WOKEN_AT_A_TIME = 2                # sleeping workers, by the caller, and by each that was woken
CALLER_SPIN_NANOSECONDS = 50_000   # that the caller watches for the last piece before it sleeps
WORKER_STACK_BYTES = 1 << 20       # of frames of a known size, and of what libraries have in each thread; some systems
                                   # give new threads very little

# Where the fields of a pool are. What several threads write at a time has a cache line of its own.
POOL_FIELDS = {"open": 0, "unfinished": 64,
               "fn": 128, "buffers": 136, "ints": 144, "scalars": 152, "tiles": 160, "grain": 168,
               "busy": 192, "wanted": 200, "workers": 208, "retired": 216, "numbered": 224,
               "sleeping": 256, "waiting": 264, "mutex": 320, "work": 448, "done": 576, "shares": 704}
MAX_STEP_SHARES = 64          # a bit each in `open`
SHARE_WORDS = 8               # a cache line: how many of its pieces are left, and the number of the one after its last
POOL_BYTES = 704 + 8 * SHARE_WORDS * MAX_STEP_SHARES   # a mutex takes at most 64 on systems we know, 128 are there

# The walk through a program. `run_clocked` writes the time of `clock` before the first step and after each to `times`.
WALK_TEXT = Template("""
define void @$NAME(${FIRST}ptr %program, i64 %steps, ptr %table, ptr %cells) #0 {
entry:
  %pool = load atomic ptr, ptr @pool acquire, align 8
  %room = call ptr @room()
  %any = icmp sgt i64 %steps, 0
$BEGIN  br i1 %any, label %loop, label %end
loop:
  %left = phi i64 [%steps, %entry], [%left.next, %loop]
  %words = phi ptr [%program, %entry], [%words.next, %loop]
  %held = phi i1 [false, %entry], [%held.next, %loop]
  %buffers.p = getelementptr i64, ptr %words, i64 3
  %scalars.p = getelementptr i64, ptr %words, i64 4
  %ints.p = getelementptr i64, ptr %words, i64 5
  %buffers = load i64, ptr %buffers.p
  %scalars = load i64, ptr %scalars.p
  %ints = load i64, ptr %ints.p
  %pairs = getelementptr i64, ptr %words, i64 6
  %pair.words = shl i64 %buffers, 1
  %indices = getelementptr i64, ptr %pairs, i64 %pair.words
  %numbers = getelementptr i64, ptr %indices, i64 %scalars
  %words.next = getelementptr i64, ptr %numbers, i64 %ints
  %held.next = call i1 @step(ptr %pool, i1 %held, ptr %words, ptr %pairs, i64 %buffers, ptr %indices, i64 %scalars,
                             ptr %numbers, ptr %table, ptr %cells, ptr %room)
  %left.next = sub i64 %left, 1
$END  %more = icmp sgt i64 %left.next, 0
  br i1 %more, label %loop, label %last
last:
  br i1 %held.next, label %release, label %end
release:
  call void @release(ptr %pool)
  br label %end
end:
  ret void
}
""")
BEGIN_CLOCK_TEXT = """\
  %began = call i64 %clock()
  store i64 %began, ptr %times
"""
END_CLOCK_TEXT = """\
  %ended = call i64 %clock()
  %done = sub i64 %steps, %left.next
  %time = getelementptr i64, ptr %times, i64 %done
  store i64 %ended, ptr %time
"""
RUN_TEXT = WALK_TEXT.substitute(NAME="run", FIRST="", BEGIN="", END="") \
    + WALK_TEXT.substitute(NAME="run_clocked", FIRST="ptr %times, ptr %clock, ", BEGIN=BEGIN_CLOCK_TEXT,
                           END=END_CLOCK_TEXT) + """
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.abs.i64(i64, i1)

; One step: gather its buffers and scalars on the stack and call it. Gives whether this program now has the workers.
define internal i1 @step(ptr %pool, i1 %held, ptr %words, ptr %pairs, i64 %n.buffers, ptr %indices, i64 %n.scalars,
                         ptr %ints, ptr %table, ptr %cells, ptr %room) #0 {
entry:
  %fn = load ptr, ptr %words
  %tiles.p = getelementptr i64, ptr %words, i64 1
  %tiles = load i64, ptr %tiles.p
  %grain.p = getelementptr i64, ptr %words, i64 2
  %grain.said = load i64, ptr %grain.p
  %grain.size = call i64 @llvm.abs.i64(i64 %grain.said, i1 false)
  %grain = call i64 @llvm.smax.i64(i64 %grain.size, i64 1)
  %n.both = add i64 %n.buffers, %n.scalars
  %buffers = alloca i64, i64 %n.both, align 16
  %scalars = getelementptr i64, ptr %buffers, i64 %n.buffers
  %some.buffers = icmp sgt i64 %n.buffers, 0
  br i1 %some.buffers, label %buffer, label %buffers.end
buffer:
  %b = phi i64 [0, %entry], [%b.next, %buffer]
  %pair = getelementptr [2 x i64], ptr %pairs, i64 %b
  %index = load i64, ptr %pair
  %offset.p = getelementptr i64, ptr %pair, i64 1
  %offset = load i64, ptr %offset.p
  %base.p = getelementptr ptr, ptr %table, i64 %index
  %base = load ptr, ptr %base.p
  %address = getelementptr i8, ptr %base, i64 %offset
  %slot = getelementptr ptr, ptr %buffers, i64 %b
  store ptr %address, ptr %slot
  %b.next = add i64 %b, 1
  %b.more = icmp slt i64 %b.next, %n.buffers
  br i1 %b.more, label %buffer, label %buffers.end
buffers.end:
  %some.scalars = icmp sgt i64 %n.scalars, 0
  br i1 %some.scalars, label %scalar, label %scalars.end
scalar:
  %s = phi i64 [0, %buffers.end], [%s.next, %scalar]
  %which.p = getelementptr i64, ptr %indices, i64 %s
  %which = load i64, ptr %which.p
  %cell.p = getelementptr i64, ptr %cells, i64 %which
  %cell = load i64, ptr %cell.p
  %place = getelementptr i64, ptr %scalars, i64 %s
  store i64 %cell, ptr %place
  %s.next = add i64 %s, 1
  %s.more = icmp slt i64 %s.next, %n.scalars
  br i1 %s.more, label %scalar, label %scalars.end
scalars.end:
  %conditional = icmp slt i64 %grain.said, 0
  br i1 %conditional, label %ask, label %wanted
ask:                                          ; the first word of the last buffer says whether it is to be done
  %behind = getelementptr ptr, ptr %buffers, i64 %n.buffers
  %last.p = getelementptr ptr, ptr %behind, i64 -1
  %last = load ptr, ptr %last.p
  %word = load i64, ptr %last
  %none = icmp eq i64 %word, 0
  br i1 %none, label %skip, label %wanted
skip:
  ret i1 %held
wanted:
  %small = icmp sle i64 %tiles, %grain
  br i1 %small, label %alone, label %large
large:
  %held.now = call i1 @hold(ptr %pool, i1 %held)
  br i1 %held.now, label %together, label %alone
together:
  call void @parallel(ptr %pool, ptr %fn, ptr %buffers, ptr %ints, ptr %scalars, i64 %tiles, i64 %grain, ptr %room)
  ret i1 true
alone:
  call void %fn(ptr %buffers, ptr %ints, ptr %scalars, i64 0, i64 %tiles, ptr %room)
  ret i1 %held
}
attributes #0 = { nounwind $PROBED }
"""

# The room of the calling thread (see loops/step.py), null if there is no memory for it. The memory that it lies in is
# kept with the thread, and given back when that ends: by `free`, since this module may be gone by then.
ROOM_TEXT = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @$GET($KEY)
declare i32 @$SET($KEY, ptr)
$DECLARE_MAKE

@room_key = internal global $KEY 0

define i32 @make_room_key() #0 {
entry:
$MAKE
}

define ptr @room() #0 {
entry:
  %key = load $KEY, ptr @room_key
  %before = call ptr @$GET($KEY %key)
  %none = icmp eq ptr %before, null
  br i1 %none, label %make, label %there
make:
  %made = call ptr @malloc(i64 $ROOM)
  %kept = call i32 @$SET($KEY %key, ptr %made)
  br label %there
there:
  %memory = phi ptr [%before, %entry], [%made, %make]
  %room = call ptr @aligned(ptr %memory)
  ret ptr %room
}

define internal ptr @aligned(ptr %memory) #0 {
entry:
  %address = ptrtoint ptr %memory to i64
  %beyond = add i64 %address, $MORE
  %line = and i64 %beyond, -$ALIGNMENT
  %room = inttoptr i64 %line to ptr
  ret ptr %room
}
"""
POSIX_KEY = """\
  %error = call i32 @pthread_key_create(ptr @room_key, ptr @free)
  ret i32 %error"""
WINDOWS_KEY = """\
  %key = call i32 @FlsAlloc(ptr @free)
  store i32 %key, ptr @room_key
  %refused = icmp eq i32 %key, -1
  %error = zext i1 %refused to i32
  ret i32 %error"""

# Note [Taking pieces]: each thread has a share of a step, pieces side by side, and helps with others' when its own is
# done. So what a step writes lies in the caches of those that have the same share of the next one; and pieces are
# taken from a count that no other thread looks at, until the end. A step is offered by writing what it is, `open`, a
# bit for every share, and then for each of them the number of its pieces. The thread that lowers that from r > 0 owns
# the piece r before the share's last of the step that stands there now, even a worker that came late from the step
# before: the description cannot change before that piece counts as finished, because the caller waits until
# `unfinished` is zero before it writes the next one. So no thread signs in or out. The one that takes the last piece of
# a share clears its bit, before it does the piece; and counts what it has done when it finds no more, since all would
# count in the same place. A bit whose share has no piece left is passed over: who is about to clear it may have been
# taken off its processor.
#
# Note [Sleeping]: a sleeper counts itself and then looks for work; the caller offers work and then looks for sleepers.
# Both orders are sequentially consistent, so one of the two sees the other. The same with the caller's wait for the
# last piece.
#
# To wake one takes the caller some microseconds, so it wakes a few, and each of those a few more, as long as there are
# pieces for them. Sixteen threads' worth of waking took 90 microseconds before the caller did a piece itself. Who wakes
# when all is done already watches for a moment all the same: where waking takes longer than a step, workers that went
# to sleep again at once would be late for all the steps that follow.
POOL_TEXT = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
$DECLARE_PAUSE

@pool = global ptr null

; Whether this program has the workers: it has them already, or they are free.
define internal i1 @hold(ptr %pool, i1 %held) #0 {
entry:
  br i1 %held, label %yes, label %ask
ask:
  %wanted = load i64, ptr %pool.wanted
  %any = icmp sgt i64 %wanted, 0
  br i1 %any, label %try, label %no
try:
  %pair = cmpxchg ptr %pool.busy, i64 0, i64 1 acq_rel monotonic, align 8
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %yes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @release(ptr %pool) #0 {
entry:
  store atomic i64 0, ptr %pool.busy release, align 8
  ret void
}

; Offer the step, take part in it, and wait until the last piece is finished.
define internal void @parallel(ptr %pool, ptr %fn, ptr %buffers, ptr %ints, ptr %scalars, i64 %tiles, i64 %grain,
                               ptr %room) #0 {
entry:
  %workers = load i64, ptr %pool.workers
  %wanted = load i64, ptr %pool.wanted
  %missing = icmp slt i64 %workers, %wanted
  br i1 %missing, label %grow, label %describe
grow:
  call void @grow(ptr %pool)
  br label %describe
describe:
  %last = sub i64 %tiles, 1
  %last.piece = udiv i64 %last, %grain
  %pieces = add i64 %last.piece, 1
  %helpers = load i64, ptr %pool.wanted
  %threads = add i64 %helpers, 1
  %useful = call i64 @llvm.smin.i64(i64 %threads, i64 %pieces)
  %count = call i64 @llvm.smin.i64(i64 %useful, i64 $SHARES)
  %none = sub i64 64, %count
  %all.bits = lshr i64 -1, %none
  store ptr %fn, ptr %pool.fn
  store ptr %buffers, ptr %pool.buffers
  store ptr %ints, ptr %pool.ints
  store ptr %scalars, ptr %pool.scalars
  store i64 %tiles, ptr %pool.tiles
  store i64 %grain, ptr %pool.grain
  store atomic i64 %pieces, ptr %pool.unfinished monotonic, align 8
  store atomic i64 %all.bits, ptr %pool.open seq_cst, align 8
  br label %share
share:
  %number = phi i64 [0, %describe], [%number.next, %share]
  %begin = phi i64 [0, %describe], [%stop, %share]
  %number.next = add i64 %number, 1
  %up.to = mul i64 %number.next, %pieces
  %stop = udiv i64 %up.to, %count
  %own = sub i64 %stop, %begin
  %line = mul i64 %number, $WORDS
  %left.p = getelementptr i64, ptr %pool.shares, i64 %line
  %stop.p = getelementptr i64, ptr %left.p, i64 1
  store i64 %stop, ptr %stop.p
  store atomic i64 %own, ptr %left.p release, align 8
  %more = icmp slt i64 %number.next, %count
  br i1 %more, label %share, label %offered
offered:
  %sleeping = load atomic i64, ptr %pool.sleeping seq_cst, align 8
  %asleep = icmp sgt i64 %sleeping, 0
  br i1 %asleep, label %wake, label %help
wake:
  %others = sub i64 %pieces, 1
  call void @wake(ptr %pool, i64 %others)
  br label %help
help:
  call void @take(ptr %pool, i64 0, ptr %room)
  %began = call i64 @now()
  br label %watch
watch:
  %not.yet = load atomic i64, ptr %pool.unfinished acquire, align 8
  %over = icmp eq i64 %not.yet, 0
  br i1 %over, label %end, label %patient
patient:
  $PAUSE
  %time = call i64 @now()
  %spent = sub i64 %time, %began
  %long = icmp sgt i64 %spent, $PATIENCE
  br i1 %long, label %sleep, label %watch
sleep:
  %sl = call i32 @pthread_mutex_lock(ptr %pool.mutex)
  store atomic i64 1, ptr %pool.waiting seq_cst, align 8
  br label %check
check:
  %still = load atomic i64, ptr %pool.unfinished seq_cst, align 8
  %finished = icmp eq i64 %still, 0
  br i1 %finished, label %awake, label %wait
wait:
  %sw = call i32 @pthread_cond_wait(ptr %pool.done, ptr %pool.mutex)
  br label %check
awake:
  store atomic i64 0, ptr %pool.waiting monotonic, align 8
  %su = call i32 @pthread_mutex_unlock(ptr %pool.mutex)
  br label %end
end:
  ret void
}

; Do pieces of the step that is on offer until there are no more, those of share %me first. See Note [Taking pieces].
define internal void @take(ptr %pool, i64 %me, ptr %room) #0 {
entry:
  %from.me = shl i64 -1, %me
  br label %look
look:
  %done = phi i64 [0, %entry], [%so.far, %gone], [%done.next, %piece]
  %there = phi i64 [-1, %entry], [%there.less, %gone], [%there, %piece]
  %open = load atomic i64, ptr %pool.open acquire, align 8
  %bits = and i64 %open, %there
  %any = icmp ne i64 %bits, 0
  br i1 %any, label %choose, label %count
choose:
  %later = and i64 %bits, %from.me
  %any.later = icmp ne i64 %later, 0
  %among = select i1 %any.later, i64 %later, i64 %bits
  %share = call i64 @llvm.cttz.i64(i64 %among, i1 true)
  %bit = shl i64 1, %share
  %others = xor i64 %bit, -1
  %line = mul i64 %share, $WORDS
  %left.p = getelementptr i64, ptr %pool.shares, i64 %line
  br label %lower
lower:
  %so.far = phi i64 [%done, %choose], [%done.next, %piece]
  %seen = load atomic i64, ptr %left.p monotonic, align 8
  %some = icmp sgt i64 %seen, 0
  br i1 %some, label %try, label %gone
try:
  %r = atomicrmw sub ptr %left.p, i64 1 acq_rel, align 8
  %mine = icmp sgt i64 %r, 0
  br i1 %mine, label %owned, label %gone
owned:
  %last = icmp eq i64 %r, 1
  br i1 %last, label %close, label %piece
close:
  %before = atomicrmw and ptr %pool.open, i64 %others acq_rel, align 8
  br label %piece
piece:
  %fn = load ptr, ptr %pool.fn
  %buffers = load ptr, ptr %pool.buffers
  %ints = load ptr, ptr %pool.ints
  %scalars = load ptr, ptr %pool.scalars
  %tiles = load i64, ptr %pool.tiles
  %grain = load i64, ptr %pool.grain
  %behind.p = getelementptr i64, ptr %left.p, i64 1
  %behind = load i64, ptr %behind.p
  %number = sub i64 %behind, %r
  %begin = mul i64 %number, %grain
  %stop = add i64 %begin, %grain
  %stop.min = call i64 @llvm.smin.i64(i64 %stop, i64 %tiles)
  call void %fn(ptr %buffers, ptr %ints, ptr %scalars, i64 %begin, i64 %stop.min, ptr %room)
  %done.next = add i64 %so.far, 1
  br i1 %last, label %look, label %lower
gone:                                         ; taken, and its bit is about to be cleared; or not written yet
  %there.less = and i64 %there, %others
  br label %look
count:
  %nothing = icmp eq i64 %done, 0
  br i1 %nothing, label %end, label %finish
finish:
  %unfinished = atomicrmw sub ptr %pool.unfinished, i64 %done seq_cst, align 8
  %all = icmp eq i64 %unfinished, %done
  br i1 %all, label %tell, label %end
tell:
  %waiting = load atomic i64, ptr %pool.waiting seq_cst, align 8
  %asleep = icmp ne i64 %waiting, 0
  br i1 %asleep, label %wake, label %end
wake:
  %l = call i32 @pthread_mutex_lock(ptr %pool.mutex)
  %s = call i32 @pthread_cond_signal(ptr %pool.done)
  %u = call i32 @pthread_mutex_unlock(ptr %pool.mutex)
  br label %end
end:
  ret void
}

; Wake sleepers: no more of them than the pieces that there are for others, and no more than $WAKE; see Note [Sleeping].
define internal void @wake(ptr %pool, i64 %others) #0 {
entry:
  %sleeping = load atomic i64, ptr %pool.sleeping seq_cst, align 8
  %useful = call i64 @llvm.smin.i64(i64 %others, i64 %sleeping)
  %calls = call i64 @llvm.smin.i64(i64 %useful, i64 $WAKE)
  %any = icmp sgt i64 %calls, 0
  br i1 %any, label %lock, label %end
lock:                                         ; a thread that has counted itself is asleep after this
  %l = call i32 @pthread_mutex_lock(ptr %pool.mutex)
  %u = call i32 @pthread_mutex_unlock(ptr %pool.mutex)
  br label %signal
signal:
  %call = phi i64 [%calls, %lock], [%call.next, %signal]
  %s = call i32 @pthread_cond_signal(ptr %pool.work)
  %call.next = sub i64 %call, 1
  %again = icmp sgt i64 %call.next, 0
  br i1 %again, label %signal, label %end
end:
  ret void
}

; A worker's life: work, watch for more, sleep, until its pool is retired.
define internal void @work(ptr %pool, ptr %room) #0 {
entry:
  %number = atomicrmw add ptr %pool.numbered, i64 1 monotonic, align 8
  %after.caller = add i64 %number, 1
  %me = urem i64 %after.caller, $SHARES
  br label %busy
busy:
  call void @take(ptr %pool, i64 %me, ptr %room)
  %began = call i64 @now()
  br label %watch
watch:
  %seen = load atomic i64, ptr %pool.open monotonic, align 8
  %any = icmp ne i64 %seen, 0
  br i1 %any, label %busy, label %idle
idle:
  $PAUSE
  %time = call i64 @now()
  %spent = sub i64 %time, %began
  %long = icmp sgt i64 %spent, $SPIN
  br i1 %long, label %sleep, label %watch
sleep:                                        ; see Note [Sleeping]
  %l = call i32 @pthread_mutex_lock(ptr %pool.mutex)
  %more = atomicrmw add ptr %pool.sleeping, i64 1 seq_cst, align 8
  br label %check
check:
  %offered = load atomic i64, ptr %pool.open seq_cst, align 8
  %some = icmp ne i64 %offered, 0
  br i1 %some, label %awake, label %asleep
asleep:
  %retired = load i64, ptr %pool.retired
  %leave = icmp ne i64 %retired, 0
  br i1 %leave, label %end, label %wait
wait:
  %w = call i32 @pthread_cond_wait(ptr %pool.work, ptr %pool.mutex)
  br label %awake
awake:
  %less = atomicrmw sub ptr %pool.sleeping, i64 1 seq_cst, align 8
  %u = call i32 @pthread_mutex_unlock(ptr %pool.mutex)
  %left = load atomic i64, ptr %pool.open monotonic, align 8
  %others = call i64 @llvm.ctpop.i64(i64 %left)
  call void @wake(ptr %pool, i64 %others)
  br label %busy
end:
  %one.less = atomicrmw sub ptr %pool.sleeping, i64 1 seq_cst, align 8
  %eu = call i32 @pthread_mutex_unlock(ptr %pool.mutex)
  ret void
}

; The function of a worker's thread, which is given the memory for its room, with the address of its pool in it.
define internal ptr @worker(ptr %memory) #0 {
entry:
  %pool = load ptr, ptr %memory
  %key = load $KEY, ptr @room_key
  %s = call i32 @pthread_setspecific($KEY %key, ptr %memory)
  %room = call ptr @aligned(ptr %memory)
  call void @work(ptr %pool, ptr %room)
  ret ptr null
}

; Make the workers that are missing. They inherit a mask that leaves signals to Python's own threads.
define internal void @grow(ptr %pool) #0 {
entry:
  %blocked = alloca [128 x i8], align 16
  %before = alloca [128 x i8], align 16
  %attributes = alloca [128 x i8], align 16
  %id = alloca ptr
  store i64 $BLOCKED, ptr %blocked
  %m = call i32 @pthread_sigmask(i32 $SETMASK, ptr %blocked, ptr %before)
  %a = call i32 @pthread_attr_init(ptr %attributes)
  %s = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK)
  br label %next
next:
  %workers = load i64, ptr %pool.workers
  %wanted = load i64, ptr %pool.wanted
  %missing = icmp slt i64 %workers, %wanted
  br i1 %missing, label %make, label %end
make:
  %memory = call ptr @malloc(i64 $ROOM)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %refused, label %create
create:
  store ptr %pool, ptr %memory
  %error = call i32 @pthread_create(ptr %id, ptr %attributes, ptr @worker, ptr %memory)
  %made = icmp eq i32 %error, 0
  br i1 %made, label %count, label %alone
count:
  %thread = load ptr, ptr %id
  %d = call i32 @pthread_detach(ptr %thread)
  %workers.next = add i64 %workers, 1
  store i64 %workers.next, ptr %pool.workers
  br label %next
alone:
  call void @free(ptr %memory)
  br label %refused
refused:                                      ; the system gives no more: go on with those that are there
  store i64 %workers, ptr %pool.wanted
  br label %end
end:
  %f = call i32 @pthread_attr_destroy(ptr %attributes)
  %b = call i32 @pthread_sigmask(i32 $SETMASK, ptr %before, ptr null)
  ret void
}

; Nanoseconds of a clock that only goes forward.
define i64 @now() #0 {
  %time = alloca [2 x i64]
  %error = call i32 @clock_gettime(i32 $MONOTONIC, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.p
  %billions = mul i64 %seconds, 1000000000
  %sum = add i64 %billions, %rest
  ret i64 %sum
}
"""

# Where there are no POSIX threads every step runs on the caller's.
SINGLE_THREAD_TEXT = """
@pool = global ptr null
define internal i1 @hold(ptr %pool, i1 %held) #0 {
  ret i1 false
}
define internal void @release(ptr %pool) #0 {
  ret void
}
define internal void @parallel(ptr %pool, ptr %fn, ptr %buffers, ptr %ints, ptr %scalars, i64 %tiles, i64 %grain,
                               ptr %room) #0 {
  ret void
}
"""

# what the texts above say of rooms: the memory that one lies in is as much larger as it takes to align it
ROOM_FIELDS = {"PROBED": PROBED, "ALIGNMENT": ROOM_ALIGNMENT, "MORE": ROOM_ALIGNMENT - 1,
               "ROOM": MAX_ROOM_BYTES + ROOM_ALIGNMENT}


def text():
    """The LLVM text of the runtime for this system."""
    if os.name != "posix":
        return Template(RUN_TEXT + ROOM_TEXT + SINGLE_THREAD_TEXT).substitute(
            ROOM_FIELDS, KEY="i32", GET="FlsGetValue", SET="FlsSetValue", MAKE=WINDOWS_KEY,
            DECLARE_MAKE="declare i32 @FlsAlloc(ptr)")
    mac, (watch, declared) = sys.platform == "darwin", pausing(pause_of(os.uname().machine))
    # a fault is not blocked: faulthandler tells where it was
    faults = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP)
    written = Template(RUN_TEXT + ROOM_TEXT + POOL_TEXT).substitute(
        ROOM_FIELDS, KEY="i64" if mac else "i32", GET="pthread_getspecific", SET="pthread_setspecific", MAKE=POSIX_KEY,
        DECLARE_MAKE="declare i32 @pthread_key_create(ptr, ptr)",
        SPIN=WORKER_SPIN_NANOSECONDS, PATIENCE=CALLER_SPIN_NANOSECONDS, STACK=WORKER_STACK_BYTES,
        WAKE=WOKEN_AT_A_TIME, SHARES=MAX_STEP_SHARES, WORDS=SHARE_WORDS,
        SETMASK=3 if mac else 2, MONOTONIC=6 if mac else 1,
        PAUSE=watch, DECLARE_PAUSE=declared,
        BLOCKED=sum(1 << number - 1 for number in range(1, 64) if number not in faults))
    return re.sub(r"^entry:\n.*?^}\n", _with_fields, written, flags=re.S | re.M)


def _with_fields(found):
    """The body of a function with the addresses of the fields that it uses in front."""
    used = dict.fromkeys(re.findall(r"%pool\.(\w+)", found[0]))
    return found[0].replace("entry:\n", "entry:\n" + "".join(
        f"  %pool.{name} = getelementptr i8, ptr %pool, i64 {POOL_FIELDS[name]}\n" for name in used), 1)
