"""`torch.cuda.CUDAGraph` on a simulated device: a replay gives what the stretch would, over what is there now."""
import pytest

import flambeau as torch

cuda = torch.cuda


def test_a_replay_computes_anew(simulated):
    x, weight = torch.arange(4.0, device="cuda"), torch.full((4,), 2.0, device="cuda")
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        assert cuda.is_current_stream_capturing()
        y = x * weight + 1
        z = y.sum()
    assert not cuda.is_current_stream_capturing()
    for start in (0.0, 10.0):
        x.copy_(torch.arange(4.0) + start)
        g.replay()
        assert y.tolist() == [(start + i) * 2 + 1 for i in range(4)] and z.item() == sum(y.tolist())
    weight.fill_(-1.0)
    x[0] = 5
    g.replay()
    assert y.tolist() == [-4, -10, -11, -12] and (y + 1).tolist() == [-3, -9, -10, -11]


def test_nothing_is_done_while_it_is_recorded(simulated):
    x, count = torch.ones(3, device="cuda"), torch.zeros(1, device="cuda")
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        count += 1
        x.mul_(2)
    assert count.item() == 0 and x.tolist() == [1, 1, 1]
    for times in (1, 2, 3):
        g.replay()
        assert count.item() == times and x.tolist() == [2 ** times] * 3


def test_a_whole_training_step(simulated):
    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
    data = [torch.rand(5, 3) for _ in range(6)]

    def step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    plain = net()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    want = [step(plain, optimizer, x.cuda()).item() for x in data]
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step(model, optimizer, data[0].cuda())                                  # so that momentum is there
    model.load_state_dict(net().state_dict())
    for state in optimizer.state.values():
        state["momentum_buffer"].zero_()
    static, g = data[0].cuda(), cuda.CUDAGraph()
    with cuda.graph(g):
        loss = step(model, optimizer, static)
    got = []
    for x in data:
        static.copy_(x)
        g.replay()
        got.append(loss.item())
    assert got == pytest.approx(want, rel=1e-5)
    assert model[0].weight.flatten().tolist() == pytest.approx(plain[0].weight.flatten().tolist(), rel=1e-4)
    assert model[0].weight.grad.device.type == "cuda"


def test_random_numbers_are_drawn_anew(simulated):
    x, g = torch.ones(64, device="cuda"), cuda.CUDAGraph()
    cuda.manual_seed(1)
    with cuda.graph(g):
        y = torch.nn.functional.dropout(x, 0.5)
        noise = torch.randn(3, device="cuda")
        double = noise * 2
    seen = []
    for _ in range(3):
        g.replay()
        seen.append((tuple(y.tolist()), tuple(noise.tolist())))
        assert double.tolist() == [2 * v for v in noise.tolist()]
    assert len({one for one, _ in seen}) == len({two for _, two in seen}) == 3
    assert all(set(one) <= {0.0, 2.0} for one, _ in seen)


def test_what_shares_contents_is_read_apart(simulated):
    x = torch.ones(2, device="cuda")
    twin, g = x.clone(), cuda.CUDAGraph()
    with cuda.graph(g):
        y = x + 10 * twin
    twin.fill_(3)
    g.replay()
    assert y.tolist() == [31, 31]
    x.fill_(2)
    g.replay()
    assert y.tolist() == [32, 32]


def test_copies_are_made_anew(simulated):
    x, kept, g = torch.ones(2, device="cuda"), torch.zeros(2, device="cuda"), cuda.CUDAGraph()
    with cuda.graph(g):
        kept.copy_(x)
        again = x.clone()
        part = torch.empty(2, device="cuda").copy_(x)
        x.add_(1)
        table = torch.tensor([1.0, 2.0], device="cuda") * x
    assert kept.tolist() == [0, 0] and x.tolist() == [1, 1]
    for number in (1, 2):
        g.replay()
        assert kept.tolist() == again.tolist() == part.tolist() == [number] * 2 and x.tolist() == [number + 1] * 2
        assert table.tolist() == [number + 1, 2 * number + 2]


def test_checks_of_data_are_made_anew(simulated):
    words, table = torch.tensor([0, 2, 1], device="cuda"), torch.arange(6.0, device="cuda").view(3, 2)
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        rows = torch.nn.functional.embedding(words, table)
        first = torch.nn.functional.embedding(words % 2, table)
    g.replay()
    assert rows.tolist() == [[0, 1], [4, 5], [2, 3]] and first.tolist() == [[0, 1], [0, 1], [2, 3]]
    words.copy_(torch.tensor([2, 2, 2]))
    g.replay()
    assert rows.tolist() == [[4, 5]] * 3
    words.copy_(torch.tensor([0, 1, 3]))
    with pytest.raises(IndexError):
        g.replay()
    assert rows.tolist() == [[4, 5]] * 3


def test_memory_whose_address_is_known_is_written_in_place(simulated):
    x, y = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")
    address, g = y.data_ptr(), cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="stream is capturing"), cuda.graph(g):
        y.add_(x)                                                           # runs at the call, which cannot be here
        y.tolist()
    z = torch.zeros(3, device="cuda")
    with cuda.graph(g):
        z = x * 4
    z_address = z.data_ptr()
    x.fill_(5)
    g.replay()
    assert z.tolist() == [20, 20, 20] and z.data_ptr() == z_address and y.data_ptr() == address


def test_refusals(simulated):
    x, g = torch.ones(3, device="cuda"), cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="replay without a preceding successful capture"):
        g.replay()
    with pytest.raises(RuntimeError, match=r"stream is capturing(?s:.*)test_cudagraph.py:"), cuda.graph(g):
        x.add_(1)
        (x + 1).sum().item()
    assert not cuda.is_current_stream_capturing() and x.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="stream is capturing"), cuda.graph(g):
        x.nonzero()                                                         # its shape would be known from contents
    with cuda.graph(g), pytest.raises(RuntimeError, match="captured already"):
        cuda.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="Unknown capture error mode"), cuda.graph(g, capture_error_mode="loose"):
        pass
    with pytest.raises(RuntimeError, match="without a capture_begin"):
        g.capture_end()
    assert (x + 1).tolist() == [2, 2, 2]


def test_graphed_callables(simulated):
    net = torch.nn.Linear(3, 2).cuda()
    sample = torch.rand(4, 3, device="cuda")
    want = net(sample).tolist()
    graphed, twice = cuda.make_graphed_callables((net, lambda x: x * 2), ((sample,), (sample,)))
    assert graphed is net
    for _ in range(3):
        out = twice(graphed(sample))
        out.sum().backward()
        assert out.flatten().tolist() == pytest.approx([2 * v for row in want for v in row], rel=1e-5)
    assert net.bias.grad.tolist() == [24, 24]
