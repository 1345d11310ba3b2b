"""`torch.backends` as programs know it: the switches of libraries that PyTorch is built with.

Of these libraries, NVIDIA's are used on CUDA devices; `cuda.matmul` and `cudnn` say in which precision they compute.
None of the others is here, and `is_available()` says so. Their switches can be set, read back, and change nothing: what
they choose between in PyTorch, Flambeau does in one way.
"""
import contextlib
from types import ModuleType

from ..base.questions import Question as _Question
from .cuda import chain, driver

__path__: list = []           # `import torch.backends.cudnn` finds the names below


class Switches(ModuleType):
    """One library: `is_available()` says that it is not there, and its switches can be set."""

    def __init__(self, name, says="", **switches):
        super().__init__(f"torch.backends.{name}", says)
        methods = {method: getattr(self, method) for method in dir(type(self)) if not method.startswith("_")
                   and not isinstance(getattr(type(self), method), property)}
        self.__dict__.update(methods, **switches)             # functions of the module, to code that walks it

    @_Question
    def is_available(self):
        """Whether the library can be used."""
        return False

    @_Question
    def is_built(self):
        """Whether PyTorch would have been built with it."""
        return False

    @contextlib.contextmanager
    def flags(self, **switches):
        """Set switches for the duration of a `with` block."""
        before = {name: vars(self)[name] for name in switches if name in vars(self)}
        self.__dict__.update(switches)
        try:
            yield
        finally:
            self.__dict__.update(before)

    def set_flags(self, **switches):
        """Set switches; their values before."""
        before = {name: vars(self).get(name) for name in switches}
        self.__dict__.update(switches)
        return before

    def version(self):
        """The library's version: none."""
        return None


PRECISIONS = ("ieee", "tf32", "none")


class Precision(Switches):
    """Switches of something that computes in float32, exactly or by way of TF32: one state under three names.

    `fp32_precision` is "ieee", "tf32" or "none", which leaves it to `otherwise`; `allow_tf32` is whether it comes to
    TF32. Of products of matrices, `set_float32_matmul_precision` is the third.
    """

    def __init__(self, name, says="", otherwise="ieee", **switches):
        super().__init__(name, says, **switches)
        self.__dict__.update(_asked="none", _otherwise=otherwise)

    @property
    def fp32_precision(self):
        """ "ieee": exact; "tf32": operands are rounded to 10 bits of mantissa; "none": as it is by default."""
        return self._asked

    @fp32_precision.setter
    def fp32_precision(self, precision):
        if precision not in PRECISIONS:
            raise RuntimeError(f"Invalid fp32_precision {precision!r} of {self.__name__}: it is one of "
                               f"{', '.join(PRECISIONS)}")
        self.__dict__["_asked"] = precision

    @property
    def allow_tf32(self):
        """Whether float32 goes by way of TF32."""
        general = self._otherwise if fp32_precision == "none" else fp32_precision
        return (general if self._asked == "none" else self._asked) == "tf32"

    @allow_tf32.setter
    def allow_tf32(self, allowed):
        self.__dict__["_asked"] = "tf32" if allowed else "ieee"

    @contextlib.contextmanager
    def flags(self, **switches):
        """Set switches for the duration of a `with` block."""
        before = {name: getattr(self, name) for name in switches}
        asked = self._asked
        self.set_flags(**switches)
        try:
            yield
        finally:
            self.set_flags(**before)
            self.__dict__["_asked"] = asked

    def set_flags(self, **switches):
        """Set switches; their values before."""
        before = {name: getattr(self, name, None) for name in switches}
        for name, value in switches.items():
            if value is not None:
                setattr(self, name, value)
        return before


class CuDNN(Precision):
    """cuDNN, which computes convolutions on CUDA devices where it is installed."""

    @_Question
    def is_available(self):
        """Whether the library can be used."""
        return self.version() is not None

    def version(self):
        """The library's version as it says it, 91400; None without it, and before a CUDA device is used."""
        said = driver.current().versions()["cudnn"] if driver.is_made() else None
        if said is None:
            return None
        major, minor, *rest = map(int, said.split("."))
        return major * 10000 + minor * 100 + (rest[0] if rest else 0)

    def is_acceptable(self, tensor):
        """Whether the library could compute with a tensor like this."""
        return self.enabled and tensor.is_cuda and tensor.dtype.is_floating_point and self.is_available()


class Attention(Switches):
    """The switches of CUDA: which kernels attention and products of matrices may use."""

    def __init__(self, name, says):
        super().__init__(name, says, matmul=Precision(
            f"{name}.matmul", "Products of matrices.", allow_fp16_accumulation=False,
            allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True))
        for algorithm in ("flash", "math", "mem_efficient", "cudnn"):
            self._add(algorithm)
        self.SDPAParams = SDPAParams
        self.__all__ = [name for name in vars(self) if not name.startswith("_") and "flags" not in name
                        and name not in ("is_available", "version")]

    def _add(self, algorithm):
        state = [True]
        vars(self)[f"{algorithm}_sdp_enabled"] = lambda: state[0]
        vars(self)[f"enable_{algorithm}_sdp"] = lambda enabled: state.__setitem__(0, bool(enabled))

    @contextlib.contextmanager
    def sdp_kernel(self, enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
        """Allow some kernels of attention for the duration of a `with` block."""
        wanted = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient,
                  "cudnn": enable_cudnn}
        before = {algorithm: vars(self)[f"{algorithm}_sdp_enabled"]() for algorithm in wanted}
        for algorithm, on in wanted.items():
            vars(self)[f"enable_{algorithm}_sdp"](on)
        try:
            yield
        finally:
            for algorithm, on in before.items():
                vars(self)[f"enable_{algorithm}_sdp"](on)

    @_Question
    def is_built(self):
        """Whether the library for CUDA, CuPy, is installed."""
        return chain.library() is not None

    def can_use_flash_attention(self, params, debug=False):
        """Whether PyTorch's kernel of that name could compute attention with these arguments: it is not here."""
        return False

    can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention

    def is_flash_attention_available(self):
        """Whether PyTorch would have been built with that kernel: it is not here."""
        return False

    def preferred_linalg_library(self, backend=None):
        """The library of CUDA's linear algebra: none."""
        return "default"

    preferred_blas_library = preferred_linalg_library


class SDPAParams:
    """The arguments of a call of attention, which `can_use_flash_attention` and its kin are asked about. keras,
    transformers."""

    def __init__(self, query, key, value, attn_mask, dropout, is_causal, enable_gqa):
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


class FastPath(Switches):
    """The switch of the fused attention of `nn.MultiheadAttention`."""

    def __init__(self, name, says):
        super().__init__(name, says)
        self._on = True

    def get_fastpath_enabled(self):
        """Whether it may be used."""
        return self._on

    def set_fastpath_enabled(self, value):
        """Set whether it may be used."""
        self._on = value


class CPUSwitches(Switches):
    """What is asked about the CPU."""

    def get_cpu_capability(self):
        """The vector instructions that PyTorch would choose here: "AVX512", "AVX2", "NO AVX"; "DEFAULT" elsewhere.

        It is asked of the processor that kernels are compiled for (`config.cpu`). torchvision resizes uint8 images in
        another way where there is AVX2.
        """
        from .cpu.machine_code import get_cpu_capability
        return get_cpu_capability()


fp32_precision = "none"       # of all that do not say it themselves
cudnn = CuDNN("cudnn", "NVIDIA's library for neural networks.", "tf32", enabled=True, benchmark=False,
              deterministic=False, benchmark_limit=None)
cudnn.__dict__.update(conv=cudnn, rnn=cudnn)
miopen = Switches("miopen", "AMD's library for neural networks.", immediate=False)
cuda = Attention("cuda", "CUDA.")
mps = Switches("mps", "Apple's GPU.", is_macos13_or_newer=lambda minor=0: False,
               is_macos_or_newer=lambda major, minor: False,
              __all__=["is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"])
mkl = Switches("mkl", "Intel's library for linear algebra.", VERBOSE_OFF=0, VERBOSE_ON=1)
mkldnn = Switches("mkldnn", "Intel's library for neural networks.", enabled=True, deterministic=False,
                  allow_tf32=False, fp32_precision="none", VERBOSE_OFF=0, VERBOSE_ON=1, VERBOSE_ON_CREATION=2)
openmp = Switches("openmp", "OpenMP.")
nnpack = Switches("nnpack", "A library for neural networks on phones.", enabled=True,
                  __all__=["flags", "is_available", "set_flags"])
opt_einsum = Switches("opt_einsum", "The order of contractions in einsum.", enabled=False, strategy=None)
quantized = Switches("quantized", "Quantised operations.", engine="none", supported_engines=[])
cusparselt = Switches("cusparselt", "NVIDIA's library for sparse matrices.",
                      __all__=["is_available", "version"])
kleidiai = Switches("kleidiai", "Arm's library for neural networks.")
mha = FastPath("mha", "Multi-head attention.")
cpu = CPUSwitches("cpu", "The CPU.", __all__=["get_cpu_capability"])


def flags_frozen():
    """Whether switches may only be set by `flags()`, in a `with` block: they may be set anywhere."""
    return False


@contextlib.contextmanager
def __allow_nonbracketed_mutation():
    """A context in which switches may be set outside of `flags()`, which they may anyway. monai."""
    yield
