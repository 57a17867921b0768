# Commands for contributors. `make` alone lists them.
# ARGS passes extra arguments: make test ARGS="-k lease -x"

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Hundreds of test processes import Tarry: compile it once, whatever the environment sets.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# -qq: errors only. A configured extra index without a package would print a warning for each.
PIP := $(PY) -m pip -qq --disable-pip-version-check
ARGS ?=
CHAOS ?=
# Pyright threads. Each thread infers imported types again: two threads take 50 % more CPU and a third less time.
THREADS ?= 2
# Seed for the order of the tests within a file.
SEED ?= 1

# The first Python on the PATH that runs and is new enough; `make setup PYTHON=…` chooses another.
# Each one is executed, because version managers leave commands of versions that are not installed.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)

TOO_OLD := Tarry needs Python 3.11 or newer, but found none. Install it, or pass its path: make setup PYTHON=/path/to/python3
REQUIRE_PYTHON = "$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { echo "$(TOO_OLD)" >&2; exit 1; }

# Stamps: the lock determines the packages, pyproject.toml the installation of the project.
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready

.PHONY: help setup demo shop test check format generate schema bench bench-peers bench-compare bench-anomalies bench-pipeline bench-dashboard bench-timers \
  chaos chaos-run soak lock clean system-packages docs dist check-deploy

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv (again only after changes to pyproject.toml or the lock)

demo: $(READY) ## Show Tarry at work on an embedded PostgreSQL
	$(PY) -m examples.demo $(ARGS)

# ARGS="--pipeline" also archives and analyses the events, with Spark.
shop: $(READY) ## Run the example shop: FastAPI, SQLAlchemy, Node, a rolling deploy
	$(PY) -m examples.shop $(ARGS)

# Three processes for two cores: many tests wait for timers and child processes. One file per process at a time, since each
# file has its own servers, and long files first: tests/conftest.py has the order and the exception for Spark.
test: $(READY) ## Run the test suite
	$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder --randomly-seed=$(SEED) $(ARGS)

check: $(READY) ## Check format, lint, types, import rules and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --threads $(THREADS)
	$(BIN)/lint-imports --no-logo
	$(PY) tools/generate-blocking --check

format: $(READY) ## Format the code and apply automatic fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

generate: $(READY) ## Generate the blocking half of the API (after every change to the awaiting half)
	$(PY) tools/generate-blocking

schema: $(READY) ## Generate schema.sql (after every change to a migration)
	mkdir -p build
	$(PY) tools/schema-snapshot > build/schema.sql
	mv build/schema.sql src/tarry/storage/postgres/schema.sql

bench: $(READY) ## Run the benchmarks
	$(PY) -m benchmarks $(ARGS)

# Installs them into build/peers first. pgmq and PgQue need their SQL files: ARGS="--pgmq FILE --pgque FILE"; --help lists all.
bench-peers: $(READY) ## Compare Tarry with other queues, each through its own API
	$(PY) -m benchmarks.peers $(ARGS)

# make bench-compare A=before/results.json B=after/results.json
bench-compare: $(READY) ## Compare two runs of bench-peers
	$(PY) -m benchmarks.peers --compare $(A) $(B)

bench-anomalies: $(READY) ## Measure the anomaly detectors on injected faults
	$(PY) -m benchmarks.anomalies $(ARGS)

bench-pipeline: $(READY) ## Measure the pipeline: source, sink, rounds, files, five million messages archived and verified, the queue beside it
	$(PY) -m benchmarks.pipeline $(ARGS)

# ARGS="--messages 100000 --events 1000000" is a tenth of the target size.
bench-dashboard: $(READY) ## Measure every page of the dashboard with a million messages and ten million events
	$(PY) -m benchmarks.dashboard $(ARGS)

bench-timers: $(READY) ## Measure the timer strategies: lateness, CPU, cost of each
	$(PY) -m benchmarks.timers $(ARGS)

# Without the time limit per test, which detects hangs in short tests.
chaos: $(READY) ## Run the tests that inject faults under load
	$(PY) -m pytest -m chaos --timeout=0 $(ARGS)

# CHAOS="--operations 20000 --faults 40 --seed 1" sizes it; --help lists all options.
chaos-run: $(READY) ## Run a million calls under 320 faults, and check every guarantee
	$(PY) -m tests.chaos.run $(CHAOS)

soak: $(READY) ## Run the long tests that detect leaks
	$(PY) -m pytest -m soak --timeout=0 $(ARGS)

# The tools go into build/docs-tools: neither users nor tests need them.
docs: ## Build the documentation site into build/site
	@$(REQUIRE_PYTHON)
	test -x build/docs-tools/bin/mkdocs || "$(PYTHON)" -m venv build/docs-tools
	build/docs-tools/bin/pip -qq --disable-pip-version-check install -r tools/docs-requirements.txt
	"$(PYTHON)" tools/docs-site
	NO_MKDOCS_2_WARNING=1 build/docs-tools/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

dist: $(READY) ## Build wheel, sdist, SBOM and hashes into dist, and test them in empty environments
	tools/build-release "$(PYTHON)"

check-deploy: ## Check the files in deploy/ with the linters of their tools
	@$(REQUIRE_PYTHON)
	tools/check-deploy "$(PYTHON)"

# Keeps locked versions that are still valid; `make lock ARGS=--upgrade` updates all.
lock: ## Resolve the dependencies into requirements.lock
	@$(REQUIRE_PYTHON)
	"$(PYTHON)" -m venv --clear build/lock
	build/lock/bin/python -m pip -qq --disable-pip-version-check install uv
	build/lock/bin/uv --quiet pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	  --generate-hashes --custom-compile-command "make lock" --output-file requirements.lock $(ARGS)

clean: ## Remove everything that these commands created, including .venv
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

system-packages: ## Install packages that only some tests need: pgbouncer, a second PostgreSQL (root on Debian or Ubuntu)
	tools/system-packages

# Cleared first, so the environment contains only locked packages. uv takes a third of pip's time; pip installs it first, from the
# lock. uv ignores pip's configuration: if it finds no package index, pip installs everything. uv first tries its cache alone: with an
# index that sends the whole file at every revalidation, it would download and build PySpark again.
UV_INSTALL = $(BIN)/uv --quiet pip install --python $(PY) --require-hashes -r requirements.lock
$(LOCKED): requirements.lock
	@$(REQUIRE_PYTHON)
	tools/system-packages
	"$(PYTHON)" -m venv --clear $(VENV)
	awk '/^uv==/ { on = 1 } on { print; if (!/\\$$/) exit }' requirements.lock > $(VENV)/uv.txt
	$(PIP) install --require-hashes -r $(VENV)/uv.txt \
	  && { $(UV_INSTALL) --offline 2>/dev/null || $(UV_INSTALL); } \
	  || $(PIP) install --require-hashes -r requirements.lock
	@touch $@

$(READY): pyproject.toml $(LOCKED)
	$(PIP) install --no-build-isolation --no-deps --editable .
	@git rev-parse --git-dir >/dev/null 2>&1 && git config core.hooksPath tools/hooks || true
	@touch $@
