# make test     everything a change has to pass, except the fault suites
# make lint, together, alone   the parts of it
# make faults   servers and processes killed, frozen, cut off (PYTEST_ARGS goes to pytest, in both)
#               JUNIT=FOLDER: a report of each run of pytest there
# make chaos    a long campaign of random faults on each engine (CHAOS_SECONDS of faults for each, CHAOS_SEED)
# make bench    start-up, hand-off, memory        make dist   sdist and wheel in dist/
# make deps     what the others need: Debian packages (.ci/packages) and .venv; no network once it is there

PYTEST_ARGS ?=
JUNIT ?=
# They mostly wait, so several at a time; each has servers, locks and folders of its own.
AT_A_TIME ?= 4
CHAOS_SECONDS ?= 240
CHAOS_SEED ?= 1
PYTHON ?= python3

# Tests and benchmarks run the installed command and mean this one.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := test
.PHONY: deps test lint together alone faults chaos bench dist clean

# The virtual environment is made for one interpreter at one place from one pyproject.toml: made anew when another
# interpreter or place would leave dead paths in it, installed into again when pyproject.toml says something else.
deps:
	@.ci/packages
	@place="$(CURDIR) $$(.venv/bin/python -VV 2>&1)"; \
	if [ "$$(cat .venv/place 2>&1)" != "$$place" ]; then \
		rm -rf .venv && $(PYTHON) -m venv .venv && \
		echo "$(CURDIR) $$(.venv/bin/python -VV 2>&1)" > .venv/place || exit 1; \
	fi
	@cmp -s pyproject.toml .venv/installed || { \
		.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' && \
		cp pyproject.toml .venv/installed; }

test: lint together alone

lint: deps
	ruff check .
	ruff format --check .
	mypy

together: deps
	pytest -m 'not faults and not alone' -n $(AT_A_TIME) $(call report,together) $(PYTEST_ARGS)

# The tests that take all processors, or measure what others would disturb.
alone: deps
	pytest -m alone $(call report,alone) $(PYTEST_ARGS) || [ $$? -eq 5 ] # 5: PYTEST_ARGS selects none of these

faults: deps
	pytest -m faults -n $(AT_A_TIME) $(call report,faults) $(PYTEST_ARGS)

report = $(if $(JUNIT),--junit-xml=$(JUNIT)/$(1).xml)

chaos: deps
	cd tests && python -m chaos.campaign --seconds $(CHAOS_SECONDS) --seed $(CHAOS_SEED)

bench: deps
	python benchmarks/run.py

dist: deps
	rm -rf dist
	python -m build --no-isolation

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
