# Two commands for a newcomer: `make demo` and `make test`. Each makes .venv and installs what it needs, once.
#
#   make demo      derive attention, run it where it can run here, verify it
#   make test      format, lint, strict types, FileCheck tests, pytest: a sample of every grid
#   make test-all  the same with full grids, long fuzzing and all seeds
#   make lint      format, lint and strict types alone
#   make gpu       on a GPU: speed beside PyTorch, Triton and cuBLAS, launches, predictions, compute-sanitizer, tests
#                  (without one: says so); GPU="--minutes 13" are options of benchmarks/gpu.py, --unmeasured among
#                  them: first what no result holds;
#                  PYCUDA=pycuda-....whl installs that one (benchmarks/pycuda_wheel.sh makes it), else PyCUDA is built;
#                  TRITON_ATTENTION=06-fused-attention.py is the attention of Triton's tutorials, which no package holds
#   make gallery   docs/gallery: every example with its diagram, derivation, costs and kernel; and the pictures of docs
#   make reference docs/reference: dialects, passes and the Python interface, from their docstrings
#   make format    put the format right
#   make clean     remove what was made here
#
# PYTHON=... chooses the interpreter that .venv is made with, WORKERS=... the processes of pytest,
# BUDGET=... how many seconds of cases one test has in the sample.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input
# Python's bytecode, as pip makes it for everything but an editable package: where Python may not write it
# (PYTHONDONTWRITEBYTECODE), every start of treadle would compile its own modules again, in half a second.
BYTECODE := $(BIN)/python -m compileall -q compiler dialects passes runtime treadle

# Processes of pytest: one more than there are cores, for one or the other waits for a compiler; each takes up to 1.5 GB.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 7 ? cores + 1 : 8)))

# Seconds that one test has in the sample: of a test whose cases take longer some run (tests/sampling.py).
BUDGET ?= 1

# The user's own python3 if it is new enough, else the newest that is there (a version manager may have names for
# versions that do not start, so each is asked).
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)

.PHONY: demo test test-all gpu gallery reference lint format clean

demo: $(VENV)/.demo
	@$(BIN)/treadle run examples/attention.mlir --verbose

test: lint
	@echo "FileCheck tests" && $(BIN)/lit -q lit_tests
	@echo "pytest, a sample" && $(BIN)/pytest -n $(WORKERS) --dist worksteal --budget $(BUDGET)

test-all: lint
	@echo "FileCheck tests" && $(BIN)/lit -q lit_tests
	@echo "pytest, everything" && $(BIN)/pytest -n $(WORKERS) --dist worksteal --all
	@echo "ten thousand random programs, about an hour and a half on two cores" && $(BIN)/python benchmarks/random_programs.py

gpu: $(VENV)/.test $(VENV)/.demo
	@if test -n "$(PYCUDA)"; then echo "installing $(PYCUDA)" && $(PIP) install "$(PYCUDA)" --editable '.[gpu]'; fi
	@$(BIN)/python benchmarks/gpu.py $(GPU) $(if $(TRITON_ATTENTION),--triton-attention "$(TRITON_ATTENTION)")

gallery: $(VENV)/.demo
	@$(BIN)/python docs/make_gallery.py

reference: $(VENV)/.test
	@$(BIN)/python docs/make_reference.py

lint: $(VENV)/.test
	@echo "format" && $(BIN)/ruff format --check --quiet .
	@echo "lint" && $(BIN)/ruff check --quiet .
	@echo "types" && $(BIN)/pyright --warnings --pythonpath $(BIN)/python

format: $(VENV)/.test
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

clean:
	@rm -rf $(VENV) build dist *.egg-info .treadle-cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -o -path './lit_tests/*' -name Output -o -name .lit_test_times.txt | xargs rm -rf

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "treadle needs Python 3.11 or newer: install it, or give PYTHON=/path/to/python"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV): on Debian and Ubuntu, apt install python3-venv"; rm -rf $(VENV); exit 1; }

# PyCUDA compiles itself and needs the CUDA toolkit: it is tried only where there is a GPU and nvcc, and the demo
# runs without it too.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing treadle"
	@$(PIP) install --editable .
	@if test -z "$(PYCUDA)" && nvidia-smi --list-gpus >/dev/null 2>&1 && command -v nvcc >/dev/null; then \
		echo "installing PyCUDA"; \
		$(PIP) install --editable '.[gpu]' || echo "PyCUDA could not be installed: running without the GPU"; \
	fi
	@$(BYTECODE)
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "installing treadle and what its tests need (some minutes, once)"
	@$(PIP) install --editable '.[test]'
	@$(BYTECODE)
	@touch $@
