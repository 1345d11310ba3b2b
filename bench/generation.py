"""transformers on Flambeau and on PyTorch: size of the install, time to import, to the first token, tokens a second.

    python bench/generation.py PYTHON_WITH_FLAMBEAU PYTHON_WITH_PYTORCH [--rounds 5] [--models small GPT-2]

Each is the interpreter of an environment with transformers: .venv-programs/bin/python of `make programs`, and that of
one where `pip install torch==2.13.0 transformers` was run. Every figure comes from fresh processes, which take turns,
held to the same two cores; the median of the rounds counts, and the spread is printed with it. The models are GPT-2's
with random weights, so nothing is fetched; what is generated is compared before anything is timed. "First time" is with
an empty cache of compiled kernels, "later" with one that an earlier process has filled.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {"small": dict(n_layer=4, n_embd=256, n_head=8), "GPT-2": dict(n_layer=12, n_embd=768, n_head=12)}
PROMPT, NEW = 16, 64


def child(task, argument=None):
    """What one process measures, as a dict."""
    if task == "size":
        return {"MB": install_size(["torch", "transformers"]) / 1e6}
    started = time.perf_counter()
    import torch
    imported = time.perf_counter() - started
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel
    both = time.perf_counter() - started
    if task == "import":
        return {"torch": imported, "transformers": both}
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_positions=256, bos_token_id=1, eos_token_id=None,
                                       pad_token_id=0, **MODELS[argument])).eval()
    prompt = torch.arange(PROMPT)[None] * 37 % 8192

    def generate(count):
        with torch.no_grad():
            return model.generate(prompt, max_new_tokens=count, do_sample=False)[0, PROMPT:].tolist()

    generate(1)
    first = time.perf_counter() - started                       # with the imports, and the model made
    tokens = generate(NEW)
    best = 0.0
    for _ in range(3):
        begun = time.perf_counter()
        generate(NEW)
        best = max(best, NEW / (time.perf_counter() - begun))
    return {"to the first token": first, "tokens a second": best, "tokens": tokens}


def install_size(names):
    """Bytes on disk of these distributions and of all that they require."""
    import importlib.metadata
    import re
    seen, total, waiting = set(), 0, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:         # for another system or Python
            continue
        for requirement in found.requires or []:
            if "extra ==" not in requirement:
                waiting.append(re.match(r"[\w.-]+", requirement)[0])
        for file in found.files or []:
            path = found.locate_file(file)
            total += path.stat().st_size if path.exists() else 0
        if name == "flambeau":                                  # installed in place, it lists none of its files
            import flambeau
            for folder, _, files in os.walk(os.path.dirname(flambeau.__file__)):
                total += sum(os.path.getsize(os.path.join(folder, file)) for file in files)
    return total


def measured(python, task, argument="", cache=None):
    """What a fresh process of `python` says, with a cache of its own if `cache` names a folder."""
    extra = {"FLAMBEAU_CACHE_DIR": cache} if cache else {}
    command = [python, os.path.abspath(__file__), "--child", task, argument]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, **extra, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"})
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def row(name, ours, theirs, unit, digits=2):
    def text(held):
        return f"{statistics.median(held):.{digits}f} {unit} ({min(held):.{digits}f} to {max(held):.{digits}f})"
    print(f"{name:<46}{text(ours):<30}{text(theirs):<30}{statistics.median(ours) / statistics.median(theirs):6.2f}",
          flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pythons", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--child", nargs=2, metavar=("TASK", "ARGUMENT"))
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(*asked.child)))
        return
    if len(asked.pythons) != 2:
        parser.error("name two interpreters, the one with Flambeau first")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    ours, theirs = asked.pythons
    print(f"{'':<46}{'Flambeau':<30}{'PyTorch':<30} ratio")
    row("install of torch and transformers", *([measured(python, "size")["MB"]] for python in (ours, theirs)), "MB", 0)

    def rounds(task, argument="", cache=None):
        pairs = [[measured(python, task, argument, cache) for python in (ours, theirs)] for _ in range(asked.rounds)]
        return [[pair[side] for pair in pairs] for side in (0, 1)]

    def rows(given, names, unit, prefix=""):
        for name in names:
            row(f"{prefix}{name}", *([one[name] for one in side] for side in given), unit)

    measured(ours, "import"), measured(theirs, "import")        # files are in memory before anything is timed
    given = rounds("import")
    for key, name in (("torch", "import torch"), ("transformers", "import torch, transformers and its GPT-2")):
        row(name, *([one[key] for one in side] for side in given), "s")
    for model in asked.models:
        with tempfile.TemporaryDirectory() as fresh:
            cold = [measured(ours, "generate", model, fresh), measured(theirs, "generate", model)]
            if cold[0]["tokens"] != cold[1]["tokens"]:
                sys.exit(f"the two generate different tokens: {cold[0]['tokens']} and {cold[1]['tokens']}")
            rows([[cold[0]], [cold[1]]], ["to the first token"], "s", f"{model}, first time: ")
            given = rounds("generate", model, fresh)
        rows(given, ["to the first token"], "s", f"{model}, later: ")
        rows(given, ["tokens a second"], "", f"{model}: ")


if __name__ == "__main__":
    main()
