"""What the sources say of findings: every call that tells one, by its name. Tests over these meet a new finding without
naming it."""
import ast
from collections import defaultdict

from flambeau.watch import FINDINGS
from tests.sources import parsed
from tests.test_layers import PACKAGE

MODULES = {name: tree for name, _, tree in parsed(PACKAGE) if name.split(".")[0] == "watch"}
TOLD = defaultdict(list)          # finding → the calls of `found` that tell it
ASKED = set()                     # names that `listens` is asked for
for tree in MODULES.values():
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args \
                and isinstance(node.args[0], ast.Constant):
            if node.func.id == "found":
                TOLD[node.args[0].value].append(node)
            elif node.func.id == "listens":
                ASKED.add(node.args[0].value)


def argument(call, name, place=None):
    """What a call says for an argument, None where it does not."""
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return call.args[place] if named is None and place is not None and len(call.args) > place else named


# a warning in a strict watch too
WARNED_OF = {name for name in FINDINGS if TOLD[name] and all(
    ast.unparse(argument(call, "raises") or ast.Constant(True)) == "False" for call in TOLD[name])}
