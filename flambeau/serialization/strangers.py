"""Which globals a pickle names that `load` refuses, and what to say about them."""
from .errors import FileError, bare
from .known import TABLE, Names
from .machine import Machine


class Anything:
    """Stands for whatever a pickle makes, when only the names in it are wanted."""

    def __setitem__(self, key, value): pass

    def extend(self, items): pass


class Collected(Names):
    """Takes every global, makes nothing, and notes the ones that would be refused."""

    def __init__(self):
        super().__init__()
        self.strangers: dict = {}                   # in the order in which they come

    def find(self, module, name):
        full = f"{module}.{name}"
        if full not in TABLE and full not in self.user:
            self.strangers[full] = True
        return Anything()

    def make(self, machine, function, args, kwargs, new): return Anything()

    def build(self, machine, made, state): pass

    def trusted(self, thing): return isinstance(thing, Anything)


def strangers_in(pickled):
    names = Collected()
    Machine(pickled, names, lambda machine, pid: Anything()).run()
    return list(names.strangers)


def explain(error, pickled, weights_only):
    """Add to a refusal what else the file names, and what else can be done."""
    try:
        strangers = strangers_in(pickled)
    except FileError:                               # it is damaged further on; the refusal stands
        strangers = []
    words = [error.args[0]]
    if len(strangers) > 1:
        words.append(f"In all, the file names {len(strangers)} that are not allowed: "
                     f"{', '.join(map(bare, strangers[:20]))}{', …' if len(strangers) > 20 else ''}.")
    if weights_only is False:
        words.append("Flambeau runs no code out of files, with weights_only=False neither.")
    if any(name.startswith(("torch.nn.modules.", "torch.optim.")) for name in strangers):
        words.append("The file holds whole modules; save their state instead, torch.save(model.state_dict(), …), and "
                     "load that into a model made by its class.")
    error.args = (" ".join(words),)
