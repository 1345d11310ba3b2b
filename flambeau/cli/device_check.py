"""Does a device compute correctly, and at a plausible speed? Asked in about a second, of NumPy beside it.

What is computed is small and touches each way to native code: a fused loop, a product, a convolution, reductions,
a gather, a gradient, a copy there and back. Each is done several times, since code that repeats is compiled.
"""
import time

import numpy as np

import flambeau as torch

from ..base.spec import as_device

COMPUTATION_ROUNDS = 3                         # of each computation: the first may be interpreted, the last is compiled
RELATIVE_ERROR = 1e-4              # of float32 results beside float64's, at this little work
LONG_ROUND_SECONDS = 0.004         # a round this long is measured; a shorter one is made larger
ROUNDS_OF_A_SIZE = 5               # of which the shortest counts: the first ones may compile, or capture a graph
MEASURE_SECONDS = 0.08             # spent on measuring one speed
SMALLEST_SIDE, LARGEST_SIDE = 128, 4096                  # of the matrices
SMALLEST_COUNT, LARGEST_COUNT = 1 << 16, 1 << 26         # of the elements that are read and written


def check(device):
    """What came out: `correct` with the names of what is `wrong`, speeds beside NumPy's, whether they are `plausible`.

    Whatever the device raises is its `error`: this is asked of devices that may be broken.
    """
    start, found = time.perf_counter(), {"device": str(device), "correct": False, "wrong": [], "error": None}
    try:
        with torch.enable_grad():
            found["wrong"] = _wrong(device)
        with torch.no_grad():
            found["product"] = _speed(_products(device), SMALLEST_SIDE, LARGEST_SIDE)
            found["memory"] = _speed(_additions(device), SMALLEST_COUNT, LARGEST_COUNT)
    except Exception as error:                                # of any kind: a driver's, a compiler's, no memory
        found["error"] = f"{type(error).__name__}: {error}"
    found["correct"] = not found["wrong"] and found["error"] is None
    if found["error"] is None:
        found["numpy_product"] = _speed(_numpy_products, SMALLEST_SIDE, SMALLEST_SIDE * 4)
        found["numpy_memory"] = _speed(_numpy_additions, SMALLEST_COUNT, 1 << 24)
        share = as_device(device).backend.least_speed
        found["slow"] = [name for name in ("product", "memory") if found[name] < share * found[f"numpy_{name}"]]
        found["plausible"] = not found["slow"]
    found["seconds"] = time.perf_counter() - start
    return found


# --- correct ----------------------------------------------------------------------------------------------------------


def _wrong(device):
    """The names of the computations that give something else than NumPy."""
    return [name for name, compute in COMPUTATIONS.items() if not _agrees(compute, device)]


def _agrees(compute, device):
    """Whether every round gives what NumPy gives in float64."""
    for _ in range(COMPUTATION_ROUNDS):
        ours, numpys = compute(device)
        got = np.asarray(ours.detach().cpu().tolist(), np.float64)
        if got.shape != numpys.shape or not np.allclose(got, numpys, RELATIVE_ERROR, RELATIVE_ERROR):
            return False
    return True


def _numbers(*shape, device):
    """Numbers between -2 and 2, as a tensor of the device and as float64."""
    made = (2 * np.sin(np.arange(np.prod(shape, dtype=int)) * 0.7 + len(shape))).astype(np.float32).reshape(shape)
    return torch.tensor(made.tolist(), dtype=torch.float32, device="cpu").to(device), made.astype(np.float64)


def _fused(device):
    x, exact = _numbers(1000, device=device)
    return (torch.relu(x * x - 1) * 0.5 + x).sum(), (np.maximum(exact * exact - 1, 0) * 0.5 + exact).sum()


def _product(device):
    (a, left), (b, right) = _numbers(33, 65, device=device), _numbers(65, 17, device=device)
    return a @ b, left @ right


def _convolution(device):
    (x, image), (w, taps) = _numbers(1, 2, 9, 9, device=device), _numbers(3, 2, 3, 3, device=device)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    return torch.nn.functional.conv2d(x, w), np.einsum("nchwij,ocij->nohw", windows, taps)


def _softmax(device):
    x, exact = _numbers(20, 50, device=device)
    raised = np.exp(exact - exact.max(1, keepdims=True))
    return torch.softmax(x, 1), raised / raised.sum(1, keepdims=True)


def _gather(device):
    x, exact = _numbers(40, 7, device=device)
    indices = [(7 * i) % 40 for i in range(25)]
    return x[torch.tensor(indices, device="cpu").to(device)], exact[indices]


def _gradient(device):
    (x, inputs), (w, weight) = _numbers(30, 8, device=device), _numbers(8, 1, device=device)
    w.requires_grad_(True)
    (x @ w).square().mean().backward()
    return w.grad, 2 * inputs.T @ (inputs @ weight) / 30


def _there_and_back(device):
    x, exact = _numbers(3, 500, device=device)
    return x.cpu().to(device), exact


COMPUTATIONS = {"a fused loop": _fused, "a product": _product, "a convolution": _convolution, "a softmax": _softmax,
                "a gather": _gather, "a gradient": _gradient, "a copy there and back": _there_and_back}


# --- plausible --------------------------------------------------------------------------------------------------------


def _speed(work, smallest, largest):
    """How much `work(size)` does in a second at best, at a size at which a round can be measured.

    `work(size)` gives (how much a round is, a function that does one and waits for it).
    """
    size = smallest
    while True:
        amount, one_round = work(size)
        best = min([_seconds(one_round) for _ in range(ROUNDS_OF_A_SIZE)])
        if best >= LONG_ROUND_SECONDS or size >= largest:
            break
        size *= 2
    spent = best
    while spent < MEASURE_SECONDS:
        took = _seconds(one_round)
        best, spent = min(best, took), spent + took
    return amount / best


def _seconds(one_round):
    start = time.perf_counter()
    one_round()
    return max(time.perf_counter() - start, 1e-9)


def _products(device):
    def work(side):
        x = torch.full((side, side), 0.5, device=device)

        def one_round():
            return (x @ x)[0, 0].item()
        return 2 * side ** 3, one_round
    return work


def _additions(device):
    def work(count):
        x = torch.full((count,), 0.5, device=device)

        def one_round():
            y = x + 1
            return y[0].item()
        return 2 * 4 * count, one_round
    return work


def _numpy_products(side):
    x = np.full((side, side), 0.5, np.float32)
    return 2 * side ** 3, lambda: x @ x


def _numpy_additions(count):
    x, y = np.full(count, 0.5, np.float32), np.empty(count, np.float32)
    return 2 * 4 * count, lambda: np.add(x, 1, out=y)
