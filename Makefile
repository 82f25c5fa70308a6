# Everything below needs only Python >= 3.11 with pip, and make. It takes the newest Python that is there, since the
# newest JAX asks for it; `make test PYTHON=python3.11` works in an environment of its own, .venv-3.11.

# JAX treats the CPU as one device unless told otherwise; the demo gets one for each core, up to eight.
CORES := $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); echo $$((n < 8 ? n : 8)))
PYTEST_WORKERS ?= auto
PYTEST_ARGS ?=
PRINTED ?= md

# The interpreter. A pyenv shim of a version that is not selected does not run, so pyenv is asked for it.
runs = $(shell $(1) -c 'import sys; print(sys.executable)' 2>/dev/null)
probe = $(or $(call runs,$(1)),$(call runs,PYENV_VERSION=$(shell pyenv whence $(1) 2>/dev/null | tail -n 1) $(1)))
NEWEST_FIRST := python3.14 python3.13 python3.12 python3.11 python3
ifeq ($(origin PYTHON),undefined)
VENV ?= .venv
PYTHON := $(shell for p in $(NEWEST_FIRST); do \
  if $$p -c '' 2>/dev/null || [ -n "$$(pyenv whence $$p 2>/dev/null)" ]; then echo $$p; break; fi; done)
endif
INTERPRETER := $(call probe,$(PYTHON))
ifeq ($(INTERPRETER),)
$(error "$(PYTHON)" is not a Python that runs; name one with `make PYTHON=...`)
endif

VERSION := $(shell $(INTERPRETER) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifneq ($(shell $(INTERPRETER) -c 'import sys; print(sys.version_info >= (3, 11))'),True)
$(error sciml needs Python >= 3.11 and $(PYTHON) is $(VERSION); name another with `make PYTHON=...`)
endif

VENV ?= .venv-$(VERSION)
PY := $(VENV)/bin/python
RUN_PYTEST = $(PY) -m pytest -n $(PYTEST_WORKERS) --maxprocesses 8 --dist worksteal --durations=10 $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest test-new-rules test-contracts test-all test-rest fuzz durations tables kernels
.PHONY: suites lessons printed compile-kernels bench bench-page bench-gpu dist docs serve lint types check format clean
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# Without ensurepip (Debian's python3 without python3-venv) the interpreter's own pip fills the environment. One of another
# Python makes room.
$(VENV)/.created-$(VERSION):
	$(INTERPRETER) -m venv --clear $(VENV) || \
	  { $(INTERPRETER) -m venv --clear --without-pip $(VENV) && $(INTERPRETER) -m pip --python $(PY) install pip; }
	@touch $@

# One stamp for each extra, e.g. .venv/.installed-test. An environment from when this project's distribution was called
# `sciml` forgets that name first; the other project of this name has other authors, and is left alone.
IS_FORMER = import importlib.metadata as m; \
  print(any(d.metadata["Author"] == "The sciml authors" for d in m.distributions(name="sciml")))
$(VENV)/.installed-%: $(VENV)/.created-$(VERSION) pyproject.toml
	@if [ "$$($(PY) -c '$(IS_FORMER)')" = True ]; then $(PY) -m pip uninstall --quiet --yes sciml; fi
	$(PY) -m pip install --quiet --editable ".[$*]"
	@touch $@

demo: $(VENV)/.installed-plot ## fit a model to measured data, run its uncertainty, sweep its parameters
	JAX_COMPILATION_CACHE_DIR="$(CURDIR)/.cache/jax-demo" JAX_NUM_CPU_DEVICES=$(CORES) MPLBACKEND=Agg $(PY) docs/tutorials/lynx_hare.py

# The float32 leg of `make test` compiles as users do, and so do tutorials and the tests marked `optimised`. All else does
# without LLVM's optimisations, and takes XLA's older emitters of loops where this jaxlib has them (it stops at a flag that
# it does not know): what has to give the same numbers compiles in little more than half the time.
OLDER = --xla_cpu_use_fusion_emitters=false
COMPILE_SOON = JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(if $(shell XLA_FLAGS=$(OLDER) $(PY) -c "import jax; print(jax.devices())" 2>/dev/null),XLA_FLAGS="$$XLA_FLAGS $(OLDER)")

# What the precision changes most: models, solvers, and every example in the documentation.
FLOAT32 = tests/models tests/solvers tests/_jax/test_loops.py $(wildcard tests/test_*.py)

test: $(VENV)/.installed-test ## the quick tests, with x64 on, and those of models, solvers and examples with x64 off
	$(COMPILE_SOON) $(RUN_PYTEST) -m "not slow"
	SCIML_X64=0 $(RUN_PYTEST) -m "not slow" $(FLOAT32)

# What holds for every model, method, adjoint and kernel, and what takes programs apart: there versions of JAX differ.
CONTRACTS = tests/test_architecture.py tests/models/test_contract.py tests/verify/contracts/test_contracts.py \
  $(addprefix tests/kernels/,_lanes/test_fusion.py _lanes/test_lanes.py ensemble/test_ensemble.py) \
  $(addprefix tests/solvers/methods/,test_order.py implicit/test_known_root.py) \
  $(addprefix tests/solvers/,adjoints/test_gradients.py integrate/test_program_structure.py) \
  tests/solvers/test_shard_map.py tests/parallel/test_ensemble.py tests/parallel/test_named_sharding.py

test-oldest: ## the quick contract suites on the oldest JAX that is supported, where its Python is installed
ifeq ($(call probe,python3.11),)
	@echo "no python3.11 here: the oldest JAX is not tested"
else
	$(MAKE) test-contracts PYTHON=python3.11
endif

# JAX's rewritten rules of custom derivatives and of rematerialisation, which will be the only ones some day.
test-new-rules: $(VENV)/.installed-test ## the quick tests of derivatives with JAX's new rules for them switched on
	JAX_CUSTOM_VJP3=1 JAX_REMAT3=1 $(COMPILE_SOON) $(RUN_PYTEST) -m "not slow" tests/_jax tests/solvers tests/training tests/parallel

test-contracts: $(VENV)/.installed-test
	$(COMPILE_SOON) $(RUN_PYTEST) -m "not slow" $(CONTRACTS)

test-all: $(VENV)/.installed-test ## every test with x64 on, each in as many cases as an hour allows; quick ones with x64 off
	$(COMPILE_SOON) $(RUN_PYTEST) -m "not slow"
	$(COMPILE_SOON) SCIML_CHECK_TYPES=0 $(RUN_PYTEST) -m "slow and not rare"
	$(COMPILE_SOON) SCIML_X64=0 $(RUN_PYTEST) -m "not slow or (float32 and not rare)"

test-rest: $(VENV)/.installed-test ## what `make test-all` leaves out: more cases of its tests, and the longest ones
	$(COMPILE_SOON) SCIML_CHECK_TYPES=0 $(RUN_PYTEST) -m rare
	$(COMPILE_SOON) SCIML_X64=0 $(RUN_PYTEST) -m "rare and float32"

FUZZ_MINUTES ?= 60
fuzz: $(VENV)/.installed-test ## programs and features drawn at random against plain loops, for FUZZ_MINUTES; FUZZ_SEED repeats a run
	FUZZ_MINUTES=$(FUZZ_MINUTES) SCIML_CHECK_TYPES=0 $(COMPILE_SOON) $(PY) -m pytest -s tests/random $(PYTEST_ARGS)

# Compiled programs of earlier runs would make tests look quick.
durations: $(VENV)/.installed-test ## every test, measured: writes tests/durations.json, which says what `make test` leaves out
	rm -rf .cache/jax
	$(COMPILE_SOON) $(RUN_PYTEST) --measure
	SCIML_X64=0 $(RUN_PYTEST) --measure -m float32

tables: $(VENV)/.installed-test ## compute the tables of adjoints, of sharding and of pairs of features, the map of packages and the page of choices, anew
	$(PY) -m tests.architecture_map
	$(PY) -m tests.choices_page
	$(COMPILE_SOON) $(PY) -m tests.adjoint_table
	$(COMPILE_SOON) $(PY) -m tests.sharding_table
	$(COMPILE_SOON) $(PY) -m tests.capability_table
	$(COMPILE_SOON) $(PY) -m tests.pairs_table

suites: $(VENV)/.installed-test ## run other projects' test suites: SUITES="--petab FOLDER --scipy FOLDER --most 8"
	$(COMPILE_SOON) $(PY) -m tests.suites $(SUITES)

lessons: $(VENV)/.installed-test ## run the scripts of lessons, chapters and tutorials and make their pages; LESSONS="loops keys" takes some
	$(PY) docs/learn/pages.py $(LESSONS)

printed: $(VENV)/.installed-test ## run the blocks of docs/ and record what they print; PRINTED="solve or events" takes some
	SCIML_X64=0 SCIML_WRITE_PRINTED=1 $(RUN_PYTEST) tests/test_docs.py -k "block_runs and md and ($(PRINTED))"

# In an environment of its own: with the CUDA plugin installed, JAX looks for a GPU wherever it starts.
kernels: ## compile the kernels for a TPU and for a GPU (sm_90a) without either; a download of over a gigabyte
	$(MAKE) compile-kernels VENV=.venv-kernels

compile-kernels: $(VENV)/.installed-kernels
	$(PY) -m tests.kernels.compile_kernels

bench: $(VENV)/.installed-bench ## the benchmarks, printed as a table
	$(PY) -m benchmarks

bench-page: $(VENV)/.installed-bench ## the same into docs/benchmarks.md; BENCH="scan gradient" takes some
	$(PY) -m benchmarks --page $(BENCH)

bench-gpu: $(VENV)/.installed-bench ## the benchmarks of kernels, on a machine with a GPU
	$(PY) -m benchmarks.gpu

dist: $(VENV)/.installed-dev ## build the wheel and the sdist, and try the wheel in a fresh environment
	rm -rf dist
	$(PY) -m build --outdir dist
	$(PY) -m tests.try_wheel dist/*.whl

docs: $(VENV)/.installed-docs ## build the documentation into site/
	$(PY) -m mkdocs build --strict

serve: $(VENV)/.installed-docs ## serve the documentation and rebuild it on every change
	$(PY) -m mkdocs serve

lint: $(VENV)/.installed-dev $(VENV)/.installed-test ## ruff and pyright
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m pyright --pythonpath $(PY)

types: $(VENV)/.installed-dev $(VENV)/.installed-test ## pyright on the package, but for the files that pyproject.toml lists
	$(PY) -m pyright --pythonpath $(PY)

# pyright takes one core: the documentation is built beside it
check: $(VENV)/.installed-dev $(VENV)/.installed-docs $(VENV)/.installed-test ## lint and the documentation, side by side
	$(MAKE) --jobs 2 --output-sync lint docs

format: $(VENV)/.installed-dev ## let ruff rewrite the code
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

clean: ## remove environments, caches and builds
	rm -rf .venv .venv-* .cache .pytest_cache .ruff_cache .hypothesis site build dist
