"""Spectral normalisation as a hook: the older form of `parametrizations.spectral_norm`."""
from ...autograd.modes import no_grad
from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..parameter import Parameter, UninitializedParameter

__all__ = ["SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook", "spectral_norm",
           "remove_spectral_norm"]


class SpectralNorm:
    """The hook: before every forward it divides `<name>_orig` by its largest singular value, which the vectors
    `<name>_u` and `<name>_v` follow by power iteration."""

    _version = 1              # of the state: since 1 there is `_v`, and the weight itself is not saved

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got "
                             f"n_power_iterations={n_power_iterations}")
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight):
        """The weight as a matrix, whose rows are its slices along `dim`."""
        return weight.movedim(self.dim, 0).flatten(1)

    def compute_weight(self, module, do_power_iteration):
        """The normalised weight, after further iterations if asked."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                new_u, new_v = u, v
                for _ in range(self.n_power_iterations):
                    new_v = F.normalize(matrix.t().mv(new_u), dim=0, eps=self.eps)
                    new_u = F.normalize(matrix.mv(new_v), dim=0, eps=self.eps)
                u.copy_(new_u)
                v.copy_(new_v)
            u, v = u.clone(), v.clone()                    # the next iteration writes over them
        return weight / u.dot(matrix.mv(v))

    def remove(self, module):
        """Make the weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))

    def _solve_v_and_rescale(self, weight_mat, u, target_sigma):
        """The vector v for which u and v give the singular value `target_sigma`."""
        v = (weight_mat.t() @ weight_mat).pinverse() @ weight_mat.t() @ u
        return v * (target_sigma / u.dot(weight_mat.mv(v)))

    @staticmethod
    def apply(module, name, n_power_iterations, dim, eps):
        """Put the hook on `module`, whose parameter `name` becomes `<name>_orig`."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        fn = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if isinstance(weight, UninitializedParameter):
            raise ValueError("The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to "
                             "run the dummy forward before applying spectral normalization")
        with no_grad():
            sizes = fn.reshape_weight_to_matrix(weight).shape
            u, v = [F.normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in sizes]
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        # an attribute, and no parameter: what is computed before every forward
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(SpectralNormStateDictHook(fn))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(fn))
        return fn


class SpectralNormLoadStateDictPreHook:
    """Brings the state of a version before 1, which had the weight and no `_v`, to what it is now."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        fn = self.fn
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version")
        if version is not None and version >= 1:
            return
        key = prefix + fn.name
        if key + "_v" in state_dict and key not in state_dict:
            return                                         # saved by a version 1 without its metadata
        lacking = [key + suffix for suffix in ("_orig", "", "_u") if key + suffix not in state_dict]
        if lacking:
            missing_keys.extend(lacking if strict else ())
            return
        with no_grad():
            original, weight = state_dict[key + "_orig"], state_dict.pop(key)
            sigma = (original / weight).mean()
            matrix = fn.reshape_weight_to_matrix(original)
            state_dict[key + "_v"] = fn._solve_v_and_rescale(matrix, state_dict[key + "_u"], sigma)


class SpectralNormStateDictHook:
    """Notes the version of the state in its metadata."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, module, state_dict, prefix, local_metadata):
        local_metadata.setdefault("spectral_norm", {})[self.fn.name + ".version"] = self.fn._version


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a weight of `module` by its largest singular value before every forward; gives `module` back."""
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module, name="weight"):
    """Undo `spectral_norm`."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, hook in list(hooks.items()):
            inner = getattr(hook, "hook", hook)
            ours = isinstance(inner, (SpectralNormStateDictHook, SpectralNormLoadStateDictPreHook))
            if ours and inner.fn.name == name:
                del hooks[key]
    return module
