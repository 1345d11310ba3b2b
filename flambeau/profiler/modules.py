"""What modules are called, in tables by module."""
from collections import defaultdict


class ModulePaths:
    """What modules are called: `Net.layers.0`, after the class of the outermost that was seen, and `Linear_0`."""

    def __init__(self):
        self._known: dict = {}            # id → (the module, kept alive; its path; its title)
        self._numbers: dict = defaultdict(int)

    def of(self, module):
        """(path, title) of a module; those below it are named with it."""
        found = self._known.get(id(module))
        if found is None:
            self._name(module, type(module).__name__)
            found = self._known[id(module)]
        return found[1:]

    def _name(self, module, path):
        stack = [(module, path)]
        while stack:
            one, path = stack.pop()
            if id(one) in self._known:
                continue
            class_name = type(one).__name__
            self._known[id(one)] = one, path, f"nn.Module: {class_name}_{self._numbers[class_name]}"
            self._numbers[class_name] += 1
            stack += [(inner, f"{path}.{name}") for name, inner in reversed(list(one.named_children()))]
