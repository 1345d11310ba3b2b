"""Which globals a pickle names that `load` refuses, and what to say about them."""
from .allowed_globals import ALLOWED, GlobalNames
from .errors import FileError, bare
from .unpickler import Unpickler


class Anything:
    """Stands for whatever a pickle makes, when only the names in it are wanted."""

    def __setitem__(self, key, value): pass

    def extend(self, items): pass


class Collected(GlobalNames):
    """Takes every global, makes nothing, and notes the ones that would be refused."""

    def __init__(self):
        super().__init__()
        self.refused: dict = {}                   # in the order in which they come

    def find(self, module, name):
        full = f"{module}.{name}"
        if full not in ALLOWED and full not in self.user:
            self.refused[full] = True
        return Anything()

    def make(self, unpickler, function, args, kwargs, new): return Anything()

    def build(self, unpickler, made, state): pass

    def trusted(self, thing): return isinstance(thing, Anything)


def refused_in(pickled):
    names = Collected()
    Unpickler(pickled, names, lambda unpickler, pid: Anything()).run()
    return list(names.refused)


def explain(error, pickled):
    """Add to a refusal what else the file names, and what else can be done."""
    try:
        refused = refused_in(pickled)
    except FileError:                               # it is damaged further on; the refusal stands
        refused = []
    words = [error.args[0]]
    if len(refused) > 1:
        words.append(f"In all, the file names {len(refused)} that are not allowed: "
                     f"{', '.join(map(bare, refused[:20]))}{', …' if len(refused) > 20 else ''}.")
    words.append("Or load it with weights_only=False, which runs whatever the file names: only if you trust its maker.")
    if any(name.startswith(("torch.nn.modules.", "torch.optim.")) for name in refused):
        words.append("The file holds whole modules; save their state instead, torch.save(model.state_dict(), …), and "
                     "load that into a model made by its class.")
    error.args = (" ".join(words),)
