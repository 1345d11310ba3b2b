"""DevicePrefetcher: the batches of a loader on a device, copied while the ones before are computed with."""
from collections import deque

from ...base.spec import CPU, as_device
from ._utils.pin_memory import mapped


class DevicePrefetcher:
    """The batches of `loader`, with their tensors on `device`; the copies of `depth` further ones have begun before a
    batch is given out.

        for x, y in DevicePrefetcher(DataLoader(data, batch_size=64, shuffle=True, pin_memory=True), "cuda"):
            ...

    A copy runs beside what the device computes, since it goes from page-locked memory on a stream of its own; tensors
    that are elsewhere are brought there first. Batches come in the loader's order, from the thread that asks for them,
    so that random numbers are drawn as without it, only `depth` batches earlier. It can be iterated over again, and has
    a length where the loader has one. Other devices than GPUs get their batches one by one.
    """

    def __init__(self, loader, device, depth=1):
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth is how many batches are copied ahead, at least 1, and got {depth!r}")
        self.loader, self.device, self.depth = loader, as_device(device), depth
        self._state = None                    # the loader's, as of the batch that was given out last

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        if self.device is CPU or not self.device.backend.copies_ahead:
            yield from map(self._moved, self.loader)
            return
        ahead: deque = deque()
        for batch in self.loader:
            ahead.append((self._moved(batch), self._state_of_loader()))
            if len(ahead) > self.depth:
                batch, self._state = ahead.popleft()
                yield batch
        while ahead:
            batch, self._state = ahead.popleft()
            yield batch
        self._state = None

    def _state_of_loader(self):
        return self.loader.state_dict() if hasattr(self.loader, "state_dict") else None

    def state_dict(self):
        """Where it stands, as the loader's own `state_dict`: batches that were copied ahead were not given yet."""
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state_dict):
        """Go on where `state_dict()` was taken, here or by the loader itself."""
        self.loader.load_state_dict(state_dict)
        self._state = None

    def _moved(self, batch):
        return mapped(batch, self._one_moved, "to")

    def _one_moved(self, one):
        if getattr(one, "device", None) is CPU and self.device is not CPU and self.device.backend.copies_ahead \
                and not one.is_pinned():
            one = one.pin_memory()
        return one.to(self.device, non_blocking=True)
