"""Fourier transforms of a signal in short time: `stft` and `istft`."""
from ..base.errors import need, warn
from ..base.op import Composite
from .complex import view_as_real
from .create import zeros
from .fft import _c2c, _c2r, _r2c, promoted, whole_spectrum
from .pad import _pad, constant_pad_nd
from .ranges import arange

MAX_LAYERS = 16               # pieces that lie over one another, to be added layer by layer


class stft(Composite):
    """The Fourier transforms of pieces of a signal: `n_fft` long, `hop_length` apart, weighed by `window`.

    The result has frequencies by pieces, with the batch of `input` first, if it has one. With `center`, piece t is
    around sample t times `hop_length`, and the signal is padded by `pad_mode` at its ends.

    >>> torch.stft(torch.ones(8), 4, window=torch.ones(4), return_complex=True).abs()[:, 0].round()
    tensor([4., 0., 0.])
    """

    def of(input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect",
           normalized=False, onesided=None, return_complex=None, align_to_window=None):
        if window is None:
            warn("A window was not provided. A rectangular window will be applied,which is known to cause spectral "
                 "leakage. Other windows such as torch.hann_window or torch.hamming_window are recommended to reduce "
                 "spectral leakage.To suppress this warning and use a rectangular window, explicitly set "
                 "`window=torch.ones(n_fft, device=<device>)`.")
        if center:
            need(align_to_window is None, "stft align_to_window should only be set when center = false.")
            lead = 3 - input.dim()
            padded = _pad(input.reshape((1,) * lead + tuple(input.shape)), (n_fft // 2, n_fft // 2), pad_mode)
            input = padded.reshape(padded.shape[lead:])
        hop = n_fft // 4 if hop_length is None else hop_length
        length = n_fft if win_length is None else win_length
        complex_in = input.is_complex() or window is not None and window.is_complex()
        if return_complex is None:
            return_complex = complex_in
            need(complex_in, "stft requires the return_complex parameter be given for real inputs, and will further "
                             "require that return_complex=True in a future PyTorch release.")
        if not return_complex:
            warn("stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex "
                 "tensors for all inputs, and return_complex=False will raise an error.\nNote: you can still call "
                 "torch.view_as_real on the complex output to recover the old return format.")
        need(input.dtype.category >= 2, "expected a tensor of floating point or complex values")
        need(1 <= input.dim() <= 2, f"expected a 1D or 2D tensor, got {input.dim()} dimensions")
        batched = input.dim() == 2
        signal = input if batched else input.unsqueeze(0)
        need(0 < n_fft <= signal.shape[1], f"expected 0 < n_fft < {signal.shape[1]}, but got n_fft={n_fft}")
        need(hop > 0, f"expected hop_length > 0, but got hop_length={hop}")
        need(0 < length <= n_fft, f"expected 0 < win_length <= n_fft, but got win_length={length}")
        weights = window_of(window, length, n_fft, signal)
        pieces = signal.unfold(1, n_fft, hop)
        if weights is not None:
            pieces = pieces * weights
        one_sided = not complex_in if onesided is None else onesided
        need(not (one_sided and complex_in), "Cannot have onesided output if window or input is complex")
        scale = "by_root_n" if normalized else "none"
        pieces = promoted(pieces, "stft")
        made = _r2c(pieces, 2, scale, True) if one_sided else whole_spectrum(pieces, 2, scale, True)
        made = made.transpose(1, 2)
        made = made if batched else made.squeeze(0)
        return made if return_complex else view_as_real(made)


class istft(Composite):
    """The signal whose `stft` is `input`, with the same arguments: pieces laid over one another, by least squares."""

    def of(input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None,
           length=None, return_complex=False):
        if window is None:
            warn("A window was not provided. A rectangular window will be applied.Please provide the same window used "
                 "by stft to make the inversion lossless.To suppress this warning and use a rectangular window, "
                 "explicitly set `window=torch.ones(n_fft, device=<device>)`.")
        need(input.is_complex(), "istft requires a complex-valued input tensor matching the output from stft with "
                                 "return_complex=True.")
        hop = n_fft // 4 if hop_length is None else hop_length
        size = n_fft if win_length is None else win_length
        need(input.numel() > 0, "istft: input tensor cannot be empty.")
        need(2 <= input.dim() <= 3, f"istft: expected a tensor with 2 or 3 dimensions, but got {input.dim()}")
        one_sided = n_fft != input.shape[-2] if onesided is None else onesided
        bins = n_fft // 2 + 1 if one_sided else n_fft
        need(input.shape[-2] == bins, "istft: expected the frequency dimension (3rd to the last) of the input tensor "
             f"to match n_fft {'/ 2 + 1 ' if one_sided else ''}when onesided={one_sided}, but got {input.shape[-2]}")
        need(0 < hop <= size, f"istft: expected 0 < hop_length <= win_length, but got hop_length={hop}")
        need(0 < size <= n_fft, f"istft: expected 0 < win_length <= n_fft, but got win_length={size}")
        batched = input.dim() == 3
        spectra = (input if batched else input.unsqueeze(0)).transpose(1, 2)
        scale = "by_root_n" if normalized else "by_n"
        if return_complex:
            need(not one_sided, "cannot have onesided output if window or input is complex")
            pieces = _c2c(spectra, (2,), scale, False)
        else:
            need(window is None or not window.is_complex(), "Complex windows are incompatible with "
                                                            "return_complex=False")
            spectra = spectra if one_sided else spectra.narrow(2, 0, n_fft // 2 + 1)
            pieces = _c2r(spectra, 2, scale, n_fft)
        weights = window_of(window, size, n_fft, pieces)
        if weights is None:
            weights = zeros((n_fft,), dtype=pieces.dtype, device=pieces.device) + 1
        count = pieces.shape[1]
        whole = n_fft + hop * (count - 1)
        made = overlapped(pieces * weights, whole, hop)
        energy = overlapped((weights * weights).expand(1, count, n_fft), whole, hop)
        start = n_fft // 2 if center else 0
        end = start + length if length is not None else whole - n_fft // 2 if center else whole
        made, energy = made[:, start:min(end, whole)], energy[:, start:min(end, whole)]
        least = float(energy.detach().abs().min())
        need(least > 1e-11, f"window overlap add min: {least}: the window must not be zero where pieces do not overlap")
        made = made / energy
        if length is not None and end > whole:
            warn("The length of signal is shorter than the length parameter. Result is being padded with zeros in the "
                 "tail. Please check your center and hop_length settings.")
            made = constant_pad_nd(made, (0, end - whole))
        return made if batched else made.squeeze(0)


def window_of(window, length, n_fft, beside):
    """The weights of a piece of `n_fft` samples: the window in its middle, zeros around; None for none."""
    if window is None:
        if length == n_fft:
            return None
        window = zeros((length,), dtype=beside.dtype, device=beside.device) + 1
    else:
        need(window.dim() == 1 and window.shape[0] == length,
             f"expected a 1D window tensor of size equal to win_length={length}, but got window with size "
             f"{list(window.shape)}")
    left = (n_fft - length) // 2
    return window if length == n_fft else constant_pad_nd(window, (left, n_fft - length - left))


def overlapped(pieces, size, hop):
    """Pieces, `hop` apart, added up to a signal of `size`: where few lie over one another, by moving each `hop` of
    them to its place, the earlier pieces first."""
    count, length = pieces.shape[1:]
    layers = -(-length // hop)
    if layers <= MAX_LAYERS:
        if layers * hop != length:
            pieces = constant_pad_nd(pieces, (0, layers * hop - length))
        pieces, made = pieces.reshape(pieces.shape[0], count, layers, hop), None
        for layer in reversed(range(layers)):
            moved = constant_pad_nd(pieces[:, :, layer], (0, 0, layer, layers - 1 - layer))
            made = moved if made is None else made + moved
        return made.reshape(made.shape[0], -1)[:, :size]
    made = zeros((pieces.shape[0], size), dtype=pieces.dtype, device=pieces.device)
    at = arange(pieces.shape[1], device=pieces.device).unsqueeze(1) * hop + arange(pieces.shape[2],
                                                                                   device=pieces.device)
    return made.index_add(1, at.reshape(-1), pieces.reshape(pieces.shape[0], -1))
