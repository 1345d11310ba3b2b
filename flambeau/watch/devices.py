"""What is found about devices: copies and waiting that repeat, modules that lie on two, an accelerator that idles."""
import collections
import weakref

from ..backends.devices import accelerator
from ..base.errors import here
from ..base.observers import Observer
from ..base.spec import CPU, META
from .finding import found
from .step_hooks import steps_taken
from .steps import module_of, own_looks

SAME_MOVES = 5                # so often the same memory was moved by the same line
STEPS_WITH_LOOKS = 20         # so many steps in a row a line looked at a device
IDLE_ELEMENTS = 100_000       # parameters of a model that is worth an accelerator


class DeviceObserver(Observer):
    """Looks at copies between devices, at looks that wait for one, and at where parameters lie."""

    def __init__(self):
        self.moves = {}       # (site, id of a storage) → [weak reference, version, count, bytes]
        self.looks = collections.defaultdict(lambda: [None, 0, 0])     # site → [step, steps in a row, looks]
        self.seen = set()     # numbers of optimizers whose modules were looked at

    def moved(self, tensor, device):
        """A copy of a tensor on another device is asked for."""
        if META in (device, tensor._spec.device):
            return
        site, storage = here(), tensor._storage
        move = self.moves.get((site, id(storage)))
        if move is None or move[0]() is not storage or move[1] != storage.version:
            if len(self.moves) > 10_000:
                self.moves.clear()
            move = self.moves[site, id(storage)] = [weakref.ref(storage), storage.version, 0, 0]
        move[2] += 1
        move[3] += tensor._spec.nbytes
        if move[2] == SAME_MOVES:
            found("transfer", f"the same tensor, {tensor._spec}, was copied from {tensor._spec.device} to {device} "
                  f"{SAME_MOVES} times", site, [("it was made at", tensor._site)],
                  f"{move[3]:,} bytes so far, and the waiting", f"copy it once, before the loop: .to({str(device)!r}), "
                  "or register_buffer() in a module, which goes along with it")

    def looked(self, value):
        """Contents are wanted."""
        if value.spec.device is CPU or own_looks[0]:
            return
        site = here()
        look = self.looks[site]
        step, look[2] = steps_taken(), look[2] + 1
        if look[0] == step:
            return
        look[1] = look[1] + 1 if look[0] == step - 1 else 0
        look[0] = step
        if look[1] == STEPS_WITH_LOOKS:
            found("synchronisation", f"this line looked at a result on {value.spec.device} in each of "
                  f"{STEPS_WITH_LOOKS} steps in a row, and waited until it was there", site, (),
                  f"{look[2]} times the device stood still while the next step was recorded",
                  "add up on the device (total += loss.detach()), and look at it every so many steps")

    def step_began(self, optimizer):
        """Look, at its first step, where the parameters lie."""
        if optimizer._watched in self.seen:
            return
        self.seen.add(optimizer._watched)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for path, part in module_of(optimizer).named_modules() if module_of(optimizer) is not None else ():
            tensors = {name: t for name, t in (*part._parameters.items(), *part._buffers.items()) if t is not None}
            counts = collections.Counter(t._spec.device for t in tensors.values())
            if len(counts) > 1:
                usual = counts.most_common(1)[0][0]
                name, stray = next((name, t) for name, t in tensors.items() if t._spec.device is not usual)
                found("split-module", f"{f'{path}.{name}'.lstrip('.')} is on {stray._spec.device}, and the rest of "
                      f"its {type(part).__name__} on {usual}", stray._site, [("step() was called at", here())],
                      "it takes part in nothing, or is copied in every call",
                      f"module.to({str(usual)!r}) moves all of it")
        device_type = accelerator() if parameters and all(p._spec.device is CPU for p in parameters) else None
        if device_type is not None and sum(p._spec.numel for p in parameters) >= IDLE_ELEMENTS:
            found("idle-accelerator", f"{sum(p._spec.numel for p in parameters):,} parameters are trained on the CPU, "
                  f"and there is a {device_type.upper()} device", here(), [("they were made at", parameters[0]._site)],
                  "the device idles", f"model.to({device_type!r}) before the optimizer is made, and the batches too")
