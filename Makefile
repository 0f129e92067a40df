# The door to the project. `make help` lists what there is; every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
# The oldest Spark that the connector supports; `make test` has the newest.
OLDEST_SPARK := build/spark-4.1
PXD := $(shell find protocol segment controller kbroker -name '*.pxd' 2>/dev/null)
ROOMS := protocol segment controller kbroker spark_connector
CODE := $(ROOMS) tests bench examples setup.py pyspark_kbroker.py
# Test processes beside each other, more than the processors of a small machine, as many tests wait for others; 0 runs them
# one after the other in this process.
JOBS ?= 7
# Of `make soak`: how long, which faults (empty: others each time), and the round to begin with.
MINUTES ?= 10
SEED ?=
ROUND ?= 0
# Of `make simulate`: virtual time; how many seeds, from SEED (a new one) on.
SECONDS ?= 60
SEEDS ?= 1

# Processes that come and go, and asserts that pytest rewrites, would be compiled anew each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup compile run demo test tests test-kafka quick soak mutants lies compat compat-spark test-pure lint format docs pictures site bench clean simulate

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

# $(call fill_environment,FOLDER,MORE): kbroker and all its extras in a virtual environment, and what else is wanted
define fill_environment
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@$(1)/bin/pip install --quiet --disable-pip-version-check --upgrade 'setuptools>=77' wheel 'cython>=3.1'
	@KBROKER_PURE=1 $(1)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]' $(2) --config-settings editable_mode=compat
	@touch $@
endef

$(INSTALLED): setup.cfg setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "kbroker needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV): kbroker and everything its tests and examples use (a few minutes, once)"
	$(call fill_environment,$(VENV))

$(COMPILED): $(INSTALLED) $(PXD) $(PXD:.pxd=.py)
	@echo "compiling the $(words $(PXD)) modules that have a .pxd"
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

compile: $(COMPILED)  ## build the compiled modules anew where their sources changed

setup: $(COMPILED)  ## a virtual environment in .venv with everything, modules compiled
	@$(BIN)/python -m kbroker.dev.embedded_zookeeper --check

run: setup  ## the main job: real flights through ZooKeeper, three brokers, clients and Spark
	@$(BIN)/python -m examples.flights

demo: setup  ## a cluster to look at: flights without end, brokers killed now and then, the web page; Ctrl-C ends it
	@$(BIN)/python -m examples.demo --open

test: setup  ## lint, types and all tests that need nothing but Python and PyPI
	@$(MAKE) --no-print-directory --jobs 2 lint tests

tests: setup
	@$(BIN)/python -m pytest --processes $(JOBS) -m 'not kafka and not compat'

test-kafka: setup  ## tests beside Apache Kafka's own brokers, tools and Java clients (needs mvn; some minutes)
	@$(BIN)/python -m pytest --processes $(JOBS) -m 'kafka and not compat'

quick: setup  ## the tests that take no time: no processes of their own, no cluster of others, no Spark, no long work
	@$(BIN)/python -m pytest --processes $(JOBS) -m 'not slow and not compat'

soak: setup  ## kbroker verify under faults drawn at random for MINUTES (10) from SEED (a new one), disks that fail, a broker killed 50 times, the power of all cut 200 times (half an hour), and at 200 moments of a session, new simulations
	@KBROKER_SOAK_MINUTES=$(MINUTES) KBROKER_SOAK_SEED=$(SEED) KBROKER_SOAK_ROUND=$(ROUND) $(BIN)/python -m pytest -s tests/faults/test_soak.py
	@KBROKER_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/faults/test_failing_files.py
	@KBROKER_KILLS=50 $(BIN)/python -m pytest tests/system/test_kills.py
	@KBROKER_HISTORIES=1000 $(BIN)/python -m pytest tests/segment/test_histories.py
	@KBROKER_CUTS=200 KBROKER_SOAK_SEED=$(SEED) $(BIN)/python -m pytest -s tests/faults/power_cuts.py
	@$(BIN)/python -m tests.simulation --seconds 12 --seeds 1000000 --jobs 2 --within $$($(BIN)/python -c 'print(20 * $(MINUTES))')

mutants: setup  ## break each line that keeps a promise, one at a time: some test must notice (ten minutes)
	@$(BIN)/python -m tests.promises

simulate: setup  ## a whole cluster in one process, SECONDS (60) of virtual time of bad luck from SEED (a new one)
	@$(BIN)/python -m tests.simulation --seconds $(SECONDS) --seeds $(SEEDS) --jobs 2 $(if $(SEED),--seed $(SEED))

lies: setup  ## a proxy that lies, with 20 seeds each, and brokers that break a promise: kbroker verify and simulations must find them (an hour)
	@KBROKER_LIES=20 $(BIN)/python -m pytest --processes $(JOBS) tests/kbroker/verify/test_lies_are_found.py
	@$(BIN)/python -m tests.promises --judged
	@$(BIN)/python -m tests.promises --simulated

compat: setup compat-spark  ## clusters with Kafka's brokers, Kafka Streams, Connect and Flink under kills, Spark 4.1 (needs mvn; half an hour)
	@KBROKER_SKIPS=fail $(BIN)/python -m pytest -m compat

compat-spark: setup $(OLDEST_SPARK)/.installed  ## Spark's tests on the oldest Spark that is supported
	@# PySpark 4.1 leaves its sockets to the garbage collector, which warns.
	@$(OLDEST_SPARK)/bin/python -m pytest --processes $(JOBS) -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark tests/spark_connector

$(OLDEST_SPARK)/.installed: setup.cfg
	@echo "setting up $(OLDEST_SPARK) (a few minutes, once)"
	$(call fill_environment,$(OLDEST_SPARK),'pyspark[connect]==4.1.*')

test-pure: $(INSTALLED)  ## the quick tests on the interpreted modules, as without a C compiler
	@rm -rf build/pure && mkdir -p build/pure && cp -r $(ROOMS) tests bench examples docs setup.cfg mkdocs.yml pyspark_kbroker.py *.md Makefile build/pure/ && find build/pure -name '*.so' -delete
	@cd build/pure && PYTHONPATH=$$PWD $(CURDIR)/$(BIN)/python -m pytest --processes $(JOBS) -m 'not slow and not compat'

lint: setup  ## ruff, strict mypy (of tests, bench and examples, too), import rules, generated pages
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --quiet --check $(CODE)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > build/imports.txt || { cat build/imports.txt; exit 1; }
	@$(BIN)/python -m kbroker.config.broker_config --check docs/configuration.md
	@$(BIN)/python -m kbroker.client.settings_page --check docs/client-settings.md
	@$(BIN)/python -m kbroker.metrics.metrics_page --check docs/metrics.md
	@$(BIN)/python -m kbroker.cli.commands_page --check docs/commands.md

format: setup  ## write the code in the one style
	@$(BIN)/ruff check --quiet --fix $(CODE)
	@$(BIN)/ruff format --quiet $(CODE)

docs: setup  ## write the generated pages
	@$(BIN)/python -m kbroker.config.broker_config > docs/configuration.md
	@$(BIN)/python -m kbroker.client.settings_page > docs/client-settings.md
	@$(BIN)/python -m kbroker.metrics.metrics_page > docs/metrics.md
	@$(BIN)/python -m kbroker.cli.commands_page > docs/commands.md

pictures: setup  ## photograph the page for docs/pictures, light and dark, on a cluster with flights (wants Chromium; three minutes)
	@$(BIN)/python -m examples.pictures

site: setup  ## the documentation as a site, in build/site; a dead link is an error
	@$(BIN)/python -c 'import material' 2>/dev/null || KBROKER_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[docs]' --config-settings editable_mode=compat
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html"

bench: setup  ## measure beside Apache Kafka 3.9.2 and other clients (needs mvn; half an hour)
	@$(BIN)/python -m bench

clean:  ## remove what was built; the environment and all data of examples too
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output kbroker-data
	@find $(ROOMS) \( -name '*.so' -o -name '*.c' -o -name __pycache__ \) -prune -exec rm -rf {} +
