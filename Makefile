# Every target sets up what it needs and reuses it afterwards. There is one build: the wheel in build/wheel, installed
# into .venv. `make up`, the tests, the benchmarks and `. .venv/bin/activate` all run it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
MADE := $(VENV)/.made
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
WHEEL := build/wheel/.ready
READY := $(VENV)/.ready
ACCEPTANCE := build/acceptance/.ready
ACCEPTANCE_NEEDS := build/acceptance/.needs
SPARK_CLASSES := $(VENV)/spark.jsa build/acceptance/spark.jsa
SOURCES := $(shell find src -name '*.py' -o -name '*.[ch]' -o -name '*.lark' -o -name '*.jsonl' -o -name '*.toml' \
	-o -type f -path '*/console/static/*')

.PHONY: help up build acceptance test quick hunt peers check format bench clean console check-console
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: build ## start a node: MQTT on 1883, WebSocket on 8083, console on 8080, its pipeline, a demonstration
	@$(BIN)/accord up

build: $(READY)

test: $(DEVELOPMENT) $(READY) $(ACCEPTANCE) $(SPARK_CLASSES) peers ## run all tests, on the wheel that users get
	@echo "five parts at once, each shows itself when it is done; then the browser's"
	@$(MAKE) --no-print-directory --keep-going -j5 --output-sync=target test-acceptance test-pipeline test-live test-rest test-simulator; \
		parts=$$?; $(MAKE) --no-print-directory test-browser && exit $$parts

# An environment as users have it: the wheel, what it needs, and what documents tell them to install.
acceptance: $(ACCEPTANCE)

SPARK_TESTS := tests/pipeline tests/scenarios/test_pipeline.py
LIVE_TESTS := tests/scenarios tests/runtime
ACCEPTANCE_TESTS := tests/acceptance
BROWSER_TESTS := tests/browser
SIMULATOR_TESTS := tests/sim tests/core/overlay tests/core/links
# Acceptance, pipeline and live tests start processes and wait for them: the others get what they leave.
LEFT_OVER := nice -n 5 $(BIN)/python -m pytest --timeout=600

.PHONY: test-pipeline test-live test-acceptance test-browser test-simulator test-rest
test-pipeline: $(VENV)/spark.jsa
	$(BIN)/python -m pytest --durations=15 $(SPARK_TESTS)

test-live:
	$(BIN)/python -m pytest --durations=15 $(SPARK_TESTS:%=--ignore=%) $(LIVE_TESTS)

test-acceptance: $(ACCEPTANCE) build/acceptance/spark.jsa
	$(BIN)/python -m pytest --durations=15 --timeout=600 $(ACCEPTANCE_TESTS)

# In a browser, with the machine to itself: pages that have to wait for the processor fail.
test-browser: $(DEVELOPMENT) $(READY) peers
	$(BIN)/python -m pytest $(BROWSER_TESTS)

test-simulator:
	$(LEFT_OVER) $(SIMULATOR_TESTS)

test-rest:
	$(LEFT_OVER) $(patsubst %,--ignore=%,$(SPARK_TESTS) $(LIVE_TESTS) $(ACCEPTANCE_TESTS) $(BROWSER_TESTS) $(SIMULATOR_TESTS))

# The slowest files by `--durations`, nearly half of the time of these directories, are left to `make test`.
QUICK_SLOW := tests/core/admission/filter_index/test_filter_index.py tests/core/admission/test_filter_poset.py \
	tests/core/channels/test_reliable.py tests/core/channels/test_total_order.py tests/core/mqtt/test_codec.py \
	tests/core/native/test_twins.py tests/core/overlay/test_facts_network.py tests/core/predicates/test_index.py \
	tests/journal/test_crashes.py
QUICK_FIRST := tests/core/admission tests/core/broker tests/core/channels tests/core/links tests/core/overlay
QUICK_REST := tests/core tests/journal tests/config tests/http
QUICK := $(BIN)/python -m pytest -x -q $(QUICK_SLOW:%=--ignore=%)

quick: $(DEVELOPMENT) $(READY) ## `make check` and the fast tests of core, journal, config and http, two at a time
	@$(MAKE) --no-print-directory -j2 --output-sync=target quick-first quick-rest check

.PHONY: quick-first quick-rest
quick-first:
	@$(QUICK) $(QUICK_FIRST)

quick-rest:
	@$(QUICK) $(QUICK_FIRST:%=--ignore=%) $(QUICK_REST)

hunt: build $(DEVELOPMENT) ## look for failures with new random examples, longer than `make test` does
	ACCORD_EXAMPLES=hunt $(BIN)/python -m pytest --timeout=0 tests/core tests/journal tests/client

peers: ## install the real clients and brokers that tests and benchmarks use, as far as can be
	@scripts/peers

check: $(DEVELOPMENT) ## formatting, lint, types, import direction, names
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/python scripts/names.py
	$(BIN)/python scripts/console_digest.py
	@$(MAKE) --no-print-directory check-console

# The console is rebuilt by who changes it, and its built files are committed: nobody else needs Node.js.
CONSOLE_PACKAGES := console/node_modules/.package-lock.json

console: $(DEVELOPMENT) $(CONSOLE_PACKAGES) ## check, test and build the console's page from console/ (needs npm)
	PYTHONPATH=src $(BIN)/python scripts/console_types.py
	cd console && npm run --silent types && npm run --silent check && npm run --silent lint && npm test --silent && npm run --silent build
	$(BIN)/python scripts/console_digest.py --write

check-console:
	@if command -v npm >/dev/null; then \
		$(MAKE) --no-print-directory $(CONSOLE_PACKAGES) && cd console && npm run --silent check && npm run --silent lint; \
	else echo "console: types and lint are not checked, because npm is not installed"; fi

$(CONSOLE_PACKAGES): console/package-lock.json
	cd console && npm ci --silent --no-audit --no-fund
	@touch $@

format: $(DEVELOPMENT) ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: build peers ## compare with naive evaluation and with peers, as ratios
	$(PIP) install $$($(BIN)/python scripts/requirements.py bench)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.table2

clean: ## remove everything the targets made
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(MADE):
	@echo "setting up $(VENV) and building: a few minutes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	@touch $@

$(RUNTIME): pyproject.toml | $(MADE)
	$(PIP) install $$($(BIN)/python scripts/requirements.py dependencies pipeline)
	@touch $@

$(DEVELOPMENT): pyproject.toml $(RUNTIME)
	$(PIP) install $$($(BIN)/python scripts/requirements.py dev)
	@touch $@

$(WHEEL): pyproject.toml setup.py $(SOURCES) | $(MADE)
	rm -rf build/wheel build/lib* build/bdist*
	$(PIP) wheel --no-deps --wheel-dir build/wheel .
	@touch $@

$(ACCEPTANCE_NEEDS): pyproject.toml | $(MADE)
	rm -rf build/acceptance
	$(PYTHON) -m venv build/acceptance
	$(PIP) --python build/acceptance/bin/python install $$($(BIN)/python scripts/requirements.py dependencies pipeline) duckdb polars paho-mqtt
	@touch $@

$(ACCEPTANCE): $(ACCEPTANCE_NEEDS) $(WHEEL)
	$(PIP) --python build/acceptance/bin/python install --force-reinstall --no-deps build/wheel/*.whl
	$(PIP) --python build/acceptance/bin/python check
	@touch $@

$(READY): $(RUNTIME) $(WHEEL)
	$(PIP) install --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

# Spark's classes as Java has them in memory, with which it starts in a third of the time. Java writes them when it ends:
# `cat` waits for that. Best effort: without them tests only take longer.
$(VENV)/spark.jsa: $(RUNTIME) | $(READY)
build/acceptance/spark.jsa: $(ACCEPTANCE_NEEDS) | $(ACCEPTANCE)
$(SPARK_CLASSES): %/spark.jsa:
	rm -rf $@ $*/spark-classes
	-SPARK_SUBMIT_OPTS=-XX:ArchiveClassesAtExit=$(abspath $@) $*/bin/python -m tests.pipeline.cluster_work \
		'local[2]' $(abspath $*/spark-classes) 2>&1 | cat > $*/spark-classes.log
