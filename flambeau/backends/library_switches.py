"""`torch.backends` as programs know it: the switches of libraries that PyTorch is built with.

None of these libraries is here, and `is_available()` says so. Their switches can be set, read back, and change nothing:
what they choose between in PyTorch, Flambeau does in one way.
"""
import contextlib
from types import ModuleType

__path__: list = []           # `import torch.backends.cudnn` finds the names below


class Switches(ModuleType):
    """One library: `is_available()` says that it is not there, and its switches can be set."""

    def __init__(self, name, says="", **switches):
        super().__init__(f"torch.backends.{name}", says)
        self.__dict__.update(switches)

    def is_available(self):
        """Whether the library can be used."""
        return False

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


class Attention(Switches):
    """The switches of CUDA: which kernels attention and products of matrices may use."""

    def __init__(self, name, says):
        super().__init__(name, says, matmul=Switches(
            f"{name}.matmul", allow_tf32=False, fp32_precision="none", allow_fp16_accumulation=False,
            allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True))
        for kind in ("flash", "math", "mem_efficient", "cudnn"):
            self._add(kind)

    def _add(self, kind):
        state = [True]
        vars(self)[f"{kind}_sdp_enabled"] = lambda: state[0]
        vars(self)[f"enable_{kind}_sdp"] = lambda enabled: state.__setitem__(0, bool(enabled))

    @contextlib.contextmanager
    def sdp_kernel(self, enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
        """Allow some kernels of attention for the duration of a `with` block."""
        wanted = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient,
                  "cudnn": enable_cudnn}
        before = {kind: vars(self)[f"{kind}_sdp_enabled"]() for kind in wanted}
        for kind, on in wanted.items():
            vars(self)[f"enable_{kind}_sdp"](on)
        try:
            yield
        finally:
            for kind, on in before.items():
                vars(self)[f"enable_{kind}_sdp"](on)

    def preferred_linalg_library(self, backend=None):
        """The library of CUDA's linear algebra: none."""
        return "default"

    preferred_blas_library = preferred_linalg_library


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
        from .cpu import NoCompiler, processor
        try:
            goal = processor()
        except NoCompiler:                        # then nobody has asked the processor
            return "DEFAULT"
        return capability(goal.triple, goal.on)


def capability(triple, features):
    """PyTorch's word for the most that a processor with `features` has, of those that PyTorch has kernels for."""
    if not triple.startswith("x86_64"):
        return "DEFAULT"                          # of Arm's, PyTorch's own packages name SVE of 256 bits alone
    if features >= {"avx512vl", "avx512bw", "avx512dq", "fma"}:
        return "AVX512"
    return "AVX2" if features >= {"avx2", "fma"} else "NO AVX"


cudnn = Switches("cudnn", "NVIDIA's library for neural networks.", enabled=True, benchmark=False, deterministic=False,
                 allow_tf32=True, benchmark_limit=None, fp32_precision="none")
miopen = Switches("miopen", "AMD's library for neural networks.", immediate=False)
cuda = Attention("cuda", "CUDA.")
mps = Switches("mps", "Apple's GPU.", is_macos13_or_newer=lambda minor=0: False,
               is_macos_or_newer=lambda major, minor: False)
mkl = Switches("mkl", "Intel's library for linear algebra.", VERBOSE_OFF=0, VERBOSE_ON=1)
mkldnn = Switches("mkldnn", "Intel's library for neural networks.", enabled=True, deterministic=False,
                  allow_tf32=False, fp32_precision="none", VERBOSE_OFF=0, VERBOSE_ON=1, VERBOSE_ON_CREATION=2)
openmp = Switches("openmp", "OpenMP.")
nnpack = Switches("nnpack", "A library for neural networks on phones.", enabled=True)
opt_einsum = Switches("opt_einsum", "The order of contractions in einsum.", enabled=False, strategy=None)
quantized = Switches("quantized", "Quantised operations.", engine="none", supported_engines=[])
cusparselt = Switches("cusparselt", "NVIDIA's library for sparse matrices.")
kleidiai = Switches("kleidiai", "Arm's library for neural networks.")
mha = FastPath("mha", "Multi-head attention.")
cpu = CPUSwitches("cpu", "The CPU.")
fp32_precision = "none"
