# Everything a contributor runs. Needs only Python >= 3.11, git and make to start from.

PYTHON_IN_VENV = .venv/bin/python
# Tests that share something costly name it as their group, and run in one process.
PYTEST = $(PYTHON_IN_VENV) -m pytest -n 2 --dist loadgroup

.PHONY: help setup setup-run run test test-full trust test-kit bench lint types docs screenshots page-screenshots dist lock clean

help:
	@echo 'make run        serve the Hermes homes of this host, or a demo home if it has none'
	@echo 'make test       all tests (installs what they need when run as root on Debian)'
	@echo 'make test-full  the same, and the figures at full size'
	@echo 'make test-kit   the programs and Hermes releases that the tests need'
	@echo 'make trust      the long campaign: 50,000 steps, 1,020 of real processes; harm table (hours)'
	@echo 'make bench      benchmarks against their peers; writes docs/performance.md'
	@echo 'make lint       ruff check, ruff format --check'
	@echo 'make types      mypy --strict'
	@echo 'make docs       regenerate the generated pages'
	@echo 'make screenshots  pictures of the dashboards, in docs/images'
	@echo 'make page-screenshots  pictures of the agent'"'"'s own pages, in docs/images'
	@echo 'make dist       wheel, source archive and Debian package, in dist/'
	@echo 'make lock       update the versions that go into image and package'
	@echo 'make setup      only the virtual environment, in .venv'
	@echo 'make clean      remove .venv, caches and build leftovers'

setup:
	@scripts/setup.sh dev

setup-run:
	@scripts/setup.sh

run: setup-run
	@scripts/run.sh $(ARGS)

# The programs and the real hermes-agent releases that the tests run against.
test-kit: setup
	@scripts/test-packages.sh
	@$(PYTHON_IN_VENV) -m tests.real.install

test: test-kit
	$(PYTEST) -m 'not full' $(ARGS)

test-full: test-kit
	@scripts/test-packages.sh full
	$(PYTEST) --timeout 3600 $(ARGS)

# Seeds are printed; ARGS='--seed N' runs one again. What the campaign itself can find is shown by
# `python -m tests.trust.mutations`.
trust: test-kit
	@scripts/test-packages.sh full
	$(PYTHON_IN_VENV) -m tests.trust.fast --steps 50000 $(ARGS)
	$(PYTHON_IN_VENV) -m tests.trust.real --steps 1020 $(ARGS)
	$(PYTEST) --timeout 3600 tests/stories tests/reaper/test_verdict_processes.py

bench: test-kit
	$(PYTHON_IN_VENV) -m benchmarks --publish $(ARGS)

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: setup
	.venv/bin/mypy --strict

docs: setup
	$(PYTHON_IN_VENV) -m exporter.reference.configuration >docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	$(PYTHON_IN_VENV) -m exporter.reference.metrics >docs/metrics.md.new
	mv docs/metrics.md.new docs/metrics.md
	$(PYTHON_IN_VENV) -m dashboards.alerts >dashboards/rules/alerts.yaml.new
	mv dashboards/rules/alerts.yaml.new dashboards/rules/alerts.yaml
	$(PYTHON_IN_VENV) -m dashboards.alerts.reference >docs/alerts.md.new
	mv docs/alerts.md.new docs/alerts.md
	$(PYTHON_IN_VENV) -m dashboards.generate
	mkdir -p deploy/man deploy/completion
	$(PYTHON_IN_VENV) -m exporter.reference.command_line man >deploy/man/hermes-exporter.1
	$(PYTHON_IN_VENV) -m exporter.reference.command_line bash >deploy/completion/hermes-exporter.bash
	$(PYTHON_IN_VENV) -m exporter.reference.command_line zsh >deploy/completion/_hermes-exporter
	$(PYTHON_IN_VENV) -m exporter.reference.command_line fish >deploy/completion/hermes-exporter.fish

# The dashboards as Grafana draws them, in docs/images; brings a browser and Grafana's frontend.
screenshots: test-kit
	@scripts/render-dashboards.sh pictures

# The agent's own pages as a browser draws them, in docs/images.
page-screenshots: test-kit
	@scripts/test-packages.sh full
	$(PYTHON_IN_VENV) -m tests.web.pages.pictures

dist: setup
	rm -rf dist
	$(PYTHON_IN_VENV) -m build --outdir dist .
	@if command -v dpkg-deb >/dev/null; then scripts/build-deb.sh; else echo 'dist: no dpkg-deb here, so no Debian package'; fi

lock: setup
	$(PYTHON_IN_VENV) -m pip install --quiet uv
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade --output-file deploy/requirements.txt pyproject.toml

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find exporter tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
