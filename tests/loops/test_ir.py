"""The loop language: what a kernel prints as, and what the verifier refuses."""
import pytest

from flambeau.loops.ir import Access, Expr, Kernel, Launch, Malformed, Pass, verify
from flambeau.loops.llvm import arguments
from flambeau.loops.schedule import Schedule, verify as verify_schedule, with_scratch

pytestmark = pytest.mark.pinned


def load(i, type="f32"):      return Expr("load", type, (), i)
def acc(p, j=0, type="f32"):  return Expr("acc", type, (), (p, j))
def op(name, *args, type=None): return Expr(name, type or args[0].type, args)


def kernel(kept, reduced, *accesses, rows=0, cut=None):
    made = Kernel(kept, reduced, rows, cut)
    made.accesses = [Access(*a) if isinstance(a, tuple) else a for a in accesses]
    made.passes.append(Pass())
    return made


def test_a_map_prints():
    k = kernel(2, 0, ("f32", ("s", 1)), ("f32", (0, 1)), ("f32", ("s", 1)))
    k.numbers.append("f32")
    total = op("add", op("mul", load(0), Expr("number", "f32", (), 0)), load(1))
    k.passes[0].stores.append((2, op("mul", total, total)))
    verify(k)
    assert str(k) == """\
kernel over d0 d1
  p0: f32[s, 1]
  p1: f32[0, 1]
  p2: f32[s, 1]
  n0: f32
  pass 0
    t6 = mul.f32 p0 n0
    t7 = add.f32 t6 p1
    t8 = mul.f32 t7 t7
    p2 = t8"""
    schedule = Schedule((0, 1), 1, 4, (1,), (8192,))
    verify_schedule(k, schedule)
    assert arguments(k, schedule) == ["size 0", "size 1", "tiles 0", "tiles 1", "block 1", "stride 0 0", "stride 2 0"]
    launch = Launch(k, [3, 5], [[5, 1], [0, 1], [5, 1]])
    launch.schedule = schedule
    assert str(launch) == f"{k}\n  schedule lanes along d1 by 4, blocks of d1"
    launch.schedule = Schedule((1, 0), 0, 2, (1, 0), (32, 64))
    assert str(launch) == f"{k}\n  schedule lanes along d0 by 2, tiles over d1 d0, blocks of d1, d0"
    assert launch.schedule.counts(launch.sizes) == [1, 1]


def test_a_softmax_prints():
    k = kernel(1, 1, ("f32", ("s", 1)), ("f32", ("s", 1)), rows=2)
    k.passes += [Pass(), Pass()]
    k.passes[0].accs.append(("max", load(0)))
    e = op("exp", op("sub", load(0), acc(0)))
    k.passes[1].accs.append(("sum", e))
    k.passes[2].stores.append((1, op("div", e, acc(1))))
    verify(k)
    assert str(k) == """\
kernel over d0 r1, along rows by 2
  p0: f32[s, 1]
  p1: f32[s, 1]
  pass 0
    max p0
  pass 1
    t6 = sub.f32 p0 acc0.0
    t7 = exp.f32 t6
    sum t7
  pass 2
    t10 = div.f32 t7 acc1.0
    p1 = t10"""
    launch = Launch(k, [2, 9], [[9, 1], [9, 1]])
    launch.schedule = Schedule((0,), 1, 2)
    launch.schedule.scratch = (1, e)
    verify_schedule(k, launch.schedule)
    assert str(launch) == f"{k}\n  schedule lanes along r1 by 2, t7 of pass 1 in scratch"
    kept = str(with_scratch(k, launch.schedule)).splitlines()          # what is rendered; the kernel is as it was
    assert kept[-5:] == ["    sum t8", "    p2 = t8", "  pass 2", "    t12 = div.f32 p2 acc1.0", "    p1 = t12"]
    assert kept[3] == "  p2: f32[0, 1]" and len(k.accesses) == 2


def test_a_gather_and_a_cut_reduction_print():
    place = op("add", load(1, "i64"), Expr("const", "i64", (), 1))
    k = kernel(1, 1, Access("f64", (0, 0), at=place), ("i64", (0, 1)), ("f64", (1, 0)), rows=4, cut=0)
    k.passes[0].accs.append(("sum", load(0, "f64")))
    k.finals.append((2, acc(0, type="f64")))
    verify(k)
    assert str(k).splitlines()[0] == "kernel over d0 r1, along rows by 4, r1 cut by d0"
    assert "  p0: f64[0, 0] at t1" in str(k) and str(k).endswith("  p2 = acc0.0")
    assert arguments(k, Schedule((0,), 1))[-2:] == ["block cut", "stride 0 at"]


def carrying(**changes):
    """Rows divided by their sums, and the sums of the quotients' columns by blocks of rows."""
    k = kernel(2, 1, ("f32", (0, "s", 1)), ("f32", (0, "s", 1)), ("f32", ("s", 0, 1)), rows=4, cut=0)
    k.passes.append(Pass())
    k.passes[0].accs.append(("sum", load(0)))
    out = op("div", load(0), acc(0))
    k.passes[1].stores.append((1, out))
    k.passes[1].columns.append(("sum", 2, out))
    for name, value in changes.items():
        setattr(k, name, value)
    return k


def test_columns_that_ride_along_print():
    k = carrying()
    verify(k)
    assert str(k) == """\
kernel over d0 d1 r2, along rows by 4, d1 cut by d0
  p0: f32[0, s, 1]
  p1: f32[0, s, 1]
  p2: f32[s, 0, 1]
  pass 0
    sum p0
  pass 1
    t7 = div.f32 p0 acc0.0
    p2 = sum t7 down d1
    p1 = t7"""


def copying(kind="f32", **changes):
    """A kernel that is right, but for the `changes`."""
    k = kernel(1, 1, (kind, ("s", 1)), (kind, ("s", 1)), (kind, (1, 0)), rows=4)
    k.passes[0].accs.append(("sum", load(0, kind)))
    k.finals.append((2, acc(0, type=kind)))
    for name, value in changes.items():
        setattr(k, name, value)
    return k


def broken(change):
    k = copying()
    change(k)
    return k


def one_column(kind, access):
    one = Pass()
    one.columns.append((kind, access, load(0)))
    return one


STORE = lambda e: lambda k: k.passes[0].stores.append((1, e))
REFUSED = {
    "along the rows of a reduced dimension that is not there": kernel(1, 0, rows=1),
    "a cut by d1": copying(cut=1),
    "p0: type f8": broken(lambda k: setattr(k.accesses[0], "type", "f8")),
    "p1: 1 steps for 2 dimensions": broken(lambda k: setattr(k.accesses[1], "steps", (1,))),
    r"p1: steps \(2, 1\)": broken(lambda k: setattr(k.accesses[1], "steps", (2, 1))),
    "reduction 'mean'": broken(lambda k: k.passes[0].accs.append(("mean", load(0)))),
    "acc0.0 is not there yet in pass 0": broken(STORE(acc(0))),
    "acc0.7 is not there yet in pass 1": broken(lambda k: k.finals.append((2, acc(0, 7)))),
    "p1 holds f32, given f64": broken(STORE(Expr("const", "f64", (), 1))),
    "columns beside other than rows": broken(lambda k: k.passes[0].columns.append(("sum", 1, load(0)))),
    "columns with no rows to be beside": carrying(rows=0),
    "'argmax' down columns": carrying(passes=[Pass(), one_column("argmax", 2)]),
    "p1 moves with the rows": carrying(passes=[Pass(), one_column("sum", 1)]),
    "p1 moves with a reduced dimension": broken(lambda k: k.finals.append((1, acc(0)))),
    "load of p0 as i32": broken(STORE(op("cast", load(0, "i32"), type="f32"))),
    r"add.f32 of \['f32', 'f64'\]": broken(STORE(op("add", load(0), Expr("const", "f64", (), 1)))),
    "exp.i64": broken(STORE(op("cast", op("exp", Expr("const", "i64", (), 1)), type="f32"))),
    r"lt of \['f32', 'i64'\]": broken(STORE(op("cast", op("lt", load(0), Expr("const", "i64", (), 1), type="b1"),
                                                type="f32"))),
    r"where of \['f32', 'f32', 'f32'\] as f32": broken(STORE(op("where", load(0), load(0), load(0)))),
    "wish.f32": broken(STORE(op("wish", load(0)))),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_together_is_refused(words):
    verify(copying())
    with pytest.raises(Malformed, match=words):
        verify(REFUSED[words])


MISFITS = {
    r"an order \(0, 0\) of 2 dimensions": (kernel(2, 0), Schedule((0, 0), 0, 4, (0,), (64,))),
    r"blocked dims \(3,\) of 1": (kernel(1, 0), Schedule((0,), 0, 4, (3,), (64,))),
    "the dimension of the lanes must be blocked": (kernel(2, 0), Schedule((0, 1), 1)),
    "lanes along 0, not along the last kept dimension": (kernel(2, 0), Schedule((0, 1), 0, 4, (0,), (64,))),
    "lanes along 0, of rows along 1": (kernel(1, 1, rows=4), Schedule((0,), 0, 4, (0,), (64,))),
    "lanes along 1, not along the last kept dimension": (kernel(1, 1), Schedule((0,), 1)),       # another order
}


@pytest.mark.parametrize("words", MISFITS)
def test_a_schedule_that_does_not_fit_is_refused(words):
    with pytest.raises(Malformed, match=words):
        verify_schedule(*MISFITS[words])
