# One name per chore, the same by hand and in CI. Every target makes the environment it needs.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
PACKS := handlers_contrib/einops handlers_contrib/transformers
QUICK := not slow and not e2e and not browser
PAGES := scripts/generate_reference.py scripts/generate_hook_reference.py
# The lower end of the declared range; a test holds the two together.
OLDEST_TORCH := 2.6.0
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow lint types imports docs pages pages-check dist matrix matrix-oldest matrix-newest changelog e2e browser bench bench-peers bench-smoke ci clean dev

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

## bench: measure what a scan costs
bench: $(READY)
	$(BIN)/python -m benchmarks run -o $(VENV)/bench.json
	$(BIN)/python -m benchmarks table $(VENV)/bench.json

## bench-peers: the same side by side with the peers and TorchScan 0.2.0; writes the tables of the docs
bench-peers: $(READY)
	$(PIP) install -c constraints.txt -e ".[bench]"
	$(BIN)/python -m benchmarks run --who peers --legacy $(VENV)-legacy -o benchmarks/results.json
	$(BIN)/python -m benchmarks table benchmarks/results.json --write
	$(BIN)/python -m benchmarks disagree --write

## bench-smoke: the suite in its smallest size, to see that it works
bench-smoke: $(READY)
	$(BIN)/python -m benchmarks run --smoke -o $(VENV)/bench-smoke.json
	$(BIN)/python -m benchmarks table $(VENV)/bench-smoke.json

## docs: build the site into site/, where it opens from the disk
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

## pages: write the reference pages that follow from the code
pages: $(READY)
	for script in $(PAGES); do $(BIN)/python $$script || exit 1; done

## pages-check: say whether they are current
pages-check: $(READY)
	for script in $(PAGES); do $(BIN)/python $$script --check || exit 1; done

## dist: build wheel and sdist of the core and of each pack into dist/, and check them
dist: $(READY)
	rm -rf dist
	for project in . $(PACKS); do $(BIN)/python -m build -q --outdir dist $$project || exit 1; done
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python scripts/check_dist.py dist/*

## changelog: what the next release will say
changelog: $(READY)
	$(BIN)/towncrier build --draft

## matrix: the tests on the oldest and on the newest PyTorch of the declared range, without the pinned one
matrix: matrix-oldest matrix-newest

matrix-oldest:
	$(call suite,oldest,torch==$(OLDEST_TORCH) numpy<2.3)

matrix-newest:
	$(call suite,newest,torch<3 numpy)

define suite
	$(PYTHON) -m venv $(VENV)-$(1)
	$(VENV)-$(1)/bin/python -m pip --disable-pip-version-check -q install $(PIP_EXTRA) $(foreach each,$(2),"$(each)") -e ".[test,html]"
	$(VENV)-$(1)/bin/python -m pytest -m "$(QUICK)" -n 2 --dist loadfile
endef

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
