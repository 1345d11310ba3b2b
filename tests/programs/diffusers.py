"""diffusers: a small UNet trained, and sampled by DDPM, DDIM and other schedulers; an autoencoder; pipelines."""
import torch
from diffusers import (
    AutoencoderKL,
    DDIMPipeline,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    PNDMScheduler,
    UNet2DConditionModel,
    UNet2DModel,
    UniPCMultistepScheduler,
)

from tests.programs import array, fill, gradients

PACKAGES = ["diffusers"]


def _unet():
    return fill(UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                            down_block_types=("DownBlock2D", "AttnDownBlock2D"), attention_head_dim=8,
                            up_block_types=("AttnUpBlock2D", "UpBlock2D")), scale=0.7)


def trained():
    """The UNet learns to find the noise that DDPM adds."""
    model, schedule = _unet(), DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clean, noise, times = array(4, 3, 8, 8), array(4, 3, 8, 8, seed=1), torch.tensor([3, 11, 27, 42])
    losses, first = [], None
    for _ in range(3):
        noisy = schedule.add_noise(clean, noise, times)
        loss = torch.nn.functional.mse_loss(model(noisy, times).sample, noise)
        loss.backward()
        first = first or gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "gradients": first, "noisy": noisy}


def pipelines():
    """DDPM's and DDIM's pipelines draw pictures from a seed."""
    model = _unet().eval()
    drawn = {"ddpm": DDPMPipeline(model, DDPMScheduler(num_train_timesteps=20)),
             "ddim": DDIMPipeline(model, DDIMScheduler(num_train_timesteps=20))}
    out = {}
    for name, pipeline in drawn.items():
        pipeline.set_progress_bar_config(disable=True)
        out[name] = pipeline(batch_size=2, num_inference_steps=4, generator=torch.Generator().manual_seed(3),
                             output_type="np").images
    return out


@torch.no_grad()
def schedulers():
    """The same picture by each scheduler, with a model of one multiplication."""
    out = {}
    for kind in (DDPMScheduler, DDIMScheduler, PNDMScheduler, EulerDiscreteScheduler, EulerAncestralDiscreteScheduler,
                 DPMSolverMultistepScheduler, UniPCMultistepScheduler, FlowMatchEulerDiscreteScheduler):
        schedule = kind()
        schedule.set_timesteps(5)
        x = array(2, 3, 4, 4) * getattr(schedule, "init_noise_sigma", 1.0)
        generator = torch.Generator().manual_seed(5)
        for t in schedule.timesteps:
            seen = schedule.scale_model_input(x, t) if hasattr(schedule, "scale_model_input") else x
            stochastic = kind in (DDPMScheduler, EulerAncestralDiscreteScheduler)
            x = schedule.step(0.3 * seen, t, x, **{"generator": generator} if stochastic else {}).prev_sample
        out[kind.__name__] = {"timesteps": schedule.timesteps.float(), "sample": x}
    return out


def conditioned():
    """The UNet of Stable Diffusion, with text beside the picture; its gradients; attention in slices."""
    model = fill(UNet2DConditionModel(sample_size=8, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
                                      cross_attention_dim=12, attention_head_dim=4,
                                      down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                      up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")), scale=0.7)
    sample, text = array(2, 4, 8, 8), array(2, 5, 12, seed=1)
    given = model(sample, torch.tensor([3, 7]), text).sample
    given.square().mean().backward()
    found = {"sample": given, "gradients": gradients(model)}
    model.set_attention_slice("auto")
    return found | {"sliced": model(sample, torch.tensor([3, 7]), text).sample}


def autoencoder():
    """Pictures encoded to a distribution, and decoded, whole and in tiles."""
    model = fill(AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4, sample_size=16,
                               down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
                 scale=0.7)
    picture = array(1, 3, 16, 16)
    latents = model.encode(picture).latent_dist
    decoded = model.decode(latents.mode()).sample
    (decoded.square().mean() + 0.1 * latents.kl().mean()).backward()
    return {"mean": latents.mean, "std": latents.std, "kl": latents.kl(), "decoded": decoded,
            "gradients": gradients(model)}


def saved():
    """A pipeline is saved in a folder and loaded from it."""
    pipeline = DDPMPipeline(_unet().eval(), DDPMScheduler(num_train_timesteps=20))
    pipeline.save_pretrained("pipeline")
    again = DDPMPipeline.from_pretrained("pipeline")
    again.set_progress_bar_config(disable=True)
    equal = all(torch.equal(p, q) for p, q in zip(pipeline.unet.parameters(), again.unet.parameters()))
    images = again(num_inference_steps=2, generator=torch.Generator().manual_seed(1), output_type="np").images
    return {"equal": equal, "images": images}
