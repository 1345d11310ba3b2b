"""Read off a code object what it asks for: global names, and attributes, with the object they are asked of if plain.

`self.rate`, `optimizer.step` and `config.model.width` are chains: they start at a name whose object is known before the
call, so only that object is asked for the attribute. An attribute of anything else (a local variable, the result of a
call) may be asked of any object.
"""
import dis
import types

ATTRIBUTES = frozenset("LOAD_ATTR LOAD_METHOD STORE_ATTR DELETE_ATTR LOAD_SUPER_ATTR".split())
ANYTHING = frozenset("getattr setattr delattr hasattr vars attrgetter methodcaller __dict__".split())
UNBOUNDED = frozenset("eval exec globals locals".split())


_known: dict = {}             # id of a code object → (the object, kept alive; its Names)


def names_of(code):
    """The Names of a code object."""
    known = _known.get(id(code))
    if known is None:
        if len(_known) > 1000:
            _known.clear()
        known = _known[id(code)] = code, Names(code)
    return known[1]


class Names:
    """What one function asks for, the functions defined inside it included."""

    def __init__(self, code):
        self.code = code
        self.codes = []           # it, and those of the functions inside
        self.globals = {}         # name → whether it is written
        self.modules = []         # imported inside
        self.chains = set()       # (kind of root, name of the root, attributes); "self" is the first argument
        self.loose = set()        # attributes asked of we do not know what
        stack = [code]
        while stack:
            inner = stack.pop()
            self.codes.append(inner)
            self._read(inner, inner is code)
            for constant in inner.co_consts:
                if isinstance(constant, types.CodeType):
                    stack.append(constant)
                elif isinstance(constant, str) and constant.isidentifier():
                    self.loose.add(constant)                 # getattr(x, "name")
        self.full = any(not ANYTHING.isdisjoint(inner.co_names) for inner in self.codes)
        self.unbounded = sorted(UNBOUNDED.intersection(self.globals))

    def _read(self, code, outermost):
        first = code.co_varnames[0] if outermost and code.co_argcount else None
        chain = None
        for i in dis.get_instructions(code):
            name = i.opname
            if name in ATTRIBUTES:
                if chain is None:
                    self.loose.add(i.argval)
                else:
                    chain = (*chain[:2], (*chain[2], i.argval))
                    self.chains.add(chain)
                    continue
            elif name in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
                self.globals[i.argval] = self.globals.get(i.argval) or name == "STORE_GLOBAL"
                if name == "LOAD_GLOBAL":
                    chain = "global", i.argval, ()
                    continue
            elif name == "LOAD_DEREF" and i.argval in self.code.co_freevars:
                chain = "cell", i.argval, ()
                continue
            elif name.startswith("LOAD_FAST") and (i.argval[-1] if i.argval.__class__ is tuple else i.argval) == first:
                chain = "self", first, ()
                continue
            elif name.startswith("STORE_") and (i.argval == first or i.argval.__class__ is tuple and first in i.argval):
                self.loose.update(n for kind, _, names in self.chains if kind == "self" for n in names)
                first = None                                 # it is another object from here on
            elif name == "IMPORT_NAME":
                self.modules.append(i.argval)
            elif name in ("COPY", "EXTENDED_ARG", "CACHE", "PUSH_NULL") and chain is not None:
                continue                                     # self.x += 1
            chain = None

    def of(self, kind, root):
        """The attributes asked of a root, as tuples of names."""
        return [names for k, r, names in self.chains if k == kind and (r == root or root is None)]
