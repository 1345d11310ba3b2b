# Everything needs python3 with its venv module, and make; the rest goes into .venv. A second run finds it there.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
EXAMPLES_COMMIT := 77f55b912142e11fcfdf5b530231fb9c52f181e8
VISION_COMMIT := 8fb87713a24951e639c494b0f2a8a81b5f8e33a6
TORCHVISION_SOURCE ?= https://github.com/pytorch/vision

.PHONY: run quick test core compiled data executors processors pythons thorough cuda conformance programs programs-quick torchvision-tests check images docs bench clean
# The tests start hundreds of Pythons, and each would compile what the one before it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.DELETE_ON_ERROR:

run: $(VENV)/.has-examples            ## from a table in a database to a page about the run; DEVICE=cuda: on a GPU
	$(PY) examples/demo.py $(if $(DEVICE),--device $(DEVICE))

quick: check $(VENV)/.has-test        ## check, and the tests that a change since main most likely breaks, with both cores
	@FLAMBEAU_CORE=compiled $(PY) -c "import flambeau" 2>/dev/null || $(MAKE) core
	$(PY) -m tests.quick $(SINCE)

test: $(VENV)/.has-test               ## every test that does not need PyTorch; of the longest tables of cases a part
	$(PY) -m pytest -n 2 -q --ignore=tests/torch

core: $(VENV)/.has-core               ## the compiled core, in place; an edited source runs interpreted until this is called again
	FLAMBEAU_BUILD_CORE=1 CFLAGS="-g0 -O2" $(PY) setup.py --quiet build_ext --inplace --build-temp build/core

compiled: core $(VENV)/.has-test      ## the same tests with the compiled core
	FLAMBEAU_CORE=compiled $(PY) -m pytest -n 2 -q --ignore=tests/torch

thorough: $(VENV)/.has-test           ## the same with the whole tables
	FLAMBEAU_TEST_THOROUGH=1 $(PY) -m pytest -n 2 -q --ignore=tests/torch

data: $(VENV)/.has-test-data          ## SQL on every database there is a driver for, and servers that are started and killed
	FLAMBEAU_TEST_DATABASES=1 $(PY) -m pytest -n 2 -q tests/data/sql

cuda: $(VENV)/.has-test-cuda          ## kernels for NVIDIA's GPUs, of the whole tables, through NVIDIA's compiler; no GPU is needed
	FLAMBEAU_TEST_THOROUGH=1 $(PY) -m pytest -n 2 -q tests/cuda/test_sources.py tests/cuda/test_code.py tests/cuda/test_library.py

executors: $(VENV)/.has-test          ## every test again; those that leave the executor open with each, native and reference
	$(PY) -m pytest -n 2 -q --ignore=tests/torch --each-executor

processors: $(VENV)/.has-test         ## the tests of native code, compiled for each processor that this one can stand for
	$(PY) -m tests.processors -n 2

pythons: $(VENV)/.has-test            ## the tests that an interpreter can break, on the other Pythons of this machine
	.ci/pythons $(VENV)

conformance: $(VENV)/.has-conformance ## the same samples through PyTorch
	$(PY) -m pytest -n 2 -q tests/torch

programs: .venv-programs/.has-all .venv-programs/examples ## the packages people build on: a program of each, without PyTorch, with its numbers
	.venv-programs/bin/python -m tests.programs

programs-quick: .venv-programs/.has-quick ## the quick half of them
	.venv-programs/bin/python -m tests.programs --quick

torchvision-tests: $(VENV)/.has-conformance build/vision ## torchvision's own tests of transforms, on it over Flambeau and on ours; half an hour
	$(PY) -m tests.torchvision --tests build/vision/test

check: $(VENV)/.has-dev               ## style, types, import directions, the ten-second test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/hadolint docker/Dockerfile
	$(VENV)/bin/mypy flambeau & types=$$!; $(PY) -m pytest -q tests/test_layers.py tests/test_tiny.py; tests=$$?; wait $$types && exit $$tests

images:                               ## the steps of docker/Dockerfile in bare root file systems; needs root and debootstrap
	docker/in_chroot.py cpu inference --to build/images $(IMAGES) --run

docs: $(VENV)/.has-docs               ## site/index.html
	$(PY) docs/build.py

bench: $(VENV)/.has-conformance       ## one file per question, each prints its ratios
	@set -e; for question in overhead speed scaling memory data images curves; do echo "bench/$$question.py"; $(PY) bench/$$question.py; done

clean:
	rm -rf $(VENV) .venv-3.* .venv-programs site examples/out build flambeau/_compiled *.egg-info

# Debian and Ubuntu have venv in a package of its own. Without it, `python3 -m venv` would leave half a folder behind.
$(PY):
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install Python, or name one: make PYTHON=python3.13" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The environment of the programs: Flambeau is its torch before anything that requires torch is installed.
.venv-programs/bin/python:
	$(PYTHON) -m venv .venv-programs
	FLAMBEAU_BUILD_CORE=0 $@ -m pip install --quiet --disable-pip-version-check --editable .
	$@ -m flambeau provide-torch

.venv-programs/.has-%: tests/programs/requirements-%.txt | .venv-programs/bin/python
	.venv-programs/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	$(if $(filter all,$*),.venv-programs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python -r tests/programs/requirements-alone.txt)
	@touch $@

# Scripts that are no package; the commit is the one that their numbers are kept for.
.venv-programs/examples: | .venv-programs/bin/python
	rm -rf $@.new && git init --quiet $@.new
	git -C $@.new fetch --quiet --depth 1 https://github.com/pytorch/examples $(EXAMPLES_COMMIT)
	git -C $@.new checkout --quiet FETCH_HEAD
	mv $@.new $@

# The tests of torchvision 0.28.0. TORCHVISION_SOURCE may be the path of a clone that has them.
build/vision:
	rm -rf $@.new && git init --quiet $@.new
	git -C $@.new fetch --quiet --depth 1 $(TORCHVISION_SOURCE) $(VISION_COMMIT)
	git -C $@.new checkout --quiet FETCH_HEAD
	mv $@.new $@

# .has-NAME says that the package is installed, in place, with the extra NAME of this pyproject.toml. The compiled core
# is `make core`'s alone.
$(VENV)/.has-%: pyproject.toml | $(PY)
	FLAMBEAU_BUILD_CORE=0 $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
