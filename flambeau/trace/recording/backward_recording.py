"""What is held of a backward until its step was taken and all was well; else running/rerun.py runs it again.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.
"""


class HeldRecording:
    """The instructions of a trace so far, `count` of them, of which nothing has run, and what they read.

    `inputs` are the Values from outside, with their slots. `root` is a weak reference to the tensor that a backward
    began at, `slot` where it is computed, None if it was there before, and `site` the line of that backward. `large`:
    it was too much to be held while a step replaces it, and has run. `older` are the nodes whose operations had run
    before, because of a look: a list of (node, what it kept), and {storage: Value} of the tensors in that.
    """

    __slots__ = ("code", "count", "inputs", "root", "slot", "site", "large", "older")
