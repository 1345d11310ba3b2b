"""Training in mixed precision on a simulated device: autocast, GradScaler, checkpoints, Functions of one's own."""
import warnings

import pytest

import flambeau as torch


def net(device):
    torch.manual_seed(3)
    made = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    return made.to(device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_is_what_it_is_without_within_the_precision(simulated, dtype):
    data, labels = torch.rand(16, 6), torch.arange(16) % 3

    def losses(device, lower):
        model = net(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        scaler = torch.amp.GradScaler("cuda", init_scale=128.0, enabled=lower)
        seen = []
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=dtype, enabled=lower):
                out = model(data.to(device))
                assert out.dtype is (dtype if lower else torch.float32)
                loss = torch.nn.functional.cross_entropy(out, labels.to(device))
            assert loss.dtype is torch.float32 and model[0].weight.dtype is torch.float32
            scaler.scale(loss).backward()
            assert model[0].weight.grad.dtype is torch.float32
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(optimizer)
            scaler.update()
            seen.append(loss.item())
        return seen
    exact, lower = losses("cpu", False), losses("cuda", True)
    assert exact[-1] < exact[0] and lower != exact
    assert lower == pytest.approx(exact, rel=0.02 if dtype is torch.bfloat16 else 0.004)


def test_a_step_without_finite_gradients_is_left_out(simulated):
    weight = torch.ones(2, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler = torch.amp.GradScaler(init_scale=4.0)              # "cuda" is what it is for
    assert scaler.is_enabled()
    for factor, want, scale in ((float("inf"), [1.0, 1.0], 2.0), (0.5, [0.5, 0.5], 2.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == want and scaler.get_scale() == scale


def test_regions_of_both_devices(simulated):
    here, there = torch.rand(2, 2), torch.rand(2, 2, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cuda") is torch.bfloat16
        with torch.autocast("cpu", dtype=torch.float16):
            assert ((here @ here).dtype, (there @ there).dtype) == (torch.float16, torch.bfloat16)
        assert ((here @ here).dtype, (there @ there).dtype) == (torch.float32, torch.bfloat16)
        with torch.autocast("cuda", enabled=False):
            assert (there @ there).dtype is torch.float32
    assert (there @ there).dtype is torch.float32 and not torch.is_autocast_enabled()


def test_a_checkpoint_recomputes_in_the_region(simulated):
    model, seen = net("cuda"), []

    def run(x):
        hidden = model[0](x)
        seen.append(hidden.dtype)
        return model[1:](hidden).float().sum()
    x = torch.rand(4, 6, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
    loss.backward()
    assert seen == [torch.bfloat16] * 2 and x.grad.dtype is torch.float32


def test_a_function_of_ones_own(simulated):
    class Doubled(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, g):
            return g * 2
    x = torch.ones(3, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        y = Doubled.apply(x)
    assert y.dtype is torch.float32
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2] and x.grad.dtype is torch.float16
