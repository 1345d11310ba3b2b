"""performer-pytorch: transformers whose attention is linear in the length, trained and sampled."""
import torch
from performer_pytorch import FastAttention, Performer, PerformerLM, SelfAttention

from tests.programs import array, fill, gradients, tokens

PACKAGES = ["performer-pytorch"]


def attention():
    """The attention alone, by random features, with and without a causal mask; an encoder."""
    q, k, v = (array(1, 2, 12, 8, seed=n) for n in range(3))
    torch.manual_seed(1)
    fast = FastAttention(dim_heads=8, nb_features=16)
    own = fill(SelfAttention(dim=16, heads=2, dim_head=8, nb_features=16))
    out = own(array(1, 10, 16))
    out.square().sum().backward()
    net = fill(Performer(dim=16, depth=2, heads=2, dim_head=8, nb_features=16, ff_glu=True))
    return {"fast": fast(q, k, v), "projection": fast.projection_matrix, "own": out, "gradients": gradients(own),
            "encoder": net(array(1, 10, 16))}


def language():
    """A language model over fixed features learns, is saved and loaded."""
    torch.manual_seed(2)
    net = fill(PerformerLM(num_tokens=20, max_seq_len=16, dim=16, depth=2, heads=2, dim_head=8, nb_features=16,
                           feature_redraw_interval=2, rotary_position_emb=True, shift_tokens=True))
    x, adam, losses = tokens(2, 16, below=20), torch.optim.Adam(net.parameters(), 1e-3), []
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(net(x).transpose(1, 2), x.roll(-1, 1))
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss)
    torch.save(net.state_dict(), "net.pt")
    net.load_state_dict(torch.load("net.pt"))
    return {"losses": losses, "logits": net.eval()(x)}
