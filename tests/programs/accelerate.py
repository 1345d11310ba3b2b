"""accelerate: a loop of one process, accumulation, mixed precision, checkpoints, models larger than memory."""
import torch
from accelerate import Accelerator, cpu_offload, disk_offload, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

from tests.programs import array, fill, tolerance

PACKAGES = ["accelerate"]
QUICK = True


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 16), torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


def _loop(epochs=2, **settings):
    AcceleratorState._reset_state(reset_partial_state=True)           # settings are the process's otherwise
    set_seed(7)
    accelerator = Accelerator(cpu=True, **settings)
    model = fill(_Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = array(24, 6)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    losses = []
    for _ in range(epochs):
        for inputs, goals in data:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(inputs), goals)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach().reshape(1)).item())
    return accelerator, model, optimizer, data, losses


def trained():
    """The usual loop, prepared by an Accelerator: one process, shuffled data, clipping, a schedule."""
    accelerator, model, optimizer, _, losses = _loop()
    return {"losses": losses, "processes": accelerator.num_processes, "main": accelerator.is_main_process,
            "device": str(accelerator.device), "rate": optimizer.param_groups[0]["lr"],
            "weights": accelerator.unwrap_model(model).second.weight}


def accumulated():
    """Gradients of three batches are one step."""
    *_, losses = _loop(gradient_accumulation_steps=3)
    return {"losses": losses}


@tolerance(4e-3, "a number of bfloat16 has 8 bits, and a sum that is rounded the other way is 2 ** -8 off")
def mixed():
    """bfloat16 by autocast; what the model gives is float32 again."""
    accelerator, model, _, data, losses = _loop(mixed_precision="bf16")
    return {"losses": losses, "dtype": str(model(next(iter(data))[0]).dtype)}


def checkpoints():
    """save_state and load_state bring back the weights, the optimizer and the random streams."""
    accelerator, model, optimizer, data, _ = _loop(epochs=1)
    accelerator.save_state("state")
    before = {name: p.clone() for name, p in model.state_dict().items()}
    drawn = torch.rand(3)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    accelerator.load_state("state")
    equal = all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    accelerator.save_model(model, "model")
    return {"equal": equal, "drawn": drawn, "again": torch.rand(3), "states": len(optimizer.state)}


def large_models():
    """A model made without memory, dispatched from a file, and offloaded to the disk."""
    accelerator = Accelerator(cpu=True)
    accelerator.save_model(fill(_Net()), "model")
    with init_empty_weights():
        model = _Net()
    meta = str(model.first.weight.device)
    x = array(3, 6)
    model = load_checkpoint_and_dispatch(model, "model/model.safetensors", device_map={"": "cpu"})
    out = {"meta": meta, "loaded": model(x)}
    disk_offload(offloaded := fill(_Net()), "offloaded", execution_device=torch.device("cpu"))
    out["where"] = str(offloaded.first.weight.device)
    out["from disk"] = offloaded(x)
    cpu_offload(held := fill(_Net()), execution_device=torch.device("cpu"))
    return out | {"from memory": held(x)}
