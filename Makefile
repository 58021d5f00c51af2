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
KVM := $(call stamp,requirements-kvm.txt)

# A command that reads Django's settings needs servers to name in them.
WITH_SERVERS := python -m proxyfleet.local exec

.DEFAULT_GOAL := help
.PHONY: help run test test-node test-kvm test-long bench lint docs format lock cluster-up cluster-node-up cluster-down browser cluster-tools cluster-node-tools seed-tools kvm-packages install uninstall deploy undeploy dev-secret kvm-ssh-secret proxmox-token-secret audit

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(LOCAL) ## Run everything on this machine until Ctrl-C; state is kept in var/
	@exec python -m proxyfleet.local run

PYTEST := python -m pytest -n logical --dist worksteal

test: browser cluster-tools seed-tools lint ## Run all checks and tests
	$(PYTEST)

test-node: cluster-node-tools ## Run the tests that need pods; takes root on Debian
	python -m pytest -m node --timeout 300

test-kvm: $(DEV) $(KVM) ## Run the tests of kvm on a libvirt host of their own; takes root on Debian
	python -m tests.kvm

test-long: browser cluster-tools seed-tools lint ## Run them with ten times as many random schedules, and longer storms
	$(PYTEST) --schedules 10000 --proxies 1000 --quiet-seconds 300 --storm 60 --examples 100

bench: $(LOCAL) ## Measure what leases cost; ONLY=name for one measurement, QUICK=1 for a few minutes
	python -m bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

lint: $(DEV) ## Run the checks only
	ruff check
	ruff format --check
	lint-imports
	$(WITH_SERVERS) mypy .
	$(WITH_SERVERS) python manage.py makemigrations --check
	$(WITH_SERVERS) python manage.py check --deploy --fail-level WARNING

docs: $(DEV) ## Write docs/settings.md anew
	$(WITH_SERVERS) python manage.py settings --markdown > docs/settings.md.new && mv docs/settings.md.new docs/settings.md

format: $(DEV) ## Format the code and fix what can be fixed
	ruff format
	ruff check --fix

cluster-up: $(DEV) ## Start a Kubernetes API server in the background and print how to reach it
	@python -m tests.cluster up

cluster-node-up: $(DEV) ## The same with a node that runs pods; takes root on Debian
	@python -m tests.cluster node-up

cluster-down: $(DEV) ## End both and remove their data
	@python -m tests.cluster down

audit: $(DEV) ## Ask the advisory service about every pinned dependency; takes internet
	pip-audit --strict --require-hashes --disable-pip -r requirements.txt
	pip-audit --strict --require-hashes --disable-pip -r requirements-dev.txt

COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 pyproject.toml

lock: $(DEV) ## Pin the requirements anew, with hashes
	$(COMPILE) --extra local --group dev -o requirements-dev.txt
	$(COMPILE) --extra local -c requirements-dev.txt -o requirements-local.txt
	$(COMPILE) -c requirements-dev.txt -o requirements.txt
	echo libvirt-python | uv pip compile --quiet --universal --generate-hashes --python-version 3.11 - -o requirements-kvm.txt

$(VENV)/.requirements-local.txt-%: | $(VENV)/bin/pip
	@$(call install,requirements-local.txt)

$(VENV)/.requirements-dev.txt-%: | $(VENV)/bin/pip
	@$(call install,requirements-dev.txt)

# libvirt-python comes as source alone, and is compiled against the headers of the libvirt that is here.
$(VENV)/.requirements-kvm.txt-%: | $(VENV)/bin/pip kvm-packages
	@echo "Compiling requirements-kvm.txt into $(VENV) ..."
	@python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements-kvm.txt
	@rm -f $(VENV)/.requirements-kvm.txt-*
	@touch $@

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
	@python3 scripts/fetch-axe

kvm-packages: | $(VENV)/bin/pip
	@python -m tests.kvm --install-packages

# --- On a Kubernetes cluster: the one that kubectl talks to ---
NAMESPACE := proxyfleet-system
OVERLAY ?= dev
IMG ?= proxyfleet:dev

install: ## Give the cluster the namespace and the custom resources
	kubectl apply --filename deploy/namespace.yaml
	kubectl apply --server-side --kustomize deploy/crd

uninstall: ## Take the custom resources away again; proxies and their instances have to be deleted before
	kubectl delete --ignore-not-found --kustomize deploy/crd

deploy: install $(if $(filter dev,$(OVERLAY)),dev-secret) ## Run the image IMG there; OVERLAY=dev (with its own servers) or prod
	kubectl kustomize deploy/overlays/$(OVERLAY) | sed 's|image: proxyfleet$$|image: $(IMG)|' | kubectl apply --server-side --filename -

undeploy: ## Stop all of it; the namespace stays, with its Secrets and volumes
	kubectl kustomize deploy/overlays/$(OVERLAY) | kubectl delete --ignore-not-found --filename -

# The overlay dev has servers of its own, hence a password and a key that nobody has to know.
dev-secret:
	@kubectl --namespace $(NAMESPACE) get secret proxyfleet --output name 2>/dev/null || { \
		password=$$(openssl rand -hex 16) && kubectl --namespace $(NAMESPACE) create secret generic proxyfleet \
			--from-literal=postgres-password=$$password --from-literal=secret-key=$$(openssl rand -hex 32) \
			--from-literal=database-url=postgres://proxyfleet:$$password@postgres/proxyfleet \
			--from-literal=broker-url=redis://valkey/0; }

KVM_SSH_KEY ?= $(HOME)/.ssh/id_ed25519
KVM_KNOWN_HOSTS ?= $(HOME)/.ssh/kvm_known_hosts

kvm-ssh-secret: ## Give the cluster the SSH key and the known hosts of kvm (KVM_SSH_KEY, KVM_KNOWN_HOSTS)
	kubectl --namespace $(NAMESPACE) create secret generic kvm-ssh \
		--from-file=id_ed25519=$(KVM_SSH_KEY) --from-file=known_hosts=$(KVM_KNOWN_HOSTS) \
		--dry-run=client --output yaml | kubectl apply --server-side --filename -

PROXMOX_TOKEN ?= proxmox-token
PROXMOX_CA ?= proxmox-ca.pem

proxmox-token-secret: ## Give the cluster the token of proxmox and its CA (PROXMOX_TOKEN, PROXMOX_CA: files)
	kubectl --namespace $(NAMESPACE) create secret generic proxmox-token \
		--from-file=token=$(PROXMOX_TOKEN) --from-file=ca.pem=$(PROXMOX_CA) \
		--dry-run=client --output yaml | kubectl apply --server-side --filename -

seed-tools:
	@scripts/fetch-seed-tools

cluster-tools: $(DEV)
	@python -m tests.cluster build

cluster-node-tools: $(DEV)
	@python -m tests.cluster build-node
