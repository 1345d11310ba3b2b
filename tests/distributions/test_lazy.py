"""A distribution's module is read when somebody asks for it."""
import subprocess
import sys

import pytest

import flambeau as torch


def run(lines):
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout


def test_one_distribution_brings_few_modules():
    out = run("import sys, flambeau\n"
              "flambeau.distributions.Categorical\n"
              "print(*sorted(m for m in sys.modules if m.startswith('flambeau.distributions.')))")
    assert "flambeau.distributions.categorical" in out.split()
    assert not {"flambeau.distributions.wishart", "flambeau.distributions.kl"} & set(out.split())


def test_all_names_are_there_by_themselves():
    out = run("from flambeau.distributions import *\n"
              "print(Wishart.__name__, kl_divergence.__name__, ExpTransform.__name__, biject_to is not None)")
    assert out.split() == ["Wishart", "kl_divergence", "ExpTransform", "True"]
    for name in torch.distributions.__all__:
        assert getattr(torch.distributions, name) is not None and name in dir(torch.distributions)


def test_modules_are_attributes():
    assert run("import flambeau\nprint(flambeau.distributions.constraints.positive, "
               "flambeau.distributions.utils.__name__)").split()[-1] == "flambeau.distributions.utils"


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="did you mean torch.distributions.Normal"):
        getattr(torch.distributions, "Norma")  # noqa: B009
