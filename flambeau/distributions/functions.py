"""The functions that distributions are written with. What is a method of tensors is called as one."""
from ..tensor import create, random
from ..tensor.forms import declared, namespace

_top, _nn, _linalg, _special = (namespace[name] for name in ("", "nn.functional", "linalg", "special"))

arange, eye, full, zeros = _top["arange"], _top["eye"], _top["full"], _top["zeros"]
tensor, as_tensor, from_array = create.tensor, create.as_tensor, create.from_array
broadcast_shapes, broadcast_tensors = _top["broadcast_shapes"], _top["broadcast_tensors"]
cat, stack, pad, where = _top["cat"], _top["stack"], _nn["pad"], _top["where"]

xlogy, mvlgamma = _top["xlogy"], _top["mvlgamma"]
gammainc, i0e, i1e = _special["gammainc"], _special["i0e"], _special["i1e"]
logsigmoid, softplus, one_hot = _nn["logsigmoid"], _nn["softplus"], _nn["one_hot"]
binary_cross_entropy_with_logits = _nn["binary_cross_entropy_with_logits"]

cholesky, cholesky_ex, cholesky_inverse = _linalg["cholesky"], _linalg["cholesky_ex"], _top["cholesky_inverse"]
cholesky_solve, solve_triangular = _top["cholesky_solve"], _linalg["solve_triangular"]
slogdet, eigvalsh = _linalg["slogdet"], _linalg["eigvalsh"]

rand, randn, normal, bernoulli = random.rand, random.randn, random.normal, random.bernoulli
binomial, multinomial, poisson, index_of = random.binomial, random.multinomial, random.poisson, random.index_of
sample_dirichlet, standard_gamma = random._sample_dirichlet, random._standard_gamma

must_hold = declared["_must_hold"]
must_hold.prepare()           # it is never called as an operation, which would do this
