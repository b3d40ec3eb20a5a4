# make compare   install into .venv (with numba) and compare GPUs with light (ARGS="--quick" for the short run)
# make test      install with what tests need, then lint, build the documentation and test
# make lint      ruff and mypy only
# make docs      build the documentation into build/docs, warnings as errors, and run its doctests
# make clean     remove .venv and caches; results/ stays

PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?= -n 2 --dist worksteal

VENV := .venv
BIN := $(VENV)/bin
PIP_ARGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check install $(PIP_ARGS) -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help compare test lint docs clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# //p' Makefile

compare: $(VENV)/.installed
	$(BIN)/heliograph compare $(ARGS)

test: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory -j 2 lint docs
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2

docs: $(VENV)/.installed-test
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs build/docs
	$(BIN)/sphinx-build -q -W --keep-going -b doctest -d build/doctrees docs build/doctest

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "make: no '$(PYTHON)' here; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Heliograph needs Python 3.11 or newer, '$(PYTHON)' is older; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "make: '$(PYTHON)' cannot make virtual environments; install its venv package (python3-venv)" >&2; exit 1; }

INSTALLED_AS := pyproject.toml constraints.txt heliograph/_version.py

$(VENV)/.installed: $(VENV)/bin/python $(INSTALLED_AS)
	@echo "Installing into $(VENV) (once; torch is large, so this takes minutes) ..."
	$(PIP) -e '.[chakra,fast]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/bin/python $(INSTALLED_AS)
	@echo "Installing into $(VENV), with what tests and documentation need (once; torch is large) ..."
	$(PIP) -e '.[chakra,fast,test,docs]'
	@touch $(VENV)/.installed $@
