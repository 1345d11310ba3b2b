"""What packages ask of PyTorch's insides, as little programs. Each holds in Flambeau and in PyTorch (tests/torch)."""
import copy
import gc
import importlib
import warnings
import weakref

import pytest

from flambeau.base.module_locations import flambeau_name


def part(torch, name):
    """The module `torch.name`, whichever library `torch` is."""
    return importlib.import_module(flambeau_name(f"torch.{name}") if torch.__name__ == "flambeau" else f"torch.{name}")


def conditions_are_checked(torch):
    torch._check(True)
    torch._check(2 > 1, lambda: 1 / 0)                # the message is not asked for
    for check, error in ((torch._check, RuntimeError), (torch._check_index, IndexError),
                         (torch._check_value, ValueError), (torch._check_type, TypeError),
                         (torch._check_not_implemented, NotImplementedError)):
        with pytest.raises(error, match="sizes 3"):
            check(False, lambda: "sizes 3")
        with pytest.raises(error, match="Expected cond to be True"):
            check(False)
    with pytest.raises(TypeError, match="message must be a callable"):
        torch._check(False, "words")
    for cond in (1, None, torch.ones(1)):
        with pytest.raises(TypeError, match="cond must be a bool"):
            torch._check(cond)
    torch._check_tensor_all(torch.tensor([True, True]))
    with pytest.raises(RuntimeError, match="no"):
        torch._check_tensor_all(torch.tensor([True, False]), lambda: "no")
    with pytest.raises(KeyError, match="no"):
        torch._check_tensor_all_with(KeyError, torch.tensor([False]), lambda: "no")
    with pytest.raises(AssertionError, match="why"):
        torch._assert(torch.tensor(False), "why")
    torch._assert(True, "why")


def numbers_are_numbers(torch):
    assert torch.sym_max(1, 2.5) == 2.5 and torch.sym_max(3, 2) == 3 and type(torch.sym_max(3, 2)) is int
    assert torch.sym_min(1, 2.5) == 1.0 and type(torch.sym_min(1, 2.5)) is float
    assert torch.sym_int(2.7) == 2 and type(torch.sym_float(2)) is float and torch.sym_not(0) is True
    assert torch.sym_ite(True, 1, 2) == 1 and torch.sym_sqrt(9) == 3
    assert torch.sym_sum([1, 2, 3]) == 6 == torch.sym_sum(1, 2, 3)
    with pytest.raises(AssertionError):
        torch.sym_max("a", "b")
    for kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
        assert not any(isinstance(number, kind) for number in (1, 1.0, True))


def futures_carry_results(torch):
    futures = part(torch, "futures")
    seen: list = []
    first: futures.Future = futures.Future()
    assert first.done() is False
    first.add_done_callback(lambda done: seen.append(done.value()))
    second = first.then(lambda done: done.value() + 1)
    first.set_result(3)
    assert first.done() and second.wait() == 4 and seen == [3] and first.value() == 3
    first.add_done_callback(lambda done: seen.append("late"))
    assert seen == [3, "late"]
    with pytest.raises(RuntimeError, match="completed Future as complete again"):
        first.set_result(4)
    failed: futures.Future = futures.Future()
    after = failed.then(lambda done: done.wait())
    failed.set_exception(KeyError("gone"))
    with pytest.raises(KeyError, match="gone"):
        failed.wait()
    with pytest.raises(KeyError, match="gone"):
        failed.value()
    with pytest.raises(RuntimeError, match="Got the following error when running the callback: KeyError"):
        after.wait()
    with pytest.raises(AssertionError, match="not an Exception"):
        futures.Future().set_exception("words")
    assert futures.wait_all([first, second]) == [3, 4]
    assert [done.value() for done in futures.collect_all([first, second]).wait()] == [3, 4]
    with pytest.raises(KeyError):
        futures.wait_all([first, failed])
    assert isinstance(first, torch.Future)


def dictionaries_hold_tensors_weakly(torch):
    weak = part(torch, "utils.weak")
    a, b = torch.ones(2), torch.ones(2)
    held = weak.WeakIdKeyDictionary({a: 1})
    held[b] = 2
    assert len(held) == 2 and held[a] == 1 and b in held and torch.ones(2) not in held and 3 not in held
    assert {id(key) for key in held.keys()} == {id(a), id(b)} and sorted(held.values()) == [1, 2]
    assert held.get(torch.ones(2)) is None and held.pop(b) == 2 and len(held) == 1
    held[b] = 3
    more = held.copy()
    more |= {b: 4}
    assert more[b] == 4 and held[b] == 3 and (held | {b: 5})[b] == 5 and held == held.copy() and held != more
    assert copy.deepcopy(held)[a] == 1
    del b
    gc.collect()
    assert len(held) == 1 and list(held.keys())[0] is a
    with pytest.raises(KeyError):
        held[torch.ones(2)]
    ref = weak.TensorWeakRef(a)
    assert ref() is a and weak.WeakIdRef(a) == weak.WeakIdRef(a) and weak.WeakIdRef(a) != weak.WeakIdRef(torch.ones(2))
    assert weak.WeakTensorKeyDictionary is weak.WeakIdKeyDictionary


def tensors_by_name(torch):
    access = part(torch, "nn.utils._named_member_accessor")
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    names = access.NamedMemberAccessor(net)
    new = torch.nn.Parameter(torch.zeros(3, 2))
    old = names.swap_tensor("0.weight", new)
    assert net[0].weight is new and old.shape == (3, 2) and names.get_tensor("0.weight") is new
    assert names.check_keys(["0.weight", "no"])[1] == ["no"] and "1.running_mean" in names.check_keys([])[0]
    with pytest.raises(RuntimeError, match="Missing key"):
        names.swap_tensors_dict({"0.weight": old, "0.none": old})
    assert net[0].weight is new and not hasattr(net[0], "none")           # all or none
    before, lacking = names.swap_tensors_dict({"0.weight": old, "0.none": new}, allow_missing=True)
    assert lacking == ["0.none"] and net[0].weight is old and before["0.weight"] is new
    names.set_tensor("1.running_mean", torch.ones(3))
    names.del_tensor("0.bias")
    assert net[1].running_mean.tolist() == [1, 1, 1] and not hasattr(net[0], "bias")
    for wrong, error in ((lambda: names.get_tensor("0.bias"), AttributeError), (lambda: names.del_tensor("0.bias"),
                                                                               AttributeError),
                         (lambda: access.swap_tensor(net, "0.weight", new), KeyError),
                         (lambda: access.swap_tensor(net, "", new), KeyError),
                         (lambda: access.swap_tensor(3, "a", new), TypeError),
                         (lambda: access.set_tensor(net[0], "weight", 3), TypeError),
                         (lambda: names.set_tensors(["a"], []), AssertionError)):
        with pytest.raises(error):
            wrong()
    assert isinstance(names.swap_submodule("0", torch.nn.Identity()), torch.nn.Linear)
    assert isinstance(net[0], torch.nn.Identity)


def marks_of_quantisation_do_nothing(torch):
    quantization, quantized = part(torch, "ao.quantization"), part(torch, "ao.nn.quantized")
    x, y = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 1.0])
    assert torch.equal(quantization.QuantStub()(x), x) and torch.equal(quantization.DeQuantStub()(x), x)
    wrapped = quantization.QuantWrapper(torch.nn.Linear(2, 1))
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"] and wrapped(x).shape == (1,)
    f = quantized.FloatFunctional()
    assert f.add(x, y).tolist() == [1.5, -1] and f.mul(x, y).tolist() == [0.5, -2] and f.add_scalar(x, 1)[0] == 2
    assert f.add_relu(x, y).tolist() == [1.5, 0] and f.cat([x, y]).shape == (4,) and f.mul_scalar(x, 2)[0] == 2
    assert f.matmul(x, y) == -1.5 and isinstance(f, torch.nn.Module)
    with pytest.raises(RuntimeError, match="not intended to use the 'forward'"):
        f(x)


def a_schedule_of_steps(torch):
    profiler = part(torch, "profiler")
    plan = profiler.schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    assert [plan(step).name for step in range(7)] == ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE",
                                                      "NONE"]
    early = profiler.schedule(wait=2, warmup=1, active=1, skip_first_wait=1)
    assert [early(step).name for step in range(6)] == ["WARMUP", "RECORD_AND_SAVE", "NONE", "NONE", "WARMUP",
                                                       "RECORD_AND_SAVE"]
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        profiler.schedule(wait=-1, warmup=1, active=1)
    with pytest.raises(AssertionError, match="non-negative"):
        plan(-1)
    assert profiler.ProfilerActivity.CPU != profiler.ProfilerActivity.CUDA


def the_stream_of_the_cpu(torch):
    stream, event = torch.Stream(), torch.Event("cpu")
    assert stream.query() and stream.synchronize() is None and stream == torch.Stream("cpu") and event.query()
    assert (stream.device, stream.stream_id, stream.device_index) == (torch.device("cpu"), 0, -1)
    with stream as inside:
        assert inside == stream
    assert repr(stream) == "torch.Stream device_type=cpu, device_index=-1, stream_id=0"
    for wrong in (stream.record_event, event.record, lambda: torch.Stream("cuda"), torch.cuda.Stream, torch.cuda.Event,
                  torch.cuda.CUDAGraph):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(ValueError, match="enable_timing=True"):
        event.elapsed_time(event)
    with torch.cuda.stream(None):
        pass
    assert isinstance(torch.cuda.stream(None), torch.cuda.StreamContext)
    assert issubclass(torch.cuda.ExternalStream, torch.cuda.Stream)


def arguments_of_to(torch):
    read = torch._C._nn._parse_to
    assert read("cpu") == (torch.device("cpu"), None, False, None)
    assert read(torch.float64, non_blocking=True) == (None, torch.float64, True, None)
    assert read(torch.ones(1, dtype=torch.int8)) == (torch.device("cpu"), torch.int8, False, None)
    assert read(device="cpu", dtype=torch.half)[1] is torch.float16
    assert read(memory_format=torch.channels_last)[3] is torch.channels_last


def questions_of_the_compiled_half(torch):
    compiled = torch._C
    assert compiled._get_tracing_state() is None and compiled._log_api_usage_once("tests") is None
    assert isinstance(compiled._TensorMeta, type) and isinstance(torch.Tensor, compiled._TensorMeta)
    assert compiled._get_privateuse1_backend_name() == "privateuseone"
    assert compiled._are_functorch_transforms_active() is False
    x = torch.ones(2)
    assert compiled._is_alias_of(x, x[0]) and not compiled._is_alias_of(x, torch.ones(2))
    assert not compiled._functorch.is_batchedtensor(x) and not compiled._functorch.is_gradtrackingtensor(x)
    keys = compiled.DispatchKeySet(compiled.DispatchKey.AutocastCPU)
    assert keys.has(compiled.DispatchKey.AutocastCPU) and not keys.has(compiled.DispatchKey.AutocastCUDA)
    a = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype is torch.bfloat16
        with compiled._ExcludeDispatchKeyGuard(keys):
            assert (a @ a).dtype is torch.float32
        assert (a @ a).dtype is torch.bfloat16
    assert compiled._get_accelerator() == torch.device("cpu")
    with pytest.raises(RuntimeError, match="none is available"):
        compiled._get_accelerator(True)
    assert hasattr(compiled, "_nn") and not hasattr(compiled, "_no_such_name")


def the_compiler_takes_marks(torch):
    dynamo = torch._dynamo
    x = torch.ones(2)

    def double(t):
        return t * 2
    assert dynamo.allow_in_graph(double) is double and torch.compiler.allow_in_graph(double) is double
    assert torch.compiler.assume_constant_result(double) is double
    assert not dynamo.is_compiling() and not torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    dynamo.mark_static_address(x)
    dynamo.mark_dynamic(x, 0)
    dynamo.graph_break()
    torch.compiler.cudagraph_mark_step_begin()
    assert isinstance(dynamo.config.cache_size_limit, int) and not isinstance(x, dynamo.eval_frame.OptimizedModule)


def tensors_exchange_what_they_are(torch):
    a, b = torch.zeros(2), torch.nn.Parameter(torch.ones(3))
    a.mark = 1
    kept = (a, b)
    torch.utils.swap_tensors(a, b)
    assert kept[0] is a and isinstance(a, torch.nn.Parameter) and type(b) is torch.Tensor and a.requires_grad
    assert a.tolist() == [1, 1, 1] and b.tolist() == [0, 0] and b.mark == 1 and not hasattr(a, "mark")
    a.sum().backward()
    assert a.grad.tolist() == [1, 1, 1]
    ref = weakref.ref(b)
    with pytest.raises(RuntimeError, match="Cannot swap t2 because it has weakref"):
        torch.utils.swap_tensors(torch.ones(1), b)
    assert ref() is b


def tensors_in_groups(torch):
    group = part(torch, "utils._foreach_utils")._group_tensors_by_device_and_dtype
    x = [torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones(3)]
    made = group([x, [None, None, None], []], with_indices=True)
    assert {key[1]: places for key, (_, places) in made.items()} == {torch.float32: [0, 2], torch.float64: [1]}
    lists = made[torch.device("cpu"), torch.float32][0]
    assert lists[0][1] is x[2] and lists[1] == [None, None] and lists[2] == []
    with pytest.raises(RuntimeError):
        group([x, x[:1]])


def where_files_are_kept(torch):
    hub, zoo = part(torch, "hub"), part(torch, "utils.model_zoo")
    assert hub.get_dir().startswith(hub._get_torch_home()) and hub.urlparse("https://a.b/c").netloc == "a.b"
    with zoo.tqdm(total=3, disable=True) as bar:
        bar.update(3)
    assert callable(zoo.load_url)


def states_of_other_devices(torch):
    checkpoint = part(torch, "utils.checkpoint")
    assert checkpoint.get_device_states(torch.ones(1), 3, [torch.ones(1)]) == ([], [])
    checkpoint.set_device_states([], [])


def printing_for_a_while(torch):
    module = torch._tensor_str
    x = torch.tensor([1.23456789])
    with module.printoptions(precision=2):
        assert str(x) == "tensor([1.23])"
    assert str(x) == "tensor([1.2346])"


def marks_of_script(torch):
    internal = torch._jit_internal

    def method(self):
        return 3
    assert internal._copy_to_script_wrapper(method) is method and internal.is_scripting() is False
    chosen = internal.boolean_dispatch("flag", 1, False, lambda x, flag=False: "yes", lambda x, flag=False: "no",
                                       "tests", "chosen")
    assert chosen(1) == "no" and chosen(1, True) == "yes" and chosen(1, flag=True) == "yes"
    assert torch.jit._script_if_tracing is not None and issubclass(torch.jit.TracerWarning, Warning)

    class Net(torch.jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

    assert isinstance(Net(), torch.nn.Module)


def contexts_that_decorate(torch):
    kind = part(torch, "utils._contextlib")._DecoratorContextManager
    inside: list = []

    class Level(kind):
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            inside.append(self.name)

        def __exit__(self, *exc):
            inside.pop()

        def clone(self):
            return type(self)(self.name)

    @Level("a")
    def look():
        return list(inside)
    assert look() == ["a"] and inside == []


def modules_for_devices(torch):
    assert torch.get_device_module() is torch.cpu and torch.get_device_module("cpu") is torch.cpu
    assert torch.get_device_module(torch.device("cuda", 0)) is torch.cuda
    with pytest.raises(RuntimeError, match="does not have a corresponding module"):
        torch.get_device_module("meta")


def layouts_can_be_named(torch):
    for name in ("sparse_coo", "sparse_csr", "jagged", "strided"):
        found = getattr(torch, name)
        assert isinstance(found, torch.layout) and repr(found) == f"torch.{name}" and copy.deepcopy(found) is found
    assert torch.ones(1).layout is torch.strided and torch.ones(1).layout != torch.sparse_coo
    assert torch.legacy_contiguous_format is torch.contiguous_format


def a_dictionary_of_attributes(torch):
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    assert vars(x) == {} and vars(x[0]) == {} and vars(x.detach()) == {}
    x.mark = 1
    assert x.__dict__ == {"mark": 1} and isinstance(x.__dict__, dict)
    x.__dict__["more"] = 2
    assert x.more == 2 and torch.nn.Parameter(torch.ones(1), **torch.nn.Parameter(torch.ones(1)).__dict__).shape == (1,)
    assert "mark" in dir(x)


def what_the_library_is_built_with(torch):
    assert isinstance(torch.__config__.show(), str) and len(torch.__config__.show()) > 50
    assert f"at::get_num_threads() : {torch.get_num_threads()}\n" in torch.__config__.parallel_info()


def names_of_types(torch):
    """Programs annotate with them, and ask whether something is of them."""
    for name in ("TensorType", "DeviceObjType", "ListType", "NoneType", "qscheme", "ScriptObject"):
        assert not isinstance(torch.ones(1), getattr(torch, name))

    def annotated(x: torch.TensorType) -> torch.DeviceObjType:
        return x
    assert annotated(1) == 1
    assert issubclass(torch.AcceleratorError, RuntimeError)


def asserted_tensors(torch):
    torch._assert_async(torch.tensor(1))
    torch._assert_async(torch.tensor(True), "no")
    with pytest.raises(RuntimeError, match="single nonzero value, but got zero"):
        torch._assert_async(torch.tensor(0))
    with pytest.raises(RuntimeError, match="no more"):
        torch._assert_async(torch.tensor(0.0), "no more")
    with pytest.raises(RuntimeError, match="ambiguous"):
        torch._assert_async(torch.ones(2))


def marks_for_compilers(torch):
    def function(x):
        return x + 1
    assert torch._disable_dynamo(function)(1) == torch._disable_dynamo(recursive=False)(function)(1) == 2

    def declared(x):
        pass
    assert torch.jit._overload(declared) is declared
    with torch.jit.optimized_execution(False):
        assert part(torch, "fx.experimental.proxy_tensor").get_proxy_mode() is None


def functions_of_two_homes(torch):
    assert torch.functional.F is torch.nn.functional
    assert list(torch.meshgrid.__kwdefaults__) == ["indexing"]
    assert torch._C._nn.linear(torch.ones(1, 2), torch.ones(3, 2)).tolist() == [[2.0] * 3]
    assert torch._shape_as_tensor(torch.ones(2, 3)).tolist() == [2, 3]
    assert torch._has_compatible_shallow_copy_type(torch.ones(1), torch.ones(2))
    assert torch.ones(1).broadcast_to(2, 3).shape == torch.ones(1).broadcast_to((2, 3)).shape == (2, 3)


def switches_outside_of_their_block(torch):
    allow, frozen = getattr(torch.backends, "__allow_nonbracketed_mutation"), torch.backends.flags_frozen()
    with allow():
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        assert torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = before
    assert torch.backends.flags_frozen() == frozen           # PyTorch's own tests freeze them for the whole process
    x = torch.ones(1, 1, 2, 2)
    asked = torch.backends.cuda.SDPAParams(x, x, x, None, 0.0, False, False)
    assert not torch.backends.cuda.can_use_flash_attention(asked, False) and asked.query is x


def errors_of_workers(torch):
    try:
        {}["missing"]
    except KeyError:
        held = torch._utils.ExceptionWrapper(where="in a test")
    with pytest.raises(KeyError, match="Caught KeyError in a test.\nOriginal Traceback"):
        held.reraise()


def parts_of_distributions(torch):
    squashed = part(torch, "distributions.transforms")._clipped_sigmoid(torch.tensor([-1e4, 0.0, 1e4]))
    assert 0 < squashed[0] < 1e-30 and squashed[1] == 0.5 and 0.999 < squashed[2] < 1


def matrices_of_normal_distributions(torch):
    """laplace-torch and pyro call these."""
    full, low = (part(torch, f"distributions.{name}multivariate_normal") for name in ("", "lowrank_"))
    root = torch.tensor([[2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    covariance, x = root @ root.mT, torch.tensor([0.5, -1.0], dtype=torch.float64)
    torch.testing.assert_close(full._precision_to_scale_tril(covariance.inverse()), root)
    torch.testing.assert_close(full._batch_mv(root, x), root @ x)
    torch.testing.assert_close(full._batch_mahalanobis(root, x), x @ covariance.inverse() @ x)
    wide, diagonal = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)
    covariance = wide @ wide.mT + diagonal.diag()
    capacitance = low._batch_capacitance_tril(wide, diagonal)
    torch.testing.assert_close(low._batch_lowrank_logdet(wide, diagonal, capacitance), covariance.logdet())
    torch.testing.assert_close(low._batch_lowrank_mahalanobis(wide, diagonal, x, capacitance),
                               x @ covariance.inverse() @ x)


def a_base_of_transposed_convolutions(torch):
    """mmengine names it where it counts operations."""
    conv = part(torch, "nn.modules.conv")
    assert issubclass(conv._ConvTransposeMixin, conv._ConvTransposeNd)
    assert not isinstance(torch.nn.ConvTranspose1d(1, 1, 1), conv._ConvTransposeMixin)


def calls_that_are_waited_for(torch):
    """torchkbnufft forks its work; outside of TorchScript a fork is a call."""
    jit = part(torch, "jit")
    with pytest.warns(DeprecationWarning, match="torch.jit.fork"):
        future = jit.fork(lambda a, b: a + b, 1, b=2)
    with pytest.warns(DeprecationWarning, match="torch.jit.wait"):
        assert jit.wait(future) == 3 and future.done()
    with pytest.warns(DeprecationWarning), pytest.raises(ZeroDivisionError):
        jit.fork(lambda: 1 / 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert jit._wait(jit._fork(int)) == 0


def tensors_in_lists_of_a_size(torch):
    """mmengine sends parameters to other processes in such lists."""
    utils = part(torch, "_utils")
    small, wide = [torch.full((2,), float(n)) for n in range(5)], torch.zeros(3, dtype=torch.float64)
    lists = list(utils._take_tensors([small[0], wide, *small[1:]], 16))
    assert [[t[0].item() for t in held] for held in lists] == [[0, 1], [2, 3], [4], [0]]
    assert lists[3][0] is wide and list(utils._take_tensors([], 16)) == []
    ordered = utils._reorder_tensors_as([small[0], small[1], wide], [small[3], wide, small[4]])
    assert all(a is b for a, b in zip(ordered, (small[0], wide, small[1]), strict=True))


def whether_cuda_was_started(torch):
    """Reversible nets (reformer_pytorch) ask so whether there are random states of GPUs to keep."""
    assert torch.cuda._initialized == torch.cuda.is_initialized()


def gradients_across_processes(torch):
    assert part(torch, "distributed.autograd").is_available() in (False, True)


def parts_of_optimizers(torch):
    module = part(torch, "optim.optimizer")

    def function():
        return 1
    assert module._disable_dynamo_if_unsupported()(function)() == 1 and module.DeviceDict and module.StateDict
    params, grads = [torch.ones(2), torch.ones(2) * 1j], [torch.ones(2), torch.ones(2) * 2j]
    module._view_as_real(params, grads)
    assert params[0].shape == (2,) and params[1].tolist() == [[0, 1]] * 2 and grads[1].tolist() == [[0, 2]] * 2


def a_metaclass_of_parameters(torch):
    class Marked(torch.Tensor, metaclass=torch.nn.parameter._ParameterMeta):
        pass
    assert isinstance(torch.ones(1).as_subclass(Marked), Marked) and not isinstance(torch.ones(1), Marked)
    assert type(torch.nn.Parameter) is torch.nn.parameter._ParameterMeta


def the_backward_that_runs(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append((torch._C._current_graph_task_id(), torch.autograd._is_checkpoint_valid())))
    y.sum().backward(retain_graph=True)
    torch.autograd.grad(y.sum(), x)
    assert torch._C._current_graph_task_id() == -1 and torch.autograd._is_checkpoint_valid()
    assert [valid for _, valid in seen] == [True, False] and all(number >= 0 for number, _ in seen)


CASES = [held for name, held in list(globals().items())
         if callable(held) and getattr(held, "__module__", None) == __name__ and name != "part"]


def run(case, torch):
    """A case in a library; warnings are its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case(torch)
