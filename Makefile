# make run: see it work.  make test: see that it works.  Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
# Old typer and matplotlib call what new click and pyparsing deprecate, and warnings fail the tests.
LOWEST_INDIRECT := click==8.1.8 pyparsing==3.1.4
EXTRAS := standard
EXPERIMENTS ?= 1000
BASE ?= HEAD
REPEATS ?= 7
CASES ?=
OUT ?= out

# Tests start a thousand processes, which should find their modules compiled, as installed ones are.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-quick evidence format test-lowest accounting-check lint review bench bench-compare references verdicts coverage answered midpoints reproduction docs clean

# One federated run in words and a picture, then the paper's figures and claims.
run: $(VENV)/.installed
	$(BIN)/python examples/demonstration.py $(OUT)/demonstration
	$(BIN)/flmc reproduce --experiments $(EXPERIMENTS) --out $(OUT)/reproduction --force

test: $(VENV)/.test-installed lint
	$(BIN)/python -m pytest

test-quick: $(VENV)/.test-installed lint
	FLMC_TEST_QUICK=1 $(BIN)/python -m pytest

# What needs many repetitions, with all of them; its tables go to docs/evidence with date and commit.
evidence: $(VENV)/.test-installed
	FLMC_TEST_EVIDENCE=1 $(BIN)/python -m pytest -m evidence --evidence=docs/evidence

# The oldest versions that pyproject.toml allows, all extras, in an environment of their own.
test-lowest: $(LOWEST)/.installed
	FLMC_TEST_QUICK=1 $(LOWEST)/bin/python -m pytest

# Every accountant against an oracle of its own, as a table; then what the hardest cases cost.
accounting-check: $(VENV)/.test-installed
	$(BIN)/python benchmarks/accounting_cost.py
	cd tests && OPENBLAS_NUM_THREADS=1 ../$(BIN)/python -m privacy.oracle.check

# Code and prose in their form: ruff for the one, lines of 100 characters for the other.
format: $(VENV)/.test-installed
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet
	$(BIN)/python docs/wrap_prose.py

lint: $(VENV)/.test-installed
	$(BIN)/ruff check --output-format concise
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The Scientific Python guide's checks of a repository; the checker is fetched by its name.
review: | $(BIN)/uv
	$(BIN)/uv tool run --from 'sp-repo-review[cli]' sp-repo-review .

# Everything that docs/scale.md says about time and memory, in some ten minutes; its tables and its
# picture are made from the JSON. A part of it: .venv/bin/python benchmarks/suite.py --help.
bench: $(VENV)/.test-installed
	$(BIN)/python benchmarks/suite.py --repeats $(REPEATS) --json $(OUT)/benchmark.json
	mkdir -p docs/scale
	cp $(OUT)/benchmark.json docs/scale/benchmark.json
	$(BIN)/python benchmarks/tables.py

# The sources as they are against a commit, case by case, interleaved: BASE, REPEATS, and CASES by
# the beginnings of their names, with semicolons.
bench-compare: $(VENV)/.test-installed
	$(BIN)/python benchmarks/compare.py --base $(BASE) --repeats $(REPEATS) --cases '$(CASES)'

# Draws, their verdicts and their cost against the reference draws of posteriordb, whose data lie
# beside the repository: docs/references.md. Rows are kept in OUT, so that a run that was cut off goes
# on; remove them to measure anew.
references: $(VENV)/.test-installed
	mkdir -p $(OUT)
	$(BIN)/python benchmarks/references.py --rows $(OUT)/references.jsonl --out docs/references.md

# Verdicts of plans and runs on random regressions, in some twenty minutes: docs/verdicts.md.
verdicts: $(VENV)/.test-installed
	$(BIN)/python benchmarks/verdicts.py --out docs/verdicts.md

# Intervals of answers against the truth, in some twenty minutes: docs/coverage.md.
coverage: $(VENV)/.test-installed
	$(BIN)/python benchmarks/interval_coverage.py --out docs/coverage.md

# Answers against the regressions of posteriordb, whose data lie beside the repository, in some five
# minutes: docs/answered.md.
answered: $(VENV)/.test-installed
	$(BIN)/python benchmarks/answered_posteriors.py --out docs/answered.md

# Draws of chains against reference draws, parameter by parameter: docs/evidence/midpoints.md.
midpoints: $(VENV)/.test-installed
	$(BIN)/python benchmarks/midpoints.py --out docs/evidence/midpoints.md

# The pages about the reproductions are generated from full runs.
reproduction: $(VENV)/.installed
	$(BIN)/flmc reproduce --out $(OUT)/reproduction --force
	mkdir -p docs/reproduction
	cp $(OUT)/reproduction/figure_*.png docs/reproduction/
	sed 's#](figure_#](reproduction/figure_#' $(OUT)/reproduction/report.md > docs/reproduction.md
	$(BIN)/flmc reproduce --paper wflmc --out $(OUT)/predecessor --force
	mkdir -p docs/predecessor
	cp $(OUT)/predecessor/figure_*.png docs/predecessor/
	sed 's#](figure_#](predecessor/figure_#' $(OUT)/predecessor/report.md > docs/predecessor.md

# The documentation as HTML; every warning is an error, and the tutorials are executed.
docs: $(VENV)/.docs-installed
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --nitpicky --fresh-env --quiet docs $(OUT)/docs

# Debian keeps venv in a package of its own: install it if it is missing.
$(BIN)/uv:
	$(PYTHON) -m venv $(VENV) || { apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv --clear $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv --constraint constraints.txt

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '.[$(EXTRAS)]' --constraint constraints.txt
	touch $@

# The studio is tested in Debian's chromium, and a federation on mosquitto; both are installed if they
# are missing. Without mosquitto, which only root can install, the tests that need it are skipped.
$(VENV)/.test-installed: pyproject.toml constraints.txt | $(BIN)/uv
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; }
	PATH="$$PATH:/usr/sbin" command -v mosquitto > /dev/null || [ "$$(id -u)" != 0 ] || { apt-get update -qq && apt-get install -y -qq --no-install-recommends mosquitto > /dev/null; } || echo "mosquitto could not be installed"
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '.[all]' --group test --group lint --constraint constraints.txt
	touch $@ $(VENV)/.installed

$(VENV)/.docs-installed: pyproject.toml constraints.txt | $(BIN)/uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '.[$(EXTRAS),jax,numpyro,arviz,studio]' --group docs --constraint constraints.txt
	touch $@ $(VENV)/.installed

$(LOWEST)/.installed: pyproject.toml | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[all]' --group test $(LOWEST_INDIRECT)
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) .mypy_cache .pytest_cache .ruff_cache .hypothesis .jax_cache out
