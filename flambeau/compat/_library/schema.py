"""Schemas of operators: `sum(Tensor self, int[] dim, *, bool keepdim=False) -> Tensor`.

A schema names an operator, its arguments with their types and defaults, and its results. `Tensor(a!)` is a tensor that
the operator writes to; a result of the same letter is that tensor. `parse` reads one, `infer_schema` makes one of a
Python function's annotations.
"""
import ast
import re

from ...base import dtypes
from ...base.dtypes import dtype
from ...base.op import NUMBER_CLASSES
from ...base.spec import device
from ...tensor.tensor import Tensor

# The names of types in a schema → what Python calls an argument of that type, for messages.
TYPE_NAMES = {"Tensor": "Tensor", "int": "int", "SymInt": "int", "float": "float", "bool": "bool", "str": "str",
              "Scalar": "number", "complex": "complex", "ScalarType": "dtype", "Device": "Device", "Layout": "Layout",
              "MemoryFormat": "MemoryFormat", "Generator": "Generator", "Storage": "Storage", "Stream": "Stream",
              "Dimname": "str", "QScheme": "QScheme", "AnyEnumType": "Enum", "Any": "Any", "NoneType": "NoneType"}
TOKEN = re.compile(r"\s*(->|[A-Za-z_][\w.:]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
                   r"|-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-()\[\],*?!=|])")


class AliasInfo:
    """Which memory an argument or result shares (`before_set`, the letters), and whether it is written."""

    def __init__(self, letters, is_write, after=None):
        self.before_set, self.after_set = set(letters), set(letters if after is None else after)
        self.is_write = is_write

    def __str__(self):
        after = "" if self.after_set == self.before_set else f" -> {'|'.join(sorted(self.after_set))}"
        return f"({'|'.join(sorted(self.before_set))}{'!' if self.is_write else ''}{after})"


class Type:
    """The type of an argument: a `base` name, with `?` and `[]` in the order they were written."""

    def __init__(self, base, suffixes=()):
        self.base, self.suffixes = base, tuple(suffixes)

    @property
    def is_list(self):
        return any(s[0] == "[" for s in self.suffixes)

    @property
    def is_optional(self):
        return bool(self.suffixes) and self.suffixes[-1] == "?"

    def kind(self):
        """The name PyTorch prints the type by: `TensorType`, `ListType`, …"""
        if self.is_optional:
            return "OptionalType"
        if self.is_list:
            return "ListType"
        return {"Tensor": "TensorType", "SymInt": "SymIntType", "str": "StringType", "Scalar": "NumberType"}.get(
            self.base, f"{self.base[:1].upper()}{self.base[1:]}Type")

    def __str__(self):
        text = TYPE_NAMES.get(self.base, self.base)
        for suffix in self.suffixes:
            text = f"Optional[{text}]" if suffix == "?" else f"List[{text}]"
        return text

    def __repr__(self):
        return self.base + "".join(self.suffixes)

    def __eq__(self, other):
        return isinstance(other, Type) and (self.base, self.suffixes) == (other.base, other.suffixes)

    def __hash__(self):
        return hash((self.base, self.suffixes))

    def accepts(self, given):
        """Whether `given` may stand for an argument of this type."""
        if given is None:
            return self.is_optional or self.base in ("Any", "NoneType")
        outer = [s for s in self.suffixes if s != "?" or s is not self.suffixes[-1]]
        if self.is_optional:
            outer = list(self.suffixes[:-1])
        if outer and outer[-1][0] == "[":
            inner = Type(self.base, outer[:-1])
            if isinstance(given, (list, tuple)):
                return all(inner.accepts(part) for part in given)
            return outer[-1] != "[]" and inner.accepts(given)          # `int[2]` takes one number for all
        base = self.base
        if base == "Tensor":
            return isinstance(given, Tensor)
        if base in ("int", "SymInt"):
            return isinstance(given, int) and not isinstance(given, bool) or isinstance(given, Tensor) \
                and given.dim() == 0 or hasattr(type(given), "__index__") and not isinstance(given, (bool, Tensor))
        if base == "float":
            return isinstance(given, (int, float)) or isinstance(given, Tensor) and given.dim() == 0
        if base == "bool":
            return isinstance(given, bool)
        if base in ("str", "Dimname"):
            return isinstance(given, str)
        if base in ("Scalar", "complex"):
            return isinstance(given, NUMBER_CLASSES) or isinstance(given, Tensor) and given.dim() == 0
        if base == "ScalarType":
            return isinstance(given, (dtype, int))
        if base == "Device":
            return isinstance(given, (device, str))
        return True


class Argument:
    """An argument of an operator, or one of its results."""

    def __init__(self, name, type, alias_info=None, default_value=None, has_default=False, kwarg_only=False):
        self.name, self.type, self.real_type, self.alias_info = name, type, type, alias_info
        self.default_value, self.kwarg_only, self._has_default = default_value, kwarg_only, has_default
        sizes = [s[1:-1] for s in type.suffixes if s[0] == "["]
        self.N = int(sizes[-1]) if sizes and sizes[-1] else None

    def has_default_value(self):
        """Whether the argument may be left out."""
        return self._has_default

    @property
    def is_out(self):
        return self.kwarg_only and self.alias_info is not None and self.alias_info.is_write

    def __str__(self):
        text = self.type.base + ("" if self.alias_info is None else str(self.alias_info)) + "".join(self.type.suffixes)
        text += f" {self.name}" if self.name else ""
        return f"{text}={_default_text(self)}" if self._has_default else text


def _default_text(argument):
    value = argument.default_value
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dtype):
        return value.name
    return str(value).removesuffix("0") if isinstance(value, float) and str(value).endswith(".0") else str(value)


class FunctionSchema:
    """What an operator takes and gives."""

    def __init__(self, name, overload_name, arguments, returns):
        self.name, self.overload_name, self.arguments, self.returns = name, overload_name, arguments, returns
        self.is_vararg = self.is_varret = False
        self.named = {a.name: a for a in arguments}

    @property
    def is_mutable(self):
        """Whether an argument is written."""
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def mutated(self):
        """The names of the arguments that are written."""
        return [a.name for a in self.arguments if a.alias_info is not None and a.alias_info.is_write]

    def bind(self, args, kwargs):
        """(positional arguments, keyword-only ones) of a call, with defaults filled in; refused as PyTorch does."""
        given = [a for a in self.arguments if not a.kwarg_only]
        if len(args) > len(given):
            raise RuntimeError(f"{self.name}() expected at most {len(given)} argument(s) but received {len(args)} "
                               f"argument(s). Declaration: {self}")
        by_name = dict(zip([a.name for a in given], args))
        for name, value in kwargs.items():
            if name not in self.named:
                raise RuntimeError(f"Unknown keyword argument '{name}' for operator '{self.name}'. Schema: {self}")
            if name in by_name:
                raise RuntimeError(f"{self.name}() got multiple values for argument '{name}'. Declaration: {self}")
            by_name[name] = value
        for a in self.arguments:
            if a.name not in by_name:
                if not a.has_default_value():
                    raise RuntimeError(f"{self.name}() is missing value for argument '{a.name}'. Declaration: {self}")
                by_name[a.name] = a.default_value
            elif not a.type.accepts(by_name[a.name]):
                found = by_name[a.name]
                raise RuntimeError(f"{self.name}() Expected a value of type '{a.type}' for argument '{a.name}' but "
                                   f"instead found type '{_type_words(found)}'.\n"
                                   f"Position: {self.arguments.index(a)}\nValue: {found!r:.100}\nDeclaration: {self}")
            elif a.type.base == "Device" and isinstance(by_name[a.name], str):
                by_name[a.name] = device(by_name[a.name])
            elif a.N is not None and not isinstance(by_name[a.name], (list, tuple, type(None))):
                by_name[a.name] = [by_name[a.name]] * a.N
        return [by_name[a.name] for a in given], {a.name: by_name[a.name] for a in self.arguments if a.kwarg_only}

    def __str__(self):
        words, starred = [], False
        for a in self.arguments:
            if a.kwarg_only and not starred:
                words.append("*")
                starred = True
            words.append(str(a))
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        given = ", ".join(map(str, self.returns))
        return f"{name}({', '.join(words)}) -> " + (given if len(self.returns) == 1 and not self.returns[0].name
                                                    else f"({given})")

    def __repr__(self):
        return str(self)

    def __eq__(self, other):
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


def _type_words(given):
    """The type of an argument as PyTorch's messages say it."""
    if isinstance(given, (list, tuple)) and given:
        return f"List[{_type_words(given[0])}]"
    return "None" if given is None else type(given).__name__


# --- reading --------------------------------------------------


class _Reader:
    """Reads a schema token by token; an error shows where it stopped."""

    def __init__(self, text):
        self.text, self.at = text, 0
        self.unnamed = 0                                 # how many `Tensor!` there were

    def peek(self):
        found = TOKEN.match(self.text, self.at)
        return found.group(1) if found else None

    def take(self, wanted=None):
        found = TOKEN.match(self.text, self.at)
        token = found.group(1) if found else None
        if token is None or wanted is not None and token != wanted:
            rest = self.text[self.at:].strip()
            self.fail(f"expected {wanted or 'more'} but found {token or rest[:1] or 'eof'!r} here:", found)
        self.at = found.end()
        return token

    def next_is(self, token):
        if self.peek() != token:
            return False
        self.take()
        return True

    def name(self):
        token = self.peek()
        if token is None or not (token[0].isalpha() or token[0] == "_"):
            self.fail(f"expected ident but found {token or 'eof'!r} here:", TOKEN.match(self.text, self.at))
        return self.take()

    def fail(self, words, found=None):
        at, size = (found.start(1), len(found.group(1))) if found else (self.at, 1)
        raise RuntimeError(f"{words}\n{self.text}\n{' ' * at}{'~' * size} <--- HERE")

    def type(self):
        """A type with its letters: `Tensor(a!)[]?`."""
        found = TOKEN.match(self.text, self.at)
        base = self.name()
        if base not in TYPE_NAMES and not base.startswith("__torch__"):
            self.fail("\nunknown type specifier. Common valid schema types include Tensor, SymInt, int, float, bool, "
                      "Scalar; the full list is " + ", ".join(TYPE_NAMES) + ":", found)
        if self.next_is("!"):                            # `Tensor! out`: written, and no result shares its memory
            alias = AliasInfo({f"${self.unnamed}"}, True, ())
            self.unnamed += 1
        else:
            alias = self.alias() if self.peek() == "(" else None
        suffixes = []
        while self.peek() in ("?", "["):
            if self.take() == "?":
                suffixes.append("?")
                continue
            size = "" if self.peek() == "]" else self.take()
            self.take("]")
            suffixes.append(f"[{size}]")
            if self.peek() == "(" and alias is None:
                alias = self.alias()
        return Type(base, suffixes), alias

    def alias(self):
        self.take("(")
        letters, write = set(), False
        while (token := self.take()) != ")":
            if token == "->":                            # what it may be afterwards says nothing that is used here
                while self.peek() != ")":
                    self.take()
            elif token == "!":
                write = True
            elif token != "|":
                letters.add(token)
        return AliasInfo(letters, write)

    def default(self, type):
        token = self.take()
        if token == "[":
            parts = []
            while self.peek() != "]":
                parts.append(self.default(Type(type.base)))
                self.next_is(",")
            self.take("]")
            return parts
        if token in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[token]
        if token[0] in "\"'":
            return ast.literal_eval(token)
        if token[0].isalpha():                           # a name: `float32`, `contiguous_format`
            return dtype_named(token) if type.base == "ScalarType" else token
        number = ast.literal_eval(token)
        return float(number) if type.base == "float" else number


def dtype_named(name):
    """The dtype that a schema calls `name`."""
    return next((d for d in dtypes.ALL if d.name == name), name)


def parse(text):
    """The FunctionSchema that `text` says; a RuntimeError shows where it cannot be read."""
    if "(" not in text:
        raise RuntimeError(f"Tried to parse a function schema but only the operator name was given: {text!r}")
    reader = _Reader(text)
    name, _, overload = reader.name().partition(".") if reader.peek() != "(" else ("", "", "")
    reader.take("(")
    arguments, kwarg_only = [], False
    while reader.peek() != ")":
        if reader.next_is("*"):
            kwarg_only = True
        else:
            type, alias = reader.type()
            argument_name = reader.name()
            has_default = reader.next_is("=")
            arguments.append(Argument(argument_name, type, alias, reader.default(type) if has_default else None,
                                      has_default, kwarg_only))
        if reader.peek() != ")":
            reader.take("," if reader.peek() is not None else ")")
    reader.take(")")
    reader.take("->")
    returns = []
    if reader.next_is("("):
        extra = reader.next_is("(")                      # `((Tensor))`: a tuple of one
        while reader.peek() != ")":
            returns.append(_result(reader))
            if reader.peek() != ")":
                reader.take(",")
        reader.take(")")
        if extra:
            reader.take(")")
    else:
        returns.append(_result(reader))
    if reader.text[reader.at:].strip():
        reader.fail("expected the end of the schema here:", TOKEN.match(reader.text, reader.at))
    return FunctionSchema(name, overload, arguments, returns)


def _result(reader):
    type, alias = reader.type()
    return Argument(reader.name() if reader.peek() not in (",", ")", None) else "", type, alias)
