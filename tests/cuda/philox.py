"""PyTorch's CUDA numbers, said again in NumPy: what the kernels of backends/cuda/random_kernels.py are held against.

Written from the paper (Salmon et al., 2011) and from how PyTorch hands elements to threads, one element at a time as it
were; slow, and with another spelling than the kernels. It is itself held against numbers that PyTorch drew on an H200.
"""
import numpy as np

U32, U64 = np.uint32, np.uint64


def words(seed, thread, turn):
    """The four words of each (thread, turn), arrays of uint64: shape (4, n)."""
    low, high = U64(2**32 - 1), U64(32)
    a, b, c, d = turn & low, turn >> high, thread & low, thread >> high
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = U64(0xD2511F53) * a, U64(0xCD9E8D57) * c
        a, b, c, d = (second >> high) ^ b ^ U64(key[0]), second & low, (first >> high) ^ d ^ U64(key[1]), first & low
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return np.stack([a, b, c, d])


class Stream:
    """Draws as the CUDA generator of a GPU with so many multiprocessors that hold so many threads each."""

    def __init__(self, seed, offset=0, multiprocessors=132, threads=2048):
        self.seed, self.offset, self.most = seed % 2**64, offset, multiprocessors * (threads // 256)

    def advance(self, count):
        now = self.offset
        self.offset += (count + 3) // 4 * 4
        return now

    def scattered(self, n, per_turn):
        """The words behind each of n elements, (4 / per_turn, n), where a thread's numbers lie `threads` apart."""
        blocks = min(self.most, (n + 255) // 256)
        threads = blocks * 256
        at = np.arange(n, dtype=U64)
        lap = at // U64(threads)
        offset = self.advance(4 * ((n - 1) // (threads * per_turn) + 1))
        drawn = words(self.seed, at % U64(threads), U64(offset // 4) + lap // U64(per_turn))
        which, each = (lap % U64(per_turn)).astype(int), 4 // per_turn
        return np.stack([np.choose(which * each + i, drawn) for i in range(each)])

    def unit(self, n, double=False):
        if not double:
            return unit32(self.scattered(n, 4)[0])
        x, y = self.scattered(n, 2)
        return (x ^ y << U64(21)).astype(np.float64) * 2.0**-53 + 2.0**-54

    def normal(self, n, double=False):
        blocks = min(self.most, (n + 255) // 256)
        threads, per_turn = blocks * 256, 2 if double else 4
        at = np.arange(n, dtype=U64)
        lap = at // U64(threads)
        offset = self.advance(4 * ((n - 1) // (threads * per_turn) + 1))
        w = words(self.seed, at % U64(threads), U64(offset // 4) + lap // U64(per_turn))
        which = (lap % U64(per_turn)).astype(int)
        if double:
            u = (w[0] ^ w[1] << U64(21)).astype(np.float64) * 2.0**-53 + 2.0**-54
            v = (w[2] ^ w[3] << U64(21)).astype(np.float64) * 2.0**-52 + 2.0**-53
            turned = np.pi * v
        else:
            x, y = np.where(which < 2, w[0], w[2]), np.where(which < 2, w[1], w[3])
            u = unit32(x).astype(np.float64)
            turned = (y.astype(np.float32).astype(np.float64) * np.float64(np.float32(2**-32 * 6.2831855))
                      + np.float64(np.float32(2**-33 * 6.2831855))).astype(np.float32).astype(np.float64)
        return np.sqrt(-2 * np.log(u)) * np.where(which % 2 == 0, np.sin(turned), np.cos(turned))

    def integers(self, low, high, n):
        span = high - low
        if span < 2**28:
            drawn = self.scattered(n, 4)[0] % U64(span)
        else:
            x, y = self.scattered(n, 2)
            drawn = (x << U64(32) | y) % U64(span)
        return (drawn + U64(low % 2**64)).view(np.int64)

    def whole(self, n):
        x, y = self.scattered(n, 2)
        return (x << U64(32) | y).view(np.int64)

    def coins(self, chances):
        n = len(chances)
        at = np.arange(n, dtype=U64)
        drawn = words(self.seed, at // U64(4), np.full(n, self.advance(10) // 4, U64))
        return unit32(np.choose((at % U64(4)).astype(int), drawn)) <= chances

    def keep(self, n, p, width, real=np.float32):
        """Dropout's mask for n elements that are read `width` at a time."""
        if width == 1:
            return unit32(self.scattered(n, 4)[0]) < real(1 - p)
        blocks = min(self.most, (n + 255) // 256)
        threads = U64(blocks * 256)
        at = np.arange(n, dtype=U64)
        offset = self.advance(4 * ((n - 1) // (int(threads) * 4) + 1))
        group, lane = at // U64(width), at % U64(width)
        calls = U64(max(1, width // 4))
        turn = group // threads * calls + lane // U64(4)
        drawn = words(self.seed, group % threads, U64(offset // 4) + turn)
        return unit32(np.choose((lane % U64(4)).astype(int), drawn)) < real(1 - p)

    def permutation(self, n):
        bits = min(64, int(np.ceil(np.log2(n - (6 * n * n + 1) / (12 * np.log(0.9))))))
        size = 32 if bits <= 32 else 64
        keys = self.integers(-2**(size - 1), 2**(size - 1) - 1, n).tolist()
        keys = [k & (2**bits - 1) if bits < size else k for k in keys]
        order = sorted(range(n), key=keys.__getitem__)
        offset, at = self.advance(n), 0
        while at < n:
            end = at
            while end < n and keys[order[end]] == keys[order[at]]:
                end += 1
            drawn = [w for turn in range((end - at + 3) // 4) for w in
                     words(self.seed, np.array([at], U64), np.array([offset // 4 + turn], U64))[:, 0].tolist()]
            for i in range(end - at - 1, 0, -1):
                r = drawn.pop(0) % (i + 1)
                order[at + i], order[at + r] = order[at + r], order[at + i]
            at = end
        return np.array(order)


def unit32(word):
    return word.astype(U32).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
