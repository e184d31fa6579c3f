# Every target sets itself up: a virtual environment in .venv with what it needs, nothing global.
# PYTHON: the interpreter to build it with. TORCH: the PyTorch to install (a CPU build is enough).
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TORCH ?= torch==2.13.0
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-clients lint format bench clients clean

demo: .venv/core
	$(BIN)/mosslive demo

test: lint
	$(BIN)/pytest -m "not clients"

# Third-party programs and a browser, in real time; apart, since they need packages from elsewhere.
test-clients: .venv/dev .venv/clients/ready
	$(BIN)/pytest -m clients

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The decode step against the bare matrix products it must do. Ratios in one run; minutes, not hours.
bench: .venv/dev
	$(BIN)/mosslive bench step

# Third-party realtime clients, for tests. They need other versions of common packages than ours,
# so they live in an environment of their own.
clients: .venv/clients/ready

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

# torch comes first and pinned, so that a clean clone is reproducible.
.venv/core: pyproject.toml
	@test -n "$(PYTHON)" || { echo "mosslive needs Python 3.11 or newer; none was found (set PYTHON=)"; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "installing PyTorch and the other dependencies into .venv; this takes a minute or two"
	$(PIP) $(TORCH)
	$(PIP) -e .
	touch $@

.venv/dev: .venv/core
	$(PIP) -e '.[dev]'
	touch $@

# Where a package index is not to be had, its clients are left out, and the tests say so.
.venv/clients/ready: .venv/core
	$(PYTHON) -m venv .venv/clients
	.venv/clients/bin/python -m pip install --quiet --disable-pip-version-check \
		openai-agents==0.24.0 pipecat-ai==1.14.0 livekit-plugins-openai==1.8.9 \
		|| { echo "the Python clients could not be installed and are not tested"; \
		rm -rf .venv/clients; mkdir .venv/clients; }
	{ command -v npm > /dev/null && npm install --silent --no-audit --no-fund \
		--prefix .venv/clients/node @openai/agents-realtime@0.20.0 zod; } \
		|| { echo "the JavaScript client could not be installed and is not tested"; \
		rm -rf .venv/clients/node; }
	touch $@
