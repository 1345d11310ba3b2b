"""torchaudio's compiled operators, as ours.

torchaudio keeps the loops that are slow in Python in shared libraries, `_torchaudio` and `libtorchaudio`, which are
made for PyTorch's C++ and cannot be loaded here. So when it asks `torch.ops.load_library` for one, the operators
below are defined in its stead, under the names that it looks up. torchaudio differentiates filters and the transducer's
loss by formulas of its own, so what it calls here needs no gradients.
"""
from ..base import dtypes
from ..base.errors import need
from ..base.op import Op
from ..base.spec import spec


def no_cuda():
    """The version of CUDA that the operators were made with: none."""
    return None


def with_alignment():
    """Whether `forced_align` is there."""
    return True


# --- filters ----------------------------------------------------------------------------------------------------------


def _lfilter_core_loop(input_signal_windows, a_coeff_flipped, padded_output_waveform):
    """Write the recursive part of a filter: each sample less what the samples before it, already filtered, weigh.

    Signals [batch, channel, time], weights [channel, order] from the oldest sample to the newest, the last of which is
    the sample itself; the output begins with `order - 1` samples from before the signal.
    """
    past = a_coeff_flipped.shape[1] - 1
    padded_output_waveform[:, :, past:] = _recursion(input_signal_windows, a_coeff_flipped[:, :past],
                                                     padded_output_waveform[:, :, :past])


class _recursion(Op):
    """`signal` less the weighted samples of the result before each."""

    forms = ""
    exact = eager = True

    def meta(signal, weights, before): return spec(signal.dtype, signal.shape, None, signal.device)

    def ref(xp, signal, weights, before):
        past, length = weights.shape[1], signal.shape[-1]
        out = xp.moveaxis(xp.concatenate([before, signal], -1), -1, 0).copy()      # a time step is a row
        columns = list(weights.T.copy())
        for now in range(past, past + length):
            sample = out[now]                                                      # a view, changed in place
            for at, weight in enumerate(columns, now - past):
                sample -= out[at] * weight
        return xp.moveaxis(out[past:], 0, -1)


def _overdrive_core_loop(waveform, temp, last_in, last_out, output_waveform):
    """Write half the `waveform` and three quarters of `temp` without its slow part, [channel, time] each."""
    output_waveform[:] = _driven(waveform, temp, last_in, last_out)


class _driven(Op):
    """Half of `waveform` and 3/4 of `temp` through a filter that takes away what does not change."""

    forms = ""
    exact = eager = True

    def meta(waveform, temp, last_in, last_out): return spec(waveform.dtype, waveform.shape, None, waveform.device)

    def ref(xp, waveform, temp, last_in, last_out):
        steps = (temp - xp.concatenate([last_in[:, None], temp[:, :-1]], 1)).T.copy()
        kept = temp.dtype.type(0.995)
        for now, step in enumerate(steps):
            last_out = step + kept * last_out
            steps[now] = last_out
        return waveform * waveform.dtype.type(0.5) + steps.T * temp.dtype.type(0.75)


# --- sequences of labels ----------------------------------------------------------------------------------------------


def forced_align(log_probs, targets, input_lengths, target_lengths, blank):
    """The likeliest way that the labels `targets` take through the frames, (labels by frame, log_probs).

    A frame has a label or `blank`; a label lasts one frame or more, and two equal ones in a row have a blank between.
    """
    need(log_probs.dim() == 3 and targets.dim() == 2, "forced_align takes log_probs [1, time, labels] and targets "
                                                      f"[1, length], got {log_probs.shape} and {targets.shape}")
    need(log_probs.shape[0] == targets.shape[0] == 1, "The batch dimension for log_probs must be 1 at the current "
                                                      f"version, got {log_probs.shape[0]}.")
    need(log_probs.dtype in (dtypes.float32, dtypes.float64, dtypes.float16),
         f"log_probs must be float64, float32 or float16, got {log_probs.dtype}")
    need(targets.dtype in (dtypes.int32, dtypes.int64), f"targets must be int32 or int64, got {targets.dtype}")
    path = _aligned(log_probs.detach(), targets, int(input_lengths[0]), int(target_lengths[0]), blank)
    return path, log_probs.clone()


class _aligned(Op):
    """The label of each frame on the likeliest way."""

    forms = ""
    exact = eager = True

    def meta(log_probs, targets, frames, labels, blank):
        return spec(targets.dtype, log_probs.shape[:2], None, log_probs.device)

    def ref(xp, log_probs, targets, frames, labels, blank):
        label = xp.full(2 * labels + 1, blank, targets.dtype)          # blanks before, between and after the labels
        label[1::2] = targets[0, :labels]
        repeats = int((label[3::2] == label[1:-2:2]).sum())
        need(frames >= labels + repeats, f"targets length is too long for CTC. Found log_probs length: {frames}, "
                                         f"targets length: {labels}, and number of repeats: {repeats}")
        leaps = xp.zeros(len(label), bool)                             # what may follow the label before its blank
        leaps[3::2] = label[3::2] != label[1:-2:2]
        scores = log_probs[0, :frames][:, label]
        best, came = xp.full(len(label), -xp.inf, scores.dtype), xp.zeros((frames, len(label)), xp.int8)
        best[:2] = scores[0, :2]
        for frame in range(1, frames):
            ways = xp.full((3, len(label)), -xp.inf, scores.dtype)     # from the same, from the one and the two before
            ways[0], ways[1, 1:], ways[2, 2:] = best, best[:-1], xp.where(leaps[2:], best[:-2], -xp.inf)
            came[frame] = ways.argmax(0)
            best = ways.max(0) + scores[frame]
        at = len(label) - 1
        if labels and best[-2] >= best[-1]:
            at -= 1
        path = xp.full((1, log_probs.shape[1]), blank, targets.dtype)
        for frame in range(frames - 1, -1, -1):
            path[0, frame] = label[at]
            at -= came[frame, at]
        return path


def rnnt_loss_forward(logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax=True):
    """The transducer's loss of each sequence, and its gradient by the logits [batch, time, labels + 1, classes]."""
    need(logits.dim() == 4, f"logits must be 4-D (batch, time, target, class), got {logits.dim()}-D")
    return _transduced(logits.detach(), targets, logit_lengths, target_lengths, blank % logits.shape[3], float(clamp),
                       bool(fused_log_softmax))


class _transduced(Op):
    """Minus the log-probability of all ways through the lattice of frames and labels; its gradient by the logits."""

    forms = ""
    eager = True

    def meta(logits, targets, logit_lengths, target_lengths, blank, clamp, normalized):
        return (spec(logits.dtype, logits.shape[:1], None, logits.device),
                spec(logits.dtype, logits.shape, None, logits.device))

    def ref(xp, logits, targets, logit_lengths, target_lengths, blank, clamp, normalized):
        wide = logits.astype(xp.promote_types(logits.dtype, xp.float32))
        if normalized:
            wide = wide - wide.max(-1, keepdims=True)
            wide -= xp.log(xp.exp(wide).sum(-1, keepdims=True))
        losses, grads = xp.zeros(len(logits), wide.dtype), xp.zeros_like(wide)
        for n, (frames, labels) in enumerate(zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)):
            part, rows = wide[n, :frames, :labels + 1], xp.arange(labels)
            silent, spoken = part[:, :, blank], part[:, rows, targets[n, :labels]]
            # the log-probability of what is left to do at each place, and of what came before it
            after = xp.full((frames + 1, labels + 2), -xp.inf, wide.dtype)
            after[frames, labels] = 0
            for t in range(frames - 1, -1, -1):
                for u in range(labels, -1, -1):
                    speaks = spoken[t, u] + after[t, u + 1] if u < labels else -xp.inf
                    after[t, u] = xp.logaddexp(silent[t, u] + after[t + 1, u], speaks)
            before = xp.full((frames, labels + 1), -xp.inf, wide.dtype)
            before[0, 0] = 0
            for t in range(frames):
                for u in range(labels + 1):
                    if t:
                        before[t, u] = before[t - 1, u] + silent[t - 1, u]
                    if u:
                        before[t, u] = xp.logaddexp(before[t, u], before[t, u - 1] + spoken[t, u - 1])
            losses[n] = -after[0, 0]
            grad = grads[n, :frames, :labels + 1]
            reached = before - after[0, 0]
            grad[:, :, blank] -= xp.exp(reached + silent + after[1:, :-1])
            grad[:, rows, targets[n, :labels]] -= xp.exp(reached[:, :-1] + spoken + after[:-1, 1:-1])
            if normalized:
                grad += xp.exp(part + (reached + after[:-1, :-1])[:, :, None])
        if clamp > 0:
            grads = grads.clip(-clamp, clamp)
        return losses.astype(logits.dtype), grads.astype(logits.dtype)


# library → [(schema, function)]; see load_library in compat/_library/overloads.py
LIBRARIES = {
    "_torchaudio": [
        ("_torchaudio::cuda_version() -> int?", no_cuda),
        ("_torchaudio::is_align_available() -> bool", with_alignment),
    ],
    "libtorchaudio": [
        ("torchaudio::_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, "
         "Tensor(a!) padded_output_waveform) -> ()", _lfilter_core_loop),
        ("torchaudio::_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, "
         "Tensor(a!) output_waveform) -> ()", _overdrive_core_loop),
        ("torchaudio::forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
         "int blank) -> (Tensor, Tensor)", forced_align),
        ("torchaudio::rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
         "int blank, float clamp, bool fused_log_softmax=True) -> (Tensor, Tensor)", rnnt_loss_forward),
    ],
}
