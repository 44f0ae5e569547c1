# `make` lists the targets. Settings, each as NAME=value:
#   PYTHON       the Python to make .venv with (3.11 or newer)
#   TORCH_INDEX  a package index to take torch from, such as https://download.pytorch.org/whl/cpu
#   ARGS         more arguments for what demo, test, test-long and bench run
PYTHON ?= python3
TORCH_INDEX ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --constraint constraints.txt $(addprefix --extra-index-url ,$(TORCH_INDEX))
SIDE_BY_SIDE := --numprocesses=2 --dist=loadfile
INPUTS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-long lint format bench model chromium clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.dev model ## Make .venv, install everything and fetch the model

demo: $(VENV)/.run model ## Serve the page on SmolLM2 and print its address
	$(BIN)/batchscope serve $(ARGS)

test: $(VENV)/.dev model chromium ## Run every test
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

test-long: $(VENV)/.dev model chromium ## Run every test, with 3,000 examples for each property
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest --timeout=3600 $(SIDE_BY_SIDE) $(ARGS)

lint: $(VENV)/.dev ## Check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## Format the code and take the outputs out of notebooks
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tests/notebook_files.py

bench: $(VENV)/.run model ## Measure decode throughput
	$(BIN)/batchscope bench throughput $(ARGS)

model: $(VENV)/.run ## Fetch the default model into the cache folder
	@$(BIN)/python -m engine.fetch

chromium: $(VENV)/.dev
	@$(BIN)/python tests/chromium.py

clean: ## Remove .venv and what the tools left (the model's cache folder stays)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: .run has what the demo needs, .dev the tools and tests as well. Changed requirements install again.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Batchscope needs Python 3.11 or newer and found this one ($(PYTHON)):' >&2; $(PYTHON) --version >&2; \
	    echo 'Name a newer one: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.run: $(INPUTS) | $(VENV)/.made
	@[ -n '$(TORCH_INDEX)' ] || [ "$$(uname)" != Linux ] || command -v nvidia-smi >/dev/null || \
	  echo "No NVIDIA driver here: README.md, 'A smaller torch', may save you some gigabytes."
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.dev: $(INPUTS) | $(VENV)/.made
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $(VENV)/.run $@
