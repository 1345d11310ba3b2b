"""`torch.fx`: the same functions and modules are traced to the same graphs and the same source as in PyTorch."""
import math

import pytest
import torch

import flambeau


def module(m):
    F = m.nn.functional

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = m.nn.Linear(3, 4)
            self.p = m.nn.Parameter(m.ones(4))
            self.register_buffer("b", m.zeros(4))
            self.seq = m.nn.Sequential(m.nn.ReLU(), m.nn.Linear(4, 4))

        def forward(self, x, y=None, *, k: int = 2):
            z = self.lin(x) + self.p
            z = F.relu(z, inplace=True) * k - self.b
            a, b = z.chunk(2, 1)
            w = m.cat([a, b], dim=1).view(a.shape[0], -1)
            w += 1
            return {"mean": w.mean(), "rest": (self.seq(z), [-a[:, 1:3, None], 1.5, m.float32, "s", m.Size([2])])}
    m.manual_seed(0)
    return Net()


def functions(m):
    F = m.nn.functional
    return {
        "math": lambda x, y: x + y * math.pi,
        "transpose": lambda x: x.T @ x,
        "sizes": lambda x, n: x.view(n.size(0), *[1]),
        "reflected": lambda x: 1 - x ** 2 // 3,
        "torch": lambda x: m.add(x, x, alpha=2).sum(dim=(0, 1), keepdim=True),
        "in place": lambda x: x.to(m.float64).add_(1)[..., 0],
        "tuple": lambda x, y: (x.max(1), y),
        "stars": lambda *a, **k: a[0] + k["q"],
        "compare": lambda x: (x > 1) & (x <= 3) | ~(x == 2),
        "unpack": lambda x: [part * 2 for part in (lambda a, b: (b, a))(*_two(x))],
        "functional": lambda x, w: F.relu(m.matmul(x, w), inplace=False),
        "constant": lambda x: x + m.tensor([1.0]),
        "device": lambda x: x.to(m.device("cpu"), m.float16),
        "nested": lambda x: {"a": {"b": [x, (x, None)]}},
        "assertion": lambda x: (m._assert(x.dim() == 2, "two"), x * 2)[1],
        "slices": lambda x, n: x[n:, : x.shape[1] - 1, ..., None],
    }


def _two(x):
    a, b = x.split(1)
    return a, b


def said(call, *args):
    try:
        return call(*args)
    except Exception as error:
        return type(error).__name__, str(error)[:70]


def test_a_module():
    ours, theirs = (m.fx.symbolic_trace(module(m)) for m in (flambeau, torch))
    assert ours.code == theirs.code.replace("torch.nn.functional.relu", "torch.relu") or ours.code == theirs.code
    assert [n.name for n in ours.graph.nodes] == [n.name for n in theirs.graph.nodes]
    assert [n.op for n in ours.graph.nodes] == [n.op for n in theirs.graph.nodes]
    assert str(ours.graph) == str(theirs.graph)
    assert repr(ours) == repr(theirs)
    for m, net in ((flambeau, ours), (torch, theirs)):
        net.graph.lint()
        m.testing.assert_close(net(m.ones(2, 3))["mean"], module(m)(m.ones(2, 3))["mean"])


@pytest.mark.parametrize("name", functions(torch))
def test_a_function(name):
    ours, theirs = (m.fx.symbolic_trace(functions(m)[name]) for m in (flambeau, torch))
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)


@pytest.mark.parametrize("call", [lambda x: len(x), lambda x: [i + 1 for i in x], lambda x: int(x), lambda x: range(x),
                                  lambda x: x if x.sum() > 0 else -x])
def test_what_cannot_be_traced(call):
    ours, theirs = (said(m.fx.symbolic_trace, call) for m in (flambeau, torch))
    assert ours == theirs


def edits(m):
    """A graph that is changed in every way, and what it says afterwards."""
    g = m.fx.Graph()
    x = g.placeholder("x")
    y = g.call_function(m.relu, (x,))
    z = g.call_method("neg", (y,))
    unused = g.call_function(m.sigmoid, (y,))
    out = g.output(z)
    said = [str(g)]
    with g.inserting_before(z):
        w = g.call_function(m.add, (y, 1), {"alpha": 2})
    z.replace_input_with(y, w)
    said.append([n.name for n in g.nodes])
    with pytest.raises(RuntimeError):
        g.erase_node(y)
    assert g.eliminate_dead_code() and unused not in g.nodes
    with g.inserting_after(w):
        v = g.call_function(m.add, (w, w))
    w.replace_all_uses_with(v, delete_user_cb=lambda user: user is not v)
    g.lint()
    said += [str(g), [n.name for n in reversed(g.nodes)], list(map(str, out.all_input_nodes)), list(map(str, y.users)),
             len(g.nodes), str(g.output_node()), [str(n) for n in g.find_nodes(op="call_function", target=m.add)],
             (x < y, y < x, x.next.name, z.prev.name)]
    v.update_arg(1, 5)
    v.update_kwarg("alpha", 3)
    said.append(v.format_node())
    net = m.fx.GraphModule(m.nn.Module(), g)
    said += [net.code, net(m.tensor([1.0, -1.0])).tolist()]
    v.append(g.create_node("call_function", m.abs, (v,)))
    said.append([n.name for n in g.nodes])
    return said


def test_changing_a_graph():
    ours, theirs = edits(flambeau), edits(torch)
    assert ours == theirs


def leaves(m):
    """A tracer with leaves of its own, that notes where each node came from, as feature extraction does."""
    class Block(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act = m.nn.Conv2d(2, 2, 1), m.nn.ReLU()

        def forward(self, x):
            return self.act(self.conv(x)) + x

    class Whole(m.nn.Module):
        def forward(self, x):
            return x if x.shape[0] > 1 else -x

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.whole = m.nn.Sequential(Block(), Block()), Whole()

        def forward(self, x, flag=True):
            for _ in range(2 if flag else 1):
                x = self.blocks(x)
            return m.flatten(self.whole(x), 1)

    class Paths(m.fx.Tracer):
        at, found = "", None

        def is_leaf_module(self, module, path):
            return isinstance(module, Whole) or super().is_leaf_module(module, path)

        def call_module(self, module, forward, args, kwargs):
            before, self.at = self.at, self.path_of_module(module)
            try:
                return super().call_module(module, forward, args, kwargs)
            finally:
                self.at = before

        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *_):
            made = super().create_proxy(kind, target, args, kwargs, name, type_expr)
            self.found = [*(self.found or ()), (self.at, made.node.name)]
            return made
    tracer = Paths()
    graph = tracer.trace(Net(), concrete_args={"flag": True})
    m.fx.GraphModule(tracer.root, graph, "Net").graph.lint()
    return [f for f in tracer.found if not f[1].startswith(("_assert", "eq", "assert", "flag"))]


def test_a_tracer_of_ones_own():
    assert leaves(flambeau) == leaves(torch)


def test_interpreters_and_transformers():
    def program(m):
        net = m.fx.symbolic_trace(lambda x, y=2: m.relu(x) * y + m.relu(-x))
        seen = []

        class Loud(m.fx.Interpreter):
            def call_function(self, target, args, kwargs):
                seen.append(target.__name__)
                return super().call_function(target, args, kwargs)

        class Swap(m.fx.Transformer):
            def call_function(self, target, args, kwargs):
                return super().call_function(m.sigmoid if target is m.relu else target, args, kwargs)
        x = m.tensor([-1.0, 2.0])
        out = Loud(net).run(x)
        swapped = Swap(net).transform()
        return out.tolist(), seen, swapped.code, swapped(x).tolist(), said(Loud(net).run)
    ours, theirs = program(flambeau), program(torch)
    assert ours[:3] == theirs[:3] and ours[4] == theirs[4]
    assert ours[3] == pytest.approx(theirs[3])


# Functions that go by lists of tensors, by sizes, or that are no operations.
CALLS = {
    "einsum": lambda m, x, y: m.einsum("ij,jk->ik", x, y),
    "einsum of a list": lambda m, x, y: m.einsum("ij,jk->ik", [x, y]),
    "multi_dot": lambda m, x, y: m.linalg.multi_dot([x, y]),
    "cat": lambda m, x, y: m.cat([x, y], 1),
    "stack": lambda m, x, y: m.stack((x, y)),
    "rand": lambda m, x, y: m.rand(x.shape),
    "randn": lambda m, x, y: m.randn((x.shape[0], 2)),
    "randn by name": lambda m, x, y: m.randn(size=(x.shape[0], 2)),
    "randint": lambda m, x, y: m.randint(0, x.shape[0], (2,)),
    "randperm": lambda m, x, y: m.randperm(x.shape[0]),
    "full": lambda m, x, y: m.full((x.shape[0],), 1.0),
    "zeros": lambda m, x, y: m.zeros((x.size(0), 3)),
    "numel": lambda m, x, y: m.numel(x),
    "is_floating_point": lambda m, x, y: m.is_floating_point(x),
    "is_complex": lambda m, x, y: m.is_complex(x),
    "is_same_size": lambda m, x, y: m.is_same_size(x, y),
    "result_type": lambda m, x, y: m.result_type(x, y),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_functions(name):
    """A public function that is called with a Proxy is one node, of that function with those arguments."""
    def nodes(m):
        graph = m.fx.symbolic_trace(lambda x, y: CALLS[name](m, x, y)).graph
        return [(n.op, str(getattr(n.target, "__name__", n.target)).removeprefix("linalg_"),
                 str(n.args).replace("linalg_", ""), str(n.kwargs)) for n in graph.nodes]
    assert nodes(flambeau) == nodes(torch)


def test_operands_of_einsum_stand_beside_each_other_in_the_graph():
    def arguments(m, operands):
        graph = m.fx.symbolic_trace(lambda x, y: m.einsum("ij,jk->ik", *operands(x, y))).graph
        return [str(node.args) for node in graph.nodes if node.op == "call_function"]

    for operands in (lambda x, y: (x, y), lambda x, y: ([x, y],), lambda x, y: ((x, y),)):
        assert arguments(flambeau, operands) == arguments(torch, operands) == ["('ij,jk->ik', x, y)"]


def test_a_tracer_that_puts_its_own_functions_in():
    """What torch_geometric's to_hetero does: `trace` written anew, with the parts that PyTorch's own is made of."""
    def program(m):
        import importlib
        st = importlib.import_module(f"{m.__name__}.fx._symbolic_trace")

        class Tracer(m.fx.Tracer):
            @st.compatibility(is_backward_compatible=True)
            def trace(self, root, concrete_args=None):
                """The graph, with every module as one node."""
                self.root, self.graph = root, m.fx.Graph(tracer_cls=type(self))
                self.submodule_paths = {held: name for name, held in root.named_modules()}
                self.tensor_attrs = {}
                assert not any(isinstance(held, (m.Tensor, st.ScriptObject)) for held in vars(root).values())
                fn, args = self.create_args_for_root(type(root).forward, True, concrete_args)

                @st.functools.wraps(st._orig_module_call)
                def called(mod, *args, **kwargs):
                    st._autowrap_check(patcher, type(mod).forward.__globals__, self._autowrap_function_ids)
                    return self.call_module(mod, lambda *a, **k: st._orig_module_call(mod, *a, **k), args, kwargs)

                with st._Patcher() as patcher:
                    patcher.patch_method(m.nn.Module, "__getattr__", st._orig_module_getattr, deduplicate=False)
                    patcher.patch_method(m.nn.Module, "__call__", called, deduplicate=False)
                    st._patch_wrapped_functions(patcher)
                    st._autowrap_check(patcher, fn.__globals__, self._autowrap_function_ids)
                    self.create_node("output", "output", (self.create_arg(fn(*args)),), {})
                return self.graph

        class Net(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.one = m.nn.Linear(3, 2)

            def forward(self, x):
                return self.one(x).relu() + 1

        call = m.nn.Module.__call__
        nodes = [(node.op, str(node.target)) for node in Tracer().trace(Net()).nodes]
        return nodes, Tracer.trace.__doc__, m.nn.Module.__call__ is call

    assert program(flambeau) == program(torch)
