"""One HTML page of a report's data: style, program and data in one file, which loads nothing from elsewhere."""
import json
from html import escape
from pathlib import Path

# What the page may do: nothing from outside, and nothing sent anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
HERE = Path(__file__).parent


def page(data):
    """The page. The graph is a picture of ours (lens/svg.py) and stands in it as it is; all else is text to it."""
    graph = data.pop("graph") or ""
    # In a script, only `<` could end it; U+2028 and U+2029 are JSON's, and were not JavaScript's.
    text = json.dumps(data, allow_nan=False, ensure_ascii=True).replace("<", "\\u003c")
    style, program = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escape(data["title"])}: report</title>
<style>
{style}
</style>
</head>
<body>
<header><h1>{escape(data["title"])}</h1><p id="summary"></p><nav id="sections"></nav>
<button id="theme" type="button" aria-label="light or dark">◐</button></header>
<main id="main">
<section id="placement" data-title="Where it ran"></section>
<section id="curves" data-title="Loss and throughput"></section>
<section id="findings" data-title="Findings"></section>
<section id="time" data-title="Time by line"></section>
<section id="memory" data-title="Memory"></section>
<section id="kernels" data-title="Kernels"></section>
<section id="graph" data-title="Graph"><div class="scroll picture">{graph}</div></section>
</main>
<script id="data" type="application/json">{text}</script>
<script>
{program}
</script>
</body>
</html>
"""
