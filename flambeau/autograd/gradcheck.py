"""Check derivatives against finite differences: `gradcheck` for the first, `gradgradcheck` for the second.

Each input is nudged element by element: its storage holds another Value meanwhile, so that the function sees it
wherever it has the tensor from. The outputs' central differences make the columns of a numerical Jacobian, and one
backward per output element makes the rows of the analytical one. Complex inputs are nudged along both axes and combined
as PyTorch's convention has it (the gradient is twice the conjugate Wirtinger derivative).
"""
import numpy as np

from ..base.errors import warn
from ..base.op import door
from ..base.spec import CPU
from ..trace.value import Value
from .engine import grad
from .forward_ad import dual_level, make_dual, unpack_dual
from .modes import enable_grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """Raised where a derivative does not agree with finite differences."""


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0,
              check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False,
              check_batched_forward_grad=False, check_forward_ad=False, check_backward_ad=True, fast_mode=False,
              masked=None, check_sparse_nnz=None):
    """Whether the gradients of `func` at `inputs` agree with finite differences."""
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    try:
        _check(func, _as_tuple(inputs), eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes,
               check_batched_grad, check_forward_ad, check_backward_ad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, gen_non_contig_grad_outputs=False,
                  raise_exception=True, nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False,
                  check_batched_grad=False, check_fwd_over_rev=False, check_rev_over_rev=True, fast_mode=False,
                  masked=False):
    """Whether the second gradients of `func` agree with finite differences of the first."""
    inputs = _as_tuple(inputs)
    if grad_outputs is None:
        outs = [o for o in _outputs(func, inputs) if _real_or_complex(o)]
        draw = np.random.default_rng(0)
        grad_outputs = tuple(_random_like(o, draw).requires_grad_() for o in outs)
    grad_outputs = _as_tuple(grad_outputs)
    watched = [i for i, t in enumerate(inputs) if _watched(t)]

    def first(*args):
        given, gs = args[:len(inputs)], args[len(inputs):]
        with enable_grad():
            outs = filter(_real_or_complex, _outputs(func, given))
            live = list(filter(lambda pair: pair[0].requires_grad, zip(outs, gs, strict=True)))
            got = grad([o for o, _ in live], [given[i] for i in watched], [g for _, g in live], create_graph=True,
                       allow_unused=True)
        return tuple(g for g in got if g is not None)

    return gradcheck(first, (*inputs, *grad_outputs), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad,
                     check_grad_dtypes=check_grad_dtypes, check_forward_ad=check_fwd_over_rev,
                     check_backward_ad=check_rev_over_rev)


def _check(func, inputs, eps, atol, rtol, nondet_tol, undefined, dtypes, batched, forward, backward):
    watched = [i for i, t in enumerate(inputs) if _watched(t)]
    if not watched:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")
    for i in watched:
        t = inputs[i]
        if t.dtype.to_real().itemsize < 8:
            warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. This "
                 "check will likely fail if all the inputs are not of double precision floating point or "
                 "complex.")
        if any(st == 0 and n > 1 for st, n in zip(t.stride(), t.shape, strict=True)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that "
                               "are non-overlapping to be able to compute the numerical gradients correctly. You "
                               "should call .contiguous on the input before passing it to gradcheck.")
    outs = _outputs(func, inputs)
    for nr, out in enumerate(outs):
        if not _real_or_complex(out):
            continue
        numeric = [_numeric(func, inputs, i, nr, out, eps) for i in watched]
        if backward:
            if not out.requires_grad:
                if any(np.abs(n).max(initial=0) > atol for n in numeric):
                    raise GradcheckError(f"Numerical gradient for function expected to be zero: output {nr} does not "
                                         "require grad")
                continue
            analytic = _analytic(out, [inputs[i] for i in watched], nondet_tol, dtypes)
            for i, a, n in zip(watched, analytic, numeric, strict=True):
                _compare(a, n, i, nr, atol, rtol, "backward mode")
        if forward:
            for at, i in enumerate(watched):
                _compare(_forward(func, inputs, i, nr, out), numeric[at], i, nr, atol, rtol, "forward mode")
        if batched and backward:
            _check_batched(out, [inputs[i] for i in watched], atol, rtol)
    if undefined and backward:
        _check_undefined(func, inputs, watched)


def _compare(analytic, numeric, i, nr, atol, rtol, mode):
    if not np.allclose(analytic, numeric, rtol, atol, equal_nan=True):
        worst = np.unravel_index(np.argmax(np.nan_to_num(np.abs(analytic - numeric), nan=np.inf)), analytic.shape)
        raise GradcheckError(
            f"Jacobian computed with {mode} mismatch for output {nr} with respect to input {i},\n  largest difference "
            f"at (input element {worst[0]}, output element {worst[1]}): analytical {analytic[worst]}, numerical "
            f"{numeric[worst]}\nnumerical:{numeric}\nanalytical:{analytic}\n")


def _set(thing, **fields):
    for name, value in fields.items():
        setattr(thing, name, value)


def _numeric(func, inputs, i, nr, out, eps):
    """(input elements, output elements): central differences in PyTorch's complex convention."""
    t = inputs[i]
    storage, columns = t._storage, []
    device, contents = t.device, storage.value.ready().bytes_on_host()
    out_real = not out.dtype.is_complex
    other_memory = dict(exported=False, fingerprint=None, _export=None, _keeper=None, _pinned=False)
    as_it_was = {name: getattr(storage, name) for name in ("value", "version", "saved_at", *other_memory)}

    def at(delta, j):
        moved = Value.of_bytes(contents.copy())
        moved.look(t._spec.on(CPU), t._offset).flat[j] += delta
        if device is not CPU:
            moved = Value.of_bytes(device.backend.from_host(moved.array, moved.spec.on(device)), device)
        # for the call it holds other memory, which was not seen outside
        _set(storage, value=moved, **other_memory)
        try:
            return _array(_outputs(func, inputs)[nr]).reshape(-1).copy()
        finally:
            _set(storage, **as_it_was)

    for j in range(t.numel()):
        along = (at(eps, j) - at(-eps, j)) / (2 * eps)
        if t.dtype.is_complex:
            across = (at(eps * 1j, j) - at(-eps * 1j, j)) / (2 * eps)
            # the gradient of a real output is dL/dx + i dL/dy
            along = along + 1j * across if out_real else (along, across)
        columns.append(along)
    if t.dtype.is_complex and not out_real:
        return _complex_rows(columns, out.numel())
    if not columns:
        return np.zeros((0, out.numel()))
    made = np.stack(columns)
    return made if out_real or t.dtype.is_complex else np.concatenate([made.real, made.imag], 1)


def _complex_rows(columns, n_out):
    """Rows for v = 1 and v = i of a complex output: grad = dRe/dx + i dRe/dy, then dIm/dx + i dIm/dy."""
    if not columns:
        return np.zeros((0, 2 * n_out), complex)
    rows = [np.concatenate([a.real + 1j * b.real, a.imag + 1j * b.imag]) for a, b in columns]
    return np.stack(rows)


def _analytic(out, inputs, nondet_tol, dtypes):
    """One backward per output element (two for a complex one: v = 1 and v = i)."""
    rows = [[] for _ in inputs]
    n = out.numel()
    units = [1.0] if not out.dtype.is_complex else [1.0, 1j]
    for unit in units:
        for j in range(n):
            v = np.zeros(n, _array(out).dtype)
            v[j] = unit
            v = _tensor(v.reshape(tuple(out.shape)), out.device)
            got = grad(out, inputs, v, retain_graph=True, allow_unused=True)
            again = grad(out, inputs, v, retain_graph=True, allow_unused=True)
            for row, g, h, t in zip(rows, got, again, inputs, strict=True):
                if g is None:
                    row.append(np.zeros(t.numel(), _array(t).dtype))
                    continue
                if g.shape != t.shape:
                    raise GradcheckError("Analytical gradient has incorrect size")
                if dtypes and g.dtype != t.dtype:
                    raise GradcheckError("Analytical gradient has incorrect type")
                if np.abs(_array(g) - _array(h)).max(initial=0) > nondet_tol:
                    raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and "
                                         "grad_output multiple times gives different values, although analytical "
                                         "gradient matches numerical gradient.")
                row.append(_array(g).reshape(-1).copy())
    # for a complex output, <v, out> with v = i reads the imaginary part
    return [np.stack(row, 1) if row else np.zeros((t.numel(), 0)) for row, t in zip(rows, inputs, strict=True)]


def _forward(func, inputs, i, nr, out):
    """The Jacobian by tangents, in the same layout as the numerical one."""
    t = inputs[i]
    rows = []
    for j in range(t.numel()):
        parts = []
        for unit in ([1.0, 1j] if t.dtype.is_complex else [1.0]):
            v = np.zeros(t.numel(), _array(t).dtype)
            v[j] = unit
            with dual_level():
                args = [make_dual(x.detach(), _tensor(v.reshape(tuple(t.shape)), t.device)) if k == i else x
                        for k, x in enumerate(inputs)]
                tangent = unpack_dual(_outputs(func, args)[nr]).tangent
            parts.append(np.zeros(out.numel()) if tangent is None else _array(tangent).reshape(-1).copy())
        if t.dtype.is_complex:
            a, b = parts
            rows.append(np.concatenate([a.real + 1j * b.real, a.imag + 1j * b.imag]) if out.dtype.is_complex
                        else a + 1j * b)
        else:
            a = parts[0]
            rows.append(np.concatenate([a.real, a.imag]) if out.dtype.is_complex else a)
    return np.stack(rows) if rows else np.zeros((0, out.numel()))


def _check_batched(out, inputs, atol, rtol):
    draw = np.random.default_rng(0)
    vs = [_random_like(out, draw) for _ in range(2)]
    each = [grad(out, inputs, v, retain_graph=True, allow_unused=True) for v in vs]
    both = grad(out, inputs, door.operations["stack"](vs), retain_graph=True, allow_unused=True, is_grads_batched=True)
    for k, b in enumerate(both):
        for row, e in enumerate(each):
            if b is not None and not np.allclose(_array(b[row]), _array(e[k]), rtol, atol):
                raise GradcheckError("While testing batched gradients: the batched result differs from one backward "
                                     "per row")


def _check_undefined(func, inputs, watched):
    """A backward that gets no gradient for one of several results must treat it as zeros."""
    outs = [o for o in _outputs(func, inputs) if _real_or_complex(o) and o.requires_grad]
    if len(outs) < 2:
        return
    for skipped in range(len(outs)):
        live = [o for k, o in enumerate(outs) if k != skipped]
        ones = [door.operations["ones_like"](o) for o in live]
        without = grad(live, [inputs[i] for i in watched], ones, retain_graph=True, allow_unused=True)
        zeros = [door.operations["zeros_like" if k == skipped else "ones_like"](o) for k, o in enumerate(outs)]
        withal = grad(outs, [inputs[i] for i in watched], zeros, retain_graph=True, allow_unused=True)
        for a, b in zip(without, withal, strict=True):
            a = np.zeros(1) if a is None else _array(a)
            b = np.zeros(1) if b is None else _array(b)
            if not np.allclose(a, b, equal_nan=True):
                raise GradcheckError("Expected backward function to handle undefined output grads. Please look at "
                                     "'Notes about undefined output gradients' in 'tools/autograd/derivatives.yaml'")


# --- parts ----------------------------------------------------------------------------------------------------------


def _as_tuple(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _outputs(func, inputs):
    return [o for o in _as_tuple(func(*inputs)) if isinstance(o, door.tensor)]


def _real_or_complex(t):
    return t.dtype.category >= 2


def _watched(t):
    return isinstance(t, door.tensor) and t.requires_grad and _real_or_complex(t)


def _array(t):
    """The contents, to be read now: nothing is exported."""
    return t._storage.value.ready().read(t._spec, t._offset)


def _tensor(array, device):
    return door.from_array(array).to(device)


def _random_like(t, draw):
    made = draw.standard_normal(tuple(t.shape))
    if t.dtype.is_complex:
        made = made + 1j * draw.standard_normal(tuple(t.shape))
    return _tensor(np.asarray(made).astype(_array(t).dtype), t.device)
