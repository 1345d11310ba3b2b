"""Views with memory of their own, against NumPy's."""
import numpy as np

import flambeau as torch

from .rows import numbers, row

X, Y = numbers((3, 4)), numbers((2, 1, 3), seed=1)

row("alias_copy", torch.alias_copy, np.copy, X)
row("detach_copy", torch.detach_copy, np.copy, X)
row("view_copy", lambda x: torch.view_copy(x, (2, 6)), lambda x: x.reshape(2, 6), X, meta=False)
row("expand_copy", lambda x: torch.expand_copy(x, (2, 4, 3)), lambda x: np.broadcast_to(x, (2, 4, 3)), Y)
row("permute_copy", lambda x: torch.permute_copy(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), Y)
row("transpose_copy", lambda x: torch.transpose_copy(x, 0, 2), lambda x: x.swapaxes(0, 2), Y)
row("t_copy", torch.t_copy, np.transpose, X)
row("squeeze_copy", torch.squeeze_copy, np.squeeze, Y)
row("squeeze_copy dim", lambda x: torch.squeeze_copy(x, 1), lambda x: x.squeeze(1), Y)
row("unsqueeze_copy", lambda x: torch.unsqueeze_copy(x, 1), lambda x: x[:, None], X)
row("select_copy", lambda x: torch.select_copy(x, 1, 2), lambda x: x[:, 2], X)
row("narrow_copy", lambda x: torch.narrow_copy(x, 1, 1, 2), lambda x: x[:, 1:3], X)
row("narrow_copy method", lambda x: x.narrow_copy(0, 0, 2), lambda x: x[:2], X)
row("slice_copy", lambda x: torch.slice_copy(x, 1, 0, 4, 2), lambda x: x[:, 0:4:2], X)
row("diagonal_copy", lambda x: torch.diagonal_copy(x, 1), lambda x: np.diagonal(x, 1), X)
row("as_strided_copy", lambda x: torch.as_strided_copy(x.contiguous(), (2, 2), (4, 1)), lambda x: x[:2, :2], X)
row("unfold_copy", lambda x: torch.unfold_copy(x, 1, 2, 1),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1), X)
row("view_as_real_copy", lambda x: torch.view_as_real_copy(torch.complex(x, 2 * x)),
    lambda x: np.stack([x, 2 * x], -1), X)
row("view_as_complex_copy", lambda x: torch.view_as_complex_copy(x.contiguous().reshape(3, 2, 2)),
    lambda x: x.reshape(3, 2, 2)[..., 0] + 1j * x.reshape(3, 2, 2)[..., 1], X, meta=False)
row("split_copy", lambda x: torch.cat(torch.split_copy(x, 3, 1)[::-1], 1), lambda x: np.concatenate([x[:, 3:], x[:, :3]], 1),
    X)
row("split_with_sizes_copy", lambda x: torch.split_with_sizes_copy(x, [1, 3], 1)[1], lambda x: x[:, 1:], X)
row("unbind_copy", lambda x: torch.unbind_copy(x, 1)[2], lambda x: x[:, 2], X)
