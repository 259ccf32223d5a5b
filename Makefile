# Needs Python 3.11 or later with venv, and make. Everything else is installed into .venv, pinned.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PEER_LOCKS := $(wildcard benchmarks/peers/*.lock)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL_SELF := $(PIP) install --no-deps --no-build-isolation --editable .

# Compiled modules are kept: every worker of the tests and every command they start would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run setup servers examples test test-python test-nocodb check format peers bench proof mutants fresh lock packages bot-api metrics-page http-api-page commands-page settings-page drawings docs screenshots clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.runtime ## install the runtime and start Tidegate: simulated, or your bot if TELEGRAM_BOT_TOKEN is set
	@$(BIN)/tidegate up $(ARGS)

setup: $(VENV)/.complete ## install everything: all extras, test tools, servers

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tidegate needs Python 3.11 or later: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "Install Python's venv: apt-get install python3-venv"; exit 2; }
	@touch $@

$(VENV)/.runtime: requirements.lock pyproject.toml | $(VENV)/.python
	@echo "Installing the runtime into $(VENV) …"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(INSTALL_SELF)
	@touch $@

$(VENV)/.complete: requirements-dev.lock pyproject.toml | $(VENV)/.python
	@echo "Installing everything into $(VENV) (a minute or two) …"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(INSTALL_SELF)
	@touch $@ $(VENV)/.runtime

servers: setup
	@$(BIN)/python tests/servers.py

examples: setup
	@$(BIN)/python tests/public_examples.py
	@$(BIN)/python tests/node_packages.py

test: servers examples ## run all tests, with real servers (5 to 7 minutes on two cores)
	@$(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder

# An environment of its own for each Python, so that the one of the checkout stays.
test-python: ## unit and contract tests on another Python: make test-python PYTHON=python3.13
	@$(MAKE) --no-print-directory VENV=.venv-$(notdir $(PYTHON)) servers
	@.venv-$(notdir $(PYTHON))/bin/python -m pytest -n 4 --dist loadfile tests/unit tests/contract

test-nocodb: servers .nocodb/.complete ## the checks of NocoDB against a real one (installs it: 5 minutes, 1.6 GB)
	@TIDEGATE_NOCODB=real $(BIN)/python -m pytest tests/nocodb --timeout 300
	@TIDEGATE_NOCODB=real-postgres $(BIN)/python -m pytest tests/nocodb --timeout 300

# Its binary of SQLite is built here: the scripts of all other packages are left alone.
.nocodb/.complete: tests/nocodb/package.json
	@command -v npm >/dev/null || { echo "NocoDB needs Node 18 or later with npm"; exit 2; }
	@echo "Installing NocoDB into .nocodb (some minutes) …"
	@mkdir -p .nocodb && cp $< .nocodb/
	@cd .nocodb && npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd .nocodb && npm rebuild sqlite3 --build-from-source --loglevel=error
	@touch $@

check: setup ## lint, types, import contracts, the language and links of the documents
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell $(SPELLED)
	@$(BIN)/python tools/check_language.py
	@$(BIN)/python tools/build_site.py --check

# Tests misspell on purpose.
SPELLED = *.md docs src tools examples benchmarks deploy mkdocs.yml pyproject.toml Makefile

format: setup ## format the code and mend what lint can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Other queues, each with the versions that it wants, to be measured beside the store in Redis.
peers: $(PEER_LOCKS:benchmarks/peers/%.lock=$(PEERS)/%/.complete)

$(PEERS)/%/.complete: benchmarks/peers/%.lock | $(VENV)/.python
	@echo "Installing $< into $(PEERS)/$* …"
	@$(BIN)/python -m venv $(PEERS)/$*
	@$(PEERS)/$*/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

bench: setup peers ## measure the hot paths, print the tables (80 minutes)
	@set -e; for name in simulator scheduler outbox redis_store pacing overhead flood flood_gateway throttle webhook inbound watchdog metrics api api_delivery api_reads dashboard upstream flows fsm reminder_store reminders jobs history label_bot gateway; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

proof: servers examples ## the long runs: many seeds, kill loops (at most 40 minutes)
	@HYPOTHESIS_PROFILE=proof $(BIN)/python -m pytest -m "proof or not proof" --timeout 1200

mutants: setup ## plant bugs in the pure modules, count those that the tests notice (at most 30 minutes)
	@$(BIN)/python benchmarks/mutants.py --minutes 30

fresh: ## clone HEAD into an empty folder and run the tests there
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	git clone --quiet . "$$tmp/tidegate" && \
	cd "$$tmp/tidegate" && env -i HOME="$$HOME" PATH="$$PATH" LANG=C.UTF-8 make test

lock: setup ## compile the locks again from pyproject.toml
	@$(BIN)/uv pip compile $(LOCK_FLAGS) pyproject.toml --all-extras --group build --group dev --group docs -o requirements-dev.lock
	@$(BIN)/uv pip compile $(LOCK_FLAGS) pyproject.toml --extra aiogram --extra redis --extra service --group build -c requirements-dev.lock -o requirements.lock
	@$(BIN)/uv pip compile $(LOCK_FLAGS) pyproject.toml --extra aiogram --extra celery --extra redis --extra sentry --extra service --group build -c requirements-dev.lock -o deploy/requirements.lock
	@set -e; for lock in $(PEER_LOCKS); do $(BIN)/uv pip compile $(LOCK_FLAGS) $${lock%.lock}.in -o $$lock; done
LOCK_FLAGS = --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock"

bot-api: setup ## write the methods and parameters of the Bot API anew, from aiogram's types
	@$(BIN)/python tools/make_bot_api.py

packages: setup ## build the wheel and the sdist, and try each extra in a clean environment (5 minutes)
	@$(BIN)/python tools/check_packages.py $(ARGS)

metrics-page: setup ## write docs/reference/metrics.md anew, from the table of metrics
	@$(BIN)/python tools/make_metrics_page.py

http-api-page: setup ## write docs/reference/http-api.md anew, from the routes of the API
	@$(BIN)/python tools/make_http_api_page.py

commands-page: setup ## write docs/reference/commands.md anew, from the commands
	@$(BIN)/python tools/make_commands_page.py

settings-page: setup ## write docs/reference/settings.md anew, from the settings and their texts
	@$(BIN)/python tools/make_settings_page.py

drawings: setup ## draw the pictures of the documentation anew
	@$(BIN)/python tools/make_drawings.py

docs: setup ## build the documentation site into site/, with every link checked; tidegate docs opens it
	@$(BIN)/python tools/build_site.py

screenshots: servers ## take pictures of every page of the dashboard, into docs/screenshots (2 minutes)
	@$(BIN)/python tools/make_screenshots.py

clean: ## remove the environment and caches
	@rm -rf $(VENV) .venv-*/ .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .nocodb .node site
