# Every target makes the environment it needs; it is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all lint bench gpu-check venv clean

demo: $(STAMP)
	$(BIN)/lockstep demo

test: lint
	scripts/test-packages
	$(BIN)/pytest -n 2 --dist loadgroup

test-all: lint
	scripts/test-packages
	$(BIN)/pytest -n 2 --dist loadgroup -m ""

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gpu-check: $(STAMP)
	$(BIN)/lockstep doctor --gpu

bench: $(STAMP)
	$(BIN)/python benchmarks/speed.py

venv: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/lockstep/models/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
