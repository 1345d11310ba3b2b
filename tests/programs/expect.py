"""Make the kept numbers: run programs with the real PyTorch, and write what they give to kept/NAME.json.

    python -m tests.programs.expect NAME…         (all programs, if none is named)

It needs an environment with torch 2.13.0 and the packages that requirements-all.txt names.
"""
import json
import sys

from .__main__ import KEPT, VERSION, names, started


def main(argv):
    failed = 0
    for name in names(argv):
        done = started(name)
        version, _, build = done["versions"].get("torch", VERSION).partition("+")
        if version != VERSION or build == "flambeau":
            sys.exit(f"the numbers are PyTorch {VERSION}'s, and this environment has {version}+{build}")
        for part, error in done["errors"].items():
            print(f"{name}.{part} failed:\n{error}", file=sys.stderr)
        failed += bool(done["errors"])
        if not done["errors"]:
            kept = {"made_with": done["versions"], "parts": done["parts"]}
            (KEPT / f"{name}.json").write_text(text_of(kept), encoding="utf-8")
            print(f"{name}: {len(done['parts'])} parts in {sum(done['seconds'].values()):.1f} s")
    return 1 if failed else 0


def text_of(kept):
    """JSON with one result a line."""
    lines = ["{", f' "made_with": {json.dumps(kept["made_with"])},', ' "parts": {']
    for part, results in kept["parts"].items():
        lines.append(f"  {json.dumps(part)}: {{")
        lines += [f"   {json.dumps(name)}: {json.dumps(held)}," for name, held in results.items()]
        lines[-1] = lines[-1].removesuffix(",")
        lines.append("  },")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, " }", "}", ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
