"""The steps of a plan for people who want to look: in words, and as loops, as LLVM's text and as assembly.

    kernel 0  over [4 × 1000]  mul, sub, exp, sum  reads %0  keeps %1, w0  gives %3

What it keeps is in working memory, for later steps, and gone when the plan is through; what it gives is a result that
somebody holds. `%1` is a slot of the trace, as the trace prints it, and `w0` has no slot. `%3 in %0` stands in the
memory of `%0`, which nobody needs any more.
"""
import hashlib

from ..backends import cpu
from ..backends.kernels import texts_of
from ..loops.ir import Kernel
from ..loops.llvm import render

WORDS = 16                    # so many of a step's words are printed


class Text(str):
    """Text that a console shows as it is, line by line."""

    __slots__ = ()
    __repr__ = str.__str__


class Step:
    """One step of a plan.

    `kind` is "kernel" (generated, fused code), "library" (a product of matrices, say) or "reference" (an operation left
    to the reference executor); `words` are the operations in it, `sizes` those of the positions it walks, and `reads`,
    `keeps` and `gives` name the memory that it touches. `code` is a Kernel, a library function's address, or None.
    """

    __slots__ = ("number", "kind", "words", "sizes", "code", "reads", "keeps", "gives")

    def __init__(self, number, kind, words, sizes, code, *touched):
        self.number, self.kind, self.words, self.sizes, self.code = number, kind, words, sizes, code
        self.reads, self.keeps, self.gives = (tuple(dict.fromkeys(names)) for names in touched)

    @property
    def loop(self):
        """A kernel in the loop language; None for other steps."""
        return Text(self.code) if isinstance(self.code, Kernel) else None

    @property
    def llvm(self):
        """The step as LLVM's text, for this machine's vectors; None for the reference executor's."""
        return Text("\n".join(self._texts())) if self.code is not None else None

    @property
    def assembly(self):
        """The step as this machine runs it; None for the reference executor's."""
        return Text("\n".join(map(cpu.assembly, self._texts()))) if self.code is not None else None

    def _texts(self):
        if isinstance(self.code, Kernel):
            return [rendered(self.code)[1]]
        return texts_of(self.code)

    def __str__(self):
        words = ", ".join(self.words[:WORDS])
        if len(self.words) > WORDS:
            words += f" and {len(self.words) - WORDS} more"
        over = f"over [{' × '.join(map(str, self.sizes))}]" if self.sizes else ""
        parts = [f"{self.kind} {self.number}", over, words]
        for title in ("reads", "keeps", "gives"):
            names = getattr(self, title)
            parts.append(f"{title} {', '.join(names)}" if names else "")
        return "  ".join(part for part in parts if part)

    __repr__ = __str__


def rendered(kernel):
    """(what the function of a kernel is called, its LLVM text); the same for kernels that differ in words alone."""
    text = render(kernel, "k", cpu.target())
    name = "k" + hashlib.sha256(text.encode()).hexdigest()[:16]
    return name, text.replace("@k(", f"@{name}(", 1)
