# Two commands are all you need: `make run` and `make test`. `make help` lists the others.

VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# Asked for when .venv is made: the newest that every pinned wheel was seen to work with, else whatever `python3` is.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)

# A stamp carries its lock file's checksum: a second `make run` installs nothing, a changed lock does.
stamp = $(VENV)/.$(1)-$(shell cksum < $(1) | tr ' ' '-')
LOCAL := $(call stamp,requirements-local.txt)
DEV := $(call stamp,requirements-dev.txt)

# A command that reads Django's settings needs servers to name in them.
WITH_SERVERS := python -m proxyfleet.local exec

.DEFAULT_GOAL := help
.PHONY: help run test test-long bench lint format lock browser

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(LOCAL) ## Run everything on this machine until Ctrl-C; state is kept in var/
	@exec python -m proxyfleet.local run

test: browser lint ## Run all checks and tests
	python -m pytest

test-long: browser lint ## Run them with ten times as many random schedules, and longer storms
	python -m pytest --schedules 10000 --storm 60 --examples 100

bench: $(LOCAL) ## Measure what leases cost; ONLY=name for one measurement, QUICK=1 for a few minutes
	python -m bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

lint: $(DEV) ## Run the checks only
	ruff check
	ruff format --check
	lint-imports
	$(WITH_SERVERS) mypy .
	$(WITH_SERVERS) python manage.py makemigrations --check
	$(WITH_SERVERS) python manage.py check --deploy --fail-level WARNING

format: $(DEV) ## Format the code and fix what can be fixed
	ruff format
	ruff check --fix

COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 pyproject.toml

lock: $(DEV) ## Pin the requirements anew, with hashes
	$(COMPILE) --extra local --group dev -o requirements-dev.txt
	$(COMPILE) --extra local -c requirements-dev.txt -o requirements-local.txt
	$(COMPILE) -c requirements-dev.txt -o requirements.txt

$(VENV)/.requirements-local.txt-%: | $(VENV)/bin/pip
	@$(call install,requirements-local.txt)

$(VENV)/.requirements-dev.txt-%: | $(VENV)/bin/pip
	@$(call install,requirements-dev.txt)

# Wheels only: a missing one is one clear line, where a missing compiler would be a page.
define install
echo "Installing $(1) into $(VENV) ..."
python -m pip --quiet --disable-pip-version-check install --only-binary :all: --require-hashes -r $(1) || { \
	echo "Can't install $(1): is a package index in reach (PIP_INDEX_URL), with wheels for $$(python --version)?" >&2; exit 1; }
rm -f $(VENV)/.$(1)-*
touch $@
endef

$(VENV)/bin/pip:
	@python="$(PYTHON)"; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "proxyfleet needs Python 3.11 or newer: install it, or name it by PYTHON=/path/to/python3." >&2; exit 1; }; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$$python lacks the venv module: install it (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }; \
	"$$python" -m venv --clear $(VENV)

browser:
	@scripts/install-chromium
