# Each target sets up what it needs, in .venv, the first time; after that only when pyproject.toml has changed.

# .venv is made with the first of these that is Python 3.11 or newer
PYTHON ?= python3.11 python3.12 python3.13 python3.14 python3
# installed where .venv has no torch yet
TORCH ?= torch==2.13.0

python := .venv/bin/python
install := $(python) -m pip install --quiet --disable-pip-version-check

.PHONY: help test demo check bench tables clean

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1	\2/p' Makefile
	@echo
	@echo '  make test ARGS="-k sketch"        hand arguments on: test, demo, bench'
	@echo '  make demo PYTHON=python3.12       another Python'
	@echo '  make demo TORCH=torch             another PyTorch: whatever "pip install" should take'

test: .venv/ready ## run the tests and the examples in the docstrings
	@$(python) -m pytest -n auto --maxprocesses 4 $(ARGS)

demo: .venv/ready ## images, features, a comparison, a report: all of it in about three minutes, offline, into demo/
	@$(python) -m compact_bilinear demo --out demo $(ARGS)

check: .venv/ready ## format, lint and types; are the README's tables those of the committed records?
	$(python) -m ruff format --check .
	$(python) -m ruff check .
	$(python) -m mypy
	$(python) benchmarks/tables.py --check

bench: .venv/ready ## time the poolings and measure their memory on this machine
	@$(python) benchmarks/pooling.py $(ARGS)

tables: .venv/ready ## write the README's tables anew from the committed records
	@$(python) benchmarks/tables.py

clean: ## back to a fresh clone: removes .venv, demo/ and all caches
	rm -rf .venv demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# The stamp is written last and says where: an install that was cut short, and a folder that was copied or moved with its .venv
# (its packages would still be found in the old place), have none that counts.
ifneq ($(shell test -x $(python) && test "$$(cat .venv/ready 2>&1)" = "$$(pwd -P)" && echo yes),yes)
.PHONY: .venv/ready
endif

.venv/ready: pyproject.toml
	@rm -f $@
	@if [ -e .venv/unfinished ] || ! $(python) -c '' 2>/dev/null; then \
	    found=; without_venv=; \
	    for each in $(PYTHON); do \
	        "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	        if "$$each" -c 'import ensurepip, venv' 2>/dev/null; then found=$$each; break; fi; \
	        without_venv=$$each; \
	    done; \
	    if [ -z "$$found" ] && [ -n "$$without_venv" ]; then \
	        echo "$$without_venv lacks its venv module. Install it (Debian, Ubuntu: package python3-venv) and call make again." >&2; \
	        exit 1; \
	    elif [ -z "$$found" ]; then \
	        echo 'No Python 3.11 or newer among: $(PYTHON). Install one, or say where it is: make PYTHON=/path/to/python3' >&2; \
	        exit 1; \
	    fi; \
	    rm -rf .venv && mkdir .venv && touch .venv/unfinished && "$$found" -m venv .venv; \
	fi
	@$(python) -c 'import pip' 2>/dev/null || $(python) -m ensurepip
	@$(python) -I -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' || { \
	    echo 'Installing $(TORCH) into .venv: a minute or two, once ...'; \
	    $(install) '$(TORCH)' || { echo 'Could not install $(TORCH); the lines above say why. Another one: make TORCH=torch' >&2; exit 1; }; }
	@echo 'Installing compact-bilinear and its tools into .venv ...'
	@$(install) --editable '.[dev]'
	@rm -f .venv/unfinished && pwd -P > $@
