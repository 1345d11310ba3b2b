"""How `linear_cross_entropy` cuts a batch into parts, so that the logits of all of it are never in memory at once."""
from dataclasses import dataclass

from ...base import dtypes

__all__ = ["LinearCrossEntropyOptions"]

ACC_DTYPES = (None, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Parts of `batch_chunk_size` samples, or as many as `chunking_method` finds.

    The method "aspect_ratio:r" (what "auto" means, with a ratio of 2) keeps the logits of a part about r times as large
    as the input of the whole batch. Gradients of 16-bit weights add up in `acc_dtype`, float32 unless it is given.
    Repeated and higher derivatives work as they do without options, so `allow_retain_graph` and `acc_policy` need not
    be set; they are PyTorch's.

    >>> options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=256)
    >>> loss = torch.nn.LinearCrossEntropyLoss(64, 1000, options=options)
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: dtypes.dtype | None = None

    def __post_init__(self):
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if not self._known_method():
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}; it is 'auto', 'aspect_ratio', "
                             "'aspect_ratio:<positive int>' or None")
        if self.acc_policy not in ("accurate", "balanced", "compact", "auto"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}; it is 'accurate', 'balanced', 'compact' or "
                             "'auto'")
        if self.acc_dtype not in ACC_DTYPES:
            raise ValueError(f"acc_dtype must be one of {ACC_DTYPES}, got {self.acc_dtype!r}. Pass acc_dtype=None to "
                             "have one picked.")

    def _known_method(self):
        if self.chunking_method is None or self.chunking_method in ("auto", "aspect_ratio"):
            return True
        name, _, ratio = self.chunking_method.partition(":")
        return name == "aspect_ratio" and ratio.isdecimal() and int(ratio) > 0
