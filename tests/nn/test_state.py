"""State dicts of modules: saving, loading, what is said when they do not fit, and their hooks."""
from collections import OrderedDict

import pytest

import flambeau as torch
from flambeau import nn
from tests.nn.nets import Inner, Net, values


def test_state_dict():
    net = Net()
    state = net.state_dict()
    assert list(state) == ["scale", "first.weight", "first.mean", "second.weight", "second.mean"]
    assert isinstance(state, OrderedDict) and dict(state._metadata) == {"": {"version": 1}, "first": {"version": 1},
                                                                       "second": {"version": 1}}
    assert not state["scale"].requires_grad and type(state["scale"]) is torch.Tensor
    state["first.mean"].fill_(9.0)
    assert values(net.first.mean) == [9.0, 9.0]
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert list(net.state_dict(prefix="a.b."))[1] == "a.b.first.weight"
    own = {}
    assert net.state_dict(destination=own) is own and len(own) == 5
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert list(net.state_dict(OrderedDict(), "p."))[0] == "p.scale"


def test_load_state_dict():
    mine, other = Net(), Net()
    with torch.no_grad():
        other.scale.fill_(5.0)
        other.first.mean.fill_(4.0)
    scale = mine.scale
    found = mine.load_state_dict(other.state_dict())
    assert mine.scale is scale and values(scale) == 5.0 and values(mine.first.mean) == [4.0, 4.0]
    assert scale.requires_grad and scale.grad_fn is None
    assert repr(found) == str(found) == "<All keys matched successfully>" and found == ([], [])
    other.scale.data.fill_(6.0)
    assert values(scale) == 5.0


def test_load_reports_everything_at_once_after_loading_what_fits():
    net = Net()
    state = net.state_dict()
    del state["second.mean"]
    state["scale"] = torch.tensor(8.0)
    state["first.weight"] = torch.ones(3)
    state["third.weight"] = torch.ones(1)
    state["first.extra"] = torch.ones(1)
    state["second.weight"] = [1.0, 2.0]
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "second.mean". \n'
        '\tUnexpected key(s) in state_dict: "third.weight", "first.extra". \n'
        "\tsize mismatch for first.weight: copying a param with shape torch.Size([3]) from checkpoint, the shape in "
        "current model is torch.Size([2]).\n"
        '\tWhile copying the parameter named "second.weight", expected torch.Tensor or Tensor-like object from '
        "checkpoint but received <class 'list'>")
    assert values(net.scale) == 8.0 and values(net.first.weight) == [1.0, 2.0]


def test_load_without_strict():
    net = Net()
    found = net.load_state_dict({"scale": torch.tensor(2.0), "other": torch.ones(1)}, strict=False)
    assert found.missing_keys == ["first.weight", "first.mean", "second.weight", "second.mean"]
    assert found.unexpected_keys == ["other"] and values(net.scale) == 2.0
    assert repr(found).startswith("_IncompatibleKeys(missing_keys=['first.weight'")
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        net.load_state_dict({"scale": torch.ones(2)}, strict=False)
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got <class 'list'>"):
        net.load_state_dict([])


def test_a_number_saved_as_a_vector_of_one_loads():
    net = Net()
    net.load_state_dict({**net.state_dict(), "scale": torch.tensor([4.0])})
    assert values(net.scale) == 4.0


def test_load_by_assignment():
    net, state = Net(), Net().state_dict()
    state["scale"] = torch.tensor(2.0, dtype=torch.float64)
    net.scale.requires_grad_(False)
    net.load_state_dict(state, assign=True)
    assert net.scale.dtype is torch.float64 and isinstance(net.scale, nn.Parameter) and not net.scale.requires_grad
    assert net.first.mean is state["first.mean"]
    given = nn.Parameter(torch.tensor(1.0))
    net.load_state_dict({**state, "scale": given}, assign=True)
    assert net.scale is given and not given.requires_grad
    assert all("assign_to_params_buffers" not in m for m in state._metadata.values())


def test_load_into_another_dtype():
    net = Net().double()
    net.load_state_dict(Net().state_dict())
    assert net.scale.dtype is torch.float64 and values(net.scale) == 3.0


def test_extra_state():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]
    net = nn.Sequential(Counted())
    net[0].count = 3
    state = net.state_dict()
    assert state["0._extra_state"] == {"count": 3}
    other = nn.Sequential(Counted())
    other.load_state_dict(state)
    assert other[0].count == 3
    with pytest.raises(RuntimeError, match='Missing key.* "0._extra_state"'):
        other.load_state_dict({})
    with pytest.raises(RuntimeError, match='Unexpected key.* "0._extra_state"'):
        nn.Sequential(nn.ReLU()).load_state_dict(state)
    with pytest.raises(RuntimeError, match="should never be called"):
        nn.ReLU().get_extra_state()


def test_a_module_may_save_and_load_in_its_own_way():
    class Renamed(Inner):
        _version = 2

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "w"] = destination.pop(prefix + "weight")

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            assert local_metadata["version"] == 2
            if prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
    net, given = nn.Sequential(Renamed()), nn.Sequential(Renamed()).state_dict()
    assert list(given) == ["0.mean", "0.w"] and given._metadata["0"] == {"version": 2}
    given["0.w"].fill_(5.0)
    net.load_state_dict(given)
    assert values(net[0].weight) == [5.0, 5.0] and "0.w" in given


def test_hooks_of_the_state():
    net, log = nn.Sequential(Inner()), []

    def added(module, state, prefix, metadata):
        state[prefix + "extra"] = 1

    def wrong(module, state, prefix, metadata):
        return state
    before = net[0].register_state_dict_pre_hook(lambda module, prefix, keep: log.append((prefix, keep)))
    after = net[0].register_state_dict_post_hook(added)
    assert list(net.state_dict()) == ["0.weight", "0.mean", "0.extra"] and log == [("0.", False)]
    with pytest.raises(RuntimeError, match="Cannot register the same function as the state dict post hook"):
        net[0]._register_state_dict_hook(added)
    after.remove()
    before.remove()
    with net[0].register_state_dict_post_hook(wrong), pytest.raises(RuntimeError, match="must return None"):
        net.state_dict()
    with net._register_state_dict_hook(lambda module, state, prefix, metadata: {"all": len(state)}):
        assert net.state_dict() == {"all": 2}

    def renamed(module, state, prefix, metadata, strict, missing, unexpected, errors):
        assert module is net[0] and prefix == "0."
        state[prefix + "weight"] = state.pop(prefix + "old")
    seen = []
    with net[0].register_load_state_dict_pre_hook(renamed), \
            net.register_load_state_dict_post_hook(lambda module, keys: seen.append(keys)):
        net.load_state_dict({"0.old": torch.zeros(2), "0.mean": torch.zeros(2)}, strict=False)
    assert seen[0].missing_keys == [] and values(net[0].weight) == [0.0, 0.0]
    with net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear()):
        net.load_state_dict({})
    with net.register_load_state_dict_post_hook(lambda module, keys: 3), pytest.raises(AssertionError, match="inplace"):
        net.load_state_dict(net.state_dict())
    with net._register_load_state_dict_pre_hook(lambda state, *rest: state.clear()), \
            pytest.raises(RuntimeError, match="Missing key"):
        net.load_state_dict(net.state_dict())
