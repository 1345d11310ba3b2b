"""tensordict: dicts of tensors with a common batch: views, stacks, modules, files and arrays on disk."""
import torch
from tensordict import TensorDict, tensorclass
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule, TensorDictSequential

from tests.programs import array, fill, tokens

PACKAGES = ["tensordict"]


def _held():
    return TensorDict({"a": array(4, 3), "inner": {"b": tokens(4, 3, 2, below=9), "c": array(4, 3, 1, seed=1)}}, [4, 3])


def views():
    """Indexed, reshaped, stacked, concatenated, mapped, flattened and compared."""
    held = _held()
    stacked = torch.stack([held, held.apply(lambda x: x * 2)], 0)
    held[0] = held[1].clone()
    held["inner", "d"] = held["a"].exp()
    return {"row": held[1]["a"], "reshaped": held.reshape(12)["inner", "b"], "stacked": stacked["inner", "c"],
            "joined": torch.cat([held, held], 0).batch_size, "keys": sorted(map(str, held.keys(True, True))),
            "flat": sorted(held.flatten_keys(".").keys()), "sum": (held + 1)["a"].sum(),
            "same": bool((held == held).all()),
            "picked": held.select("a")[:, :2]["a"], "parts": [list(part.shape) for part in held.split(3, 0)],
            "gathered": held.gather(1, torch.zeros(4, 1, dtype=torch.int64))["a"], "text": repr(held)}


def modules():
    """A chain of modules over keys, one of them a distribution, trained."""
    first = TensorDictModule(fill(torch.nn.Linear(5, 8)), ["seen"], ["hidden"])
    second = TensorDictModule(lambda x: x.tanh().chunk(2, -1), ["hidden"], ["loc", "scale"])
    scaled = TensorDictModule(lambda x: x.exp(), ["scale"], ["scale"])
    chosen = ProbabilisticTensorDictModule(["loc", "scale"], ["action"], distribution_class=torch.distributions.Normal,
                                           return_log_prob=True)
    chain = TensorDictSequential(first, second, scaled, chosen)
    adam, losses = torch.optim.Adam(chain.parameters(), 0.01), []
    for _ in range(4):
        out = chain(TensorDict({"seen": array(6, 5)}, [6]))
        loss = (out["loc"] - 1).square().mean() + out["scale"].mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss)
    weights = TensorDict.from_module(first)
    with weights.apply(torch.zeros_like).to_module(first):
        zero = first(TensorDict({"seen": array(6, 5)}, [6]))["hidden"]
    return {"losses": losses, "keys": [str(key) for key in chain.out_keys], "zero": zero, "action": out["action"],
            "parameters": sorted(map(str, weights.keys(True, True)))}


def kept():
    """Saved and loaded by torch, by itself, and mapped into memory from files."""
    held = _held()
    torch.save(held.to_dict(), "plain.pt")
    held.memmap("mapped")
    mapped = TensorDict.load_memmap("mapped")
    mapped["a"][0] = 7.0
    again = TensorDict.load_memmap("mapped")
    return {"plain": TensorDict(torch.load("plain.pt"), [4, 3])["inner", "c"], "written": again["a"][0],
            "other": again["inner", "b"], "mapped": mapped.is_memmap(), "bytes": held.bytes()}


@tensorclass
class _Pair:
    first: torch.Tensor
    name: str


def classes():
    """A class of tensors with a batch."""
    pair = _Pair(array(3, 2), "x", batch_size=[3])
    both = torch.stack([pair, pair])
    return {"row": pair[1].first, "both": both.first, "name": both.name, "shape": list(both.batch_size)}
