"""Build the documentation into site/: the Markdown pages beside this file, and an API page from docstrings.

    python docs/build.py [--out site]

Needs the package itself and `markdown` (the extra `docs`).
"""

import argparse
import html
import inspect
import re
import shutil
import types
from pathlib import Path

import markdown

import flambeau

HERE = Path(__file__).parent
NAV = ["index", "training", "porting", "packages", "packages_tried", "data", "saving", "amp", "distributions",
       "compile", "design", "native", "doctor", "report", "containers", "processors", "operations", "autograd",
       "extending", "dtypes", "numpy", "random", "errors", "differences", "conformance", "speed"]
API = ["flambeau", "flambeau.Tensor", "flambeau.nn", "flambeau.nn.functional", "flambeau.nn.init",
       "flambeau.nn.utils", "flambeau.optim", "flambeau.optim.lr_scheduler", "flambeau.utils.data", "flambeau.amp",
       "flambeau.distributions", "flambeau.func", "flambeau.serialization", "flambeau.linalg", "flambeau.special",
       "flambeau.autograd", "flambeau.autograd.functional", "flambeau.autograd.forward_ad", "flambeau.autograd.graph",
       "flambeau.random", "flambeau.library", "flambeau.cpu", "flambeau.config", "flambeau.plans",
       "flambeau.utils.checkpoint", "flambeau.testing"]

TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Flambeau</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; margin: 0; display: flex; color: #222; }}
nav {{ flex: 0 0 11rem; padding: 2rem 1.5rem; background: #f6f4f1; min-height: 100vh; }}
nav a {{ display: block; padding: .2rem 0; color: #8a3d00; text-decoration: none; }}
nav a.here {{ font-weight: bold; }}
main {{ max-width: 48rem; padding: 1rem 2.5rem; min-width: 0; }}
pre {{ background: #f6f4f1; padding: .8rem 1rem; overflow-x: auto; line-height: 1.4; }}
code {{ font-size: .9em; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #ddd; padding: .3rem .8rem .3rem 0; text-align: left; }}
h3 code {{ font-size: 1em; }}
.names {{ font-size: .85em; }}
</style>
<nav>{nav}</nav>
<main>{body}</main>
</html>
"""


def title_of(text):
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def render(text):
    """Markdown to HTML, with links between pages turned into links between the built ones."""
    body = markdown.markdown(text, extensions=["fenced_code", "tables", "toc"])
    return re.sub(r'href="([\w-]+)\.md(#[\w-]*)?"', r'href="\1.html\2"', body)


def public(owner, dotted):
    """The documented names of a module or class, in alphabetical order: (name, object).

    A module that defines something shows that and not what it imports; one that defines nothing is a namespace, and
    shows all it has.
    """
    names = getattr(owner, "__all__", None) or [name for name in dir(owner) if not name.startswith("_")]
    found = [(name, getattr(owner, name)) for name in sorted(names) if f"{dotted}.{name}" not in API]
    found = [(name, held) for name, held in found if not isinstance(held, types.ModuleType) and inspect.getdoc(held)]
    own = [(name, held) for name, held in found if getattr(held, "__module__", None) == owner.__name__]
    return own if own and isinstance(owner, types.ModuleType) else found


def signature_of(found, method):
    """The arguments of a function, method or operation, as text; nothing for a property."""
    if isinstance(found, property):
        return ""
    try:
        given = inspect.signature(found)
        bound = method and next(iter(given.parameters), "") in ("self", "input")
        return str(given.replace(parameters=list(given.parameters.values())[bound:],
                                 return_annotation=inspect.Signature.empty))
    except (TypeError, ValueError):
        return "(…)" if callable(found) else ""


def reference():
    """The API page as HTML: each namespace, each name in it, its signature and its docstring."""
    contents, parts = [], []
    for dotted in API:
        owner = flambeau
        for name in dotted.split(".")[1:]:
            owner = getattr(owner, name, None)
        if owner is None:
            raise SystemExit(f"docs/build.py lists {dotted}, which does not exist")
        found = public(owner, dotted)
        contents.append(f'<li><a href="#{dotted}">{dotted}</a> ({len(found)})</li>')
        parts.append(f'<h2 id="{dotted}">{dotted}</h2>\n<p class="names">')
        parts += [f'<a href="#{dotted}.{name}">{name}</a>' for name, _ in found]
        parts.append("</p>")
        for name, held in found:
            heading = html.escape(name + signature_of(held, isinstance(owner, type)))
            parts.append(f'<h3 id="{dotted}.{name}"><code>{heading}</code></h3>{docstring(held)}')
    return "\n".join(["<h1>API reference</h1>", "<ul>", *contents, "</ul>", *parts])


def docstring(found):
    """A docstring as HTML: paragraphs, with `>>>` sessions and indented parts as they were written."""
    out = []
    for part in re.split(r"\n\s*\n", inspect.getdoc(found)):
        if part.startswith((">>>", " ")) or "\n " in part:
            out.append(f"<pre>{html.escape(part)}</pre>")
        else:
            out.append(re.sub(r"`([^`]+)`", r"<code>\1</code>", f"<p>{html.escape(part, quote=False)}</p>"))
    return "".join(out)


def main():
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--out", type=Path, default=HERE.parent / "site")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    texts = {name: (HERE / f"{name}.md").read_text(encoding="utf-8") for name in NAV}
    unlisted = {path.stem for path in HERE.glob("*.md")} - set(NAV)
    if unlisted:
        raise SystemExit(f"docs/build.py does not list {', '.join(sorted(unlisted))} in NAV")
    pages = {name: (title_of(text), render(text)) for name, text in texts.items()}
    pages["api"] = ("API reference", reference())
    for name, (title, body) in pages.items():
        nav = "".join(f'<a href="{other}.html"{" class=here" * (other == name)}>{html.escape(label)}</a>'
                      for other, (label, _) in pages.items())
        page = TEMPLATE.format(title=html.escape(title), nav=nav, body=body)
        (out / f"{name}.html").write_text(page, encoding="utf-8")
    for picture in HERE.glob("*.svg"):
        shutil.copy(picture, out)
    print(f"{len(pages)} pages in {out}")


if __name__ == "__main__":
    main()
