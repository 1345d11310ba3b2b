"""The progress bar of the examples: tqdm's where it is installed, otherwise a line that is written over and over."""
import sys

try:
    from tqdm import tqdm
except ImportError:
    class tqdm:
        def __init__(self, iterable, desc, **_):
            self.iterable, self.desc, self.shown = iterable, desc, ""

        def set_postfix_str(self, shown):
            self.shown = shown

        def __iter__(self):
            for done, item in enumerate(self.iterable):
                if sys.stderr.isatty():
                    print(f"\r{self.desc}: {done}/{len(self.iterable)}  {self.shown}\033[K", end="\r", file=sys.stderr)
                yield item
            print("\033[K" if sys.stderr.isatty() else "", end="", file=sys.stderr)


def bar(iterable, words):
    """`iterable`, with a bar named `words` while it lasts; `set_postfix_str` writes beside it."""
    return tqdm(iterable, desc=words, leave=False, disable=None)      # on a terminal only
