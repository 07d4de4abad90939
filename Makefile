# make install   .venv with every command in .venv/bin
# make test      everything the tests need, then tests, lint, types and import rules
# make demo      a controller, some jobs, and what the commands say about them; stops all it started
# make demo-kubernetes   the same on a real Kubernetes of three nodes, by the Helm chart (root, Go; builds once)
# make lint      ruff, mypy, import rules
# make bench     benchmarks, beside a real Slurm where there is one (LAB=folder with the lab script)

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
SOURCES := slurmbridge schedulers images tests benchmarks
# the newest Python from 3.11 on; PYTHON=... chooses another
PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(if $(shell $(p) -c 'import sys; print(1) if sys.version_info >= (3, 11) else 0' 2>/dev/null),$(p))))

# byte code is kept whatever the environment says: commands, controllers and tests start in half the time
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install test lint demo demo-kubernetes bench clean

install: $(VENV)/.installed
	@$(BIN)/python -m slurmbridge.client.install $(BIN)

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo "installing slurmbridge and what it needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.tested: pyproject.toml $(VENV)/.installed
	@echo "installing the test tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

test: install $(VENV)/.tested
	@# meanwhile the tests are compiled, once for all workers
	@$(BIN)/python -m pytest --collect-only -q tests >/dev/null & tests/setup.sh; code=$$?; wait; exit $$code
	$(BIN)/python -m pytest -n 4 --dist loadgroup tests
	@$(MAKE) --no-print-directory lint

lint: $(VENV)/.tested
	$(BIN)/ruff check $(wildcard $(SOURCES))
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir $(VENV)/.import_linter_cache

demo: install
	@examples/demo.sh

demo-kubernetes: $(VENV)/.tested
	@examples/demo_kubernetes.sh

bench: install
	$(BIN)/python benchmarks/side_by_side.py $(if $(LAB),--lab $(LAB))

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
