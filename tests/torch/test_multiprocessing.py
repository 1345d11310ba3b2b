"""Memory shared between processes, beside PyTorch: one program for both, whatever the start method."""
import os
import subprocess
import sys

import pytest

from tests.patience import PATIENCE
from tests.thorough import sample

pytestmark = [pytest.mark.pinned, pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")]

PROGRAM = '''
import importlib, sys, warnings
warnings.simplefilter("ignore")
torch = importlib.import_module(sys.argv[1])
mp = importlib.import_module(sys.argv[1] + ".multiprocessing")
nn = torch.nn


def train(rank, model, data, labels, steps):
    """Hogwild: the model is everybody's, the optimizer its own."""
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data[rank::2]), labels[rank::2])
        loss.backward()
        optimizer.step()


def answer(tasks, answers):
    while (task := tasks.get()) is not None:
        whole, part, parameter = task
        part.mul_(10)
        with torch.no_grad():
            parameter.add_(1)
        answers.put((whole.tolist(), part.is_shared(), isinstance(parameter, nn.Parameter), parameter.requires_grad))
        answers.put(part)


def main(method):
    torch.manual_seed(0)
    context = mp.get_context(method)
    x = torch.arange(6.).reshape(2, 3)
    print(x.is_shared(), x.share_memory_() is x, x.is_shared(), x[1].is_shared(), x.t().is_shared(),
          x.clone().is_shared(), x.untyped_storage().is_shared(), x._version, (x + 1).is_shared(),
          torch.empty(0).share_memory_().shape, nn.Linear(2, 2).share_memory().weight.is_shared())

    tasks, answers = context.Queue(), context.SimpleQueue()
    process = context.Process(target=answer, args=(tasks, answers), daemon=True)
    process.start()
    whole, parameter = torch.arange(6.).reshape(2, 3), nn.Parameter(torch.zeros(2))
    for _ in range(2):
        tasks.put((whole, whole[1], parameter))
        print(answers.get(), whole.tolist(), parameter.tolist(), whole.is_shared())
        part = answers.get()
        part[0] = -1
        print(whole.tolist(), part.data_ptr() == whole[1].data_ptr())
    tasks.put(None)
    process.join(60)
    print(process.exitcode)

    here, there = context.Pipe()
    for thing in (parameter * 2, parameter, (parameter * 2).detach(), torch.empty(0, 3), x.to(torch.bfloat16)):
        try:
            here.send(thing)
            print(there.recv())
        except RuntimeError as error:
            print(type(error).__name__, str(error)[:60])

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    model.share_memory()
    labels = torch.randint(3, (64,))
    data = torch.randn(64, 4) * 0.3 + nn.functional.one_hot(labels, 4)
    before = nn.functional.cross_entropy(model(data), labels).item()
    mp.start_processes(train, (model, data, labels, 60), nprocs=2, start_method=method)
    after = nn.functional.cross_entropy(model(data), labels).item()
    print(round(before, 4), after < 0.5 * before)          # how the two meet is chance, in both


if __name__ == "__main__":
    main(sys.argv[2])
'''


@pytest.mark.parametrize("method", sample(["fork", "spawn", "forkserver"], 3))
def test_the_same_program_shares_the_same_memory(method, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    said = []
    for name in "torch", "flambeau":
        done = subprocess.run([sys.executable, str(path), name, method], capture_output=True, text=True,
                              timeout=2 * PATIENCE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert said[1] == said[0]
