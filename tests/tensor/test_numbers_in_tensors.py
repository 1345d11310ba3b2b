"""Where only a number will do, a tensor without dimensions stands for the number in it, if it needs no gradient."""
import pytest

import flambeau as torch
from flambeau.tensor.forms import declared

F = torch.nn.functional
x, y = torch.arange(4.0), torch.ones(4)
CALLS = {
    "add": lambda n: torch.add(x, y, alpha=n), "add_": lambda n: x.clone().add_(y, alpha=n),
    "sub": lambda n: x.sub(y, alpha=n), "rsub": lambda n: torch.rsub(x, y, alpha=n),
    "addcmul": lambda n: torch.addcmul(x, y, y, value=n), "addcdiv_": lambda n: x.clone().addcdiv_(y, y, value=n),
    "addmm": lambda n: torch.addmm(torch.eye(2), torch.eye(2), torch.eye(2), beta=n, alpha=n),
    "renorm": lambda n: torch.renorm(torch.eye(2), 2, 0, n), "leaky_relu": lambda n: F.leaky_relu(-x, n),
    "elu": lambda n: F.elu(-x, n), "threshold": lambda n: F.threshold(x, n, n),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number", [0.5, 2])
def test_it_stands_for_its_number(name, number):
    assert torch.equal(CALLS[name](torch.tensor(number)), CALLS[name](number))


def test_no_gradient_is_lost_and_no_vector_is_a_number():
    for bad in (torch.tensor(0.5, requires_grad=True), torch.ones(4)):
        with pytest.raises(TypeError, match="argument 'alpha' must be Number, not Tensor"):
            torch.add(x, y, alpha=bad)


def test_no_operand_is_taken_for_a_number():
    """An operand may carry a gradient, and is never looked into."""
    for op in declared.values():
        op.prepared or op.prepare()
        assert not {op.arg_names[at] for at in op.scalar_only_at} & set(op.operands), op
