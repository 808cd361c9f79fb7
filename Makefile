# make train   the toy run, from raw data to a drafter
# make test    style, types and tests
# make setup   only the environment
# make docs    the pages that follow from the schema and the rules
# make soak    fifty interruptions at random points; SEED= and TRIALS= choose them
# make environments   the pins of envs/, resolved on the package index
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Programs that some tests need; a test whose program is not there is skipped.
SYSTEM_PACKAGES := slurm-wlm munge chromium
APT := DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq --no-install-recommends

.PHONY: setup train test soak environments lint docs

setup: $(VENV)/base.done

train: setup
	$(BIN)/snakemake --cores all train

# Unit tests run on two processes, a file on one of them; the workflow's own take all cores.
test: $(VENV)/test.done $(VENV)/system.done lint
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/unit
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest tests/workflow

# Half an hour or more: the whole small run first, then trial by trial.
soak: setup
	OMP_WAIT_POLICY=passive $(BIN)/python tests/soak.py --trials $(or $(TRIALS),50) $(if $(SEED),--seed $(SEED))

environments: setup
	$(BIN)/python benchmarks/environments.py

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

# torch comes first and with its dependencies, so that a CPU build is taken where one is offered;
# the constraints keep those dependencies at their pins.
$(VENV)/base.done: requirements/base.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Draftmill needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint requirements/base.txt torch==2.13.0
	$(PIP) --no-deps --requirement requirements/base.txt
	touch $@

$(VENV)/test.done: $(VENV)/base.done requirements/test.txt
	$(PIP) --no-deps --requirement requirements/test.txt
	touch $@

# Tried once, and nothing fails where it does not succeed; delete .venv/system.done to try again.
$(VENV)/system.done: | $(VENV)/base.done
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		$(APT) update > $@.log 2>&1; \
		for package in $(SYSTEM_PACKAGES); do \
			$(APT) install $$package >> $@.log 2>&1 \
				|| echo "$$package is not installed, its tests are skipped (see $@.log)"; \
		done; \
	else \
		echo "not root or no apt-get: tests are skipped without $(SYSTEM_PACKAGES)"; \
	fi
	@touch $@

# Write the pages that follow from the schema and the rule graph.
docs: setup
	$(BIN)/snakemake --rulegraph mermaid-js all > $(VENV)/rule_graph.txt
	$(BIN)/python scripts/write_documentation.py --rule-graph $(VENV)/rule_graph.txt \
		--schema config/schema.yaml --configuration config/config.yaml \
		--configuration-page config/README.md --readme README.md --sources-page docs/sources.md --corpus-page docs/corpus.md
