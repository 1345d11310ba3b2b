"""Autocast on CUDA by PyTorch's own lists of what is cast to what, those of its tests for a GPU, on a simulated one.

The dtypes of results are known when a call is recorded; nothing has to run.
"""
import pytest

torch = pytest.importorskip("torch")
from torch.testing._internal.autocast_test_lists import AutocastTestLists

import flambeau
from tests.cuda.simulated import compiler, simulating

LISTS = AutocastTestLists(torch.device("cpu"))
# PyTorch's own kernels, which have no name here, or whose function in nn.functional takes other arguments.
NOT_HERE = {"_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose", "conv_tbc", "einsum",
            "nll_loss2d", "poisson_nll_loss", "margin_ranking_loss"}
PLACES = {"torch": lambda: (flambeau, flambeau.nn.functional), "nn": lambda: (flambeau.nn.functional,),
          "linalg": lambda: (flambeau.linalg,)}
CASES = [(name, args, kwargs[0] if kwargs else {}, place, want)
         for place, listed, want in (
             ("torch", LISTS.torch_fp16, "lower"), ("torch", LISTS.torch_fp32, "float32"),
             ("torch", LISTS.torch_need_autocast_promote, "float32"), ("nn", LISTS.nn_fp16, "lower"),
             ("nn", LISTS.nn_fp32, "float32"), ("linalg", LISTS.linalg_fp16, "lower"))
         for name, args, *kwargs in [(one[0], one[1], *[k for k in one[2:] if isinstance(k, dict)]) for one in listed]
         if name not in NOT_HERE]


@pytest.fixture(scope="module")
def device():
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    with simulating(devices=1):
        yield "cuda"


def moved(held, device):
    """Flambeau's tensors for PyTorch's, on the device."""
    if isinstance(held, torch.Tensor):
        return flambeau.tensor(held.tolist(), dtype=getattr(flambeau, str(held.dtype).split(".")[1]), device=device)
    return type(held)(moved(part, device) for part in held) if isinstance(held, (tuple, list)) else held


@pytest.mark.parametrize("lower", ["float16", "bfloat16"])
@pytest.mark.parametrize("name, args, kwargs, place, want", CASES, ids=[f"{case[3]}.{case[0]}" for case in CASES])
def test_dtypes_of_results(device, name, args, kwargs, place, want, lower):
    if lower == "bfloat16":                                        # the lists are of float16
        args = [a.to(torch.bfloat16) if isinstance(a, torch.Tensor) and a.dtype is torch.float16 else a for a in args]
    dtype = getattr(flambeau, lower)
    function = next(getattr(space, name.removeprefix("linalg_")) for space in PLACES[place]()
                    if hasattr(space, name.removeprefix("linalg_")))
    given = moved(list(args), device)
    with flambeau.autocast("cuda", dtype=dtype):
        made = function(*given, **kwargs)
        made = made[0] if isinstance(made, tuple) else made
        assert made.dtype is (dtype if want == "lower" else flambeau.float32)
        if place == "torch" and hasattr(flambeau.Tensor, name) and not isinstance(given[0], tuple | list):
            method = getattr(given[0], name)(*given[1:], **kwargs)
            assert (method[0] if isinstance(method, tuple) else method).dtype is made.dtype
    assert made.device.type == "cuda"


def test_what_promotes_by_itself(device):
    with flambeau.autocast("cuda"):
        for name, args, want in LISTS.torch_expect_builtin_promote:
            made = getattr(flambeau, name)(*moved(list(args), device))
            assert made is True or made is False or str(made.dtype) == str(want), name


def test_operators(device):
    half = flambeau.rand(4, 4, device=device, dtype=flambeau.float16)
    with flambeau.autocast("cuda"):
        assert (half ** 1.5).dtype is (2.0 ** half).dtype is (1 / half).dtype is flambeau.float32
        assert (half.float() @ half).dtype is (half + half).dtype is flambeau.float16
        assert half.sum(dtype=flambeau.float64).dtype is flambeau.float64
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            flambeau.nn.functional.binary_cross_entropy(half.float(), half.float())
        assert (flambeau.ones(2, 2) @ flambeau.ones(2, 2)).dtype is flambeau.float32          # the CPU's are left alone
    with flambeau.autocast("cpu"):
        assert (half.float() @ half.float()).dtype is flambeau.float32
    assert (half ** 1.5).dtype is flambeau.float16 is (1 / half).dtype
