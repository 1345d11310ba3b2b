"""denoising-diffusion-pytorch: small UNets trained and sampled by every kind of diffusion; its Trainer."""
from pathlib import Path

import numpy as np
import torch
from denoising_diffusion_pytorch import (
    ContinuousTimeGaussianDiffusion,
    ElucidatedDiffusion,
    GaussianDiffusion,
    GaussianDiffusion1D,
    KarrasUnet,
    LearnedGaussianDiffusion,
    Trainer,
    Unet,
    Unet1D,
    VParamContinuousTimeGaussianDiffusion,
    WeightedObjectiveGaussianDiffusion,
    classifier_free_guidance as guided,
)
from PIL import Image

from tests.programs import array, fill, gradients, seed

PACKAGES = ["denoising-diffusion-pytorch", "ema-pytorch"]
LACKS = ["the Trainer's scores by the Inception net (calculate_fid) need its weights from the network: not shown"]


def _unet(**settings):
    return fill(Unet(dim=8, dim_mults=(1, 2), attn_dim_head=4, attn_heads=2, **settings), scale=0.7)


def _losses(diffusion, *given, steps=2, **named):
    """What a few steps of Adam come to, and the first gradients."""
    optimizer, losses, first = torch.optim.Adam(diffusion.parameters(), lr=1e-3, betas=(0.9, 0.99)), [], None
    for number in range(steps):
        seed(number)
        loss = diffusion(*given, **named)
        loss.backward()
        first = first or gradients(diffusion)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "gradients": first}


def _drawn(diffusion, **settings):
    """Pictures from a seed."""
    seed(7)
    return diffusion.eval().sample(**settings)


def objectives():
    """Learning the noise, the picture and the velocity, by each schedule; self-conditioning; weighed losses."""
    pictures, found = array(2, 3, 8, 8).sigmoid(), {}
    for objective, schedule, more in (("pred_noise", "linear", {}), ("pred_x0", "cosine", {"immiscible": True}),
                                      ("pred_v", "sigmoid", {"min_snr_loss_weight": True})):
        diffusion = GaussianDiffusion(_unet(self_condition=objective == "pred_x0"), image_size=8, timesteps=20,
                                      objective=objective, beta_schedule=schedule, **more)
        found[objective] = _losses(diffusion, pictures)
    return found


def sampled():
    """Pictures drawn step by step and by DDIM, and a walk between two pictures."""
    whole = GaussianDiffusion(_unet(), image_size=8, timesteps=6)
    short = GaussianDiffusion(_unet(), image_size=8, timesteps=20, sampling_timesteps=4, ddim_sampling_eta=0.5)
    one, other = array(1, 3, 8, 8), array(1, 3, 8, 8, seed=1)
    seed(3)
    between = whole.eval().interpolate(one, other, t=3)
    return {"whole": _drawn(whole, batch_size=2), "short": _drawn(short, batch_size=2), "between": between,
            "steps": _drawn(whole, batch_size=1, return_all_timesteps=True)}


def kinds():
    """Learnt variances, weighed objectives, continuous time, and Karras' way of noise: losses and pictures."""
    pictures, found = array(2, 3, 8, 8).sigmoid(), {}
    unets = {"learnt": lambda: LearnedGaussianDiffusion(_unet(out_dim=6), image_size=8, timesteps=8),
             "weighed": lambda: WeightedObjectiveGaussianDiffusion(_unet(out_dim=8), image_size=8, timesteps=8),
             "continuous": lambda: ContinuousTimeGaussianDiffusion(
                 _unet(random_fourier_features=True), image_size=8, num_sample_steps=4),
             "velocity": lambda: VParamContinuousTimeGaussianDiffusion(
                 _unet(random_fourier_features=True), image_size=8, num_sample_steps=4),
             "elucidated": lambda: ElucidatedDiffusion(
                 _unet(random_fourier_features=True), image_size=8, num_sample_steps=3)}
    for name, make in unets.items():
        diffusion = make()
        found[name] = _losses(diffusion, pictures)
        if name != "weighed":                            # whose sampling the package itself has broken
            found[name]["drawn"] = _drawn(diffusion, batch_size=1)
    return found


def guidance():
    """A class beside the picture, left out now and then; pictures of a class, with more weight on it."""
    model = fill(guided.Unet(dim=8, dim_mults=(1, 2), num_classes=3, attn_dim_head=4, attn_heads=2), scale=0.7)
    diffusion = guided.GaussianDiffusion(model, image_size=8, timesteps=20, sampling_timesteps=3)
    classes = torch.tensor([0, 2])
    return {**_losses(diffusion, array(2, 3, 8, 8).sigmoid(), classes=classes),
            "drawn": _drawn(diffusion, classes=classes, cond_scale=3.0)}


def sequences():
    """The same over one dimension, and the UNet whose weights keep their size."""
    model = fill(Unet1D(dim=8, dim_mults=(1, 2), channels=3, attn_dim_head=4, attn_heads=2), scale=0.7)
    diffusion = GaussianDiffusion1D(model, seq_length=16, timesteps=8, objective="pred_v")
    seed(1)
    karras = KarrasUnet(image_size=8, dim=8, dim_max=16, num_downsamples=1, num_blocks_per_stage=1, attn_res=(4,),
                        attn_dim_head=4, fourier_dim=8)
    karras.eval()
    with torch.no_grad():
        said = karras(array(2, 4, 8, 8), time=torch.tensor([0.2, 0.9]))
    return {**_losses(diffusion, array(2, 3, 16).sigmoid()), "drawn": _drawn(diffusion, batch_size=1), "karras": said}


def trainer():
    """The Trainer over a folder of pictures: two steps, averaged weights, samples drawn, saved and loaded again."""
    folder = Path("pictures")
    folder.mkdir()
    for number in range(100):
        drawn = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(drawn).save(folder / f"{number}.png")
    seed(2)
    made = Trainer(GaussianDiffusion(_unet(), image_size=8, timesteps=8, sampling_timesteps=2), str(folder),
                   train_batch_size=16, train_lr=1e-3, train_num_steps=2, save_and_sample_every=2, num_samples=4,
                   ema_update_every=1, augment_horizontal_flip=True, calculate_fid=False, results_folder="results")
    made.train()
    weights = {name: held.norm() for name, held in made.model.state_dict().items() if held.ndim > 1}
    averaged = {name: held.norm() for name, held in made.ema.ema_model.state_dict().items() if held.ndim > 1}
    with torch.no_grad():
        for p in made.model.parameters():
            p.zero_()
    made.load(1)
    loaded = {name: held.norm() for name, held in made.model.state_dict().items() if held.ndim > 1}
    sample = np.asarray(Image.open("results/sample-1.png")).astype(float)
    return {"weights": weights, "averaged": averaged, "loaded": loaded, "step": made.step, "size": list(sample.shape),
            "mean": sample.mean()}
