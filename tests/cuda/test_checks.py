"""Checks of data at the call do not wait for the device: see Note [Checks without waiting] in trace/on_host.py."""
import pytest

import flambeau as torch


@pytest.fixture
def downloads(simulated, monkeypatch):
    """The sizes of what was brought back from the device."""
    sizes, kind = [], type(simulated)
    plain = kind.download

    def download(self, index, address, host_address, nbytes, *args, **kwargs):
        sizes.append(nbytes)
        return plain(self, index, address, host_address, nbytes, *args, **kwargs)
    monkeypatch.setattr(kind, "download", download)
    return sizes


def test_words_from_the_cpu(downloads):
    table, places = torch.nn.Embedding(50, 8).cuda(), torch.nn.Embedding(16, 8).cuda()
    words = torch.randint(0, 50, (4, 17))
    given, wanted = words[:, :-1].to("cuda"), words[:, 1:].cuda()
    hidden = table(given) + places(torch.arange(16, device="cuda"))
    loss = torch.nn.functional.cross_entropy((hidden @ table.weight.t()).view(-1, 50), wanted.reshape(-1))
    loss.backward()
    assert downloads == []
    assert loss.item() > 0 and downloads == [4]


@pytest.mark.parametrize("computed", [
    lambda rows: rows[:, :2].long().to("cuda"), lambda rows: rows.to(torch.int32)[:, :2].cuda(),
    lambda rows: (rows[:, :2] * 2).long().to("cuda") // 2, lambda rows: rows[:, :2].long().to("cuda", torch.int32),
    lambda rows: rows[:, :2].long().t().to("cuda").t(), lambda rows: torch.cat([rows, rows]).long().cuda()[:3, :2]])
def test_words_that_the_cpu_has_yet_to_compute(downloads, computed):
    """Codes in a table of floats, made whole numbers on the CPU, which is recorded and has not run."""
    table, rows = torch.nn.Embedding(50, 8).cuda(), torch.tensor([[1.0, 49.0, 0.5], [3.0, 4.0, 0.1], [7.0, 0.0, 0.2]])
    words = computed(rows)
    found = table(words)
    with pytest.raises(IndexError, match="index 50 for a table of 50 rows"):
        table(computed(rows + 1))
    assert downloads == []
    assert words.tolist() == [[1, 49], [3, 4], [7, 0]] and torch.equal(found.cpu(), table.weight.cpu()[words.cpu()])


def test_what_is_out_of_bounds_is_refused_at_the_call(downloads):
    table = torch.nn.Embedding(50, 8).cuda()
    with pytest.raises(IndexError, match="index 77 for a table of 50 rows"):
        table(torch.tensor([3, 77]).cuda())
    with pytest.raises(IndexError, match="index 50 for a table of 50 rows"):
        table(torch.arange(50, device="cuda") + 1)
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        torch.nn.functional.cross_entropy(torch.zeros(2, 5, device="cuda"), torch.tensor([1, 9]).cuda())
    assert downloads == []


def test_positions_that_were_written_out(downloads):
    table = torch.ones(5, 2, device="cuda")
    assert table[torch.tensor([1, 2], device="cuda")].shape == (2, 2)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        table[torch.tensor([1, 7], device="cuda")]
    assert downloads == []


def test_what_the_device_made_is_brought_back_once(downloads):
    x = torch.randn(40, device="cuda")
    best = (x[:5].abs() * 7).long()
    assert x[best].tolist() == x[best].tolist()
    assert downloads.count(best.nbytes) == 1


def test_what_was_written_to_is_looked_at_anew(simulated):
    words = torch.tensor([3, 4]).cuda()
    table = torch.zeros(5, 2, device="cuda")
    assert table[words].shape == (2, 2)
    words += 1
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        table[words]
    source = torch.tensor([1, 2])
    moved = source.to("cuda")
    source.numpy()[:] = 9                          # a copy was taken
    assert table[moved].shape == (2, 2)


def test_compiled(downloads):
    table, words = torch.nn.Embedding(50, 8).cuda(), torch.randint(0, 50, (4, 17))

    @torch.compile
    def loss(given, wanted):
        return torch.nn.functional.cross_entropy((table(given) @ table.weight.t()).view(-1, 50), wanted.reshape(-1))
    for _ in range(4):
        loss(words[:, :-1].to("cuda"), words[:, 1:].cuda())
    assert downloads == []
    with pytest.raises(IndexError, match="Target 50 is out of bounds"):
        loss(words[:, :-1].to("cuda"), torch.full((4, 16), 50).cuda())


def test_a_check_that_was_passed_is_not_another_one(downloads):
    """The same labels hold for ten classes and not for five, and for no others that were written over them."""
    labels, entropy = torch.tensor([3, 9, 0]).cuda(), torch.nn.functional.cross_entropy
    for _ in range(3):
        entropy(torch.zeros(3, 10).cuda(), labels)
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        entropy(torch.zeros(3, 5).cuda(), labels)
    entropy(torch.zeros(3, 5).cuda(), labels, ignore_index=9)
    entropy(torch.zeros(2, 5).cuda(), labels[::2])
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        entropy(torch.zeros(2, 5).cuda(), labels[:2])
    labels[0] = 77
    with pytest.raises(IndexError, match="Target 77 is out of bounds"):
        entropy(torch.zeros(3, 10).cuda(), labels)


def test_positions_that_exist_by_how_they_were_found(downloads):
    x = torch.randn(300, 400, device="cuda")
    best = x.argmax(1)
    rows = torch.ones(400, 3, device="cuda")[best]
    picked = x.gather(1, best.unsqueeze(1)) + rows.index_add(0, x.topk(2).indices[:, 0] % 300, rows).sum()
    drawn = torch.ones(9, device="cuda")[torch.randint(0, 9, (2000,), device="cuda")]
    assert downloads == []
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 3"):
        torch.ones(3, device="cuda")[best + 3]
    assert picked.isfinite().all() and drawn.sum() == 2000
