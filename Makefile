# make demo    install, build a cache from this Python's standard-library sources, load batches from it
# make test    install, run the whole test suite
# make lint    formatting, lint, types
# make bench   every benchmark at full size, JSON in benchmark_results/
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_DIR ?= .demo/python_source

.PHONY: install demo test lint bench clean
install: $(STAMP)

$(STAMP): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==0.9.30
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/beam-pipes build examples.python_source:declaration --to $(DEMO_DIR)
	$(BIN)/python -m examples.load_batches $(DEMO_DIR)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	mkdir -p benchmark_results
	for name in $(basename $(notdir $(filter-out benchmarks/__init__.py benchmarks/harness.py,$(wildcard benchmarks/*.py)))); do \
	    $(BIN)/python -m benchmarks.$$name --json benchmark_results/$$name.json || exit 1; \
	done

clean:
	rm -rf build dist *.egg-info .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
