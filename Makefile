# Everything a person or CI runs. Each target works from a fresh clone: what it needs from Python
# is installed into .venv, and what it needs from the machine is installed or named by .ci/needs.

PYTHON ?= python3
VENV := .venv
FFCV := .venv-ffcv
MXNET := .venv-mxnet
ENGINES := .venv-engines
RUNS ?= 1000000
SEED ?= 1
# Tests on several cores; each process of them may load TensorFlow and torch.
PARALLEL ?= -n auto --maxprocesses 4 --dist worksteal
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(VIRTUAL_ENV)/bin:$(PATH):$(HOME)/.cargo/bin
# Commands that may not keep the bytecode of their imports take a third of a second longer each.
unexport PYTHONHOME PYTHONPATH CONDA_PREFIX PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo tools test lint python-lint types rust-tests python-tests fuzz stress bench docs clean

help: ; @grep -hE '^[a-z]+:.* ## [a-z]' $(MAKEFILE_LIST) | sed -E 's/:.* ## /\t/' | expand -t 10

demo: $(VENV)/built ## write a small data set and walk through what penstock does with it
	penstock demo

tools: $(VENV)/tools $(VENV)/built $(VENV)/servers ## what single tests and checks need, into .venv

test: lint types rust-tests python-tests ## everything that CI runs

lint: $(VENV)/tools $(VENV)/built ## rustfmt, clippy and ruff
	cargo fmt --all --check
	cargo clippy --release --locked --quiet --workspace --all-targets --features python -- -D warnings
	ruff check .
	ruff format --check .
	@! cargo deny --version >/dev/null 2>&1 || cargo deny --locked check

python-lint: $(VENV)/tools ## ruff and pyright, without Rust
	ruff check .
	ruff format --check .
	pyright --project pyproject.toml --pythonpath $(VENV)/bin/python

types: $(VENV)/tools $(VENV)/built ## pyright, and the stub of the compiled module against the module
	pyright --project pyproject.toml --pythonpath $(VENV)/bin/python
	python -m mypy.stubtest penstock._core

# In release, because the crates underneath are built so already, with overflow checks on.
rust-tests: $(VENV)/built
	cargo test --release --lib --locked --quiet --workspace --features cloud

python-tests: $(VENV)/tools $(VENV)/built $(VENV)/servers $(VENV)/browser $(FFCV)/built $(MXNET)/built
	python -m pytest $(PARALLEL)

fuzz: $(VENV)/tools $(VENV)/built ## each parser on a million mutated inputs; RUNS=, SEED= choose
	for target in $$(python -c 'from fuzz.targets import TARGETS; print(*TARGETS)'); do \
	    python -m fuzz $$target --runs $(RUNS) --seed $(SEED) || exit 1; done

stress: $(VENV)/tools $(VENV)/built $(VENV)/servers $(FFCV)/built $(MXNET)/built $(ENGINES)/built ## the long and exhaustive tests
	python -m pytest -m stress --timeout 7200

bench: $(VENV)/tools $(VENV)/built $(VENV)/servers ## penstock beside its rivals, as one table of ratios
	benchmarks/setup && python -m benchmarks

docs: $(VENV)/tools $(VENV)/built ## renew the tables of formats and of TensorFlow's symbols, run every example of the docs
	python docs/abilities.py && python docs/coverage.py && python -m pytest tests/docs

clean: ## remove what the other targets made
	rm -rf $(VENV) .venv-* target demo-data .pytest_cache .ruff_cache .hypothesis .mypy_cache python/penstock/_core*.so

# -- what the targets stand on: stamps in .venv, made again when their inputs change -------------

RUST := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name '*.c')

$(VENV)/needs: .ci/needs
	@PYTHON="$(PYTHON)" .ci/needs $(VENV) && touch $@

$(VENV)/built: pyproject.toml $(RUST) | $(VENV)/needs
	uv pip install --quiet --group build
	CMAKE=$(CURDIR)/.ci/cmake maturin develop --uv --release --locked --quiet && touch $@

$(VENV)/tools: pyproject.toml | $(VENV)/needs
	uv pip install --quiet --group checks && touch $@

$(VENV)/browser: .ci/needs | $(VENV)/needs
	@PYTHON="$(PYTHON)" .ci/needs $(VENV) browser && touch $@

# What serves objects and files in tests and benchmarks: S3, GCS and the web, all on loopback.
SERVERS := tests/remote/servers/requirements.txt
$(VENV)/servers: .ci/needs $(SERVERS) | $(VENV)/needs
	@PYTHON="$(PYTHON)" .ci/needs $(VENV) servers
	uv pip install --quiet --no-deps --require-hashes -r $(SERVERS) && touch $@

# ffcv beside penstock: it needs OpenCV's headers, numba and torch, so it has a place of its own.
$(FFCV)/built: .ci/needs | $(VENV)/needs
	@PYTHON="$(PYTHON)" .ci/needs $(FFCV) ffcv
	uv pip install --quiet --python $(FFCV) torch numpy numba opencv-python-headless pybind11 pillow wheel setuptools
	uv pip install --quiet --python $(FFCV) --no-build-isolation ffcv==1.0.2 && touch $@

# MXNet is retired: it calls what NumPy 2 took away (ndarray.tostring), so NumPy is an older one here.
$(MXNET)/built: .ci/needs | $(VENV)/needs
	@PYTHON="$(PYTHON)" .ci/needs $(MXNET)
	uv pip install --quiet --python $(MXNET) mxnet==1.9.1 'numpy<2' && touch $@

# The engines of docs/guide/clusters.md, in the versions that it names. Spark runs in Java.
$(ENGINES)/built: .ci/needs | $(VENV)/needs
	@PYTHON="$(PYTHON)" .ci/needs $(ENGINES) engines
	uv pip install --quiet --python $(ENGINES) pyspark==4.3.0 'dask[dataframe,distributed]==2026.8.0' \
	    apache-beam==2.77.0 daft==0.7.26 'pyarrow>=24' click rich 'pandas<3' && touch $@
