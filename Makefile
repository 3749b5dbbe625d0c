# The two commands of the README: `make demo` and `make test`. Both do their own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What is not compiled ahead is compiled when it is imported, and most of it never is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

MAKEFLAGS += --jobs=2  # lint beside the tests, a browser beside Python's packages

.PHONY: demo test suite lint bench docs clean

demo: $(VENV)/.demo  ## the whole story on real data, in about a minute
	$(BIN)/fastfill demo

test: lint suite  ## lint, types, import rules, tests and the examples in the docs

# Three processes on two cores: many tests wait for a server, a browser or a child. Children find
# compiled modules, also where the environment forbids to write them.
suite: $(VENV)/.dev $(VENV)/.browser $(VENV)/.prometheus $(VENV)/.node
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## every benchmark that can run here; figures go to benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs  ## the site, in build/site: open build/site/index.html
	mkdir -p build/docs/benchmarks
	ln -sfn ../../docs build/docs/docs
	ln -sf ../../../benchmarks/RESULTS.md build/docs/benchmarks/RESULTS.md
	for page in README.md CONTRIBUTING.md CHANGELOG.md LICENSE Dockerfile; do ln -sf ../../$$page build/docs/$$page; done
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The pip of an older Python works twice as long on the packages of `dev`.
$(VENV)/.venv: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip
	touch $@

# torch comes first and alone: the constraint pins its version for builds that can be repeated.
$(VENV)/.torch: $(VENV)/.venv constraints.txt
	$(PIP) torch
	touch $@

# The demo does without torch.
$(VENV)/.demo: $(VENV)/.venv constraints.txt pyproject.toml
	$(PIP) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) -e '.[docs]'
	touch $@

# Chromium, in which the report's page is tested: from Debian's packages where this user may install
# them. Elsewhere install it by hand; without it these tests are skipped, and say so.
$(VENV)/.browser: $(VENV)/.venv
	command -v chromium || command -v chromium-browser || { test "$$(id -u)" = 0 && apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	|| echo "No Chromium: the tests of the report's page in a browser will be skipped."
	touch $@

# Prometheus, which scrapes the figures in a test, in the same way; after the browser, since apt
# works for one at a time.
$(VENV)/.prometheus: $(VENV)/.browser
	command -v prometheus || { test "$$(id -u)" = 0 \
	&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; } \
	|| echo "No Prometheus: the test in which it scrapes the figures will be skipped."
	touch $@

# What runs exported maps in Node, where there is one.
$(VENV)/.node: $(VENV)/.prometheus
	{ command -v node && command -v npm && npm install --silent --no-audit --no-fund \
	--fetch-retries=0 --fetch-timeout=40000 --prefix $(VENV)/node onnxruntime-web@1.30.0; } \
	|| echo "No onnxruntime-web: the test of exported maps in Node will be skipped."
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
