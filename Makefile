# Every target sets up what it needs in .venv and reuses it afterwards.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# The same package with its hot modules compiled, if there is a C compiler: first on the path.
COMPILED := build/compiled
COMPILED_READY := $(COMPILED)/.ready
SOURCES := $(shell find src -name '*.py' -o -name '*.lark' -o -name '*.jsonl' -o -name '*.toml')

.PHONY: help up test test-plain test-interpreted test-live test-pipeline test-overlay test-compiled hunt peers check format bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(COMPILED_READY) ## start a node: MQTT on 1883, WebSocket on 8083, status on 8080, its pipeline, a demonstration
	@PYTHONPATH=$(COMPILED) $(BIN)/accord up

test: $(READY) peers ## run all tests, those of compiled packages on compiled code
	@echo "six parts, four at a time; each shows itself when it is done"
	@$(MAKE) --no-print-directory --keep-going -j4 --output-sync=target test-pipeline test-live test-overlay test-plain test-compiled test-interpreted

SPARK_TESTS := tests/pipeline tests/scenarios/test_pipeline.py
LIVE_TESTS := tests/scenarios tests/live
# The packages with modules that setup.py compiles, and what uses them from outside. They run compiled, as with users;
# simulations take half as long then. Nodes of live tests run the same code interpreted.
OVERLAY_TESTS := tests/sim tests/core/overlay tests/edges/link
COMPILED_TESTS := $(addprefix tests/core/,predicates scheduling monitoring qos node) tests/edges/mqtt tests/conformance tests/test_package.py
# Simulations whose nodes inherit from classes that, compiled, nobody may inherit from.
INTERPRETED_TESTS := tests/sim/test_persistent.py

test-pipeline: $(READY)
	$(BIN)/python -m pytest --durations=15 $(SPARK_TESTS)

test-live: $(READY)
	$(BIN)/python -m pytest --durations=15 $(SPARK_TESTS:%=--ignore=%) $(LIVE_TESTS)

# The parts above start processes and wait for them, and take longest: those below get what they leave.
LEFT_OVER := nice -n 5 $(BIN)/python -m pytest --timeout=600

test-overlay: $(COMPILED_READY)
	PYTHONPATH=$(COMPILED) $(LEFT_OVER) $(INTERPRETED_TESTS:%=--ignore=%) $(OVERLAY_TESTS)

test-plain: $(READY)
	$(LEFT_OVER) $(patsubst %,--ignore=%,$(SPARK_TESTS) $(LIVE_TESTS) $(OVERLAY_TESTS) $(COMPILED_TESTS))

test-interpreted: $(READY)
	$(LEFT_OVER) $(INTERPRETED_TESTS)

test-compiled: $(COMPILED_READY)
	PYTHONPATH=$(COMPILED) $(LEFT_OVER) $(COMPILED_TESTS)

hunt: $(READY) ## look for failures with new random examples, longer than `make test` does
	ACCORD_EXAMPLES=hunt $(BIN)/python -m pytest --timeout=0 tests/core tests/edges tests/journal tests/client

peers: ## install the real clients and brokers that tests and benchmarks use, as far as can be
	@scripts/peers

check: $(READY) ## formatting, lint, types, import direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(COMPILED_READY) peers ## compare with naive evaluation and with peers, as ratios
	$(PIP) install -e '.[bench]'
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.table2 --compiled

clean: ## remove everything the targets made
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml
	@echo "setting up $(VENV): this takes a few minutes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install -e '.[pipeline,dev]'
	touch $@

$(COMPILED_READY): $(READY) setup.py $(SOURCES)
	@echo "building, compiled where there is a C compiler: a few minutes"
	rm -rf $(COMPILED)
	$(PIP) install --no-deps --no-build-isolation --target $(COMPILED) .
	touch $@
