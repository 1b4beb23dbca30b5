# Every target sets up what it needs, on a machine with Python 3.11 or newer and make. `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
# SPU has wheels for Python 3.11 on Linux.
SPU_PYTHON ?= $(or $(shell command -v python3.11),$(PYTHON))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
OUT := out
MINUTES ?= 10
SEED ?= 0

# Some containers set this: every process would then compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

# Census data are optional: without this file `income`, `figures` and `bench` use a synthetic population.
CENSUS ?= ../shared/data/acs2024_pums_adults.parquet
CENSUS_FILE := $(wildcard $(CENSUS))
SAY_CENSUS = @echo "people: $(if $(CENSUS_FILE),$(CENSUS_FILE),synthetic, as there is no census file $(CENSUS))"

# Further suites, for `test-all`. A suite NAME has two targets: `install-NAME` and `suite-NAME`.
SUITES := long simulation browser spu

.DEFAULT_GOAL := help
.PHONY: help run page plan income trial loans digits figures coverage check test test-under-load test-all install-spu lint soak bench bench-sessions bench-flower bench-page bench-pairs audits docs clean
.PHONY: install-long suite-long install-simulation suite-simulation install-browser suite-browser suite-spu

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*  ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-16s %s\n", $$1, $$2 }'

run: $(VENV)/.run  ## run the example study: five organisations release a count and a mean
	@mkdir -p $(OUT)
	$(BIN)/tpmdp run examples/stay/study.toml --state $(OUT)/stay

page: $(VENV)/.run  ## plan, take part and check in a browser, on the example study
	@mkdir -p $(OUT)/page
	cp -n examples/stay/study.toml examples/stay/*.csv $(OUT)/page
	$(BIN)/tpmdp page --folder $(OUT)/page

plan: $(VENV)/.run  ## plan the noise of a consortium, draw the plan and verify its certificate
	@mkdir -p $(OUT)
	$(BIN)/tpmdp plan examples/consortium.csv --threshold 2 --receivers statistics_office,hospital_north \
		--out $(OUT)/plan.json --plot $(OUT)/plan.png
	$(BIN)/tpmdp verify $(OUT)/plan.json

income: $(VENV)/.run  ## answer four queries on census-like data of five regions (CENSUS=FILE for real data)
	@mkdir -p $(OUT)
	$(SAY_CENSUS)
	$(BIN)/python examples/income/make_data.py $(OUT)/income $(CENSUS_FILE)
	$(BIN)/tpmdp query explain --study examples/income/study.toml
	$(BIN)/tpmdp run examples/income/study.toml --data $(OUT)/income --state $(OUT)/income-state --plot $(OUT)/income.png

trial: $(VENV)/.run  ## compare two arms of a made-up trial at five hospitals: survival curves and a log-rank test
	@mkdir -p $(OUT)
	$(BIN)/python examples/trial/make_data.py $(OUT)/trial
	$(BIN)/tpmdp run examples/trial/study.toml --data $(OUT)/trial --state $(OUT)/trial-state --plot $(OUT)/trial.png

loans: install-spu  ## regress default on spending over columns of two organisations, a bank and a shop (needs SPU: see install-spu)
	@mkdir -p $(OUT)
	$(BIN)/python examples/loans/make_data.py $(OUT)/loans
	$(BIN)/tpmdp run examples/loans/study.toml --data $(OUT)/loans --state $(OUT)/loans-state

digits: $(VENV)/.test  ## train a digits classifier over 100 Flower clients
	@mkdir -p $(OUT)
	$(BIN)/python examples/digits/compare.py --out $(OUT)/digits

figures: $(VENV)/.test  ## reproduce every figure of the paper and rewrite docs/reference/reproduction.md (CENSUS=FILE for real data)
	@mkdir -p $(OUT)
	$(SAY_CENSUS)
	$(BIN)/tpmdp experiment all --out $(OUT)/experiments --report docs/reference/reproduction.md $(addprefix --data ,$(CENSUS_FILE))

coverage: $(VENV)/.test  ## measure how often intervals hold the truth and rewrite docs/reference/coverage.md (about 5 minutes of one core)
	@mkdir -p $(OUT)
	$(BIN)/tpmdp experiment coverage --out $(OUT)/experiments --report docs/reference/coverage.md

check: lint  ## lint, types and the quick tests that start no process
	$(PYTEST) --ignore=tests/flower -m "not process and not flower and not browser and not spu and not slow and not long"

test: lint  ## lint, types and all tests but those marked long, browser or spu
	$(PYTEST) -m "not long and not browser and not spu"

test-under-load: $(VENV)/.test  ## `make test` beside four busy processes
	$(BIN)/python tests/under_load.py $(MAKE) test

test-all:  ## the further suites: longer ones, and those that need more than one environment
	@failed=; for suite in $(SUITES); do \
		if $(MAKE) install-$$suite; then $(MAKE) suite-$$suite || failed="$$failed $$suite"; \
		else echo "test-all: $$suite did not run, because install-$$suite failed"; fi; \
	done; if [ -n "$$failed" ]; then echo "test-all: failed:$$failed"; exit 1; fi

install-long: $(VENV)/.test

suite-long:
	$(PYTEST) -m "long and not browser and not spu"

install-simulation: $(VENV)/.test

suite-simulation:
	$(BIN)/python -m tests.simulation --schedules 1000 --seed 1000 & other=$$!; \
		$(BIN)/python -m tests.simulation --schedules 1000; code=$$?; wait $$other && exit $$code

install-browser: $(VENV)/.test
	command -v chromium > /dev/null || (apt-get -qq update && apt-get -qq install --yes chromium fonts-dejavu-core > /dev/null)
	$(PIP) playwright axe-playwright-python

suite-browser:
	$(PYTEST) tests/page -m browser

install-spu: $(VENV)-spu/.done  ## make the environment of SPU, for functions other than sums at any threshold (Python 3.11, Linux; 1 GB)

suite-spu:
	$(PYTEST) -m spu

lint: $(VENV)/.test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(VENV)/.test  ## simulate sessions with crashes and hostile parties (MINUTES=10, SEED=0)
	$(BIN)/python -m tests.simulation --minutes $(MINUTES) --seed $(SEED)

bench: $(VENV)/.test  ## measure against peers and rewrite docs/reference/benchmarks.md: about an hour
	$(SAY_CENSUS)
	$(BIN)/python -m benchmarks --out docs/reference/benchmarks.md $(addprefix --census ,$(CENSUS_FILE))

bench-sessions: $(VENV)/.test  ## measure sessions of up to 1,000 parties and rewrite docs/reference/large_sessions.md
	$(BIN)/python -m benchmarks large_sessions --out docs/reference/large_sessions.md

bench-flower: $(VENV)/.test  ## measure beside Flower's SecAgg+ and rewrite docs/reference/flower_measures.md
	$(BIN)/python -m benchmarks.flower --out docs/reference/flower_measures.md

bench-page: install-browser  ## measure the page in a browser and rewrite docs/reference/page_measures.md
	$(BIN)/python -m benchmarks.page_speed --out docs/reference/page_measures.md

bench-pairs: $(VENV)/.test install-spu  ## measure functions of pairs against Shamir shares and rewrite docs/reference/pairs_measures.md
	$(BIN)/python -m benchmarks.pairs --out docs/reference/pairs_measures.md

audits: $(VENV)/.test  ## audit ten studies and four planted faults, and rewrite docs/reference/audits.md: two minutes
	$(BIN)/python -m benchmarks.audits --out docs/reference/audits.md

docs: $(VENV)/.test  ## build the documentation site, with generated references; strict
	$(BIN)/python -m tools.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote $(OUT)/site/index.html"

$(VENV)-spu/.done: src/tpmdp/engines/spu/interpreter.py | $(VENV)/.run
	$(SPU_PYTHON) -m venv $(VENV)-spu
	$(VENV)-spu/bin/python -m pip --disable-pip-version-check --quiet install $$($(BIN)/python -m tpmdp.engines.spu.interpreter)
	@touch $@

clean:  ## remove the environment, caches and results
	rm -rf $(VENV) $(VENV)-spu $(OUT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks examples tools -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "tpmdp needs Python 3.11 or newer: set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[all]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.run
