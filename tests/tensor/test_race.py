"""One index for each row of a few weights: the same as the general way of drawing it, in both forms of the core.

`MersenneTwister.multinomial` is held against PyTorch in tests/torch/test_random.py, and so is `torch.multinomial`.
"""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flambeau as torch
from flambeau.backends.cpu.random.draws import STATE_DTYPE, MersenneTwister
from flambeau.base import dtypes
from flambeau.base.spec import spec
from flambeau.tensor.sample_indices import MAX_WEIGHTS, drawn_indices

INDEX = spec(dtypes.int64, ())


def twins(seed):
    return [MersenneTwister().manual_seed(seed) for _ in range(2)]


def drawn(weights, source):
    """What is drawn in short, as an array; None if nothing is."""
    value = drawn_indices(weights, spec(dtypes.int64, weights.shape[:-1]), source)
    return None if value is None else value.array


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([torch.float32, torch.float64]),
       st.lists(st.lists(st.sampled_from([0.0, 1e-30, 0.1, 0.5, 1.0, 3.0, 1e30]), min_size=4, max_size=4), min_size=1,
                max_size=5))
def test_the_same_index_and_the_same_state(seed, dtype, rows):
    rows = [[*row, 0.25] for row in rows]
    ours, general = twins(seed)
    weights = torch.tensor(rows, dtype=dtype)
    for _ in range(3):
        assert drawn(weights, ours).tolist() == general.multinomial(weights.numpy(), 1)[:, 0].tolist()
    assert ours.position() == general.position()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [2.0, 0.0, 0.0]])
def test_words_that_are_zero(weights, dtype):
    """A clock that waits for nothing: a weight over zero is infinite, and no weight over zero is no number."""
    state = np.frombuffer(twins(5)[0].get_state().tobytes(), STATE_DTYPE).copy()
    state["words"][0, :12] = [0, 0, 0, 0, 7, 7, 0, 0, 9, 9, 0, 0]        # tempered, zero is zero
    state["next"], state["left"] = 1, 624
    ours, general = twins(0)
    for source in (ours, general):
        source.set_state(np.frombuffer(state.tobytes(), np.uint8))
        source._word(623)                                                # up to the next twist
        source._twister.state = {"bit_generator": "MT19937",
                                 "state": {"key": state["words"][0].astype(np.uint32), "pos": 0}}
    given = torch.tensor(weights, dtype=dtype)
    for _ in range(2):
        assert drawn(given, ours).item() == general.multinomial(given.numpy(), 1)[0]


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0], []])
def test_nothing_is_drawn_for_what_cannot_be_weights(weights):
    ours, other = twins(3)
    assert drawn_indices(torch.tensor(weights), INDEX, ours) is None
    assert ours.position() == other.position()


def test_nothing_is_drawn_for_others():
    source = twins(3)[0]
    many, half, turned = torch.ones(MAX_WEIGHTS + 1), torch.ones(3, dtype=torch.float16), torch.ones(3, 2).T
    for weights in (many, half, turned):
        assert drawn_indices(weights, spec(dtypes.int64, weights.shape[:-1]), source) is None


def test_a_look_into_the_middle_of_a_storage():
    table = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 5.0, 0.0]])
    assert [torch.multinomial(row, 1).item() for row in table] == [0, 2, 1]
    assert torch.multinomial(table[1:], 1).tolist() == [[2], [1]]
    assert [torch.distributions.Categorical(row).sample().item() for row in table] == [0, 2, 1]


def test_what_was_drawn_is_a_tensor_of_its_own():
    p = torch.distributions.Categorical(torch.tensor([0.0, 1.0]))
    kept = [p.sample() for _ in range(20)]
    kept[0] += 5
    assert kept[0].item() == 6 and all(one.item() == 1 for one in kept[1:])
    assert kept[1].shape == () and kept[1].dtype is torch.int64 and not kept[1].requires_grad
    with torch.inference_mode():
        assert p.sample().is_inference()


def test_weights_that_are_not_there_yet():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert torch.multinomial((x - x).exp() * torch.tensor([0.0, 1.0]), 1).tolist() == [1]


def test_function_modes_are_asked_about_draws():
    class Named(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    seen = []
    with Named():
        torch.multinomial(torch.tensor([0.0, 1.0]), 1)
        torch.poisson(torch.tensor([1.0]))
    assert "multinomial" in seen and "poisson" in seen
