"""The schema of an operator, from the annotations of a function."""
import collections.abc
import inspect
import typing
from types import UnionType

from ...base.dtypes import dtype
from ...base.spec import device
from ...tensor.tensor import Tensor

# Python's type → (the schema's, whether lists of it, lists of optional ones, and optional lists may be)
ANNOTATION_TYPES = {Tensor: ("Tensor", True, True, False), int: ("SymInt", True, False, True),
                    float: ("float", True, False, True), bool: ("bool", True, False, True),
                    str: ("str", False, False, False), int | float | bool: ("Scalar", True, False, False),
                    dtype: ("ScalarType", False, False, False), device: ("Device", False, False, False)}
LIST_ANNOTATIONS = (list, collections.abc.Sequence)


def infer_schema(prototype_function, /, *, mutates_args, op_name=None, tags=()):
    """The schema of a function with annotations: `infer_schema(f, mutates_args=())` is `(Tensor x) -> Tensor`.

    `mutates_args` names the tensors that it writes to; "unknown" counts every tensor among them.
    """
    signature = inspect.signature(prototype_function)

    def refuse(what):
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    if isinstance(mutates_args, str):
        if mutates_args != "unknown":
            raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or "
                             f"the string 'unknown', not {mutates_args!r}.")
    else:
        mutates_args = tuple(mutates_args)
    namespace = getattr(prototype_function, "__globals__", {})
    words, starred, letters = [], False, {}
    for at, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        schema_type = _parameter_type(name, parameter, namespace, refuse)
        if schema_type.startswith("Tensor") if mutates_args == "unknown" else name in mutates_args:
            if not schema_type.startswith("Tensor"):
                refuse(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            letters[name] = f"a{at}"
            schema_type = f"Tensor(a{at}!){schema_type.removeprefix('Tensor')}"
        words.append(f"{schema_type} {name}" + ("" if parameter.default is parameter.empty
                                         else f"={_default_of(name, parameter.default, refuse)}"))
    if mutates_args != "unknown":
        unknown = set(mutates_args) - set(signature.parameters)
        if unknown:
            refuse(f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should "
                   "contain the names of all args that the custom op mutates, or just the string 'unknown' if you "
                   "don't know.")
    given = _schema_result(_evaluated(signature.return_annotation, namespace, refuse), refuse)
    tags = () if tags is None else tags if isinstance(tags, (tuple, list)) else (tags,)
    if any(str(getattr(tag, "name", tag)) in ("inplace", "out") for tag in tags) and letters:
        given = ", ".join(f"Tensor({letter}!)" for letter in letters.values())
        given = given if len(letters) == 1 else f"({given})"
    return f"{op_name or ''}({', '.join(words)}) -> {given}"


def _parameter_type(name, parameter, namespace, refuse):
    """The schema's type of a parameter."""
    if parameter.annotation is parameter.empty:
        refuse(f"Parameter {name} must have a type annotation.")
    schema_type = _schema_type(_evaluated(parameter.annotation, namespace, refuse))
    if schema_type is None:
        tuple_too = typing.get_origin(parameter.annotation) is tuple
        refuse(f"Parameter {name} has unsupported type {parameter.annotation}. "
               + ("We do not support Tuple inputs in schema. As a workaround, please try to use List instead. "
                  if tuple_too else "")
               + f"The valid types are: {', '.join(t[0] for t in ANNOTATION_TYPES.values())}, lists and optional "
                 "ones of them.")
    return schema_type


def _evaluated(annotation, namespace, refuse):
    """An annotation that may be text, as a type."""
    if isinstance(annotation, str):
        try:
            return eval(annotation, dict(namespace))         # as inspect and typing do: it is the program's own text
        except Exception as error:
            refuse(f"Unsupported type annotation {annotation}. It is not a type. ({type(error).__name__}: {error})")
    return annotation


def _schema_type(annotation):
    """The schema's name of a parameter's type, None if it has none."""
    if annotation in ANNOTATION_TYPES:
        return ANNOTATION_TYPES[annotation][0]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        others = [p for p in parts if p is not type(None)]
        if len(others) == len(parts):
            return "Scalar" if set(others) == {int, float, bool} else None
        if set(others) == {int, float, bool}:
            return "Scalar?"
        if len(others) != 1:
            return None
        if others[0] in ANNOTATION_TYPES:
            return f"{ANNOTATION_TYPES[others[0]][0]}?"
        inner = typing.get_args(others[0])
        if typing.get_origin(others[0]) in LIST_ANNOTATIONS and inner and inner[0] in ANNOTATION_TYPES \
                and ANNOTATION_TYPES[inner[0]][3]:
            return f"{ANNOTATION_TYPES[inner[0]][0]}[]?"
        return None
    if origin in LIST_ANNOTATIONS and len(parts) == 1:
        if parts[0] in ANNOTATION_TYPES and ANNOTATION_TYPES[parts[0]][1]:
            return f"{ANNOTATION_TYPES[parts[0]][0]}[]"
        inner = [p for p in typing.get_args(parts[0]) if p is not type(None)]
        if typing.get_origin(parts[0]) in (typing.Union, UnionType) and len(inner) == 1 \
                and inner[0] in ANNOTATION_TYPES and ANNOTATION_TYPES[inner[0]][2]:
            return f"{ANNOTATION_TYPES[inner[0]][0]}?[]"
    return None


def _schema_result(annotation, refuse):
    if annotation is None or annotation is type(None):
        return "()"
    if annotation is inspect.Parameter.empty:
        refuse("No return type annotation was provided. Please add one.")
    single = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", int | float | bool: "Scalar"}

    def one(result_type):
        if result_type in single:
            return single[result_type]
        if typing.get_origin(result_type) is list and typing.get_args(result_type) == (Tensor,):
            return "Tensor[]"
        return refuse(f"Return has unsupported type {annotation}. The valid types are: Tensor, list[Tensor], int, "
                      "float, bool, torch.types.Number, and tuples of these.")
    if typing.get_origin(annotation) is tuple:
        parts = ", ".join(one(part) for part in typing.get_args(annotation))
        return f"(({parts}))" if len(typing.get_args(annotation)) == 1 else f"({parts})"
    return one(annotation)


def _default_of(name, default, refuse):
    if default is None or isinstance(default, (int, float, bool)):
        return str(default)
    if isinstance(default, (str, device)):
        return f'"{default}"'
    if isinstance(default, dtype):
        return default.name
    return refuse(f"Parameter {name} has an unsupported default value type {type(default)}.")
