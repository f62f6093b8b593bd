# One name per chore, the same by hand and in CI. Every target makes the environment it needs.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow lint types imports docs dist e2e browser bench ci clean dev

## demo: set everything up and scan the base Transformer
demo: $(READY)
	$(BIN)/torchscan scan scripts/base_transformer.py:base --depth 2 --exact

## test: set everything up and pass the tests
test: $(READY)
	$(BIN)/python -m pytest -m "not slow and not e2e and not browser" -n 2 --dist loadfile

## test-slow: the long property suites
test-slow: $(READY)
	$(BIN)/python -m pytest -m "slow" -n 2 --dist loadfile

## dev: everything a contributor needs
dev: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt torch numpy
	$(PIP) install -c constraints.txt -e ".[dev,html]"
	touch $(READY)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
