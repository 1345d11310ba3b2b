"""Make a copy of a Python function that tells what it reads: its source, with every read, write and call going by us.

A recording has to know each value that a function read, and where it stood. The function itself is left alone. What
runs while a call is recorded is a copy, compiled from the same source under the same file name and lines, in which

    self.rate * x[i]        reads      _follow.binary("*", _follow.attr(self, "rate"), _follow.item(x, i))

`_follow` (follow.py) does what Python would have done there and notes it. Local variables, control flow and exceptions
stay Python's own. A statement that is not known here is a reason not to follow the function (`NotFollowed`), so
nothing is read behind our back by accident.

The source is believed only if it compiles to the very code that the function has: a file that was edited since, or
code that a tool has changed, is not followed.
"""
import __future__

import ast
import linecache
import os
import pickle
import sys
import sysconfig
import types

from ..base.errors import PACKAGE
from ..tensor.function_modes import own_code

FOLLOW = "_follow"
MAXIMUM_PARSED_FILES = 64
# Files that are not edited while a program runs: their functions are read without the rest.
UNCHANGING = (PACKAGE, *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
FUTURE_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
COMPREHENSION_NODES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTION_NODES = (ast.FunctionDef, ast.Lambda)
OPERATOR_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
                  ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
                  ast.RShift: ">>"}
COMPARISON_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
                    ast.In: "in", ast.NotIn: "not in"}
UNARY_SIGNS = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}

_copies: dict = {}            # code object → its copy, or the NotFollowed that says why there is none
_copied_code: dict = {}       # id → code object of a copy, or of a function inside one
_files: dict = {}             # file name → (lines, its functions: [(code object, node, class around it)])


class NotFollowed(Exception):
    """Why there is no copy of a function, in words."""


def copy_of(function):
    """The code of the copy of `function`; free in it are `_follow` and what is free in the function itself."""
    code = own_code(function)
    found = _copies.get(id(code))
    if found is None or found[0] is not code:
        watching = sys.getprofile()               # what watches the recorded call need not see this: it happens once
        sys.setprofile(None)
        try:
            made = _rewritten(code, function.__globals__)
        except NotFollowed as reason:
            made = reason
        finally:
            sys.setprofile(watching)
        found = _copies[id(code)] = code, made
    if isinstance(found[1], NotFollowed):
        raise NotFollowed(str(found[1]))
    return found[1]


def is_copy(code):
    """Whether a code object is that of a copy, or of a function inside one."""
    return _copied_code.get(id(code)) is code


# --- the source of a function ----------------------------------------------------------------------------------------


def _rewritten(code, scope):
    if code.co_flags & 0x380:                                # a coroutine, or an asynchronous generator
        raise NotFollowed(f"{code.co_name} is asynchronous")
    node, owner = _source(code, scope)
    node = pickle.loads(pickle.dumps(node, pickle.HIGHEST_PROTOCOL))      # another run of this text has the same tree
    outer = _Rewriter(code, owner).copy(node)
    made = compile(ast.fix_missing_locations(outer), code.co_filename, "exec", code.co_flags & FUTURE_FLAGS, True)
    outer = next(c for c in made.co_consts if isinstance(c, types.CodeType))
    copy = next(c for c in outer.co_consts if isinstance(c, types.CodeType) and c.co_name == code.co_name)
    stack = [copy]
    while stack:
        code = stack.pop()
        _copied_code[id(code)] = code
        stack += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return copy


def _source(code, scope):
    """The syntax tree of the function with this code, and the name of the class that it stands in."""
    name, where = code.co_name, f"{code.co_name} in {code.co_filename}"
    file = scope.get("__file__") if code.co_filename.startswith("<frozen ") else code.co_filename
    lines = linecache.getlines(file, scope) if file else []
    if not lines:
        raise NotFollowed(f"there is no source for {where}")
    if file.startswith(UNCHANGING) and name != "<lambda>":
        return _block(code, lines), _class_around(code)
    flags = code.co_flags & FUTURE_FLAGS
    known = _files.get((file, flags))
    if known is None or known[0] is not lines and known[0] != lines:
        if len(_files) > MAXIMUM_PARSED_FILES:
            _files.clear()
        known = _files[file, flags] = lines, _functions("".join(lines), code.co_filename, flags)
    fitting = [(node, owner) for other, node, owner in known[1] if other.co_name == name and other == code]
    if not fitting:
        raise NotFollowed(f"the source of {where} is no longer what it was made of")
    return fitting[0]


def _block(code, lines):
    """The tree of a function of ours or of the standard library, without reading the rest of its file."""
    last, stack = code.co_firstlineno, [code]
    while stack:
        inner = stack.pop()
        last = max([last, *[line for _, _, line in inner.co_lines() if line is not None]])
        stack += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
    first = code.co_firstlineno - 1
    indented = lines[first][:1].isspace()
    above = "\n" * (first - 1) + "if 1:\n" if indented else "\n" * first          # so that lines keep their numbers
    for end in range(last, min(last + 12, len(lines)) + 1):              # what closes a bracket stands further down
        text = "".join(lines[first:end])
        try:
            tree = ast.parse(above + text)
        except SyntaxError:
            continue
        found = tree.body[0].body[0] if indented else tree.body[0]
        if isinstance(found, ast.FunctionDef) and found.name == code.co_name:
            return found
    raise NotFollowed(f"the source of {code.co_name} in {code.co_filename} cannot be read")


def _class_around(code):
    before = code.co_qualname.split(".")[:-1]
    return before[-1] if before and before[-1] != "<locals>" else next(
        (part for part in reversed(before) if part != "<locals>" and part[:1].isupper()), None)


def _functions(text, filename, flags):
    """[(code object, node, class)] of all functions in a file."""
    try:
        tree = ast.parse(text, filename)
        top = compile(tree, filename, "exec", flags, True)
    except (SyntaxError, ValueError):
        return []
    codes, stack = {}, [top]
    while stack:
        code = stack.pop()
        codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        stack += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    found, stack = [], [(tree, None)]
    while stack:
        node, owner = stack.pop()
        if isinstance(node, FUNCTION_NODES):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            first = min([node.lineno, *[d.lineno for d in getattr(node, "decorator_list", ())]])
            found += [(code, node, owner) for code in codes.get((name, first), ()) if _covers(node, code)]
        inside = node.name if isinstance(node, ast.ClassDef) else owner
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def _covers(node, code):
    """Whether all places of a lambda's code lie in this node; functions are told apart by name and line."""
    if not isinstance(node, ast.Lambda):
        return True
    spots = [(line, column, end, last) for line, end, column, last in code.co_positions()
             if None not in (line, column, end, last) and (line, column) != (end, last)]
    first, final = min((s[:2] for s in spots), default=None), max((s[2:] for s in spots), default=None)
    if first is None:
        return True

    def holds(body):
        return (body.lineno, body.col_offset) <= first and final <= (body.end_lineno, body.end_col_offset)
    return holds(node.body) and not any(isinstance(n, ast.Lambda) and holds(n.body) for n in ast.walk(node.body))


# --- names -----------------------------------------------------------------------------------------------------------


class _SymbolTable:
    """The names of one function: which are its own, which are declared elsewhere, which inner functions read."""

    def __init__(self, node, outer):
        self.node, self.outer = node, outer
        self.own, self.globals, self.nonlocals, self.captured = set(), set(), set(), set()
        a = node.args
        for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
            if argument is not None:
                self.own.add(argument.arg)
        self.inner = []
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        stack = list(body)
        while stack:
            self._read(stack.pop(), stack)
        self.own -= self.globals | self.nonlocals

    def _read(self, node, stack):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.own.add(node.id)
        elif isinstance(node, ast.Global):
            self.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.nonlocals.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.own.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.own.add(node.name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.own.add(node.name)
        if isinstance(node, (*FUNCTION_NODES, ast.ClassDef, ast.AsyncFunctionDef)):
            self.inner.append(node)
            stack += getattr(node, "decorator_list", ())
            if not isinstance(node, ast.ClassDef):
                stack += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
            else:
                stack += [*node.bases, *[k.value for k in node.keywords]]
            return
        if isinstance(node, COMPREHENSION_NODES):            # its targets are its own; what := binds is ours
            for child in ast.walk(node):
                if isinstance(child, ast.NamedExpr):
                    self.own.add(child.target.id)
                elif isinstance(child, FUNCTION_NODES):
                    self.inner.append(child)
            return
        stack += ast.iter_child_nodes(node)

    def kind(self, name):
        """`local`, `enclosing` (of a function around, inside the copy), `free` (of the copied function) or `global`."""
        if name in self.globals:
            return "global"
        if name in self.own and name not in self.nonlocals:
            return "local"
        scope = self.outer
        while scope is not None:
            if name in scope.own:
                return "enclosing"
            if name in scope.globals:
                return "global"
            scope = scope.outer
        return "outside"


# --- rewriting -------------------------------------------------------------------------------------------------------


class _Rewriter(ast.NodeTransformer):
    """One function's tree, rewritten. `generic_visit` is for what is harmless as it stands; anything else is named."""

    HARMLESS = (ast.Constant, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Try, ast.Tuple,
                ast.List, ast.Set, ast.NamedExpr, ast.Slice, ast.keyword, ast.comprehension, ast.ExceptHandler,
                ast.JoinedStr, ast.arguments, ast.arg, ast.Global, ast.Nonlocal, ast.expr_context, ast.operator,
                ast.cmpop, ast.boolop, ast.unaryop, ast.Module, ast.withitem, *[getattr(ast, n) for n in ("TryStar",)
                                                                                if hasattr(ast, n)])

    def __init__(self, code, owner):
        self.code, self.owner = code, owner
        self.free = frozenset(code.co_freevars)
        self.scope = None
        self.bound = []               # names bound by the comprehensions around, in this function
        self.around = frozenset()     # names bound by comprehensions that the function stands in
        self.temporaries = 0

    def copy(self, node):
        """A module with a function that has the free names as arguments, and the copy inside."""
        made = self._function(node)
        if isinstance(made, ast.Lambda):
            body = [ast.Return(made)]
        else:
            made.decorator_list = []
            body = [made, ast.Return(ast.Name(made.name, ast.Load()))]
        names = sorted({FOLLOW, *self.code.co_freevars})
        outer = ast.parse(f"def _outside({', '.join(names)}): pass")
        outer.body[0].body = body
        return outer

    def generic_visit(self, node):
        if not isinstance(node, self.HARMLESS):
            raise NotFollowed(f"{self.code.co_name} uses {type(node).__name__}, which is not followed")
        return super().generic_visit(node)

    # --- words ---

    def _call(self, what, *args, like=None):
        made = ast.Call(ast.Attribute(ast.Name(FOLLOW, ast.Load()), what, ast.Load()), list(args), [])
        return made if like is None else ast.copy_location(made, like)

    def _name(self, name):
        """A name as the compiler would mangle it."""
        if self.owner and name.startswith("__") and not name.endswith("__") and self.owner.strip("_"):
            return f"_{self.owner.lstrip('_')}{name}"
        return name

    def _text(self, name):
        return ast.Constant(self._name(name))

    def _temporary(self):
        self.temporaries += 1
        return f"_follow{self.temporaries}"

    def _kind(self, name):
        if any(name in names for names in self.bound):
            return "local"
        scope = self.scope.kind(name)
        if scope != "local" and name in self.around:
            return "enclosing"
        return scope if scope != "outside" else "free" if name in self.free else "global"

    def _is_captured(self, name):
        """Whether a function inside reads a local name, which then lives in a cell that others may hold."""
        return name in self.scope.captured

    # --- functions ---

    def _function(self, node):
        outer, self.scope = self.scope, _SymbolTable(node, self.scope)
        outer_bound, self.bound = self.bound, []
        outer_around, self.around = self.around, self.around.union(*outer_bound)
        scope = self.scope
        for inner in scope.inner:
            scope.captured |= {n.id for n in ast.walk(inner) if isinstance(n, ast.Name)} & scope.own
        if isinstance(node, ast.Lambda):
            captured = sorted(a for a in scope.own & scope.captured)
            body = self.visit(node.body)
            if captured:
                raise NotFollowed("a lambda whose arguments are read by a function inside is not followed")
            made = ast.copy_location(ast.Lambda(self._arguments(node.args, outer, outer_bound), body), node)
        else:
            body = []
            arguments = [a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)]
            for name in arguments:
                if self._is_captured(name):
                    body.append(ast.Assign([ast.Name(name, ast.Store())],
                                           self._call("plain", ast.Name(name, ast.Load()))))
            for statement in node.body:
                done = self.visit(statement)
                body += done if isinstance(done, list) else [] if done is None else [done]
            made = ast.copy_location(ast.FunctionDef(node.name, self._arguments(node.args, outer, outer_bound),
                                                     body or [ast.Pass()], [], None), node)
            if hasattr(node, "type_params"):
                made.type_params = []
        self.scope, self.bound, self.around = outer, outer_bound, outer_around
        return made

    def _arguments(self, args, outer, outer_bound):
        """The arguments without annotations, which a copy is not asked for; defaults belong to the scope around."""
        inner, self.scope, bound, self.bound = self.scope, outer, self.bound, outer_bound
        bare = lambda a: None if a is None else ast.arg(a.arg)
        if outer is None:                                    # the copied function: the defaults are the function's own
            nothing = ast.Constant(None)
            defaults, kw_defaults = [nothing] * len(args.defaults), [d and nothing for d in args.kw_defaults]
        else:
            defaults = [self.visit(d) for d in args.defaults]
            kw_defaults = [d and self.visit(d) for d in args.kw_defaults]
        self.scope, self.bound = inner, bound
        return ast.arguments([bare(a) for a in args.posonlyargs], [bare(a) for a in args.args], bare(args.vararg),
                             [bare(a) for a in args.kwonlyargs], kw_defaults, bare(args.kwarg), defaults)

    def visit_FunctionDef(self, node):
        """A function inside; its decorators are called as calls are."""
        decorators = [self.visit(d) for d in node.decorator_list]
        made = self._function(node)
        if not decorators and self._kind(node.name) == "local":
            return made
        found = ast.Name(made.name, ast.Load())
        for decorator in reversed(decorators):
            found = self._call("call", decorator, ast.Tuple([found], ast.Load()), ast.Constant(None), like=node)
        named = ast.copy_location(ast.Name(node.name, ast.Store()), node)
        return [made, *self._assign(named, found, node)]

    def visit_Lambda(self, node):
        return self._function(node)

    def visit_ClassDef(self, node):
        raise NotFollowed(f"{self.code.co_name} defines the class {node.name}, which is not followed: move it out")

    # --- names, attributes, items ---

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            scope = self._kind(node.id)
            if scope == "global" and node.id not in ("__class__", FOLLOW):
                return self._call("name", ast.Constant(node.id), like=node)
            if scope == "free":
                return self._call("free", ast.Constant(node.id), node, like=node)
        elif self._kind(node.id) not in ("local", "enclosing") or self._is_captured(node.id):
            raise NotFollowed(f"{self.code.co_name} binds {node.id} in a way that is not followed")
        return node

    def visit_Attribute(self, node):
        return self._call("attr", self.visit(node.value), self._text(node.attr), like=node)

    def visit_Subscript(self, node):
        return self._call("item", self.visit(node.value), self._index(node.slice), like=node)

    def _index(self, node):
        if isinstance(node, ast.Slice):
            parts = [ast.Constant(None) if p is None else self.visit(p) for p in (node.lower, node.upper, node.step)]
            return self._call("slice", *parts, like=node)
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple([self._index(part) for part in node.elts], ast.Load()), node)
        return self.visit(node)

    # --- expressions ---

    def visit_BinOp(self, node):
        return self._call("binary", ast.Constant(OPERATOR_SIGNS[type(node.op)]), self.visit(node.left),
                          self.visit(node.right), like=node)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return ast.copy_location(ast.UnaryOp(ast.Not(), self._truth(node.operand)), node)
        if isinstance(node.operand, ast.Constant):
            return node
        return self._call("unary", ast.Constant(UNARY_SIGNS[type(node.op)]), self.visit(node.operand), like=node)

    def visit_BoolOp(self, node):
        values = [self._call("tested", self.visit(v), like=v) for v in node.values[:-1]]
        return ast.copy_location(ast.BoolOp(node.op, [*values, self.visit(node.values[-1])]), node)

    def visit_Compare(self, node):
        left, parts = self.visit(node.left), []
        for i, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self.visit(right)
            if i < len(node.ops) - 1:                        # a < b < c: b is asked twice, and computed once
                if self.bound:
                    raise NotFollowed(f"{self.code.co_name} has a chain of comparisons inside a comprehension, which "
                                      "is not followed")
                name = self._temporary()
                right, again = ast.NamedExpr(ast.Name(name, ast.Store()), right), ast.Name(name, ast.Load())
            else:
                again = None
            if isinstance(op, (ast.Is, ast.IsNot)):
                part = self._call("same", left, right, like=node)
                parts.append(part if isinstance(op, ast.Is) else ast.copy_location(ast.UnaryOp(ast.Not(), part), node))
            else:
                parts.append(self._call("compare", ast.Constant(COMPARISON_SIGNS[type(op)]), left, right, like=node))
            left = again
        return parts[0] if len(parts) == 1 else ast.copy_location(ast.BoolOp(ast.And(), parts), node)

    def _truth(self, node):
        return self._call("truth", self.visit(node), like=node)

    def visit_IfExp(self, node):
        made = ast.IfExp(self._truth(node.test), self.visit(node.body), self.visit(node.orelse))
        return ast.copy_location(made, node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and \
                self._kind("super") == "global":
            return node                                      # the compiler knows what is meant by it
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            args = self._call("tuple", *[ast.Starred(self._call("iterate", self.visit(a.value)), ast.Load())
                                         if isinstance(a, ast.Starred) else self.visit(a) for a in node.args])
            pairs = [(None if k.arg is None else ast.Constant(k.arg),
                      self._call("mapping", self.visit(k.value)) if k.arg is None else self.visit(k.value))
                     for k in node.keywords]
            keywords = self._call("keywords", *[ast.Tuple([ast.Constant(None) if k is None else k, v], ast.Load())
                                                for k, v in pairs]) if pairs else ast.Constant(None)
        else:
            args = ast.Tuple([self.visit(a) for a in node.args], ast.Load())
            keywords = ast.Dict([ast.Constant(k.arg) for k in node.keywords],
                                [self.visit(k.value) for k in node.keywords]) if node.keywords else ast.Constant(None)
        if isinstance(node.func, ast.Attribute):
            return self._call("method", self.visit(node.func.value), self._text(node.func.attr), args, keywords,
                              like=node)
        return self._call("call", self.visit(node.func), args, keywords, like=node)

    def visit_Starred(self, node):
        if isinstance(node.ctx, ast.Store):
            return super().generic_visit(node)
        return ast.copy_location(ast.Starred(self._call("iterate", self.visit(node.value)), ast.Load()), node)

    def visit_Dict(self, node):
        keys = [None if key is None else self._call("key", self.visit(key)) for key in node.keys]
        values = [self._call("mapping", self.visit(v)) if k is None else self.visit(v)
                  for k, v in zip(node.keys, node.values, strict=True)]
        return ast.copy_location(ast.Dict(keys, values), node)

    def visit_Set(self, node):
        return ast.copy_location(ast.Set([
            ast.Starred(self._call("keys", self.visit(e).value), ast.Load()) if isinstance(e, ast.Starred) else
            self._call("key", self.visit(e)) for e in node.elts]), node)

    def visit_FormattedValue(self, node):
        spec = None if node.format_spec is None else self.visit(node.format_spec)
        return ast.copy_location(ast.FormattedValue(self._call("formatted", self.visit(node.value)), node.conversion,
                                                    spec), node)

    def visit_NamedExpr(self, node):
        self.visit(node.target)
        return ast.copy_location(ast.NamedExpr(node.target, self.visit(node.value)), node)

    def _comprehension(self, node):
        generators = []
        self.bound.append(set())
        for g in node.generators:
            if g.is_async:
                raise NotFollowed(f"{self.code.co_name} has an asynchronous comprehension")
            iterated = self._call("iterate", self.visit(g.iter), like=g.iter)
            self.bound[-1] |= {n.id for n in ast.walk(g.target) if isinstance(n, ast.Name)}
            if any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(g.target)):
                raise NotFollowed(f"{self.code.co_name} has a comprehension that writes to more than names")
            if isinstance(g.target, (ast.Tuple, ast.List)):
                iterated = self._call("pairs", iterated, like=g.iter)
            if any(isinstance(n, FUNCTION_NODES) for n in ast.walk(node)):    # which may keep what it sees
                iterated = self._call("plained", iterated, like=g.iter)
            generators.append(ast.comprehension(g.target, iterated, [self._truth(i) for i in g.ifs], 0))
        if isinstance(node, ast.DictComp):
            made = ast.DictComp(self._call("key", self.visit(node.key)), self.visit(node.value), generators)
        else:
            element = self.visit(node.elt)
            made = type(node)(self._call("key", element) if isinstance(node, ast.SetComp) else element, generators)
        self.bound.pop()
        return ast.copy_location(made, node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Yield(self, node):
        value = ast.Constant(None) if node.value is None else self.visit(node.value)
        return ast.copy_location(ast.Yield(self._call("plain", value)), node)

    def visit_YieldFrom(self, node):
        return ast.copy_location(ast.YieldFrom(self._call("iterate", self.visit(node.value))), node)

    # --- statements ---

    def visit_If(self, node):
        return ast.copy_location(ast.If(self._truth(node.test), self._body(node.body), self._body(node.orelse)), node)

    def visit_While(self, node):
        return ast.copy_location(ast.While(self._truth(node.test), self._body(node.body), self._body(node.orelse)),
                                 node)

    def visit_Assert(self, node):
        return ast.copy_location(ast.Assert(self._truth(node.test), node.msg and self.visit(node.msg)), node)

    def _body(self, statements):
        made = []
        for statement in statements:
            done = self.visit(statement)
            made += done if isinstance(done, list) else [] if done is None else [done]
        return made

    def visit_For(self, node):
        iterated = self._call("iterate", self.visit(node.iter), like=node.iter)
        if isinstance(node.target, ast.Name) and self._is_plain(node.target):
            target, first = node.target, []
        else:
            name = self._temporary()
            target = ast.copy_location(ast.Name(name, ast.Store()), node.target)
            first = self._assign(node.target, ast.Name(name, ast.Load()), node)
        return ast.copy_location(ast.For(target, iterated, [*first, *self._body(node.body)], self._body(node.orelse)),
                                 node)

    def visit_With(self, node):
        items, first = [], []
        for item in node.items:
            manager, target = self._call("manager", self.visit(item.context_expr), like=item.context_expr), None
            if item.optional_vars is not None:
                if isinstance(item.optional_vars, ast.Name) and self._is_plain(item.optional_vars):
                    target = item.optional_vars
                elif len(node.items) == 1:
                    name = self._temporary()
                    target = ast.Name(name, ast.Store())
                    first = self._assign(item.optional_vars, ast.Name(name, ast.Load()), node)
                else:
                    raise NotFollowed(f"{self.code.co_name} has a `with` that binds more than names")
            items.append(ast.withitem(manager, target))
        return ast.copy_location(ast.With(items, [*first, *self._body(node.body)]), node)

    def visit_ExceptHandler(self, node):
        if node.name and not self._is_plain(ast.Name(node.name, ast.Store())):
            raise NotFollowed(f"{self.code.co_name} binds {node.name} in a way that is not followed")
        return ast.copy_location(ast.ExceptHandler(node.type and self.visit(node.type), node.name,
                                                   self._body(node.body)), node)

    def _is_plain(self, target):
        """Whether binding this name needs no notice of ours."""
        return self._kind(target.id) in ("local", "enclosing") and not self._is_captured(target.id) \
            and not (self._kind(target.id) == "enclosing")

    def _assign(self, target, value, like):
        """The statements that assign the expression `value` to `target`."""
        def place(node):
            return ast.copy_location(node, like)
        if isinstance(target, ast.Name):
            scope = self._kind(target.id)
            if scope == "global":
                return [place(ast.Expr(self._call("store_name", ast.Constant(target.id), value, like=like)))]
            if scope == "free":
                value = self._call("store_free", ast.Constant(target.id), value, like=like)
            elif scope == "enclosing" or self._is_captured(target.id):
                value = self._call("plain", value, like=like)
            return [place(ast.Assign([ast.copy_location(ast.Name(target.id, ast.Store()), target)], value))]
        if isinstance(target, ast.Attribute):
            return [place(ast.Expr(self._call("store_attr", value, self.visit(target.value), self._text(target.attr),
                                              like=like)))]
        if isinstance(target, ast.Subscript):
            return [place(ast.Expr(self._call("store_item", value, self.visit(target.value), self._index(target.slice),
                                              like=like)))]
        if isinstance(target, (ast.Tuple, ast.List)):
            after, parts = [], []
            for part in target.elts:
                starred, inner = isinstance(part, ast.Starred), part.value if isinstance(part, ast.Starred) else part
                if not (isinstance(inner, ast.Name) and self._is_plain(inner)):
                    name = self._temporary()
                    after += self._assign(inner, ast.Name(name, ast.Load()), like)
                    inner = ast.Name(name, ast.Store())
                inner = ast.copy_location(ast.Name(inner.id, ast.Store()), part)
                parts.append(ast.Starred(inner, ast.Store()) if starred else inner)
            value = self._call("unpacked", value, like=like)
            return [place(ast.Assign([ast.Tuple(parts, ast.Store())], value)), *after]
        raise NotFollowed(f"{self.code.co_name} assigns to {type(target).__name__}, which is not followed")

    def visit_Assign(self, node):
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self._assign(node.targets[0], value, node)
        name = self._temporary()
        made = [ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)]
        for target in node.targets:
            made += self._assign(target, ast.Name(name, ast.Load()), node)
        return made

    def visit_AnnAssign(self, node):
        return None if node.value is None else self._assign(node.target, self.visit(node.value), node)

    def visit_AugAssign(self, node):
        sign, target = ast.Constant(OPERATOR_SIGNS[type(node.op)]), node.target
        if isinstance(target, ast.Name):
            before = self.visit(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            return self._assign(target, self._call("inplace", sign, before, self.visit(node.value), like=node), node)
        holder, key = self._temporary(), self._temporary()
        made = [ast.copy_location(ast.Assign([ast.Name(holder, ast.Store())], self.visit(target.value)), node)]
        if isinstance(target, ast.Attribute):
            what, key_now = "attr", self._text(target.attr)
        else:
            made.append(ast.copy_location(ast.Assign([ast.Name(key, ast.Store())], self._index(target.slice)), node))
            what, key_now = "item", ast.Name(key, ast.Load())
        before = self._call(what, ast.Name(holder, ast.Load()), key_now, like=node)
        value = self._call("inplace", sign, before, self.visit(node.value), like=node)
        made.append(ast.copy_location(ast.Expr(self._call(f"store_{what}", value, ast.Name(holder, ast.Load()), key_now,
                                                          like=node)), node))
        return made

    def visit_Delete(self, node):
        made = []
        for target in node.targets:
            if isinstance(target, ast.Name) and self._is_plain(target):
                made.append(ast.copy_location(ast.Delete([target]), node))
            elif isinstance(target, ast.Attribute):
                made.append(ast.copy_location(ast.Expr(self._call(
                    "delete_attr", self.visit(target.value), self._text(target.attr), like=node)), node))
            elif isinstance(target, ast.Subscript):
                made.append(ast.copy_location(ast.Expr(self._call(
                    "delete_item", self.visit(target.value), self._index(target.slice), like=node)), node))
            else:
                raise NotFollowed(f"{self.code.co_name} deletes a name in a way that is not followed")
        return made

    def visit_Import(self, node):
        made = []
        for alias in node.names:
            found = self._call("imported", ast.Constant(alias.name), ast.Constant(bool(alias.asname)), like=node)
            made += self._assign(ast.Name(alias.asname or alias.name.partition(".")[0], ast.Store()), found, node)
        return made

    def visit_ImportFrom(self, node):
        made = []
        for alias in node.names:
            if alias.name == "*":
                raise NotFollowed(f"{self.code.co_name} imports everything from {node.module}")
            found = self._call("imported_from", ast.Constant(node.module or ""), ast.Constant(node.level),
                               ast.Constant(alias.name), like=node)
            made += self._assign(ast.Name(alias.asname or alias.name, ast.Store()), found, node)
        return made
