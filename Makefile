# Every daily command. The first call of each makes what it needs; the second starts at once.
PYTHON ?= python3
PRESET ?= quick
BIN := .venv/bin

# .venv/.core, .venv/.dev and .venv/.bench say what is installed; a change of pyproject.toml makes them stale.
EXTRAS_dev := [dev,docs,torch,frost,cluster,store,store-test]
EXTRAS_bench := [bench]

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "reproduce installs the library alone into .venv; test, docs and lab add the tools of its dev and docs extras, PyTorch and the photographs of frost."

reproduce: .venv/.core ## run every paper notebook and print the scorecard (PRESET=quick)
	$(BIN)/robustness-nb reproduce --preset $(PRESET)

test: .venv/.dev ## notebooks clean and exported, their tests, the site, pytest
	$(BIN)/ruff check -q .
	$(BIN)/python tools/check_clean.py
	$(BIN)/nbdev-test --n-workers 2
	$(BIN)/python tools/site.py
	$(BIN)/pytest -m "slow or not slow"

docs: .venv/.dev ## the site in _docs: by Quarto where it is on PATH, else a smalldocs preview
	@if command -v quarto >/dev/null; then \
	  $(BIN)/python -c "from nbdev.serve import proc_nbs; proc_nbs()" && quarto render _proc && \
	  rm -rf _docs && mv _proc/_docs _docs && echo "Site built by Quarto: _docs/"; \
	else \
	  $(BIN)/python tools/site.py && echo "No quarto on PATH. Preview built by smalldocs: _docs/"; \
	fi

lab: .venv/.dev ## JupyterLab on the notebooks
	$(BIN)/jupyter lab nbs

bench: .venv/.bench ## every benchmark, side by side with its peers
	@for f in benchmarks/*.py; do echo "$$f"; $(BIN)/python "$$f" || exit 1; done

clean: ## remove the built site, caches and _runs, unpublished records included; .venv stays
	rm -rf _proc _docs _runs nbdev.yml .quarto .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

.venv/bin/pip:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'robustness_nb needs Python 3.11 or newer: make PYTHON=python3.12')"
	$(PYTHON) -m venv .venv

.venv/.%: pyproject.toml | .venv/bin/pip
	@echo "Installing .$(EXTRAS_$*) into .venv (minutes the first time)"
	@$(BIN)/pip install -q --disable-pip-version-check -e ".$(EXTRAS_$*)"
	@touch .venv/.core $@

.PHONY: help reproduce test docs lab bench clean
