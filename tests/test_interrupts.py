"""An interrupt passes no `finally`: see "Loops and interrupts" in CONTRIBUTING.md.

Python looks for interrupts where a loop jumps back. On 3.13 and 3.14 that jump is not always inside the `try`, or the
`with`, that the loop stands in, and what they would put right stays as it was. The compiled code is read, not run.
"""
import ast
import dis
import types
from pathlib import Path

import pytest

pytestmark = pytest.mark.pinned

PACKAGE = Path(__file__).parents[1] / "flambeau"
OTHER_THREADS = {"backends/cpu/compile_thread.py:_serve",
                 "backends/cpu/compile_thread.py:_serve_background"}      # interrupts come to the main thread alone

SAMPLE = """
def run(things, state):
    try:
        for thing in things:
            if thing:
                state.append(thing)
    finally:
        state.clear()
"""


def code_in(code):
    yield code
    for held in code.co_consts:
        if isinstance(held, types.CodeType):
            yield from code_in(held)


def guarded(tree):
    """(first line, last line) of each block that something is put right after, whatever happens in it."""
    for node in ast.walk(tree):
        always = isinstance(node, ast.Try) and (node.finalbody or any(
            handler.type is None or ast.unparse(handler.type) == "BaseException" for handler in node.handlers))
        if always or isinstance(node, ast.With):
            yield node.lineno, node.body[0].lineno, node.body[-1].end_lineno


def jumps_outside(text, name):
    """`name:function` of each loop whose jump back lies outside of the block that it stands in."""
    blocks, found = list(guarded(ast.parse(text))), set()
    for code in code_in(compile(text, name, "exec")) if blocks else ():
        covered = dis._parse_exception_table(code)            # private, and what `dis` itself prints
        for step in dis.get_instructions(code):
            line = step.positions.lineno
            # that of `yield from`, JUMP_BACKWARD_NO_INTERRUPT, looks for none
            if step.opname == "JUMP_BACKWARD" and line is not None \
                    and not any(one.start <= step.offset < one.end for one in covered) \
                    and any(start >= code.co_firstlineno and first <= line <= last for start, first, last in blocks):
                found.add(f"{name}:{code.co_name}")
    return found


@pytest.mark.skipif(not jumps_outside(SAMPLE, "sample"), reason="this Python has every jump inside")
def test_no_loop_jumps_outside_of_its_try():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        found |= jumps_outside(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())
    assert found <= OTHER_THREADS, "put the loop into a function of its own, and call that in the try"
