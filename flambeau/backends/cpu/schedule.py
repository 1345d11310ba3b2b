"""How the CPU goes through a kernel's positions: which dimension by vectors, in which tiles, with what at hand.

Nothing here shows in the results, since what is computed and in which order is the kernel's to say; see loops/ir.py.
"""
from math import prod

from ...loops.ir import BYTES_OF_TYPE, FUNCTION_WORDS, subexpressions
from ...loops.schedule import Schedule
from . import machine_code

MAP_TILE_ELEMENTS = 8192          # of a map
TILE_LANES = 256                  # of a tile whose reduction walks rows
MAX_ROOM_ROW_ELEMENTS = 16384     # of a row that is kept in the thread's room; of 8 bytes at most: it is as large
TRANSPOSED_TILE = (32, 64)        # a tile of a map that reads across memory
MIN_READS_TO_TRANSPOSE = 8        # of an operand, to be worth turning it so that it lies along the lanes
MAX_TRANSPOSED_BYTES = 1 << 20    # of such an operand: it stays in the second cache
STREAM_BYTES = 1 << 23            # of a result that is written past the cache
ASKED_BYTES = 1 << 20             # of an operand whose rows are asked for, each while the one before is computed,
ASKED_ROW_BYTES = (1 << 10, 1 << 16)     # if they are as long as that, from and to
ASKED_COLUMNS_BYTES = 128 << 10   # of an operand whose columns are gone down, the next ones asked for,
MIN_ASKED_LANES = 64              # if there are as many


def schedule(launch):
    """The Schedule of a Launch."""
    kernel, sizes = launch.kernel, launch.sizes
    kept = [d for d in range(kernel.kept) if d != kernel.cut]
    square = _put_lanes_last(launch, kept)
    lanes_kept = bool(kept) and not kernel.rows
    vector = kernel.kept + kernel.reduced - 1 if kernel.rows else kept[-1] if lanes_kept else None
    order = kept if kernel.cut is None else [kernel.cut, *kept]
    along = sizes[vector] if vector is not None else 1
    turned = _turned(launch, kept, vector) if kernel.reduced and vector is not None else {}
    lanes = machine_code.vector_bytes() // 4
    vectors = 1 if along <= lanes else 2 if along <= 2 * lanes else 16 if along >= TILE_LANES and kernel.reduced else 4
    if turned:                                    # what is in the cache need not be fetched so much at a time
        vectors = min(vectors, 8)
    if kernel.rows:
        vectors = kernel.rows
    made = Schedule(order, vector, vectors)
    if square:
        made.blocked, made.blocks = tuple(kept[-2:]), TRANSPOSED_TILE
    elif lanes_kept:
        made.blocked, made.blocks = (vector,), (TILE_LANES if kernel.reduced else MAP_TILE_ELEMENTS,)
    made.turned = turned
    made.scratch = _scratch(launch) if kernel.rows and kernel.reduced == 1 else None
    if any(reduction.startswith("arg") for one in kernel.passes for reduction, _ in one.accs) and sizes[-1] < 1 << 31:
        made.index_type = "i32"
    made.cost = _cost(launch, made)
    return made


def settle(launch):
    """What is left to decide of the Schedule of a Launch once it is known which memory there is."""
    plan = launch.schedule
    if plan.scratch is not None and launch.sizes[plan.vector] > MAX_ROOM_ROW_ELEMENTS:
        plan.scratch_in = _row_to_fill(launch)
        if plan.scratch_in is None:
            plan.scratch = None
    plan.streams = plan.scratch_in is None and _may_stream(launch)
    plan.asks = "row" if _may_ask(launch) else "lanes" if _may_ask_beside(launch) else None


def _put_lanes_last(launch, kept):
    """Put the dimension that the lanes go along at the end of `kept`; whether the one before it is blocked as well."""
    kernel, strides = launch.kernel, launch.strides
    if not kernel.reduced:
        if len(kept) > 1:
            v = kept[-1]
            across = [d for access, moves in zip(kernel.accesses, strides, strict=True)
                      if moves[v] > 1 and access.at is None for d in kept[:-1] if moves[d] == 1]
            if across:
                kept.remove(across[0])
                kept.insert(len(kept) - 1, across[0])
                return True
    elif not kernel.rows:
        launch.lay_last(kept)
    return False


def _turned(launch, kept, lane):
    """{access: dimensions} of small operands that lie across the lanes, and should lie along them.

    To fetch one lane after the other from places far apart takes as many instructions as there are lanes, at every
    position; the copy is made once, and then read by vectors.
    """
    kernel, out = launch.kernel, {}
    dims = [*kept, *range(kernel.kept, kernel.kept + kernel.reduced)]
    positions = prod(launch.sizes[d] for d in dims)
    stored = {n for one in kernel.passes for n, _ in one.stores} | {n for n, _ in kernel.finals}
    for i, (access, moves) in enumerate(zip(kernel.accesses, launch.strides, strict=True)):
        if i in stored or moves[lane] in (0, 1) or access.at is not None:
            continue
        extent = launch.extent(i)
        if extent * BYTES_OF_TYPE[access.type] <= MAX_TRANSPOSED_BYTES and extent * MIN_READS_TO_TRANSPOSE <= positions:
            out[i] = [d for d in dims if moves[d] and d != lane] + [lane]
    return out


def _scratch(launch):
    """(pass, expression) of a costly value that a later pass needs again; None where there is none."""
    passes = launch.kernel.passes
    for p, one in enumerate(passes[:-1]):
        now = subexpressions(e for _, e in one.accs)
        again = _tops((e for late in passes[p + 1:] for _, e in (*late.accs, *late.stores)), now)
        for e in again:
            if any(x.op in FUNCTION_WORDS and _varies(launch, x) for x in subexpressions([e])):
                return p, e
    return None


def _varies(launch, root):
    """Whether an expression differs along the last dimension."""
    accesses, last = launch.kernel.accesses, len(launch.sizes) - 1
    return any(e.op == "load" and (accesses[e.attr].steps[last] != 0 or accesses[e.attr].at is not None)
               or e.op == "index" and e.attr == last for e in subexpressions([root]))


def _row_to_fill(launch):
    """The number of a result whose row can hold scratch until the last pass fills it; None where there is none."""
    kernel, plan = launch.kernel, launch.schedule
    if not kernel.passes[-1].stores or plan.scratch[0] == len(kernel.passes) - 1:
        return None
    number = kernel.passes[-1].stores[-1][0]
    once = [n for one in kernel.passes for n, _ in one.stores].count(number) == 1
    fits = kernel.accesses[number].type == plan.scratch[1].type and launch.strides[number][plan.vector] == 1
    return number if once and fits and number in launch.fresh else None


def _cost(launch, made):
    """About how many nanoseconds a tile takes, to decide what is worth several threads."""
    kernel, sizes = launch.kernel, launch.sizes
    work = prod(sizes[d] for d in made.dims(kernel) if d != kernel.cut)
    seen, todo, cost = set(), [], 0
    for one in kernel.passes:
        todo.extend(e for _, e in (*one.accs, *one.stores))
    while todo:
        e = todo.pop()
        if e not in seen:
            seen.add(e)
            cost += 12 if e.op in FUNCTION_WORDS else 1
            todo.extend(e.args)
    tiles, scratch = prod(made.counts(sizes)), made.scratch is not None         # which is loaded, and an access
    return max(1.0, work * (0.03 * (cost + scratch) + 0.05 * (len(kernel.accesses) + scratch)) / max(tiles, 1))


def _may_stream(launch):
    """Whether the results are so large that they would only push other things out of the cache."""
    kernel, vector = launch.kernel, launch.schedule.vector
    stores = [n for one in kernel.passes for n, _ in one.stores]
    return bool(stores) and not (kernel.finals and vector is not None and vector < kernel.kept) and all(
        launch.fresh.get(n, 0) >= STREAM_BYTES
        and all(s == 1 if d == vector else s * BYTES_OF_TYPE[kernel.accesses[n].type] % 64 == 0
                for d, s in enumerate(launch.strides[n]) if s)
        for n in stores)


def _may_ask(launch):
    """Whether rows come from memory, and several passes go over each. What sees memory coming sees none while a row is
    gone over again, and most processors begin anew with each page."""
    kernel, plan, sizes = launch.kernel, launch.schedule, launch.sizes
    if not kernel.rows or kernel.reduced != 1 or len(kernel.passes) < 2 or not plan.order or kernel.cut is not None:
        return False
    row, (short, long) = sizes[plan.vector], ASKED_ROW_BYTES
    return any(short <= row * size <= long and row * size * sizes[plan.order[-1]] >= ASKED_BYTES
               for access in kernel.accesses for size in [BYTES_OF_TYPE[access.type]]
               if access.steps[plan.vector] == 1 and access.steps[plan.order[-1]] == "s")


def _may_ask_beside(launch):
    """Whether columns are gone down, some lanes of each row at a time, and come from beyond the first cache: then the
    next lanes of a row are not what is read next. A Neoverse N1, which sees little coming, sums them 1.2 to 3 times as
    fast; a Xeon, whose lanes are whole pieces of rows, takes up to twice as long where it is asked."""
    kernel, plan, sizes = launch.kernel, launch.schedule, launch.sizes
    if kernel.rows or not kernel.reduced or plan.vector is None or sizes[plan.vector] < MIN_ASKED_LANES \
            or not machine_code.target().asks_for_lanes:
        return False
    return any(access.steps[plan.vector] == 1 and access.steps[-1] == "s"
               and launch.extent(number) * BYTES_OF_TYPE[access.type] >= ASKED_COLUMNS_BYTES
               for number, access in enumerate(kernel.accesses))


def _tops(roots, among):
    """The outermost expressions of `roots` that are in `among`, in the order they are met."""
    out, seen, todo = [], set(), list(roots)
    while todo:
        e = todo.pop()
        if e in seen:
            continue
        seen.add(e)
        if e in among:
            out.append(e)
        else:
            todo.extend(e.args)
    return out
