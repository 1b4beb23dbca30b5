# Two commands on a bare machine with Python 3.11+ and make: `make run` and `make test`. Each does all its set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
OUT := out
CENSUS := ../shared/data/acs2024_pums_adults.parquet

.PHONY: run plan income digits figures test lint bench bench-flower docs clean

run: $(VENV)/.run
	@mkdir -p $(OUT)
	$(BIN)/tpmdp run examples/stay/study.toml --state $(OUT)/stay

plan: $(VENV)/.run
	@mkdir -p $(OUT)
	$(BIN)/tpmdp plan examples/consortium.csv --threshold 2 --receivers statistics_office,hospital_north \
		--out $(OUT)/plan.json --plot $(OUT)/plan.png
	$(BIN)/tpmdp verify $(OUT)/plan.json

income: $(VENV)/.run
	@mkdir -p $(OUT)
	$(BIN)/python examples/income/make_data.py $(OUT)/income $(CENSUS)
	$(BIN)/tpmdp query explain --study examples/income/study.toml
	$(BIN)/tpmdp run examples/income/study.toml --data $(OUT)/income --state $(OUT)/income-state --plot $(OUT)/income.png

digits: $(VENV)/.test
	@mkdir -p $(OUT)
	$(BIN)/python examples/digits/compare.py --out $(OUT)/digits

figures: $(VENV)/.test
	@mkdir -p $(OUT)
	$(BIN)/tpmdp experiment all --out $(OUT)/experiments --report docs/reference/reproduction.md $(if $(wildcard $(CENSUS)),--data $(CENSUS))

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks --out docs/reference/benchmarks.md

bench-flower: $(VENV)/.test
	$(BIN)/python -m benchmarks.flower --out docs/reference/flower_measures.md

docs: $(VENV)/.docs  ## regenerate the reference pages and build the documentation site, strictly
	$(BIN)/python -m tools.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote $(OUT)/site/index.html"

clean:
	rm -rf $(VENV) $(OUT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "tpmdp needs Python 3.11 or newer: set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[all]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.run

$(VENV)/.docs: $(VENV)/.test
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --editable '.[bench]'
	@touch $@
