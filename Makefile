# Each target first sees to .venv, so that any of them works in a fresh clone.
# PYTHON           the Python (3.11 or newer) .venv is made with; the first found of those below
# TORCH_SOURCE     wheel, index or registry: take torch from there only (see spec_toolkit/rehearsal/install/__main__.py)
# TORCH_INDEX_URL  the index of CPU builds of torch; PyTorch's own by default

PYTHON ?= python3.11 python3.12 python3.13 python3.14 python3
BIN := .venv/bin

# What an engine on two cores needs; tests that start one inherit it.
export OMP_NUM_THREADS := 1
export TORCHDYNAMO_DISABLE := 1
export TORCH_SOURCE TORCH_INDEX_URL

.DEFAULT_GOAL := help
.PHONY: help setup demo drills lint check test test-full clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: ## make .venv: the pinned CPU engine, the toolkit and its tools; costs nothing where it is complete
	@for python in $(PYTHON); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        exec $$python -I spec_toolkit/rehearsal/install; \
	    fi; \
	    found="$$found\n    $$python: $$($$python --version 2>&1 | head -n 1)"; \
	done; \
	printf "Python: no 3.11 or newer among\n%b\nInstall one, or name it: make setup PYTHON=/path/to/python3.11 [install.python]\n" "$$found" >&2; \
	exit 3

demo: setup ## deploy the tiny DeepSeek-V3 on this machine's CPU, stream from it, show what speculation earned, stop
	$(BIN)/python -m spec_toolkit.cli.main demo

drills: setup ## break a rehearsal deployment while clients stream from it, five ways, and print what became of them: ten minutes
	$(BIN)/python -m spec_toolkit.cli.main drills

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=spec_toolkit/rehearsal/install $(BIN)/mypy spec_toolkit/rehearsal/install/__main__.py
	$(BIN)/lint-imports

check: lint ## format, lint, types, import arrows and the fast tests, with fewer examples: under two minutes
	$(BIN)/pytest -q -n 2 -m "not engine and not install and not slow and not matrix" --hypothesis-profile=quick

# Engines one after another: each has two processes that want a core.
test: lint ## what CI runs: `check`, the slow tests, and those on the real engine
	$(BIN)/pytest -q -n 2 -m "not engine and not install and not matrix"
	$(BIN)/pytest -v -m "(engine or install) and not matrix" --durations=15

test-full: lint ## as `test`, with ten times the examples, the long matrices on the real engine, and the drills: hours
	$(BIN)/pytest -n 2 -m "not engine and not install" --hypothesis-profile=full
	$(BIN)/pytest -v -m "engine or install" --durations=0
	$(BIN)/python -m tests.patches.measure_switching --switches 1000 tp1 tp2 attention-dp
	$(BIN)/python -m tests.patches.measure_faults
	$(BIN)/python -m spec_toolkit.cli.main drills

clean: ## remove .venv and every cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
