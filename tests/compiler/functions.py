"""Random Python functions, compiled and plain, and what becomes of everything around them.

A program is the text of a small module with a function in it, and a list of calls; between calls something happens to
what the function reads: a number changes, a tensor is swapped, a method is replaced. The text is run twice, in two
namespaces of their own: plain, and with `torch.compile` around the function. After every call the two worlds have to be
alike (compare.py).

The text is composed from what tables.py holds. A program is drawn from a seed, and a failing one is made smaller by
cutting its text: statements, calls, parts of expressions, as long as it fails in the same way. More of them than the
suite tries, each failure with the smallest program that shows it:

    python -m tests.compiler.functions --examples 5000 --seed 1
"""
import argparse
import ast
import collections
import itertools
import linecache
import os
import random
import re
import sys
import traceback
import warnings
from dataclasses import dataclass, field, replace

import flambeau as torch
from flambeau.base import settings

from . import tables
from .compare import Different, Walk, tensors_in

UNITS = 200                   # in the last place: how far apart native code may round when it is fused otherwise

# --- composing a program ---------------------------------------------------------------------------------------------


@dataclass
class Call:
    before: str               # what happens first, in the module's namespace
    arguments: str
    backward: bool            # through results and arguments, afterwards
    look: bool                # at all contents, afterwards


@dataclass
class Program:
    """The text of a module, which of its names is called, and the calls."""

    source: str
    target: str
    calls: list = field(default_factory=list)
    keeps: bool = False       # whether the results of earlier calls are held
    executor: str = "reference"

    def __str__(self):
        lines = [self.source, f"# called: {self.target}, executor {self.executor}" + ", results are kept" * self.keeps]
        for call in self.calls:
            lines += ["", call.before] if call.before else []
            lines.append(f"{self.target}({call.arguments})" + "   # then backward" * call.backward
                         + "   # unseen" * (not call.look))
        return "\n".join(lines)

    __repr__ = __str__


class Writer:
    """Draws a program."""

    def __init__(self, seed, without=None):
        self.pick, self.without = random.Random(seed).randrange, without
        self.setup, self.events, self.known = [], list(tables.EVENTS), []
        self.ids = itertools.count(1)
        self.ints, self.depth = [], 0
        self.declared = [set()]
        self.before = []              # statements that an expression wants in front of its own
        self.form, self.beside = "entry", False          # whether a function beside the called one is being written

    def one(self, table):
        if self.without:
            table = [x for x in table if not re.search(self.without, str(x))]
        return table[self.pick(len(table))]

    def chance(self, of):
        """True once in `of`."""
        return self.pick(of) == 0

    def fill(self, template, number=0, kind=None):
        """The template with something drawn for each of its marks."""
        def mark(found):
            name = found[1]
            if name == "k":
                return self.one(tables.LITERALS[kind])
            if name == "T":
                return tables.TYPES.get(kind, "type")
            return self.expression(tables.KIND_OF_MARK[name])
        return re.sub(r"\$([kTifbstugn])(?!\w)", mark, template.replace("$0", str(number)))

    def expression(self, kind):
        """An expression of a kind, in parentheses where it needs them."""
        self.depth += 1
        try:
            deep = self.depth > 3
            choice = self.pick(10)
            if kind in tables.TABLES and choice >= (7 if kind in ("int", "float") else 3) and not deep:
                return f"({self.fill(self.one(tables.TABLES[kind]))})"
            if kind == "tensor" and deep:
                return self.one(["x", "y", "h"])
            if kind == "tensor" and choice < 2:
                return self.one(["x", "y"])
            if kind in tables.NAMES and (choice < 3 or deep):
                outside = [tables.NAMES[kind][0] + "_outside"] if self.form == "made" and not self.beside else []
                return self.one([*tables.NAMES[kind], *outside, *(self.ints if kind == "int" else ())])
            if deep and kind not in ("buffer",):
                return f"({self.one(tables.LITERALS[kind])})"
            return self.read(self.place(kind))
        finally:
            self.depth -= 1

    def place(self, kind):
        """A place of this kind: one that is there, or a new one."""
        there = [(place, number) for place, number, its in self.known if its == kind]
        if there and self.chance(2) or len(self.known) > 6 and there:
            return self.one(there)
        weighted = tables.PLACES[:6] * 2 + tables.PLACES
        fitting = [p for p in weighted if kind in p.kinds.split() and (not p.rare or not self.calm and self.chance(4))]
        if self.form in ("machine", "machine.step", "module"):
            fitting.insert(1, tables.OF_METHOD)
        place, number = self.one(fitting), next(self.ids)
        if place is tables.OF_METHOD:
            self.late.append(self.fill(place.setup, number, kind))
        else:
            self.setup.append(self.fill(place.setup, number, kind))
        self.known.append((place, number, kind))
        events = [*place.events] + [w for w in place.writes if "self" not in w]
        self.events += [(e, number, kind) for e in events] * 3
        if self.calm and not self.chance(4):
            return place, number
        if place.writes and kind in ("int", "float", "str", "maybe", "bool") and self.chance(3) or \
                place.writes and kind in ("int", "float") and self.chance(2):
            self.wrote.append((place, number, kind))
        return place, number

    def read(self, found):
        place, number = found
        read = self.one(place.reads) if self.chance(2) else place.reads[0]
        if isinstance(read, tuple):
            self.before.append(self.fill(read[0], number))
            read = read[1]
        kind = next(k for p, n, k in self.known if p is place and n == number)
        return self.fill(read, number, kind)

    def write(self, place, number, kind):
        """A statement that puts another value into a place."""
        statement = self.one(place.writes)
        if place.declares:
            self.declared[-1].add(place.declares.replace("$0", str(number)))
        if kind in ("int", "float") and statement == f"{place.reads[0]} = $k" and not self.chance(3):
            by = self.one(["1"] if kind == "int" else ["0.5", "-0.25"])
            return f"{place.reads[0].replace('$0', str(number))} += {by}"
        value = self.expression(kind)
        return re.sub(r"\$k(?!\w)", lambda _: value, statement.replace("$0", str(number)))

    def statement(self):
        if self.wrote and self.chance(2):
            return self.flush(self.write(*self.wrote.pop()))
        if self.form == "made" and len(self.declared) == 1 and self.chance(3):
            return self.one(["n_outside += 1", "r_outside *= 0.5", "n_outside = n"])
        choice = self.pick(10)
        if choice >= 8 and len(self.declared) < 3 and self.blocks < 3:
            self.blocks += 1
            return self.flush(self.block(self.one(tables.BLOCKS), next(self.ids)))
        if choice >= 6 and self.helpers < 2 and len(self.declared) == 1:
            self.helpers += 1
            return self.flush(self.helper())
        return self.flush(self.fill(self.one(tables.STATEMENTS)))

    def flush(self, text):
        """A statement with what has to stand in front of it."""
        text = "\n".join([*self.before, text])
        self.before = []
        return text

    def statements(self, most, indent="    "):
        lines = [self.statement() for _ in range(1 + self.pick(most))]
        return "\n".join(indent + line for text in lines for line in text.split("\n"))

    def block(self, template, number):
        names = [f"j_{number}"] if "j_$0" in template else []
        head = re.sub(r"\$(body|else|case)", "", template)
        parts, own = re.split(r"(\$body|\$else|\$case)", template.replace("$0", str(number))), "def " in head
        made = []
        kept, self.before = self.before, []
        if own:
            self.declared.append(set())
        for part in parts:
            if part in ("$body", "$else", "$case"):
                self.ints += names
                text = self.statements(2, "        " if part == "$case" else "    ")
                del self.ints[len(self.ints) - len(names):]
                made.append(re.sub(r"\breturn\b.*", "out.append(1)", text) if own else text)
            else:
                made.append(part)
        if own:
            made = ["".join(made)]
            declared = self.declared.pop()
            if declared:
                line = "nonlocal h, x, y\n"
                made[0] = made[0].replace(line, f"{line}    global {', '.join(sorted(declared))}\n", 1)
        self.before = kept + self.before
        text = "".join(made)
        return self.fill(text)

    def helper(self):
        setup, use = self.one(tables.HELPERS)
        number = next(self.ids)
        use = self.fill(use, number)
        if "$body" in setup:
            self.declared.append(set())
            kept, ints, self.before, self.ints, self.beside = self.before, self.ints, [], [], True
            text = re.sub(r"\breturn\b(?! h$).*", "pass", self.statements(2)).replace("self.", "machine.")
            self.before, self.ints, self.beside = kept, ints, False
            declared = self.declared.pop()
            if declared:
                text = f"    global {', '.join(sorted(declared))}\n{text}"
            made = setup.replace("$0", str(number)).replace("$body", text)
        else:
            made = setup.replace("$0", str(number)).replace("$i0", self.one(tables.LITERALS["int"]))
        self.setup.append(made)
        for key, events in tables.HELPER_EVENTS.items():
            if key in setup:
                self.events += [(e, number, "int") for e in events] * 2
                break
        return use

    def program(self):
        self.calm = self.chance(2)            # little changes from call to call, so that most of them are replayed
        self.form = self.one(["entry", "entry", *tables.FORMS])
        if self.form == "made":
            self.events += tables.OUTSIDE_EVENTS
        self.blocks = self.helpers = 0
        self.late, self.wrote = [], []
        extra, use, given = self.one(tables.EXTRAS) if self.chance(3) else tables.EXTRAS[0]
        body = self.statements(5, "")
        while self.wrote:
            body += "\n" + self.flush(self.write(*self.wrote.pop()))
        returned = self.flush(f"return {self.fill(self.one(tables.RETURNS))}")
        body = "\n".join(["h = x + 0.0" if self.chance(2) else "h = y * 1.0", *[use] * bool(use), body, returned])
        if re.search(r"\bout\b", body):
            body = f"out = []\n{body}"
        if self.declared[0]:
            body = f"global {', '.join(sorted(self.declared[0]))}\n{body}"
        text = tables.FORMS[self.form].replace("$extra", extra)
        for mark, indent in (("$body", "    "), ("$method", "        ")):
            text = text.replace(mark, "\n".join(indent + line for line in body.split("\n")))
        results = [made for name, made in tables.RESULTS.items() if name in body]
        source = "\n".join([tables.PRELUDE, *results, *self.setup, text, *self.late, ""])
        return Program(source, self.form, self.calls(given, body), self.chance(2),
                       "native" if self.chance(8) else "reference")

    def calls(self, given, body):
        made = []
        writes = tables.WRITTEN.search(body)
        refuses = tables.REFUSES_WRITES
        x_forms, y_forms = ([f for f in forms if not writes or self.chance(6) or not re.fullmatch(refuses, f)]
                            for forms in (tables.X_FORMS, tables.Y_FORMS))
        x_form, y_form, given_form = self.one(x_forms), self.one(y_forms), self.one(given)
        n_form = self.one(tables.N_FORMS)
        ints, floats = ([self.one(tables.LITERALS[kind]) for _ in range(1 + self.pick(2) if self.calm else 3)]
                        for kind in ("int", "float"))
        backward = self.chance(2)
        seldom = 40 if self.calm else 12
        for count in range(8 + self.pick(7)):
            event = self.event() if count > 2 and self.chance(6 if self.calm else 4) else ""
            x = self.one(x_forms) if self.chance(seldom) else x_form
            y = self.one(y_forms) if self.chance(seldom) else y_form
            n = str(count) if n_form == "$c" else self.one(ints) if n_form == "$k" else n_form
            extra = self.fill_literals(self.one(given) if self.chance(seldom // 2) else given_form, 0, "float")
            x, y = x.replace("$k", str(count)), y.replace("$k", str(count + 3))
            arguments = f"(a := {x}), {y}, {n}, {self.one(floats)}{extra}"
            made.append(Call(event, arguments, backward != self.chance(seldom), not self.chance(4)))
        return made

    def event(self):
        found = self.one(self.events[::-1])
        text, number, kind = found if isinstance(found, tuple) else (found, 0, "int")
        return re.sub(r"\$i(?!\w)", lambda _: self.one(tables.LITERALS["int"]), self.fill_literals(text, number, kind))

    def fill_literals(self, text, number, kind):
        text = re.sub(r"\$k(?!\w)", lambda _: self.one(tables.LITERALS[kind]), text.replace("$0", str(number)))
        return text.replace("$T", tables.TYPES.get(kind, "type"))


# --- running one -----------------------------------------------------------------------------------------------------


_numbers = itertools.count(1)


@dataclass
class Outcome:
    """How much of a program's calls was replayed."""

    calls: int = 0
    replayed: int = 0
    recordings: int = 0
    raised: list = field(default_factory=list)
    reasons: list = field(default_factory=list)


def sourced(text, file):
    """The code of a text whose source can be found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(text, file, "exec")
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    return code


def own_modules():
    return {name: module for name, module in list(sys.modules.items()) if name.startswith("random_")}


# The call that Python names in some of its errors; the two worlds have addresses of their own.
UNNAMED = re.compile(r"^[\w.<>]+\(\) (?=argument after|got multiple)|(?<=be a mapping, not ).*|\b0x[0-9a-f]+")

class World:
    """A namespace in which a program's text was run, and what its calls gave."""

    def __init__(self, program, code, wrap):
        self.names = {"__name__": "random_program", "__file__": code.co_filename}
        self.file = code.co_filename
        exec(code, self.names)
        self.modules = own_modules()
        self.function = wrap(eval(program.target, self.names))
        self.keeps, self.kept = program.keeps, []

    def call(self, before, call):
        """Everything that a call gives or leaves behind."""
        sys.modules.update(self.modules)
        event = self.tried(lambda: exec(before, self.names))
        self.modules = own_modules()
        self.names.pop("whole", None)                    # what an argument is a part of
        args, kwargs = eval(f"(lambda *args, **kwargs: (args, kwargs))({call.arguments})", self.names)
        result = self.tried(lambda: self.function(*args, **kwargs))
        through = args, kwargs, result, self.names.get("whole")
        backward = self.tried(lambda: self.backward(through)) if call.backward and "gave" in result else None
        if self.keeps:
            self.kept.append(result)
        return {"the event's end": event, "argument": args, "keyword": kwargs, "result": result, "backward": backward,
                "earlier results": self.kept, "name": self.names}

    def backward(self, through):
        ready = [t for t in tensors_in(through) if t.requires_grad and t.grad_fn is not None]
        if ready:
            sum((k + 1) * t.sum() for k, t in enumerate(ready)).backward()

    def tried(self, what):
        """What it gave, or what was raised, with the lines of the program it came through."""
        try:
            return {"gave": what()}
        except Exception as error:
            lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
                     if frame.filename == self.file]
            return {"raised": type(error).__name__, "saying": UNNAMED.sub("", str(error)), "lines": lines}


def check(program):
    """Run a program plain and compiled; Different where they differ, an Outcome otherwise."""
    files = set(linecache.cache)
    code = sourced(program.source, f"<random function {next(_numbers)}>")
    executor, settings.executor = settings.executor, program.executor
    variables, modules = set(os.environ), set(sys.modules)
    torch.manual_seed(0)
    outcome = Outcome()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain, compiled = World(program, code, lambda f: f), World(program, code, torch.compile)
            for number, call in enumerate(program.calls):
                before = sourced(call.before, f"{code.co_filename[:-1]}, before call {number}>")
                state = torch.get_rng_state()
                left = plain.call(before, call)
                after = torch.get_rng_state()
                torch.set_rng_state(state)
                right = compiled.call(before, call)
                outcome.calls += 1
                outcome.raised += [": ".join(list(left["result"].values())[:2])] if "raised" in left["result"] else []
                where = f"call {number}"
                if not torch.equal(after, torch.get_rng_state()):
                    raise Different(f"{where}: other random numbers were drawn")
                if call.look or number == len(program.calls) - 1:
                    Walk(UNITS if program.executor == "native" else 0).compare(left, right, where + ": ")
    finally:
        settings.executor = executor
        for name in set(os.environ) - variables:
            del os.environ[name]
        for name in set(sys.modules) - modules:
            if name.startswith("random_"):
                del sys.modules[name]
        for name in set(linecache.cache) - files:
            if name.startswith("<random"):
                del linecache.cache[name]
    function = compiled.function
    outcome.replayed = sum(r.hits for r in function.recordings)
    outcome.recordings = len(function.recordings)
    outcome.reasons = list(function.reasons)
    return outcome


# --- the smallest that fails ------------------------------------------------------------------------------------------


def failure(program):
    """What goes wrong with a program, in words; None where nothing does, or where it is no program."""
    try:
        check(program)
    except Different as error:
        return str(error)
    except Exception as error:               # of a program that was cut to pieces, or of compile outside of a call
        return None if isinstance(error, (SyntaxError, NameError)) else f"{type(error).__name__}: {error}"
    return None


def kind_of(words):
    """What stays the same of a failure while its program gets smaller."""
    return re.sub(r"\[.*?\]|\d+", "", words).partition(" plain ")[0][:40].split(":")[-1].split()[:2] if words else None


def minimised(program, tries=2000):
    """The smallest program found that fails in the same way."""
    kind = kind_of(failure(program))
    if kind is None:
        return program
    while True:
        for smaller in reductions(program):
            tries -= 1
            if tries > 0 and kind_of(failure(smaller)) == kind:
                program = smaller
                break
        else:
            return program


def reductions(program):
    """Programs with a little less in them, the largest cuts first."""
    calls = program.calls
    for i in reversed(range(len(calls))):
        yield replace(program, calls=calls[:i] + calls[i + 1:])
    for change in ({"keeps": False}, {"executor": "reference"}):
        if any(getattr(program, name) != value for name, value in change.items()):
            yield replace(program, **change)
    tree = ast.parse(program.source)
    kept = {id(part) for node in tree.body if getattr(node, "name", "") == "fresh" for part in ast.walk(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in kept:
            continue
        for name in ("body", "orelse", "finalbody", "handlers", "decorator_list", "keywords"):
            for i in reversed(range(len(found) if isinstance(found := getattr(node, name, None), list) else 0)):
                if not isinstance(found[i], (ast.Pass, ast.Return)):
                    yield replace(program, source=cut(program.source, number, name, i))
    for i, call in enumerate(calls):
        for change in ({"before": ""}, {"backward": False}, {"look": True}):
            if any(getattr(call, name) != value for name, value in change.items()):
                yield replace(program, calls=[*calls[:i], replace(call, **change), *calls[i + 1:]])
        for j, simple in enumerate(("fresh(0, 4, 3)", "fresh(1, 4, 3)")):
            given = ast.parse(f"f({call.arguments})", mode="eval").body
            texts = [ast.unparse(x) for x in (*given.args, *given.keywords)]
            if j < len(given.args) and texts[j] != simple:
                texts[j] = simple
                yield replace(program, calls=[*calls[:i], replace(call, arguments=", ".join(texts)), *calls[i + 1:]])
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.expr) and id(node) not in kept:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield replace(program, source=cut(program.source, number, None, -1))
            for i, part in enumerate(ast.iter_child_nodes(node)):
                if isinstance(part, ast.expr) and not isinstance(part, ast.Starred):
                    yield replace(program, source=cut(program.source, number, None, i))


def cut(source, number, name, i):
    """The text without item `i` of a node's list; without a name, with the node's i-th part in the node's place
    (-1: with the object whose method it calls)."""
    tree = ast.parse(source)
    node = next(itertools.islice(ast.walk(tree), number, None))
    if name is not None:
        del getattr(node, name)[i]
        if name == "body" and not node.body and not isinstance(node, ast.Module):
            node.body.append(ast.Pass())
    else:
        part = node.func.value if i < 0 else list(ast.iter_child_nodes(node))[i]

        class Put(ast.NodeTransformer):
            def visit(self, found):
                return part if found is node else super().generic_visit(found)
        tree = Put().visit(tree)
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except Exception:                        # not a program any more
        return "("


# --- many of them ----------------------------------------------------------------------------------------------------


def main():
    ask = argparse.ArgumentParser(description="Random Python functions, compiled against plain.")
    ask.add_argument("--examples", type=int, default=1000)
    ask.add_argument("--seed", type=int, default=0, help="of the first program; the next have the next ones")
    ask.add_argument("--without", help="leave out of the tables what this pattern finds")
    ask.add_argument("--failures", type=int, default=1, help="stop after so many")
    ask.add_argument("--tries", type=int, default=2000, help="programs that are tried to make a failing one smaller")
    asked = ask.parse_args()
    outcomes, failures = [], 0
    for seed in range(asked.seed, asked.seed + asked.examples):
        program = Writer(seed, asked.without).program()
        try:
            outcomes.append(check(program))
        except Exception as error:
            failures += 1
            program = minimised(program, asked.tries)
            words = failure(program) or f"{type(error).__name__}: {error}"
            print(f"\n=== failure {failures}, seed {seed} ===\n{program}\n\n{words}", flush=True)
            if failures >= asked.failures:
                break
    calls, replayed = sum(o.calls for o in outcomes), sum(o.replayed for o in outcomes)
    print(f"\n{len(outcomes)} programs agree, {failures} do not: {calls} calls, {replayed} replayed "
          f"({replayed / max(calls, 1):.0%}), {sum(o.recordings for o in outcomes)} recordings, "
          f"{sum(len(o.raised) for o in outcomes)} raised; {sum(o.replayed > 0 for o in outcomes)} programs were "
          "replayed at all")
    for title, words in (("not replayed because", [x for o in outcomes for x in o.reasons]),
                         ("raised", [x for o in outcomes for x in o.raised])):
        print(f"{title}:")
        counted = collections.Counter(re.sub(r"at <random.*?>:\d+|\d+", "", x) for x in words)
        for reason, times in counted.most_common(20):
            print(f"{times:6d}  {reason.splitlines()[0][:150]}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
