# One name per chore, the same by hand and in CI. Every target makes the environment it needs.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
PACKS := handlers_contrib/einops handlers_contrib/transformers
QUICK := not slow and not e2e and not browser
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow lint types imports docs dist e2e browser bench ci clean dev

## demo: set everything up and scan the base Transformer
demo: $(RUNTIME)
	$(BIN)/torchscan scan scripts/base_transformer.py:base --depth 2 --exact

## test: set everything up and pass the tests
test: $(READY)
	$(BIN)/python -m pytest -m "$(QUICK)" -n 2 --dist loadfile
	for pack in $(PACKS); do (cd $$pack && $(abspath $(BIN))/python -m pytest -q -m "not slow") || exit 1; done

## test-slow: the long property suites
test-slow: $(READY)
	$(BIN)/python -m pytest -m "slow" -n 2 --dist loadfile

## e2e: build wheels, install them in empty environments and use them
e2e: $(READY)
	$(BIN)/python -m pytest -m e2e tests/e2e

## browser: open reports in headless Chromium (Debian: apt-get install chromium chromium-driver)
browser: $(READY)
	$(BIN)/python -m pytest -m browser tests/browser

## ci: everything that must pass before a change lands
ci:
	.ci/run

## dev: everything a contributor needs
dev: $(READY)

$(RUNTIME): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt torch numpy
	$(PIP) install -c constraints.txt -e .
	touch $(RUNTIME)

$(READY): $(RUNTIME) $(PACKS:%=%/pyproject.toml)
	$(PIP) install -c constraints.txt -e ".[dev,html,browser,docs]" $(PACKS:%=-e ./%) transformers einops
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
