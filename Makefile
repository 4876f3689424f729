# make demo and make test work on a machine with python3, make and git; each makes the environment it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VERSION ?= 0.5.23
MARK ?= not slow
SEED ?=
PROMPTS ?=
SCREENSHOTS ?=
ITEMS ?= 200000
SGLANG_VENV := .venv-sglang-$(VERSION)

.PHONY: demo test servers lint types unit integration tools browser chaos soak fuzz test-sglang format clean help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: $(VENV)/.ready ## Run the main job on this machine, with one worker killed half way
	$(BIN)/python examples/demo.py demo-run

# The servers' tests mostly wait, for leases and starts, and SGLang's mostly compute: side by side they take half the time.
test: tools lint types unit ## Run everything that CI runs
	$(MAKE) --output-sync=target -j2 servers test-sglang

servers: $(VENV)/.ready
	$(MAKE) integration
	$(MAKE) browser
	$(MAKE) chaos

lint: $(VENV)/.ready ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready ## Strict types
	$(BIN)/mypy

unit: $(VENV)/.ready ## Fast tests without servers
	$(BIN)/pytest tests/unit -q -n auto

integration: $(VENV)/.ready ## Tests with a real Redis, real workers and the embedded engine
	$(BIN)/pytest tests/integration -q

tools: ## As root, install what some tests need and pip does not bring: Chromium, Prometheus, GlusterFS; without them these are skipped
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { command -v promtool && command -v chromium && command -v glusterfsd; } >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus chromium fonts-inter glusterfs-server glusterfs-client >/dev/null; \
	fi

browser: $(VENV)/.ready tools ## Flower's pages in a browser; SCREENSHOTS=DIR keeps the pictures
	$(BIN)/pytest tests/browser -q $(if $(SCREENSHOTS),--screenshots $(SCREENSHOTS))

chaos: $(VENV)/.ready tools ## Tests that kill things
	$(BIN)/pytest tests/chaos -q --ignore tests/chaos/test_steps.py
	$(BIN)/pytest tests/chaos/test_steps.py -q -n 4

soak: $(VENV)/.ready ## A long run under hundreds of faults, as root; SEED= for one seen before, PROMPTS= for a file of your own
	$(BIN)/python -m tests.chaos.soak $(if $(SEED),--seed $(SEED)) $(if $(PROMPTS),--prompts $(PROMPTS))

fuzz: $(VENV)/.ready ## Random and mutated input into every reader; ITEMS=200000, SEED=1
	PYTHONPATH=.:workers $(BIN)/python -m tests.fuzz $(ITEMS) $(or $(SEED),1)

$(SGLANG_VENV)/.ready: ops/sglang-cpu/install.sh ops/sglang-cpu/requirements.txt ops/sglang-cpu/inert_imports.py
	PYTHON=$(PYTHON) ops/sglang-cpu/install.sh $(SGLANG_VENV) $(VERSION)
	touch $@

test-sglang: $(VENV)/.ready $(SGLANG_VENV)/.ready ## Tests with a real SGLang on the CPU; VERSION=0.5.17 for another, MARK= for slow ones too
	HSQ_SGLANG_PYTHON=$(abspath $(SGLANG_VENV))/bin/python $(BIN)/pytest tests/sglang -q -m "$(MARK)"

format: $(VENV)/.ready ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what make made
	rm -rf $(VENV) .venv-sglang-* demo-run build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
