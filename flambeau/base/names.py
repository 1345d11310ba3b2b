"""A name that is asked for and is not there: which name is near, and whether PyTorch has it.

`absent.txt` lists the public names of PyTorch that are not here. It is read when the first such error is worded, and
the words are kept, because programs ask `hasattr(torch, …)` again and again.
"""
import functools
import os

# What NumPy's users bring along, by what it is called here.
USUAL_MISNAMES = {"torch.array": "torch.tensor", "torch.ndarray": "torch.Tensor", "torch.copy": "torch.clone",
                  "torch.Tensor.astype": "Tensor.to(dtype)", "torch.Tensor.copy": "Tensor.clone()",
                  "torch.Tensor.fill": "Tensor.fill_(value)"}
SIMILARITY_CUTOFF = 0.75      # how much of two names has to be the same, in order; see difflib


def attribute_error(owner, name, names, hint=""):
    """The error of asking PyTorch's module `owner` for `name`; `names()` are those that there are."""
    return AttributeError(f"module {owner!r} has no attribute {name!r}{words(owner, name, names, hint)}", name=name)


def words(owner, name, names, hint=""):
    """What there is to say about `owner.name`, which is not there, as the rest of a sentence."""
    if name.startswith("_"):                      # asked for by Python and by libraries, not by users
        return ""
    known = _words.get((owner, name))
    if known is None:
        known = _words[owner, name] = _worded(owner, name, names, hint)
    return known


_words: dict = {}


def _worded(owner, name, names, hint):
    if name in absent().get(owner, ()):
        return f": Flambeau has no {owner}.{name}, which PyTorch has{f'; {hint}' if hint else ''}"
    if hint:
        return f": Flambeau has no {owner}.{name}; {hint}"
    meant = USUAL_MISNAMES.get(f"{owner}.{name}")
    if meant is None:
        meant = near(name, names())
        meant = meant and f"{'Tensor' if owner == 'torch.Tensor' else owner}.{meant}"
    return f"; did you mean {meant}?" if meant else ", and PyTorch has none of that name"


def near(name, names):
    """The one of `names` that `name` is most like; None if none is."""
    from difflib import get_close_matches
    spelled: dict = {}                            # without capitals → as there are: Adam and adam
    for found in names:
        if not found.startswith("_"):
            spelled.setdefault(found.lower(), []).append(found)
    alike = get_close_matches(name.lower(), spelled, 1, SIMILARITY_CUTOFF)
    if not alike:
        return None
    return get_close_matches(name, sorted(spelled[alike[0]]), 1, 0)[0]


@functools.cache
def absent():
    """{place: names} of what PyTorch has and Flambeau has not."""
    return _listed("absent.txt")


@functools.cache
def modules():
    """The names of all modules of PyTorch."""
    return frozenset(("torch", "functorch", *(f"{package}.{name}" for package, names in _listed("modules.txt").items()
                                              for name in names)))


@functools.cache
def packages():
    """Those of them that have modules below them."""
    return frozenset(_listed("modules.txt"))


def _listed(file):
    """{heading: names} of a file whose headings are places and end with a colon."""
    with open(os.path.join(os.path.dirname(__file__), file), encoding="utf-8") as opened:
        text = "".join(line for line in opened if not line.startswith("#"))
    listed: dict = {}
    for word in text.split():
        if word.endswith(":"):
            heading = listed[word[:-1]] = set()
        else:
            heading.add(word)
    return {heading: frozenset(names) for heading, names in listed.items()}
