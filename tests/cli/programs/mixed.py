"""Mixed precision as it is written for the CPU: autocast, a scaler, a checkpoint of both."""
import contextlib
import os
import sys
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.set_float32_matmul_precision("high")
dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[sys.argv[1] if len(sys.argv) > 1 else "bfloat16"]
context = torch.autocast(device_type="cpu", dtype=dtype) if dtype is not None else contextlib.nullcontext()
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4, enabled=dtype == torch.float16)
x = torch.randn(64, 8)
y = x.pow(2).sum(1, keepdim=True).sin()
for step in range(10):
    with context:
        out = model(x)
        loss = nn.functional.mse_loss(out, y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step} loss: {loss.item():.3f} scale: {scaler.get_scale()}")
print(out.dtype, loss.dtype, model[0].weight.dtype)
path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, path)
print(sorted(torch.load(path, weights_only=True)["scaler"].items()))
