"""How a copy computes: operators, comparisons, truth. See follow.py."""
import operator
import types

from ..tensor.tensor import Tensor
from .guards import same_value
from .journal import FUNCTION_TYPES, MAPPING_TYPES, PLAIN_TYPES, SEQUENCE_TYPES, is_engine, short
from .traced import NUMBER_TYPES, TRACED, plain as fixed

BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
          "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
          "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift}
INPLACE = {"+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv,
           "%": operator.imod, "**": operator.ipow, "@": operator.imatmul, "&": operator.iand, "|": operator.ior,
           "^": operator.ixor, "<<": operator.ilshift, ">>": operator.irshift}
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
           "!=": operator.ne}
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
SPECIAL_METHODS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
                   "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift", "<": "lt",
                   "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
UNARY_SPECIAL_METHODS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
MIRRORED_SIGNS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
COPIED_TYPES = frozenset((int, float, complex, str, bytes)) | TRACED
JOINABLE = (list, tuple, int, bool, *TRACED)


class Expressions:
    """The part of a Follower that computes."""

    def _simple(self, x):
        cls = type(x)
        return cls in NUMBER_TYPES or cls is str or isinstance(x, Tensor) or x is None

    def binary(self, sign, a, b):
        if not self.live() or self._simple(a) and self._simple(b):
            return BINARY[sign](a, b)
        if sign in "+*" and type(a) in JOINABLE and type(b) in JOINABLE:         # their elements are handed on
            return BINARY[sign](self._joined(a), self._joined(b))
        found = self._special(f"__{SPECIAL_METHODS[sign]}__", a, b, f"__r{SPECIAL_METHODS[sign]}__")
        return BINARY[sign](self.escape(a), self.escape(b)) if found is NotImplemented else found

    def _joined(self, x):
        if type(x) in (list, tuple):
            return type(x)(self.iterate(x)) if self._sees(x) else x
        return fixed(x)

    def inplace(self, sign, a, b):
        if not self.live() or self._simple(a) and self._simple(b):
            return INPLACE[sign](a, b)
        if sign in "+*" and type(a) is tuple and type(b) in JOINABLE:
            return BINARY[sign](self._joined(a), self._joined(b))
        if sign == "+" and type(a) is list and type(b) in (list, tuple) and not self._sees(a) \
                and id(a) not in self.published:
            return INPLACE[sign](a, self._joined(b))
        found = NotImplemented
        method = getattr(type(a), f"__i{SPECIAL_METHODS[sign]}__", None)
        if isinstance(method, types.FunctionType) and not isinstance(a, Tensor):
            self._guard_lookup(type(a), f"__i{SPECIAL_METHODS[sign]}__")
            found = self.call(method, (a, b))
        if found is NotImplemented:
            found = self._special(f"__{SPECIAL_METHODS[sign]}__", a, b, f"__r{SPECIAL_METHODS[sign]}__")
        return INPLACE[sign](self.escape(a), self.escape(b)) if found is NotImplemented else found

    def _special(self, name, a, b, reflected):
        """The result of a special method written in Python; NotImplemented where there is none."""
        pairs = [(a, b, name), (b, a, reflected)]
        if type(b) is not type(a) and isinstance(b, type(a)):
            pairs.reverse()
        for left, right, word in pairs:
            cls = type(left)
            method = getattr(cls, word, None)
            if isinstance(method, types.FunctionType) and not isinstance(left, Tensor) and cls not in TRACED \
                    and not is_engine(cls):
                self._guard_lookup(cls, word)
                self.journal.typed(left)
                found = self.call(method, (left, right))
                if found is not NotImplemented:
                    return found
        return NotImplemented

    def unary(self, sign, a):
        if not self.live() or self._simple(a):
            return UNARY[sign](a)
        method = getattr(type(a), UNARY_SPECIAL_METHODS[sign], None)
        if isinstance(method, types.FunctionType):
            self._guard_lookup(type(a), UNARY_SPECIAL_METHODS[sign])
            return self.call(method, (a,))
        return UNARY[sign](self.escape(a))

    def compare(self, sign, a, b):
        if not self.live():
            return a in b if sign == "in" else a not in b if sign == "not in" else COMPARE[sign](a, b)
        if sign in ("in", "not in"):
            return self._contains(b, a) is (sign == "in")
        if self._simple(a) and self._simple(b):
            return COMPARE[sign](a, b)
        found = self._special(f"__{SPECIAL_METHODS[sign]}__", a, b, f"__{SPECIAL_METHODS[MIRRORED_SIGNS[sign]]}__")
        if found is not NotImplemented:
            return found
        if sign in ("==", "!=") and isinstance(a, type) and isinstance(b, type):
            return COMPARE[sign](a, b)
        return COMPARE[sign](self.escape(a), self.escape(b))

    def _contains(self, container, x):
        cls = type(container)
        if cls in MAPPING_TYPES and self._sees(container):
            x = self.key(x)
            found = x in container
            if found:
                self._entry(container, x)
            else:
                self.journal.missing(container, x)
            return found
        method = getattr(cls, "__contains__", None)
        if isinstance(method, types.FunctionType) and not isinstance(container, Tensor):
            self._guard_lookup(cls, "__contains__")
            return bool(self.call(method, (container, x)))
        if self._sees(container):
            return self.escape(x) in self.escape(container)
        if type(x) not in PLAIN_TYPES and type(x) not in TRACED:
            self.escape(container)
            return self.escape(x) in container
        return x in (self._compared(container) if cls in (list, tuple) else container)

    def same(self, a, b):
        """`a is b`."""
        if not self.live():
            return fixed(a) is fixed(b)
        one, other = self.original(a), self.original(b)
        if type(a) in COPIED_TYPES and type(b) in COPIED_TYPES or one is not a or other is not b:
            if type(one) is not type(other):
                return False                                 # `rate is None`: the types decide, and they are guarded
            self.plain(a), self.plain(b)                     # of such a value there are several, that are equal
            if same_value(one, other) and not (type(one) is int and -5 <= one <= 256):
                self.refuse(f"`is` at {self._line()} tells {short(one)} from an equal one by its identity; use ==")
            return one is other
        if self.live() and (id(a) in self.journal.loose or id(b) in self.journal.loose) \
                and self._sees(a) and self._sees(b):
            self.journal.identities.append((a, b, a is b))
        return a is b

    def truth(self, x):
        """Something whose truth Python asks for."""
        if not self.live() or self._simple(x) or isinstance(x, (type, *FUNCTION_TYPES)):
            return x
        cls = type(x)
        for name in ("__bool__", "__len__"):
            method = getattr(cls, name, None)
            if isinstance(method, types.FunctionType) and not is_engine(cls):
                self._guard_lookup(cls, name)
                return bool(self.call(method, (x,)))
            if method is not None:
                break
        return self.tested(x)

    def tested(self, x):
        """An operand of `and` or `or`, as it is."""
        if not self.live() or not self._sees(x) or isinstance(x, Tensor):
            return x
        if isinstance(x, (*SEQUENCE_TYPES, *MAPPING_TYPES, set, frozenset)):
            self.journal.size(x, self.journal.path(x))
        elif not isinstance(x, type) and (hasattr(type(x), "__bool__") or hasattr(type(x), "__len__")):
            self.escape(x)
        return x

    def formatted(self, x):
        return self.escape(x) if self.live() else x
