"""The package's source, parsed."""
import ast
import gc


def parsed(package):
    """Every module under `package`: its dotted name inside the package ('' for the top), file and tree."""
    was_enabled = gc.isenabled()
    gc.disable()                                      # it would go through the nodes again and again
    try:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, path, ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        if was_enabled:
            gc.enable()
