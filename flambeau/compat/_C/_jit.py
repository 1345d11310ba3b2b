"""Switches of TorchScript's fuser, for timm's `set_jit_fuser`. They can be set; there is no TorchScript to obey
them."""


def _switch(name, start):
    held = [start]

    def change(enabled):
        before, held[0] = held[0], enabled
        return before
    change.__name__ = change.__qualname__ = name
    change.__doc__ = f"`torch._C.{name}`: set a switch that changes nothing; its value before."
    return change, lambda: held[0]


_jit_set_profiling_executor, _ = _switch("_jit_set_profiling_executor", True)
_jit_set_profiling_mode, _ = _switch("_jit_set_profiling_mode", True)
_jit_set_texpr_fuser_enabled, _ = _switch("_jit_set_texpr_fuser_enabled", True)
_jit_set_nvfuser_enabled, _ = _switch("_jit_set_nvfuser_enabled", False)
_jit_set_nvfuser_guard_mode, _ = _switch("_jit_set_nvfuser_guard_mode", True)
_jit_override_can_fuse_on_cpu, _jit_can_fuse_on_cpu = _switch("_jit_override_can_fuse_on_cpu", False)
_jit_override_can_fuse_on_gpu, _jit_can_fuse_on_gpu = _switch("_jit_override_can_fuse_on_gpu", False)
