// Devices that are simulated on one thread of the processor: memory, kernels, streams, events and graphs.
//
// A kernel's threads are fibers. One runs until it ends or waits at a barrier or a warp's exchange, then another does; so
// barriers and exchanges are exact, and a kernel whose threads wait for each other in vain is found out. Kernels are
// compiled with the hooks of address sanitizers, which are ours: every load and store is looked up among the memory of
// the device. What goes wrong is kept, as on a GPU, until somebody waits for the device: `take_error`.
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

typedef unsigned long long u64;
struct uint3 { unsigned x, y, z; };

extern "C" {
struct { uint3 thread, block, threads, blocks; } simulated_at;       // CUDA's threadIdx, blockIdx, blockDim and gridDim
alignas(128) char simulated_shared[232448];          // what `extern __shared__` names; as much as an H200's block may ask for
}
#define threadIdx simulated_at.thread
#define blockIdx simulated_at.block
#define blockDim simulated_at.threads
#define gridDim simulated_at.blocks

namespace {

std::recursive_mutex lock;                           // one kernel at a time, whichever Python thread hands it in
#define LOCKED std::lock_guard<std::recursive_mutex> held(lock)

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_READY = 600,
       ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719,
       CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };

// --- errors

struct Error { int code = 0; std::string said; };
std::map<int, Error> errors;                         // by device: the first that nobody was told yet
std::string refused;                                 // why the last call gave a code other than SUCCESS

std::string words(const char *format, ...) {
    char text[2000];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    return text;
}

void fail(int device, int code, const std::string &said) {
    if (!errors[device].code) errors[device] = {code, said};
}

int refuse(int code, const std::string &said) {
    refused = said;
    return code;
}

// --- memory

const size_t GUARD_BYTES = 256;                      // on both sides of an allocation, and what they hold
const unsigned char GUARD = 0xC3, POISON = 0xA5;

struct Allocation { size_t nbytes; int device; char *raw; };
std::map<u64, Allocation> allocations;               // by address
struct Range { u64 start, end; bool holds(u64 at, size_t n) const { return at >= start && at + n <= end; } };
Range recent[4];                                     // allocations that the kernel that runs has met last
unsigned recent_at;
void forget_recent() { for (Range &r : recent) r = {}; }
std::set<std::pair<u64, u64>> pinned;                // [start, end) of page-locked memory of the CPU

const Allocation *allocation_at(u64 address, u64 *start = nullptr) {
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin()) return nullptr;
    auto found = std::prev(next);
    if (address >= found->first + std::max<size_t>(found->second.nbytes, 1)) return nullptr;
    if (start) *start = found->first;
    return &found->second;
}

bool is_pinned(u64 address) {
    for (auto &range : pinned) if (address >= range.first && address < range.second) return true;
    return false;
}

// What is wrong with `nbytes` at an address of a device, empty if nothing is.
std::string trouble_at(int device, u64 address, size_t nbytes) {
    if (!nbytes) return "";
    u64 start;
    const Allocation *found = allocation_at(address, &start);
    if (!found) {
        auto next = allocations.upper_bound(address);
        std::string said = "which is no memory of a device: the CPU's, or freed";
        if (next == allocations.begin()) return said;
        auto before = std::prev(next);
        u64 past = address - before->first - before->second.nbytes;
        if (past < GUARD_BYTES)                      // what is further may have been another allocation's
            return words("%llu bytes past the end of an allocation of %zu bytes", past, before->second.nbytes);
        return past < 4096 ? said + words(", %llu bytes past the end of an allocation of %zu bytes", past,
                                          before->second.nbytes) : said;
    }
    if (found->device != device) return words("which is memory of device %d, not %d", found->device, device);
    if (address + nbytes > start + found->nbytes)
        return words("of which %llu bytes are past the end of an allocation of %zu bytes",
                     address + nbytes - start - found->nbytes, found->nbytes);
    return "";
}

void check_guards(u64 address, const Allocation &gone) {
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (((unsigned char *)address)[i - GUARD_BYTES] != GUARD) {
            fail(gone.device, ILLEGAL_ADDRESS, words("something wrote %zu bytes before the start of an allocation of %zu "
                 "bytes of device %d", GUARD_BYTES - i, gone.nbytes, gone.device));
            return;
        }
        if (((unsigned char *)address)[gone.nbytes + i] != GUARD) {
            fail(gone.device, ILLEGAL_ADDRESS, words("something wrote %zu bytes past the end of an allocation of %zu bytes "
                 "of device %d", i, gone.nbytes, gone.device));
            return;
        }
    }
}

void release(u64 address) {
    auto found = allocations.find(address);
    if (found == allocations.end()) return;
    check_guards(address, found->second);
    memset((void *)address, 0xDD, found->second.nbytes);
    free(found->second.raw);
    allocations.erase(found);
    forget_recent();
}

// --- threads of a block

enum State { READY, AT_BARRIER, IN_WARP, DONE };
enum Exchange { SHUFFLE, BALLOT, ANY, ALL, MEET, MATCH };

struct Fiber {
    jmp_buf at;
    ucontext_t begin;
    char *stack;
    bool started;
    State state;
    uint3 thread;
    unsigned linear;
    // what it waits for, and gave and is given there
    int line, kind, from;
    unsigned mask;
    u64 given, result;
};

struct Function {
    void (*enter)(const void *);
    size_t nbytes, shared_bytes;
    char *shared, *shared_end;                       // the module's static shared memory
    u64 image, image_end;                            // where the module lies, with its constants
    int device, most_threads;
    std::string name;
};

const size_t STACK_BYTES = 128 << 10;
const unsigned MOST_THREADS = 1024;
const u64 MOST_ACCESSES = 1ull << 24;                // of one thread; more is taken for a loop without end

std::vector<Fiber *> fibers;
char *stacks, *stacks_end;
jmp_buf home;                                        // the scheduler
Fiber *running;
const Function *function;
const char *parameters;
u64 parameters_end;
unsigned threads, finished;
u64 accesses;
bool aborted;
u64 order_seed;                                      // 0: threads in order, 1: backwards, else drawn

bool both_orders;                                    // whether each kernel is run forwards and backwards
unsigned waiting, agreed;                            // threads at the block's barrier, and those that say yes there
int barrier_line;

[[noreturn]] void abort_kernel(int code, const std::string &said);
std::string where(const Fiber *f);

void run_fiber() {
    for (;;) {
        function->enter(parameters);
        running->state = DONE;
        finished++;
        if (waiting)
            abort_kernel(LAUNCH_FAILED, where(running) + words(" returns, and %u threads of its block wait at "
                         "__syncthreads() of line %d", waiting, barrier_line));
        if (!_setjmp(running->at)) _longjmp(home, 1);
    }
}

void make_fibers(unsigned n) {
    if (!stacks) {
        stacks = (char *)mmap(nullptr, STACK_BYTES * MOST_THREADS, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        stacks_end = stacks + STACK_BYTES * MOST_THREADS;
    }
    while (fibers.size() < n) {
        Fiber *made = new Fiber();
        made->stack = stacks + STACK_BYTES * fibers.size();
        mprotect(made->stack, 4096, PROT_NONE);      // a stack that overflows is told from one that does not
        fibers.push_back(made);
    }
}

void resume(Fiber *fiber) {
    running = fiber;
    threadIdx = fiber->thread;
    if (_setjmp(home)) return;
    if (fiber->started) _longjmp(fiber->at, 1);
    fiber->started = true;
    getcontext(&fiber->begin);
    fiber->begin.uc_stack.ss_sp = fiber->stack + 4096;
    fiber->begin.uc_stack.ss_size = STACK_BYTES - 4096;
    fiber->begin.uc_link = nullptr;
    makecontext(&fiber->begin, run_fiber, 0);
    setcontext(&fiber->begin);
}

void yield_to_scheduler() {
    if (!_setjmp(running->at)) _longjmp(home, 1);
}

std::string where(const Fiber *f) {
    return words("thread (%u, %u, %u) of block (%u, %u, %u) of %s", f->thread.x, f->thread.y, f->thread.z, blockIdx.x,
                 blockIdx.y, blockIdx.z, function->name.c_str());
}

// Ends the kernel that runs, from inside one of its threads.
[[noreturn]] void abort_kernel(int code, const std::string &said) {
    fail(function->device, code, said);
    aborted = true;
    _longjmp(home, 1);
}

std::string who_waits() {
    std::map<std::string, unsigned> found;
    for (unsigned i = 0; i < threads; i++) {
        const Fiber *f = fibers[i];
        if (f->state == DONE) found["returned"]++;
        if (f->state == AT_BARRIER) found[words("wait at __syncthreads() of line %d", f->line)]++;
        if (f->state == IN_WARP) found[words("wait in a warp's exchange of line %d for lanes %08x", f->line, f->mask)]++;
    }
    std::string said;
    for (auto &one : found) said += words("%s%u threads %s", said.empty() ? "" : ", ", one.second, one.first.c_str());
    return said;
}

void run_block() {
    if (function->shared_end - function->shared <= 64 << 10)
        memset(function->shared, POISON, function->shared_end - function->shared);
    finished = waiting = agreed = 0;
    for (unsigned i = 0; i < threads; i++) {
        Fiber *f = fibers[i];
        f->state = READY;
        f->linear = i;
        f->thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    }
    static std::vector<unsigned> order;
    order.resize(threads);
    for (unsigned i = 0; i < threads; i++) order[i] = order_seed == 1 ? threads - 1 - i : i;
    static u64 drawn;
    drawn = order_seed * 0x9E3779B97F4A7C15ull + blockIdx.x;
    while (finished < threads && !aborted) {
        if (order_seed > 1)
            for (unsigned i = threads; i > 1; i--) {
                drawn = drawn * 6364136223846793005ull + 1442695040888963407ull;
                std::swap(order[i - 1], order[(drawn >> 33) % i]);
            }
        bool ran = false;
        for (unsigned i = 0; i < threads && !aborted; i++)
            if (fibers[order[i]]->state == READY) {
                ran = true;
                accesses = 0;
                resume(fibers[order[i]]);
            }
        if (!ran && finished < threads) {
            fail(function->device, LAUNCH_FAILED, words("the threads of block (%u, %u, %u) of %s wait for each other: ",
                 blockIdx.x, blockIdx.y, blockIdx.z, function->name.c_str()) + who_waits());
            aborted = true;
        }
    }
    if (aborted)                                     // what they had begun is dropped
        for (Fiber *f : fibers) f->started = false;
}

// --- launches, copies and the rest, in the order of their streams

struct Stream;
struct Graph;

enum Kind { LAUNCH, COPY, WAIT, RECORD, FREE, CALL };

struct Event { Stream *stream = nullptr; u64 ticket = 0; bool reached = true; double time = 0; Graph *graph = nullptr; };

struct Work {
    Kind kind;
    const Function *function = nullptr;
    uint3 grid = {}, block = {};
    unsigned shared = 0;
    std::string parameters;                          // of a launch; staged bytes of a copy that has no source
    u64 target = 0, source = 0;
    size_t nbytes = 0;
    int target_device = -1, source_device = -1;      // -1: the CPU
    Stream *stream = nullptr;                        // to wait for, up to a ticket
    u64 ticket = 0;
    Event *event = nullptr;
    void (*call)(u64) = nullptr;                     // of a library of NVIDIA's, which Python stands for; with `ticket`
};

struct Graph { int device; std::vector<Work> works; };

struct Stream {
    int device;
    bool non_blocking;
    std::deque<Work> queue;
    u64 issued = 0, done = 0;
    Graph *capture = nullptr;
};

std::map<int, Stream *> defaults;                    // the legacy stream of each device
std::set<Stream *> streams;
bool delayed;
u64 launches;

Stream *stream_of(int device, u64 handle) {
    if (handle) return (Stream *)handle;
    Stream *&found = defaults[device];
    if (!found) found = new Stream{device, false};
    return found;
}

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

void run_blocks(const Work &work) {
    function = work.function;
    parameters = work.parameters.data();
    parameters_end = (u64)parameters + work.parameters.size();
    gridDim = work.grid;
    blockDim = work.block;
    threads = blockDim.x * blockDim.y * blockDim.z;
    make_fibers(threads);
    memset(simulated_shared, POISON, work.shared);
    memset(function->shared, POISON, function->shared_end - function->shared);
    forget_recent();
    aborted = false;
    u64 blocks = (u64)gridDim.x * gridDim.y * gridDim.z;
    for (u64 b = 0; b < blocks && !aborted; b++) {
        u64 at = order_seed == 1 ? blocks - 1 - b : b;
        blockIdx = {unsigned(at % gridDim.x), unsigned(at / gridDim.x % gridDim.y), unsigned(at / gridDim.x / gridDim.y)};
        run_block();
    }
    function = nullptr;
    launches++;
}

// Runs a launch forwards and backwards: a result that depends on who is first is a race.
void run_both_ways(const Work &work) {
    std::map<u64, std::string> before, after;
    auto keep = [&](std::map<u64, std::string> &into) {
        for (auto &one : allocations)
            if (one.second.device == work.function->device)
                into[one.first] = std::string((char *)one.first, one.second.nbytes);
    };
    keep(before);
    order_seed = 1;
    run_blocks(work);
    order_seed = 0;
    if (aborted) return;
    keep(after);
    for (auto &one : before) memcpy((void *)one.first, one.second.data(), one.second.size());
    run_blocks(work);
    if (aborted) return;
    for (auto &one : after)
        for (size_t i = 0; i < one.second.size(); i++)
            if (one.second[i] != ((char *)one.first)[i]) {
                fail(work.function->device, LAUNCH_FAILED, words("%s gives another result where its threads run in another "
                     "order, at byte %zu of an allocation of %zu: a race", work.function->name.c_str(), i,
                     one.second.size()));
                return;
            }
}

void drain(Stream *stream, u64 ticket);

void perform(Work &work, Stream *on) {
    switch (work.kind) {
    case LAUNCH:
        if (errors[work.function->device].code) return;      // after an error a device does nothing more
        if (both_orders) run_both_ways(work); else run_blocks(work);
        break;
    case COPY: {
        const void *source = work.parameters.empty() ? (const void *)work.source : work.parameters.data();
        for (int side = 0; side < 2; side++) {
            int device = side ? work.source_device : work.target_device;
            if (device < 0) continue;
            std::string trouble = trouble_at(device, side ? work.source : work.target, work.nbytes);
            if (!trouble.empty()) {
                fail(on->device, ILLEGAL_ADDRESS, words("a copy of %zu bytes %s %#llx, ", work.nbytes,
                     side ? "from" : "to", side ? work.source : work.target) + trouble);
                return;
            }
        }
        memmove((void *)work.target, source, work.nbytes);
        break;
    }
    case WAIT: drain(work.stream, work.ticket); break;
    case RECORD:
        if (work.event && work.event->ticket == work.ticket && work.event->stream == on) {
            work.event->reached = true;
            work.event->time = now();
        }
        break;
    case FREE: release(work.target); break;
    case CALL: if (!errors[on->device].code) work.call(work.ticket); break;
    }
}

void drain(Stream *stream, u64 ticket) {
    while (stream->done < ticket && !stream->queue.empty()) {
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        perform(work, stream);
        stream->done++;
    }
}

void push(Stream *stream, Work &&work) {
    stream->queue.push_back(std::move(work));
    stream->issued++;
}

void issue(Stream *stream, Work &&work) {
    if (stream->capture) {
        if (work.kind != WAIT && work.kind != RECORD && work.kind != FREE) stream->capture->works.push_back(std::move(work));
        else if (work.kind == FREE) release(work.target);
        return;
    }
    if (stream == defaults[stream->device]) {        // the legacy stream and all that do not refuse wait for each other
        for (Stream *other : streams)
            if (other->device == stream->device && !other->non_blocking && !other->capture && other->done < other->issued) {
                Work wait{WAIT};
                wait.stream = other;
                wait.ticket = other->issued;
                push(stream, std::move(wait));
            }
    } else if (!stream->non_blocking) {
        Stream *legacy = stream_of(stream->device, 0);
        if (legacy->done < legacy->issued) {
            Work wait{WAIT};
            wait.stream = legacy;
            wait.ticket = legacy->issued;
            push(stream, std::move(wait));
        }
    }
    push(stream, std::move(work));
    if (!delayed) drain(stream, stream->issued);
}

u64 image_end_of(const void *inside, u64 *start) {
    struct Search { u64 at, start, end; } search = {(u64)inside, 0, 0};
    dl_iterate_phdr([](dl_phdr_info *info, size_t, void *data) {
        Search *s = (Search *)data;
        u64 low = ~0ull, high = 0;
        for (int i = 0; i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_type == PT_LOAD) {
                low = std::min<u64>(low, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
                high = std::max<u64>(high, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
            }
        if (s->at >= low && s->at < high) { s->start = low; s->end = high; return 1; }
        return 0;
    }, &search);
    *start = search.start;
    return search.end;
}

void check_access(u64 address, size_t nbytes, bool writes) {
    for (Range &range : recent)
        if (range.holds(address, nbytes)) {
            if (++accesses < MOST_ACCESSES) return;
            abort_kernel(LAUNCH_FAILED, where(running) + " runs for ever");
        }
    if (!function) return;                           // the driver calls a function of a module
    auto within = [&](const void *start, const void *end) { return Range{(u64)start, (u64)end}.holds(address, nbytes); };
    if (within(&simulated_at, &simulated_at + 1) || within(stacks, stacks_end)) return;
    if (within(simulated_shared, simulated_shared + sizeof simulated_shared)) return;
    u64 start;
    const Allocation *found = allocation_at(address, &start);
    if (found && found->device == function->device && address + nbytes <= start + found->nbytes) {
        recent[recent_at++ & 3] = {start, start + found->nbytes};
        return;
    }
    if (within((void *)function->image, (void *)function->image_end) || is_pinned(address)) return;
    if (!writes && within(parameters, (void *)parameters_end)) return;
    abort_kernel(ILLEGAL_ADDRESS, where(running) + words(" %s %zu bytes at %#llx, ", writes ? "writes" : "reads", nbytes,
                 address) + trouble_at(function->device, address, nbytes));
}

int lane() { return running->linear & 31; }

}  // namespace

extern "C" {

// --- what kernels call

#define HOOKS(n) \
    void __asan_load##n##_noabort(u64 address) { check_access(address, n, false); } \
    void __asan_store##n##_noabort(u64 address) { check_access(address, n, true); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __asan_loadN_noabort(u64 address, size_t n) { check_access(address, n, false); }
void __asan_storeN_noabort(u64 address, size_t n) { check_access(address, n, true); }
void __asan_handle_no_return() {}

struct Mismatch { const char *file; unsigned line, column; const void *type; unsigned char alignment, kind; };
void __ubsan_handle_type_mismatch_v1(Mismatch *at, u64 address) {
    abort_kernel(MISALIGNED_ADDRESS, where(running) + words(", line %u: address %#llx is no multiple of %d", at->line,
                 address, 1 << at->alignment));
}

// All threads of the block come here before one goes on; gives for how many of them `says` was true.
int simulated_barrier(int line, int says) {
    if (finished)
        abort_kernel(LAUNCH_FAILED, where(running) + words(" comes to __syncthreads() of line %d, but %u threads of its "
                     "block have returned", line, finished));
    if (waiting && barrier_line != line)
        abort_kernel(LAUNCH_FAILED, where(running) + words(" comes to __syncthreads() of line %d, other threads of its block "
                     "wait at that of line %d", line, barrier_line));
    running->state = AT_BARRIER;
    running->line = barrier_line = line;
    agreed += says != 0;
    if (++waiting < threads) {
        yield_to_scheduler();
        return running->result;
    }
    for (unsigned i = 0; i < threads; i++) { fibers[i]->state = READY; fibers[i]->result = agreed; }
    waiting = agreed = 0;
    if (order_seed) yield_to_scheduler();            // else who came last would always be first
    return running->result;
}

// Lanes named in `mask` meet; each is given what its kind of exchange says of what they all gave.
u64 simulated_exchange(int line, int kind, unsigned mask, u64 given, int from) {
    unsigned warp = running->linear & ~31u;
    if (!(mask >> lane() & 1))
        abort_kernel(LAUNCH_FAILED, where(running) + words(", line %d: lane %d is not in its own mask %08x", line, lane(),
                     mask));
    running->state = IN_WARP;
    running->line = line;
    running->kind = kind;
    running->mask = mask;
    running->given = given;
    running->from = from;
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        if (warp + i >= threads) {
            if (mask == 0xffffffffu) continue;       // a block's last warp may be short: nobody is there to wait for
            abort_kernel(LAUNCH_FAILED, where(running) + words(", line %d: mask %08x names lane %u, which is not there",
                         line, mask, i));
        }
        const Fiber *f = fibers[warp + i];
        if (f->state == DONE)
            abort_kernel(LAUNCH_FAILED, where(running) + words(", line %d: lane %u of mask %08x has returned", line, i, mask));
        if (f->state != IN_WARP) {
            yield_to_scheduler();
            return running->result;
        }
        if (f->mask != mask || f->kind != kind || f->line != line)
            abort_kernel(LAUNCH_FAILED, where(running) + words(" meets its warp in line %d with mask %08x, lane %u in line "
                         "%d with mask %08x", line, mask, i, f->line, f->mask));
    }
    unsigned votes = 0;
    for (unsigned i = 0; i < 32 && warp + i < threads; i++)
        if ((mask >> i & 1) && fibers[warp + i]->given) votes |= 1u << i;
    unsigned there = threads - warp >= 32 ? mask : mask & ((1u << (threads - warp)) - 1);
    for (unsigned i = 0; i < 32 && warp + i < threads; i++) {
        if (!(mask >> i & 1)) continue;
        Fiber *f = fibers[warp + i];
        f->state = READY;
        switch (kind) {
        case SHUFFLE:
            f->result = f->from >= 0 && f->from < 32 && (there >> f->from & 1) ? fibers[warp + f->from]->given
                                                                             : 0xA5A5A5A5A5A5A5A5ull;
            break;
        case BALLOT: f->result = votes; break;
        case ANY: f->result = votes != 0; break;
        case ALL: f->result = votes == there; break;
        case MATCH:
            f->result = 0;
            for (unsigned j = 0; j < 32 && warp + j < threads; j++)
                if ((mask >> j & 1) && fibers[warp + j]->given == f->given) f->result |= 1u << j;
            break;
        default: f->result = 0;
        }
    }
    if (order_seed) yield_to_scheduler();
    return running->result;
}

int simulated_lane() { return lane(); }

void simulated_trap(int line, const char *said) {
    abort_kernel(LAUNCH_FAILED, where(running) + words(", line %d: %s", line, said));
}

unsigned short simulated_half(float x) {             // rounded to the nearest, ties to even
    unsigned b;
    memcpy(&b, &x, 4);
    unsigned sign = b >> 16 & 0x8000, size = b & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7fff;
    if (size >= 0x477ff000) return sign | 0x7c00;
    if (size < 0x38800000) {
        float scaled;
        memcpy(&scaled, &size, 4);
        return sign | (unsigned short)rint((double)scaled * 16777216.0);
    }
    unsigned rounded = size - 0x38000000;
    return sign | ((rounded + 0xfff + (rounded >> 13 & 1)) >> 13);
}

float simulated_half_to_float(unsigned short h) {
    unsigned exponent = h >> 10 & 31, fraction = h & 1023;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, (int)exponent - 25)
                                                                          : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

double simulated_erfinv(double y) {
    if (!(fabs(y) < 1)) return fabs(y) == 1 ? y * INFINITY : NAN;
    double w = log1p(-y * y), a = 2 / (M_PI * 0.147) + w / 2;
    double x = copysign(sqrt(sqrt(a * a - w / 0.147) - a), y);       // Winitzki's, to three digits
    for (int i = 0; i < 4; i++) {                                    // and Halley's steps from there
        double off = fabs(y) > 0.5 ? (erfc(fabs(x)) - (1 - fabs(y))) * (y > 0 ? -1 : 1) : erf(x) - y;
        double slope = 2 / sqrt(M_PI) * exp(-x * x);
        if (slope == 0) break;
        x -= off / (slope + x * off);
    }
    return x;
}

// --- what the driver calls

const char *simulated_refusal() { return refused.c_str(); }

// The error that a device has to tell, which is then forgotten; 0 for none.
int simulated_take_error(int device) {
    LOCKED;
    Error found = errors[device];
    errors[device] = {};
    refused = found.said;
    return found.code;
}

int simulated_has_error(int device) { LOCKED; return errors[device].code; }

u64 simulated_allocate(int device, size_t nbytes) {
    LOCKED;
    void *raw;
    if (posix_memalign(&raw, 512, (nbytes + 2 * GUARD_BYTES + 1023) & ~511ull)) return 0;
    char *start = (char *)raw + 512;
    memset((char *)start - GUARD_BYTES, GUARD, GUARD_BYTES);
    memset(start, POISON, nbytes);
    memset(start + nbytes, GUARD, GUARD_BYTES);
    allocations[(u64)start] = {nbytes, device, (char *)raw};
    return (u64)start;
}

void simulated_free(int device, u64 address, u64 stream) {
    LOCKED;
    Stream *on = stream_of(device, stream);
    if (!delayed || on->done == on->issued) return release(address);
    Work work{FREE};
    work.target = address;
    push(on, std::move(work));
}

void simulated_pin(u64 address, size_t nbytes, int pin) {
    LOCKED;
    if (pin) pinned.insert({address, address + nbytes}); else pinned.erase({address, address + nbytes});
}

int simulated_owner(u64 address) {                   // the device whose memory an address is in, or -1
    LOCKED;
    const Allocation *found = allocation_at(address);
    return found ? found->device : -1;
}

Function *simulated_function(void *enter, size_t nbytes, const char *name, int device, size_t shared_bytes, char *shared,
                             char *shared_end, int most_threads) {
    LOCKED;
    Function *made = new Function{(void (*)(const void *))enter, nbytes, shared_bytes, shared, shared_end, 0, 0, device,
                                  most_threads, name};
    made->image_end = image_end_of(enter, &made->image);
    return made;
}

int simulated_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                     void *stream, void **kernel_parameters, void **extra) {
    LOCKED;
    if (!f) return refuse(INVALID_HANDLE, "there is no function");
    const Function *function = (const Function *)f;
    const char *name = function->name.c_str();
    if (!gx || !gy || !gz || !bx || !by || !bz || gx > 2147483647u || gy > 65535 || gz > 65535)
        return refuse(INVALID_VALUE, words("%s: a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads", name, gx, gy, gz, bx,
                                           by, bz));
    if (bx > 1024 || by > 1024 || bz > 64 || (u64)bx * by * bz > MOST_THREADS)
        return refuse(INVALID_VALUE, words("%s: blocks of (%u, %u, %u) threads", name, bx, by, bz));
    if ((int)(bx * by * bz) > function->most_threads)
        return refuse(OUT_OF_RESOURCES, words("%s: blocks of %u threads, and __launch_bounds__ of %d", name, bx * by * bz,
                                              function->most_threads));
    if (shared > std::max<size_t>(function->shared_bytes, 48 << 10) || shared > sizeof simulated_shared)
        return refuse(INVALID_VALUE, words("%s: %u bytes of shared memory; the function was said to need %zu", name, shared,
                                           function->shared_bytes));
    if (kernel_parameters || !extra) return refuse(INVALID_VALUE, words("%s: no buffer of parameters", name));
    const char *buffer = nullptr;
    size_t nbytes = 0;
    for (; *extra; extra += 2) {
        if (*extra == (void *)1) buffer = (const char *)extra[1];
        else if (*extra == (void *)2) nbytes = *(size_t *)extra[1];
        else return refuse(INVALID_VALUE, words("%s: extra holds %p", name, *extra));
    }
    if (nbytes != function->nbytes || (!buffer && nbytes))
        return refuse(INVALID_VALUE, words("%s: %zu bytes of parameters, and it takes %zu", name, nbytes, function->nbytes));
    Stream *on = stream_of(function->device, (u64)stream);
    if (on->device != function->device)
        return refuse(INVALID_HANDLE, words("%s: a function of device %d on a stream of device %d", name, function->device,
                                            on->device));
    Work work{LAUNCH};
    work.function = function;
    work.grid = {gx, gy, gz};
    work.block = {bx, by, bz};
    work.shared = shared;
    work.parameters.assign(buffer, nbytes);
    issue(on, std::move(work));
    return SUCCESS;
}

// A device of -1 is the CPU. Memory of the CPU that is not page-locked is read at once, and written when all is done.
int simulated_copy(int target_device, u64 target, int source_device, u64 source, size_t nbytes, int device, u64 stream,
                   int blocking) {
    LOCKED;
    Stream *on = stream_of(device, stream);
    bool waits = blocking || (target_device < 0 && !is_pinned(target));
    if (on->capture && waits)
        return refuse(CAPTURE_UNSUPPORTED, "a copy that waits, on a stream that is being captured");
    Work work{COPY};
    work.target = target; work.source = source; work.nbytes = nbytes;
    work.target_device = target_device; work.source_device = source_device;
    if (source_device < 0 && !is_pinned(source) && !waits) work.parameters.assign((const char *)source, nbytes);
    issue(on, std::move(work));
    if (waits) drain(on, on->issued);
    return SUCCESS;
}

void simulated_call(void (*call)(u64), u64 ticket, int device, u64 stream) {
    LOCKED;
    Work work{CALL};
    work.call = call;
    work.ticket = ticket;
    issue(stream_of(device, stream), std::move(work));
}

u64 simulated_stream(int device, int non_blocking) {
    LOCKED;
    Stream *made = new Stream{device, (bool)non_blocking};
    streams.insert(made);
    return (u64)made;
}

void simulated_close_stream(u64 handle) {
    LOCKED;
    Stream *stream = (Stream *)handle;
    drain(stream, stream->issued);                   // waits of others refer to it, so its few bytes stay
    streams.erase(stream);
}

int simulated_finish_stream(int device, u64 handle) {
    LOCKED;
    Stream *stream = stream_of(device, handle);
    if (stream->capture) return refuse(CAPTURE_UNSUPPORTED, "waiting for a stream that is being captured");
    drain(stream, stream->issued);
    return SUCCESS;
}

int simulated_stream_is_done(int device, u64 handle) {
    LOCKED;
    Stream *stream = stream_of(device, handle);
    return stream->done == stream->issued;
}

int simulated_finish_device(int device) {
    LOCKED;
    for (Stream *stream : streams)
        if (stream->device == device && stream->capture)
            return refuse(CAPTURE_UNSUPPORTED, "waiting for a device with a stream that is being captured");
    for (Stream *stream : streams) if (stream->device == device) drain(stream, stream->issued);
    Stream *legacy = stream_of(device, 0);
    drain(legacy, legacy->issued);
    return SUCCESS;
}

u64 simulated_event() { LOCKED; return (u64) new Event(); }

void simulated_record(u64 event, int device, u64 handle) {
    LOCKED;
    Event *e = (Event *)event;
    Stream *stream = stream_of(device, handle);
    e->graph = stream->capture;
    e->stream = stream;
    if (stream->capture) return;
    e->reached = false;
    Work work{RECORD};
    work.event = e;
    work.ticket = e->ticket = stream->issued + 1;
    push(stream, std::move(work));
    if (!delayed) drain(stream, stream->issued);
}

int simulated_event_is_done(u64 event) { LOCKED; return ((Event *)event)->reached; }

void simulated_finish_event(u64 event) {
    LOCKED;
    Event *e = (Event *)event;
    if (e->stream && !e->reached) drain(e->stream, e->ticket);
}

double simulated_event_time(u64 event) { LOCKED; return ((Event *)event)->time; }
int simulated_event_device(u64 event) { LOCKED; Event *e = (Event *)event; return e->stream ? e->stream->device : -1; }

void simulated_wait(int device, u64 handle, u64 event) {
    LOCKED;
    Event *e = (Event *)event;
    Stream *stream = stream_of(device, handle);
    if (e->graph) { if (stream != e->stream) stream->capture = e->graph; return; }      // it joins the capture
    if (!e->stream || e->reached || stream->capture) return;
    Work work{WAIT};
    work.stream = e->stream;
    work.ticket = e->ticket;
    issue(stream, std::move(work));
}

int simulated_begin_capture(int device, u64 handle) {
    LOCKED;
    if (!handle) return refuse(CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
    Stream *stream = stream_of(device, handle);
    if (stream->capture) return refuse(ILLEGAL_STATE, "the stream is being captured already");
    stream->capture = new Graph{device, {}};
    return SUCCESS;
}

u64 simulated_end_capture(int device, u64 handle) {
    LOCKED;
    Graph *made = stream_of(device, handle)->capture;
    for (Stream *stream : streams) if (stream->capture == made) stream->capture = nullptr;
    return (u64)made;
}

int simulated_is_capturing(int device, u64 handle) { LOCKED; return stream_of(device, handle)->capture != nullptr; }

// As cuGraphLaunch.
int simulated_launch_graph(void *graph, void *stream) {
    LOCKED;
    Graph *launched = (Graph *)graph;
    for (const Work &work : launched->works) issue(stream_of(launched->device, (u64)stream), Work(work));
    return SUCCESS;
}

int simulated_captured(int device, u64 handle) {     // the number of the node that was noted last, or -1
    LOCKED;
    Graph *graph = stream_of(device, handle)->capture;
    return graph ? (int)graph->works.size() - 1 : -1;
}

int simulated_graph_size(u64 graph) { LOCKED; return ((Graph *)graph)->works.size(); }
int simulated_graph_kind(u64 graph, int node) { LOCKED; return ((Graph *)graph)->works[node].kind; }

int simulated_copies_from_host(u64 graph) {
    LOCKED;
    for (const Work &work : ((Graph *)graph)->works)
        if (work.kind == COPY && work.source_device < 0) return 1;
    return 0;
}

int simulated_update(u64 graph, int node, const char *buffer, size_t nbytes) {
    LOCKED;
    Work &work = ((Graph *)graph)->works[node];
    if (work.kind != LAUNCH || nbytes != work.function->nbytes)
        return refuse(INVALID_VALUE, words("node %d takes %zu bytes of parameters, not %zu", node,
                                           work.kind == LAUNCH ? work.function->nbytes : 0, nbytes));
    work.parameters.assign(buffer, nbytes);
    return SUCCESS;
}

// As cuGraphExecKernelNodeSetParams_v2 is called.
struct NodeParams {
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **kernel_params, **extra;
    void *kernel, *context;
};

int simulated_node_update(u64 graph, u64 node, const NodeParams *given) {
    LOCKED;
    Work &work = ((Graph *)graph)->works[node];
    if (work.kind != LAUNCH || (u64)work.function != (u64)given->function || !given->kernel_params || given->extra)
        return refuse(INVALID_VALUE, words("node %d is another launch", (int)node));
    work.parameters.assign((const char *)given->kernel_params[0], work.function->nbytes);
    return SUCCESS;
}

void simulated_close_graph(u64 graph) { LOCKED; delete (Graph *)graph; }

// How it all runs: streams that do nothing until somebody waits, threads in another order, each kernel in two orders.
void simulated_mode(int delay, u64 seed, int races) { LOCKED; delayed = delay; order_seed = seed; both_orders = races; }

u64 simulated_launches() { LOCKED; return launches; }

// Drops all that waits, and frees all memory of a device; gives how many allocations there were.
int simulated_reset(int device) {
    LOCKED;
    int found = 0;
    for (Stream *stream : streams) if (stream->device == device) { stream->queue.clear(); stream->done = stream->issued; }
    Stream *legacy = stream_of(device, 0);
    legacy->queue.clear();
    legacy->done = legacy->issued;
    for (auto one = allocations.begin(); one != allocations.end();) {
        u64 address = one->first;
        bool mine = one->second.device == device;
        ++one;
        if (mine) { release(address); found++; }
    }
    errors[device] = {};
    return found;
}

}
