"""Packages that change others by being installed: each at work beside deepspeed, torchdata and bitsandbytes."""
import bitsandbytes
import deepspeed  # noqa: F401  that it is there is what changes others
import torch
import torch_geometric
import torchaudio
import torchdata.nodes
import transformers
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from skorch import NeuralNetRegressor

from tests.programs import array, fill, tokens

PACKAGES = ["deepspeed", "torchdata", "bitsandbytes", "torch_geometric", "torchaudio", "transformers", "accelerate",
            "diffusers", "skorch"]


def _gpt2():
    config = transformers.GPT2Config(vocab_size=24, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0)
    return fill(transformers.GPT2LMHeadModel(config))


def of_transformers():
    """A model trained by the Trainer, saved and loaded."""
    rows = [{"input_ids": row, "labels": row} for row in tokens(8, 10, below=24)]
    how = transformers.TrainingArguments("out", max_steps=3, per_device_train_batch_size=4, report_to=[],
                                         logging_steps=1, disable_tqdm=True, save_strategy="no", use_cpu=True)
    trainer = transformers.Trainer(_gpt2(), how, train_dataset=rows)
    trainer.train()
    trainer.save_model("saved")
    again = transformers.GPT2LMHeadModel.from_pretrained("saved")
    return {"losses": [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry],
            "logits": again(tokens(2, 6, below=24)).logits}


def of_accelerate():
    """A loop over prepared batches, from torchdata's nodes too; the state saved and loaded."""
    accelerator = Accelerator(cpu=True)
    net = fill(torch.nn.Linear(4, 1))
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(array(16, 4), array(16, 1, seed=1)), batch_size=4)
    net, sgd, data = accelerator.prepare(net, sgd, data)
    losses = []
    for x, y in data:
        with accelerator.accumulate(net):
            loss = (net(x) - y).square().mean()
            accelerator.backward(loss)
            sgd.step()
            sgd.zero_grad()
            losses.append(loss)
    accelerator.save_state("state")
    accelerator.load_state("state")
    nodes = torchdata.nodes.Batcher(torchdata.nodes.IterableWrapper(range(10)), batch_size=4, drop_last=False)
    return {"losses": losses, "batches": list(torchdata.nodes.Loader(nodes))}


def of_diffusers():
    """A step of training, a pipeline, saved and loaded."""
    net = fill(UNet2DModel(sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), layers_per_block=1,
                           norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
                           up_block_types=("UpBlock2D", "UpBlock2D")))
    noise = array(2, 1, 8, 8)
    loss = (net(noise, torch.tensor([3, 7])).sample - noise).square().mean()
    loss.backward()
    pipe = DDPMPipeline(net, DDPMScheduler(num_train_timesteps=10))
    pipe.set_progress_bar_config(disable=True)
    pipe.save_pretrained("pipe")
    again = DDPMPipeline.from_pretrained("pipe")
    again.set_progress_bar_config(disable=True)
    made = again(generator=torch.Generator().manual_seed(1), num_inference_steps=2, output_type="np").images
    return {"loss": loss, "made": torch.from_numpy(made)}


def of_skorch():
    """A regressor fitted, saved and loaded."""
    net = NeuralNetRegressor(fill(torch.nn.Linear(3, 1)), max_epochs=3, lr=0.05, batch_size=8, verbose=0,
                             train_split=None)
    net.fit(array(24, 3).numpy(), array(24, 1, seed=1).numpy())
    net.save_params("net.pt")
    net.load_params("net.pt")
    return {"losses": net.history[:, "train_loss"], "predicted": net.predict(array(3, 3).numpy())}


def themselves():
    """A step of each neighbour: a graph's convolution, a filter, quantized numbers, an optimizer of eight bits."""
    layer = fill(torch_geometric.nn.GCNConv(3, 2))
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    codes, state = bitsandbytes.functional.quantize_blockwise(array(256))
    return {"graph": layer(array(3, 3), index), "filtered": torchaudio.functional.lowpass_biquad(array(20), 100, 10.0),
            "codes": codes.float(), "back": bitsandbytes.functional.dequantize_blockwise(codes, state)}
