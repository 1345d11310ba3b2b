"""Processes: what they are sent, what they import, and how their errors come home."""
import multiprocessing
import os
import sys

import torch
import torch.multiprocessing as mp
from torch import nn


def work(rank, queue, tensor, model):
    import torch.nn.functional as F
    with torch.no_grad():
        queue.put((rank, torch.__version__.split("+")[0], F.relu(model(tensor)).sum().item()))


def fail(rank):
    raise ValueError(f"process {rank} of {os.path.basename(__file__)} fails")


if __name__ == "__main__":
    method = sys.argv[1]
    context = multiprocessing.get_context(method)
    torch.manual_seed(0)
    model, tensor = nn.Linear(3, 2), torch.ones(3)
    wanted = model(tensor).relu().sum().item()
    queue = context.Queue()
    processes = [context.Process(target=work, args=(rank, queue, tensor, model)) for rank in range(2)]
    for process in processes:
        process.start()
    for rank, version, found in sorted(queue.get(timeout=120) for _ in processes):
        print(rank, version == torch.__version__.split("+")[0], abs(found - wanted) < 1e-5)
    for process in processes:
        process.join()
    try:
        mp.start_processes(fail, nprocs=1, start_method=method)
    except mp.ProcessRaisedException as error:
        print("ValueError: process 0 of spawning.py fails" in str(error))
