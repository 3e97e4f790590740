# make test     everything a change has to pass, except the fault suites
# make faults   servers and processes killed, frozen, cut off (PYTEST_ARGS goes to pytest, in both)
# make bench    start-up, hand-off, memory        make dist   sdist and wheel in dist/
# make deps     what the others need: Debian packages (.ci/packages) and .venv; no network once it is there

PYTEST_ARGS ?=
PYTHON ?= python3

# Tests and benchmarks run the installed command and mean this one.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := test
.PHONY: deps test faults bench dist clean

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

test: deps
	ruff check .
	ruff format --check .
	mypy
	pytest -m 'not faults' $(PYTEST_ARGS)

# They mostly wait, so three at a time.
faults: deps
	pytest -m faults -n 3 $(PYTEST_ARGS)

bench: deps
	python benchmarks/run.py

dist: deps
	rm -rf dist
	python -m build --no-isolation

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
