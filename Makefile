# Everything a contributor runs, by name. `make` alone lists it.
# Extra arguments go through ARGS: make test ARGS="-k lease -x"

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Twice quiet: errors only. A configured extra index that lacks a package would print a warning for each.
PIP := $(PY) -m pip -qq --disable-pip-version-check
ARGS ?=
CHAOS ?=

# The first Python on the PATH that runs and is new enough; `make setup PYTHON=…` chooses another.
# Each is tried, not only looked up: version managers leave commands that name a version they do not have.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)

TOO_OLD := Tarry needs Python 3.11 or newer, and found none. Install one, or say where it is: make setup PYTHON=/path/to/python3
REQUIRE_PYTHON = "$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { echo "$(TOO_OLD)" >&2; exit 1; }

# Stamps: what is installed follows from the lock, how the project is installed follows from pyproject.toml.
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready

.PHONY: help setup demo test check format schema bench bench-anomalies bench-pipeline bench-timers chaos chaos-run soak lock clean \
  system-packages

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything in it (again only when pyproject.toml or the lock change)

demo: $(READY) ## Show Tarry at work on an embedded PostgreSQL
	$(BIN)/tarry demo $(ARGS)

# Two at a time, a file stays together: every worker has its own servers, and a Spark session is not cheap. In the order of
# tests/conftest.py, long files first; left alone, the plugin would begin with the files that have the most tests.
test: $(READY) ## Run the test suite
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(READY) ## Check format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

format: $(READY) ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

schema: $(READY) ## Write down what the migrations add up to (after every change to one)
	mkdir -p build
	$(PY) tools/schema-snapshot > build/schema.sql
	mv build/schema.sql src/tarry/storage/postgres/schema.sql

bench: $(READY) ## Run the benchmarks
	$(PY) -m benchmarks $(ARGS)

bench-anomalies: $(READY) ## Measure the detectors of anomalies on injected faults
	$(PY) -m benchmarks.anomalies $(ARGS)

bench-pipeline: $(READY) ## Measure the pipeline: source, sink, a million messages archived and verified
	$(PY) -m benchmarks.pipeline $(ARGS)

bench-timers: $(READY) ## Measure the ways to wait for a timer: lateness, CPU, cost of each
	$(PY) -m benchmarks.timers $(ARGS)

# The per-test time limit catches hangs in short tests; these are long on purpose.
chaos: $(READY) ## Run the tests that break things while traffic flows
	$(PY) -m pytest -m chaos --timeout=0 $(ARGS)

# CHAOS="--operations 20000 --faults 40 --seed 1" sizes it; --help lists all options.
chaos-run: $(READY) ## Run a million calls under 320 faults, with progress, and check every promise
	$(PY) -m tests.chaos.run $(CHAOS)

soak: $(READY) ## Run the tests that look for leaks over a long time
	$(PY) -m pytest -m soak --timeout=0 $(ARGS)

# Keeps the versions that are locked and still fit; `make lock ARGS=--upgrade` moves to the newest.
lock: ## Resolve the dependencies into requirements.lock
	@$(REQUIRE_PYTHON)
	"$(PYTHON)" -m venv --clear build/lock
	build/lock/bin/python -m pip -qq --disable-pip-version-check install uv
	build/lock/bin/uv --quiet pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	  --generate-hashes --custom-compile-command "make lock" --output-file requirements.lock $(ARGS)

clean: ## Remove everything that these commands made, .venv too
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system-packages: ## Install what only some tests need: pgbouncer, a second PostgreSQL (root on Debian or Ubuntu)
	tools/system-packages

# Cleared first: the environment is what the lock says, and nothing left over from an older one.
$(LOCKED): requirements.lock
	@$(REQUIRE_PYTHON)
	tools/system-packages
	"$(PYTHON)" -m venv --clear $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	@touch $@

$(READY): pyproject.toml $(LOCKED)
	$(PIP) install --no-build-isolation --no-deps --editable .
	@git rev-parse --git-dir >/dev/null 2>&1 && git config core.hooksPath tools/hooks || true
	@touch $@
