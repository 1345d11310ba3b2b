"""Autograd's meaning, program by program: each runs with PyTorch and with Flambeau, and must tell the same story.

A program takes the module as `torch` and returns plain Python values: numbers, names, the type of an exception.
"""
import collections
import gc
import importlib
import weakref

import pytest

torch = pytest.importorskip("torch")
import flambeau

PROGRAMS = []


def program(fn):
    PROGRAMS.append(fn)
    return fn


def plain(x):
    """Tensors to lists, so that both sides can be compared."""
    if isinstance(x, (torch.Tensor, flambeau.Tensor)):
        return plain(x.detach().tolist())
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return [plain(v) for v in x]
    return x


def refusal(fn, *words):
    """The exception's type, and whether its text holds the recognisable words."""
    try:
        fn()
    except Exception as error:
        return type(error).__name__, [w in str(error) for w in words]
    return "no error", []


def name(node):
    """A node's name without PyTorch's C++ prefix."""
    return None if node is None else node.name().rpartition("::")[2]


def chain(node, depth=20):
    """Names along the first edge."""
    names = []
    while node is not None and len(names) < depth:
        names.append(name(node))
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return names


def close(a, b):
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, (float, complex)) and isinstance(b, (float, complex)) and not isinstance(a, bool):
        return a == b or abs(a - b) <= 1e-5 * max(1, abs(a), abs(b)) or (a != a and b != b)
    return a == b


# --- leaves, accumulation, hooks ------------------------------------------------------------------------------------


@program
def accumulates(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    first = x.grad.tolist()
    y.backward()
    return first, x.grad, x.is_leaf, y.is_leaf, name(y.grad_fn), chain(y.grad_fn)


@program
def grad_does_not_touch_leaves(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    w = torch.tensor(3., requires_grad=True)
    g, = torch.autograd.grad((x * w).sum(), [x])
    return g, x.grad, w.grad


@program
def unused_inputs(torch):
    x = torch.tensor(1., requires_grad=True)
    z = torch.tensor(1., requires_grad=True)
    y = x * 2
    a = refusal(lambda: torch.autograd.grad(y, [x, z], retain_graph=True), "appears to not have been used in the graph")
    b = torch.autograd.grad(y, [x, z], allow_unused=True, retain_graph=True)
    c = torch.autograd.grad(y, [x, z], materialize_grads=True)
    return a, b[0], b[1], c


@program
def higher_derivatives(torch):
    x = torch.tensor(2., requires_grad=True, dtype=torch.float64)
    y = x ** 5
    out = []
    for _ in range(5):
        y, = torch.autograd.grad(y, x, create_graph=True)
        out.append(y.item())
    return out


@program
def backward_inputs(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    w = torch.tensor([3., 4.], requires_grad=True)
    (x * w).sum().backward(inputs=[w])
    return x.grad, w.grad


@program
def wanted_on_the_way(torch):
    """Gradients of leaves, of what lies between, of a root, and of one of several results, with branches that lead to
    none of them."""
    def grown():
        x, w, other = (torch.tensor([1.0, 2.0, 4.0][i:] + [3.0] * i, requires_grad=True) for i in range(3))
        a = x * w
        b = a.exp() + other.sigmoid()
        c, d = (a * b).split([1, 2])
        top, which = (b * other + a).max(0)
        return x, w, other, a, b, c, d, top, (c.sum() * d).sum() + top * which
    found = []
    for wanted in ((0,), (3,), (0, 3), (1, 2), (4, 0), (5,), (6, 5), (7,), (8,), (8, 4, 2)):
        ends = grown()
        found.append(torch.autograd.grad(ends[8], [ends[i] for i in wanted]))
        ends = grown()
        ends[8].backward(inputs=[ends[i] for i in wanted])
        found.append([t.grad if i in wanted or t.is_leaf else None for i, t in enumerate(ends)])
        ends = grown()
        both = torch.autograd.grad([ends[8], ends[4]], [ends[i] for i in wanted],
                                   [torch.tensor(2.0), torch.tensor([1.0, -1.0, 0.5])], create_graph=True)
        found.append(both)
        if any(g.requires_grad for g in both):
            found.append(torch.autograd.grad(sum((g * g).sum() for g in both), ends[:2], allow_unused=True))
    return found


@program
def hooks_on_the_way(torch):
    """Hooks are called where the way to what is wanted goes, and only there."""
    told = []
    x, y = (torch.tensor([value], requires_grad=True) for value in (1.0, 2.0))
    a = x * 3
    b = a * y
    c = y.exp()
    loss = (b + c).sum()
    for word, tensor in (("x", x), ("y", y), ("a", a), ("b", b), ("c", c)):
        tensor.register_hook(lambda g, word=word: told.append((word, g.tolist())))
    b.grad_fn.register_hook(lambda made, given: told.append(("node", [g is not None for g in made])))
    b.grad_fn.register_prehook(lambda given: (given[0] * 10,))
    first = torch.autograd.grad(loss, x, retain_graph=True)
    told.append("both")
    second = torch.autograd.grad(loss, [a, y], retain_graph=True)
    told.append("into")
    loss.backward(inputs=[x])
    return told, first, second, x.grad, y.grad


@program
def freed_on_the_way(torch):
    """What `grad` came by is freed, and nothing else."""
    x, y = (torch.tensor([value], requires_grad=True) for value in (1.0, 2.0))
    a, b = x.exp(), y.exp()
    loss = (a * b).sum()
    found = [torch.autograd.grad(loss, b)]
    found.append([name(t.grad_fn) for t in (a, b, loss)])
    found.append(refusal(lambda: torch.autograd.grad(loss, a), "second time"))
    found.append(torch.autograd.grad(b, y))
    found.append(refusal(lambda: torch.autograd.grad(b, y), "second time"))
    found.append(torch.autograd.grad(a, x))
    return found


@program
def written_on_the_way(torch):
    """A value that was kept and written since is refused, unless no rule on the way asks for it."""
    x, y = (torch.tensor([value], requires_grad=True) for value in (1.0, 2.0))
    a = x * 1
    b = a.exp()
    c = b + y.sin()
    with torch.no_grad():
        b.add_(1)
    found = [torch.autograd.grad(c.sum(), y, retain_graph=True)]
    found.append(refusal(lambda: torch.autograd.grad(c.sum(), x), "modified by an inplace operation"))
    return found


@program
def leaves_of_a_graph(torch):
    """Who walks a graph finds its leaves by asking nodes whether they have a `variable`."""
    x = torch.tensor([1.0], requires_grad=True)
    y = x.exp()
    end = y.grad_fn.next_functions[0][0]
    return hasattr(y.grad_fn, "variable"), name(end), end.variable is x, end.next_functions, \
        end is (x * 2).grad_fn.next_functions[0][0]


@program
def gradient_argument(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 3
    a = refusal(lambda: y.backward(), "grad can be implicitly created only for scalar outputs")
    b = refusal(lambda: y.backward(torch.tensor([1.])), "Mismatch in shape")
    y.backward(torch.tensor([1., 10.]))
    return a, b, x.grad


@program
def tensor_hooks(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    seen = []
    h = x.register_hook(lambda g: seen.append(g.tolist()))
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    h.remove()
    (x * 1).sum().backward()
    return seen, x.grad


@program
def retain_grad(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad, y.retains_grad, x.grad


@program
def post_accumulate_hook(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    y = x * 1
    return seen, refusal(lambda: y.register_post_accumulate_grad_hook(print), "non-leaf")


@program
def node_hooks(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 2
    seen = []
    y.grad_fn.register_hook(lambda gi, go: seen.append(([g.tolist() for g in gi if g is not None], go[0].tolist())))
    y.grad_fn.register_prehook(lambda go: (go[0] * 5,))
    y.sum().backward()
    return seen, x.grad


@program
def no_grad_and_friends(torch):
    x = torch.tensor(1., requires_grad=True)
    out = []
    with torch.no_grad():
        y = x * 2
        out.append((y.requires_grad, y.grad_fn))
        with torch.enable_grad():
            z = x * 2
            out.append(z.requires_grad)
    out.append(torch.is_grad_enabled())
    with torch.set_grad_enabled(False):
        out.append((x * 2).requires_grad)

    @torch.no_grad()
    def f(a):
        return a * 2

    out.append(f(x).requires_grad)

    @torch.no_grad()
    def gen(a):
        yield a * 2
        yield a * 3

    out.append([g.requires_grad for g in gen(x)])
    torch.set_grad_enabled(False)
    out.append(torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    return out


@program
def inference(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    with torch.inference_mode():
        y = x * 2
    w = torch.tensor([1., 2.], requires_grad=True)
    return (y.requires_grad, y.is_inference(), refusal(lambda: w * y, "Inference tensors cannot be saved for backward"),
            refusal(lambda: y.add_(1), "Inplace update to inference tensor"),
            refusal(lambda: y.requires_grad_(), "requires_grad=True on inference tensor"), (y + 1).is_inference())


# --- in-place and views ---------------------------------------------------------------------------------------------


@program
def leaf_refused(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    return (refusal(lambda: x.add_(1), "a leaf Variable that requires grad is being used in an in-place operation"),
            refusal(lambda: x[0].mul_(1), "a view of a leaf Variable that requires grad is being used in an in-place"),
            refusal(lambda: x.view(2).zero_(), "a view of a leaf"), x, x._version)


@program
def saved_then_written(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    y.add_(1)
    a = refusal(lambda: z.backward(), "modified by an inplace operation", "is at version 1; expected version 0")
    return a


@program
def result_written(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x.exp()
    y.add_(1)
    a = refusal(lambda: y.sum().backward(), "modified by an inplace operation")
    z = x * 3
    z.add_(1).mul_(2)
    z.sum().backward()
    return a, x.grad, chain(z.grad_fn)


@program
def second_backward(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = (x * x).sum()
    y.backward()
    a = refusal(lambda: y.backward(), "Trying to backward through the graph a second time")
    z = (x + x).sum()
    z.backward()
    z.backward()
    return a, x.grad


@program
def copy_slices(torch):
    x = torch.zeros(5)
    y = torch.tensor([1., 2.], requires_grad=True)
    x[2:4] = y * 2
    a = (x.requires_grad, name(x.grad_fn))
    (x * torch.arange(5.)).sum().backward()
    return a, y.grad


@program
def write_through_view(torch):
    x = torch.tensor([[1., 2.], [3., 4.]], requires_grad=True)
    y = x * 1
    v = y[0]
    w = y.t()
    v.mul_(10)
    out = [name(y.grad_fn), name(v.grad_fn), name(w.grad_fn), y, v, w]
    (w * w).sum().backward()
    return out, x.grad


@program
def view_of_view_written(torch):
    x = torch.arange(12., requires_grad=True)
    y = (x * 1).view(3, 4)
    a, b = y[1], y[:, 1]
    a += 5
    b *= b.clone()
    (y * y).sum().backward()
    return y, a, b, x.grad


@program
def base_written_views_follow(torch):
    x = torch.tensor([1., 2., 3.], requires_grad=True)
    y = x * 1
    v = y[1:]
    y.mul_(3)
    v.sum().backward()
    return name(v.grad_fn), v, x.grad


@program
def multi_view_refused(torch):
    x = torch.tensor([1., 2., 3., 4.], requires_grad=True)
    y = x * 1
    a, b = y.split(2)
    c, *_ = y.unbind()
    return (refusal(lambda: a.mul_(2), "is a view and is being modified inplace"),
            refusal(lambda: c.mul_(2), "is a view and is being modified inplace"))


@program
def no_grad_view_refused(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 1
    with torch.no_grad():
        v = y[0:1]
    return refusal(lambda: v.mul_(2), "no_grad mode")


@program
def in_place_under_no_grad(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    v0 = x._version
    with torch.no_grad():
        x.add_(1)
        x[0] = 7
    return x, x.is_leaf, x.requires_grad, x._version - v0


@program
def fill_and_zero(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 1
    y.zero_()
    n = name(y.grad_fn)
    y.sum().backward()
    z = x * 1
    z.fill_(3)
    return n, name(z.grad_fn), x.grad, z


@program
def copy_into(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = torch.zeros(2, 2)
    y.copy_(x)
    n = name(y.grad_fn)
    y.sum().backward()
    return n, x.grad, y._version


@program
def versions_shared(torch):
    x = torch.zeros(4)
    v, d = x[1:], x.detach()
    x.add_(1)
    v.add_(1)
    d.add_(1)
    return x._version, v._version, d._version, v._base is x, d._base, x


@program
def detach_then_write(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    y.detach().add_(1)
    return refusal(lambda: z.backward(), "modified by an inplace operation")


@program
def expanded_write_refused(torch):
    x = torch.zeros(1).expand(3)
    return refusal(lambda: x.add_(1), "more than one element of the written-to tensor refers to a single memory "
                                      "location")


@program
def dtype_refused_in_place(torch):
    x = torch.zeros(3, dtype=torch.int64)
    return (refusal(lambda: x.add_(1.5), "result type Float can't be cast to the desired output type Long"),
            refusal(lambda: torch.zeros(1).add_(torch.zeros(3)), "doesn't match the broadcast shape"), x, x._version)


@program
def requires_grad_rules(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 1
    return (refusal(lambda: y.requires_grad_(False), "you can only change requires_grad flags of leaf variables"),
            refusal(lambda: torch.tensor([1, 2], requires_grad=True), "Tensors of floating point"),
            refusal(lambda: torch.tensor([1, 2]).requires_grad_(), "Tensors of floating point"),
            refusal(lambda: torch.tensor([1.]).sum().backward(), "element 0 of tensors does not require grad"),
            refusal(lambda: torch.tensor([1.]).register_hook(print), "doesn't require gradient"))


@program
def grad_assignment(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    return (refusal(lambda: setattr(x, "grad", torch.zeros(3)), "assign a gradient of size"),
            refusal(lambda: setattr(x, "grad", torch.zeros(2, dtype=torch.float64)), "dtype"),
            refusal(lambda: setattr(x, "grad", 1.0)))


# --- custom functions -----------------------------------------------------------------------------------------------


@program
def custom_function(torch):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x ** 3 * k

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 3 * x * x * ctx.k, None

    x = torch.tensor([1., 2.], requires_grad=True)
    y = Cube.apply(x, 2.0)
    n = name(y.grad_fn)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    gg, = torch.autograd.grad(g.sum(), x)
    return n, g, gg


@program
def custom_function_pieces(torch):
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            idx = (a > b).long()
            ctx.mark_non_differentiable(idx)
            ctx.set_materialize_grads(False)
            return a * 2, b * 3, idx

        @staticmethod
        def backward(ctx, ga, gb, gi):
            return (None if ga is None else ga * 2), (None if gb is None else gb * 3)

    a = torch.tensor([1., 5.], requires_grad=True)
    b = torch.tensor([2., 3.], requires_grad=True)
    x, y, i = Two.apply(a, b)
    x.sum().backward()
    return a.grad, b.grad, i.requires_grad, x.requires_grad


@program
def custom_in_place(torch):
    class Inc(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7

    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 1
    z = Inc.apply(y)
    same = z is y
    z.sum().backward()
    return same, x.grad, y, refusal(lambda: Inc.apply(x), "a leaf Variable")


@program
def custom_wrong_count(torch):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    x = torch.tensor([1., 2.], requires_grad=True)
    return refusal(lambda: Bad.apply(x, x).sum().backward(), "returned an incorrect number of gradients (expected 2, "
                                                             "got 1)")


@program
def custom_once(torch):
    from importlib import import_module
    once = import_module(torch.__name__ + ".autograd.function").once_differentiable

    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = torch.tensor([1., 2.], requires_grad=True)
    y = Sq.apply(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    h = torch.autograd.grad((Sq.apply(x) * torch.ones(2, requires_grad=True)).sum(), x, create_graph=True)[0]
    return g, refusal(lambda: h.sum().backward(), "once_differentiable")


@program
def setup_context(torch):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = torch.tensor([0., 1.], requires_grad=True)
    y = Exp.apply(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.sum().backward()
    return g, x.grad


# --- forward mode, functional, hooks on what is saved ---------------------------------------------------------------


@program
def forward_mode(torch):
    from importlib import import_module
    fw = import_module(torch.__name__ + ".autograd.forward_ad")
    x = torch.tensor([1., 2.], dtype=torch.float64)
    t = torch.tensor([1., 10.], dtype=torch.float64)
    with fw.dual_level():
        d = fw.make_dual(x, t)
        y = (d * d).sin() + d.exp().sum() - (d.view(2, 1) @ torch.ones(1, 3, dtype=torch.float64)).sum()
        p, q = fw.unpack_dual(y)
    return p, q, refusal(lambda: fw.make_dual(x, t), "no level exists")


@program
def functional(torch):
    from importlib import import_module
    F = import_module(torch.__name__ + ".autograd.functional")
    x = torch.tensor([1., 2., 3.], dtype=torch.float64)
    y = torch.tensor([2., 0.5, 1.], dtype=torch.float64)

    def f(a, b):
        return (a * b).exp(), (a * a).sum()

    def s(a, b):
        return (a ** 3 * b).sum()

    v = torch.ones(3, dtype=torch.float64)
    return (F.jacobian(f, (x, y)), F.hessian(s, (x, y)), F.vjp(lambda a: a * a, x, v), F.jvp(lambda a: a * a, x, v),
            F.hvp(lambda a: (a ** 3).sum(), x, v), F.vhp(lambda a: (a ** 3).sum(), x, v),
            F.jacobian(lambda a: a * 2, x))


@program
def saved_hooks(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    log = []

    def pack(t):
        log.append("pack")
        return t.tolist()

    def unpack(held):
        log.append("unpack")
        return torch.tensor(held)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp()
    y.sum().backward()
    return log, x.grad


@program
def checkpointed(torch):
    from importlib import import_module
    checkpoint = import_module(torch.__name__ + ".utils.checkpoint").checkpoint
    runs = []
    w = torch.tensor([3., 4.], requires_grad=True)

    def f(a):
        runs.append(1)
        return ((a * w).exp() * a).sum()

    out = []
    for reentrant in (False, True):
        x = torch.tensor([0.1, 0.2], requires_grad=True)
        checkpoint(f, x, use_reentrant=reentrant).backward()
        out.append(x.grad.tolist())
    return out, len(runs), w.grad


@program
def anomaly(torch):
    x = torch.tensor([-1., 2.], requires_grad=True)

    def f():
        with torch.autograd.detect_anomaly():
            x.sqrt().sum().backward()

    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refusal(f, "SqrtBackward0", "returned nan values in its 0th output")


@program
def gradchecks(torch):
    x = torch.tensor([[0.3, 1.2], [2., 0.7]], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([0.3 + 1j, 1 - 2j], dtype=torch.complex128, requires_grad=True)
    gc_, ggc = torch.autograd.gradcheck, torch.autograd.gradgradcheck

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g

    return (gc_(lambda a: (a @ a).sin(), (x,)), ggc(lambda a: (a * a).sin(), (x,)),
            gc_(lambda a: a * a.conj(), (z,)), gc_(lambda a: (a * a).abs(), (z,)),
            gc_(lambda a: a.exp(), (x,), check_forward_ad=True),
            gc_(Wrong.apply, (x,), raise_exception=False))


@program
def batched_grads(torch):
    x = torch.tensor([1., 2., 3.], requires_grad=True)
    y = x * x
    v = torch.eye(3)
    return torch.autograd.grad(y, x, v, is_grads_batched=True)


# --- what is kept alive ---------------------------------------------------------------------------------------------


@program
def graph_is_freed(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    ref = weakref.ref(y)
    del y
    z.backward()
    del z
    return ref() is None


@program
def no_cycles(torch):
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(3, requires_grad=True)
        y = x.exp().tanh().sigmoid()
        r = weakref.ref(y)
        y.sum().backward()
        del y
        leaf = weakref.ref(x)
        del x
        return r() is None, leaf() is None
    finally:
        gc.enable()


@program
def deep_graph(torch):
    x = torch.tensor([1.], requires_grad=True)
    y = x
    for _ in range(20000):
        y = y + 1
    y.backward()
    g = x.grad.tolist()
    del y
    return g


@program
def complex_gradients(torch):
    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (z * z.conj()).real.sum().backward()
    a = z.grad.tolist()
    z.grad = None
    (z.abs() ** 2).sum().backward()
    b = z.grad.tolist()
    w = torch.view_as_real(z * 1)
    z.grad = None
    (w * torch.tensor([1., 10.])).sum().backward()
    r = refusal(lambda: (z * 1).sum().backward(), "real scalar outputs")
    return a, b, z.grad, r


@program
def mixed_dtypes(torch):
    x = torch.tensor([1., 2.], requires_grad=True)
    w = torch.tensor([3., 4.], dtype=torch.float64, requires_grad=True)
    h = torch.tensor([1., 2.], dtype=torch.bfloat16, requires_grad=True)
    (x * w * h).sum().backward()
    return str(x.grad.dtype), str(w.grad.dtype), str(h.grad.dtype), x.grad, w.grad, h.grad


@program
def broadcast_gradients(torch):
    x = torch.ones(3, 1, requires_grad=True)
    y = torch.ones(1, 4, requires_grad=True)
    s = torch.tensor(2., requires_grad=True)
    ((x + y) * s).sum().backward()
    return x.grad, y.grad, s.grad, list(x.grad.shape)


@program
def set_item_gradients(torch):
    x = torch.zeros(3, 4)
    v = torch.tensor([1., 2.], requires_grad=True)
    i = torch.tensor([0, 2])
    y = x.clone()
    y[i, 1] = v
    y[y > 1.5] = v.sum()
    (y * y).sum().backward()
    return y, v.grad, name(y.grad_fn)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_same_story(fn):
    theirs, ours = plain(fn(torch)), plain(fn(flambeau))
    assert close(ours, theirs), f"\nPyTorch:  {theirs}\nFlambeau: {ours}"


def test_gradient_edges():
    """Edges of the graph in the place of tensors: where gradients come from, and what they are for."""
    def seen(lib):
        edge_of = lib.autograd.graph.get_gradient_edge
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 2
        z, apart = (y * y).sum(), edge_of(x * 3)
        grad = lambda *args, **options: lib.autograd.grad(*args, retain_graph=True, **options)
        out = [g.tolist() for g in (*grad(z, [edge_of(y), x]), *grad(z, edge_of(y)), *grad(edge_of(z), x),
                                    *grad([edge_of(y)], x, grad_outputs=[lib.ones(3)]), *grad(z, edge_of(x)))]
        lib.autograd.backward(edge_of(z), retain_graph=True)
        lib.autograd.backward(z, inputs=[edge_of(x)], retain_graph=True)
        lib.autograd.backward(z, inputs=edge_of(x), retain_graph=True)
        out += [x.grad.tolist(), grad(z, apart, allow_unused=True)]
        for wrong in (lambda: grad(edge_of(y), x), lambda: grad([edge_of(y)], x, grad_outputs=[lib.ones(2)]),
                      lambda: grad(z, apart), lambda: grad(z, apart, materialize_grads=True)):
            with pytest.raises(RuntimeError) as caught:
                wrong()
            out.append(str(caught.value)[:50])
        return out
    assert seen(flambeau) == seen(torch)


def test_how_much_of_a_checkpoint_runs_again():
    """Up to the last tensor that backward needs, or to the end if that is asked for."""
    def seen(lib):
        module, runs = importlib.import_module(f"{lib.__name__}.utils.checkpoint"), []

        def stretch(x):
            runs.append("start")
            made = (x.sin() * x).cos()
            runs.append("end")
            return made
        x = lib.ones(3, requires_grad=True)
        module.checkpoint(stretch, x, use_reentrant=False).sum().backward()
        with module.set_checkpoint_early_stop(False):
            module.checkpoint(stretch, x, use_reentrant=False).sum().backward()
        module.checkpoint(stretch, x, use_reentrant=False, early_stop=False).sum().backward()
        with module.set_checkpoint_debug_enabled(True):
            module.checkpoint(stretch, x, use_reentrant=False).sum().backward()
        return runs, [round(g, 5) for g in x.grad.tolist()]
    assert seen(flambeau) == seen(torch)


def test_arguments_of_a_function_by_name():
    """A tensor that is given by name has its gradient; `setup_context` sees all inputs, defaults too."""
    def seen(lib):
        class Scaled(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, y, scale=1.0):
                ctx.save_for_backward(x, y)
                ctx.scale = scale
                return x * y * scale

            @staticmethod
            def backward(ctx, g):
                x, y = ctx.saved_tensors
                return g * y * ctx.scale, g * x * ctx.scale, None

        class Later(lib.autograd.Function):
            @staticmethod
            def forward(x, scale=3.0):
                return x * scale

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.scale = inputs[1]

            @staticmethod
            def backward(ctx, g):
                return g * ctx.scale, None

        x, y = (lib.tensor([a, b], requires_grad=True) for a, b in ((1.0, 2.0), (3.0, 5.0)))
        grad = lambda out: plain(lib.autograd.grad(out.sum(), [x, y], allow_unused=True))
        return [grad(Scaled.apply(x, y)), grad(Scaled.apply(y=y, x=x, scale=2.0)),
                grad(Scaled.apply(x, scale=4.0, y=y)),
                Scaled.apply(x, y=y).grad_fn.needs_input_grad, grad(Later.apply(x)), grad(Later.apply(scale=7.0, x=x)),
                Later.apply(x).grad_fn.needs_input_grad,
                [refusal(lambda: Scaled.apply(x, **wrong))[0] for wrong in ({"z": 1}, {"x": y}, {})]]
    assert seen(flambeau) == seen(torch)


def test_what_backward_of_a_function_is_given():
    def seen(lib):
        story = []

        def two(**attributes):
            def forward(ctx, x):
                for name, value in attributes.items():
                    setattr(ctx, name, value)
                a, b = x * 2, x * 3
                ctx.mark_non_differentiable(b)
                return a, b

            def backward(ctx, *grads):
                story.append(plain(grads))
                return grads[0][0] * 2 if isinstance(grads[0], list) else grads[0] * 2
            return {"forward": staticmethod(forward), "backward": staticmethod(backward)}

        x = lib.ones(2, requires_grad=True)
        for attributes, more in (({}, {}), ({"_materialize_non_diff_grads": False}, {}),
                                 ({}, {"boxed_grads_call": True})):
            made = type("Two", (lib.autograd.Function,), {**two(**attributes), **more})
            story.append(plain(lib.autograd.grad(made.apply(x)[0].sum(), x)))
        both = type("Both", (lib.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 1),
                                                       "backward": staticmethod(lambda ctx, g: g),
                                                       "vjp": staticmethod(lambda ctx, g: g)})
        return [*story, refusal(lambda: both.apply(x).sum().backward(), "Implementing both")]
    assert seen(flambeau) == seen(torch)


def test_tangents_of_a_function():
    """jvp gets zeros for a tensor without a tangent, unless it asked for None; the primal of a dual carries none."""
    def seen(lib):
        forward_ad, story = lib.autograd.forward_ad, []

        def made(materialize):
            def forward(ctx, n, x, y):
                ctx.set_materialize_grads(materialize)
                return x * n + y

            def jvp(ctx, n, x, y):
                story.append((n, plain(x), plain(y)))
                return x * 2
            return type("F", (lib.autograd.Function,), {"forward": staticmethod(forward), "jvp": staticmethod(jvp)})
        with forward_ad.dual_level():
            x, y = forward_ad.make_dual(lib.ones(2), lib.full((2,), 5.0)), lib.ones(2)
            for materialize in (True, False):
                story.append(plain(forward_ad.unpack_dual(made(materialize).apply(2, x, y)).tangent))
            primal = forward_ad.unpack_dual(x * 3).primal
            story += [forward_ad.unpack_dual(t).tangent for t in (primal, primal * 2, primal[0])]
        return story
    assert seen(flambeau) == seen(torch)


def test_grad_of_nothing_of_zeros_and_calls_of_a_node():
    def seen(lib):
        x = lib.ones(3, requires_grad=True)
        (zero,) = lib.autograd.grad((x * 2).sum(), lib.ones(2, requires_grad=True), materialize_grads=True)
        return [refusal(lambda: lib.autograd.grad((x * 2).sum(), []), "cannot be empty"), plain(zero),
                zero.requires_grad,
                refusal(lambda: (x * 2).grad_fn(), "expected 1 arguments, got 0"),
                refusal(lambda: (x * 2).grad_fn(x.detach(), x.detach()), "expected 1 arguments, got 2"),
                refusal(lambda: x.unbind()[0].grad_fn(lib.tensor(1.0)), "expected 3 arguments, got 1"),
                refusal(lambda: setattr(x, "data", lib.ones(3).long()), "floating point or complex")]
    assert seen(flambeau) == seen(torch)


def test_tensors_of_inference_mode_outside_of_it():
    def seen(lib):
        with lib.inference_mode():
            x = lib.ones(1, 2, 3, requires_grad=True)
            x.resize_(1, 2)
            y = lib.ones(2, 2, requires_grad=True)
        views = [f(y) for f in (lambda t: t.view(-1), lambda t: t[0], lambda t: t.t())]
        return x.shape, [(v.requires_grad, v.is_leaf, v._is_view(), lib.is_inference(v)) for v in views]
    assert seen(flambeau) == seen(torch)


def test_a_hook_for_the_first_of_several_gradients_is_called_once_in_each_backward():
    """Backwards that run in threads at the same time do not count for one another."""
    import threading

    def seen(lib):
        x, y, calls = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True), []
        handle = lib.autograd.graph.register_multi_grad_hook((x, y), calls.append, mode="any")
        out, start = (x * y).sum(), threading.Barrier(5)

        def run():
            start.wait()
            out.backward(inputs=(x, y), retain_graph=True)
        threads = [threading.Thread(target=run) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        handle.remove()
        return len(calls)
    assert seen(flambeau) == seen(torch) == 5


def test_results_of_a_function_that_are_one_tensor_or_a_view():
    """The same result twice is one tensor; a view that was made and written inside may not be written outside; the
    tangent of a view is what jvp says."""
    def seen(lib):
        def function(forward, backward, **more):
            return type("F", (lib.autograd.Function,), {"forward": staticmethod(forward), **more,
                                                        "backward": staticmethod(backward)})

        def twice(ctx, x):
            made = x * 2
            return made, made

        def local(ctx, x):
            view = x.clone()[:1]
            view += 2
            return view
        x, forward_ad = lib.tensor([1.0, 2.0], requires_grad=True), lib.autograd.forward_ad
        a, b = function(twice, lambda ctx, g, h: g * 2 + h * 2).apply(x)
        made = function(local, lambda ctx, g: lib.cat([g, g * 0])).apply(x)
        look = function(lambda ctx, x: x.narrow(0, 0, 1), lambda ctx, g: lib.cat([g, g * 0]),
                        jvp=staticmethod(lambda ctx, t: t.narrow(0, 0, 1)))
        story = [a is b, plain(lib.autograd.grad((a + 3 * b).sum(), x)), plain(lib.autograd.grad(made.sum(), x)),
                 refusal(lambda: made.mul_(2), "created inside a custom Function")]
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(lib.ones(2), lib.tensor([5.0, 6.0]))
            story += [plain(forward_ad.unpack_dual(t).tangent)
                      for t in (look.apply(dual), look.apply(dual) * 2, look.apply(dual * 3), look.apply(dual)[0:1])]
        return story
    assert seen(flambeau) == seen(torch)


GROUPS = {
    "generator": iter, "list": list, "tuple": tuple, "set": set, "reversed": reversed,
    "first": lambda ts: ts[0], "dict": lambda ts: dict(enumerate(ts)),
    "values": lambda ts: dict(enumerate(ts)).values(),
    "keys": lambda ts: dict.fromkeys(ts), "names": lambda ts: {"a": 1}.keys(),
    "mapping": lambda ts: collections.OrderedDict(enumerate(ts)), "deque": collections.deque,
    "pairs": lambda ts: enumerate(ts), "nested": lambda ts: [list(ts)], "empty list": lambda ts: [],
    "empty dict": lambda ts: {}, "empty generator": lambda ts: iter(()), "None": lambda ts: None,
    "[None]": lambda ts: [None], "word": lambda ts: "ab", "number": lambda ts: 3,
}


@pytest.mark.parametrize("place", ["inputs", "outputs", "gradients"])
@pytest.mark.parametrize("name", GROUPS)
def test_whatever_holds_tensors(name, place):
    """What may hold the tensors that `grad` and `backward` are given: anything that can be gone through; of inputs a
    dictionary's values count, and the answer is a dictionary."""
    group = GROUPS[name]

    def story(lib):
        told = []
        calls = {"inputs": (lambda loss, two: lib.autograd.grad(loss, group(two)),
                            lambda loss, two: loss.backward(inputs=group(two)),
                            lambda loss, two: lib.autograd.backward([loss], inputs=group(two))),
                 "outputs": (lambda loss, two: lib.autograd.grad(group([loss]), two),
                             lambda loss, two: lib.autograd.backward(group([loss])),
                             lambda loss, two: lib.autograd.backward(group([loss, loss * 2]), inputs=iter(two))),
                 "gradients": (lambda loss, two: lib.autograd.grad(loss, two, group([lib.tensor(2.0)])),
                               lambda loss, two: loss.backward(group([lib.tensor(2.0)])),
                               lambda loss, two: lib.autograd.backward([loss], group([lib.tensor(2.0)])))}
        for call in calls[place]:
            two = [lib.tensor([1.0, 2.0], requires_grad=True), lib.tensor([3.0, 4.0], requires_grad=True)]
            loss = (two[0] * two[1]).sum()
            try:
                made = call(loss, two)
                told.append([plain(made), type(made).__name__, [plain(t.grad) for t in two]])
            except Exception as error:
                told.append(type(error).__name__)
        return told
    assert story(flambeau) == story(torch)
