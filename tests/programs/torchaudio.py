"""torchaudio: spectrograms and back, features, filters, resampling, a small recognizer that learns."""
import math

import torch
import torchaudio
from torchaudio import functional as F, transforms as T

from tests.programs import array, fill, gradients, tolerance

PACKAGES = ["torchaudio"]


def _sound(n=4000, rate=8000):
    t = torch.from_numpy(__import__("numpy").arange(n).astype("float32")) / rate
    tone = (2 * math.pi * 440 * t).sin() * 0.4 + (2 * math.pi * 1210 * t).cos() * 0.2
    return (tone + 0.05 * array(2, n)).clamp(-1, 1)


def spectra():
    """Spectrograms in power, in decibels, by mel, their cepstra, and stretched in time."""
    x = _sound()
    power = T.Spectrogram(n_fft=256, hop_length=100)(x)
    mel = T.MelSpectrogram(8000, n_fft=256, n_mels=20)(x)
    whole = T.Spectrogram(n_fft=256, power=None)(x)
    return {"power": power, "mel": mel, "decibels": T.AmplitudeToDB(top_db=80)(mel),
            "mfcc": T.MFCC(8000, 12, melkwargs={"n_fft": 256, "n_mels": 20, "center": False})(x),
            "lfcc": T.LFCC(8000, n_lfcc=10, speckwargs={"n_fft": 256})(x), "deltas": T.ComputeDeltas()(mel),
            "back": T.InverseSpectrogram(n_fft=256)(whole, 4000),
            "stretched": T.TimeStretch(128, 129, 1.3)(whole).abs(),
            "centroid": T.SpectralCentroid(8000, 256)(x),
            "scale": F.melscale_fbanks(33, 0.0, 4000.0, 8, 8000, "slaney")}


@tolerance(1e-3, "the phase of a weak frequency is decided by rounding, and each of the iterations carries it on")
def from_magnitudes():
    """A sound from the magnitudes of its spectrogram alone, by the method of Griffin and Lim."""
    x = _sound(1600)
    power = T.Spectrogram(n_fft=128)(x)
    made = F.griffinlim(power, torch.hann_window(128), 128, 64, 128, 2.0, 6, 0.99, 1600, False)
    return {"made": made, "magnitude": T.Spectrogram(n_fft=128)(made)}


def filtered():
    """Resampled, filtered, mixed, made louder, cut and compared."""
    x = _sound()
    return {"resampled": F.resample(x, 8000, 5000), "half": T.Resample(8000, 4000)(x),
            "high": F.highpass_biquad(x, 8000, 500.0), "low": F.lowpass_biquad(x, 8000, 500.0),
            "iir": F.lfilter(x, torch.tensor([1.0, -0.3, 0.1]), torch.tensor([0.4, 0.2, 0.1])),
            "loud": F.loudness(x, 8000), "mu": F.mu_law_encoding(x, 256), "back": F.mu_law_decoding(F.mu_law_encoding(
                x, 256), 256), "volume": T.Vol(6.0, "db")(x), "fade": T.Fade(100, 200)(x),
            "convolved": F.fftconvolve(x[:, :200], x[:, 200:260]), "snr": F.add_noise(x, array(2, 4000), torch.tensor(
                [10.0, 3.0])), "pre": F.preemphasis(x), "cmn": F.sliding_window_cmn(x[:, :60].reshape(2, 12, 5), 6)}


def learned():
    """A small Conformer over mel features learns by the loss of CTC's like; the gradients of the features."""
    x = _sound(3200).requires_grad_()
    mel = T.MelSpectrogram(8000, n_fft=200, n_mels=16)(x).clamp(min=1e-4).log().mT
    net = fill(torchaudio.models.Conformer(16, 2, 24, 2, 5, dropout=0.1))
    adam, losses = torch.optim.Adam(net.parameters(), 1e-3), []
    for _ in range(3):
        out, lengths = net(mel, torch.tensor([mel.shape[1], 30]))
        loss = torch.nn.functional.ctc_loss(out.log_softmax(-1).transpose(0, 1), torch.tensor([[1, 2, 3], [4, 5, 6]]),
                                            lengths, torch.tensor([3, 2]))
        adam.zero_grad()
        loss.backward(retain_graph=True)
        adam.step()
        losses.append(loss)
    return {"losses": losses, "sound": x.grad, "gradients": gradients(net)}


def recognizers():
    """Wav2vec 2.0, small, on random weights; masks of time and frequency."""
    net = torchaudio.models.wav2vec2_model(
        extractor_mode="group_norm", extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2)], extractor_conv_bias=False,
        encoder_embed_dim=24, encoder_projection_dropout=0.0, encoder_pos_conv_kernel=8, encoder_pos_conv_groups=4,
        encoder_num_layers=2, encoder_num_heads=2, encoder_attention_dropout=0.0, encoder_ff_interm_features=32,
        encoder_ff_interm_dropout=0.0, encoder_dropout=0.0, encoder_layer_norm_first=False, encoder_layer_drop=0.0,
        aux_num_out=12)
    out, _ = fill(net).eval()(_sound(800))
    masked = torch.nn.Sequential(T.FrequencyMasking(5), T.TimeMasking(8))(array(2, 16, 30))
    return {"out": out, "masked": masked}
