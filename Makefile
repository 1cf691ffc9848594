# Two commands: `make quickstart` trains and tests on real molecules, `make test` checks the whole project.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= runs/quickstart-$(shell date +%Y%m%d-%H%M%S)
PLUGINS := $(sort $(wildcard plugins/*))
STAMP := $(VENV)/.installed
PYPROJECTS := pyproject.toml $(PLUGINS:%=%/pyproject.toml) constraints.txt

.PHONY: help quickstart picture test test-plain test-triton test-slow survive env lint docs gallery speed release-check dist resolve hashes audit lower-bounds docker-check clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# One thread: a second one gains little on graphs of 16 nodes, and costs much when it has to wait for a busy core.
quickstart: export OMP_NUM_THREADS ?= 1
quickstart: env  ## train a graph transformer on real molecules, test it, write a report (at most 5 minutes)
	$(BIN)/graphbench fit --config quickstart --run $(RUN)
	$(BIN)/graphbench test --run $(RUN)

# One thread for each of the two processes, so they do not compete for cores; neighbouring tests share fixtures.
test: export OMP_NUM_THREADS ?= 1
# Many images set this variable, and then every process compiles the modules again, and every run the tests.
test: export PYTHONDONTWRITEBYTECODE :=
test: env browser  ## the test suite
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist worksteal

test-plain: export OMP_NUM_THREADS ?= 1
test-plain: export GRAPHBENCH_KERNELS := torch
test-plain: env  ## layers, encodings and models without kernels, as if graphbench-kernels were not installed
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist worksteal tests/contracts/test_kernels.py tests/nn tests/encodings $(filter-out plugins/kernels/tests,$(wildcard plugins/*/tests))

TRITON ?= triton
test-triton: export PYTHONPATH := $(CURDIR)/build/triton
test-triton: env  ## the test suite with Triton, interpreting and compiling its kernels; TRITON="triton==3.6.*"
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target build/triton "$(TRITON)"
	$(MAKE) --no-print-directory test

test-slow: env  ## the long tests, and more cases of those that `make test` runs (hours)
	$(BIN)/python -m pytest -q -m slow

survive: export OMP_NUM_THREADS ?= 1
survive: env  ## kill and resume hundreds of fits, then 10,000 hostile cases (hours); KILLS=2 TERMS=2 CASES=60 for a quick try
	$(BIN)/python tests/survive/campaign.py --kills $(or $(KILLS),20) --terms $(or $(TERMS),20) --cases $(or $(CASES),10000)

.PHONY: browser
browser: # tests open the report in it and check it with axe; root in a container installs Debian's package, others skip them
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { timeout 300 apt-get install -qq --yes --no-install-recommends chromium || \
	      { timeout 120 apt-get update -qq && timeout 300 apt-get install -qq --yes --no-install-recommends chromium; }; } \
	    >/dev/null 2>&1; } || echo "Chromium not found: skipping the tests that open the report in it."
	@[ -f build/axe-core/package/axe.min.js ] || { command -v npm >/dev/null && mkdir -p build/axe-core && cd build/axe-core && \
	    timeout 60 npm pack --silent axe-core@4.14.1 && tar -xzf axe-core-4.14.1.tgz; } >/dev/null 2>&1 || \
	    echo "axe not found: skipping the tests that check report and site with it."

env: $(STAMP)  ## the virtual environment with the project, its plug-ins and the tools

$(STAMP): $(PYPROJECTS)
	$(PYTHON) -m venv $(VENV) 2>/dev/null || $(MAKE) --no-print-directory virtualenv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "torch>=2.10"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs,zinc,images,mnist,tune,cluster,hub,explain,onnx]" $(PLUGINS:%=--editable ./%)
	touch $(STAMP)

.PHONY: virtualenv
virtualenv: # Debian's python3 needs another package for venv
	rm -rf $(VENV)
	$(PYTHON) -m pip install --quiet --target $(VENV)-bootstrap virtualenv
	PYTHONPATH=$(VENV)-bootstrap $(PYTHON) -m virtualenv --quiet $(VENV)
	rm -rf $(VENV)-bootstrap

lint: env  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

picture:  ## docs/report.png, which the README shows: the report of RUN=runs/quickstart-... in Chromium
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1200,1610 --screenshot=docs/report.png file://$(abspath $(RUN))/report.html

speed: env  ## speeds compared with baselines and with the limit, in one table; JSON=now.json saves it for speed/compare.py, THREADS=2
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[speed]"
	$(BIN)/python speed/suite.py $(if $(JSON),--json $(JSON)) $(if $(THREADS),--threads $(THREADS))

docs: export OMP_NUM_THREADS ?= 1
docs: env  ## the site, with its notebooks executed: docs/_build/html/index.html
	NB_EXECUTE=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

gallery: docs  ## docs/tutorials/pictures, from the notebooks that `docs` executed
	$(BIN)/python docs/_ext/gallery.py

release-check: env  ## build all wheels, install them into an empty environment, train in it; FRESH=1 downloads what they require
	$(BIN)/python release/check.py $(if $(FRESH),--fresh)

dist: env  ## source distributions and wheels of core and plug-ins, in dist/
	for project in . $(PLUGINS); do $(BIN)/python -m build --outdir dist $$project || exit 1; done

resolve: env  ## check that pip finds versions for every Python that the project supports: newest, pinned, oldest
	$(BIN)/python release/resolve.py

hashes: env  ## docker/hashes.txt: versions and hashes of what the image installs
	mkdir -p build && rm -f build/hashes.txt
	{ $(BIN)/python docker/requirements.py $(filter %.toml,$(PYPROJECTS)); echo hatchling; } | \
	    $(BIN)/python -m uv pip compile --quiet --native-tls --no-annotate --no-header --universal --python-version 3.11 \
	    --only-binary :all: --generate-hashes --constraint constraints.txt --output-file build/hashes.txt -
	sed ':start; /\\$$/ { N; s/ *\\\n */ /; b start }' build/hashes.txt > docker/hashes.txt # one package per line

audit: env  ## known vulnerabilities of the newest and the oldest versions that pyproject.toml allows
	$(BIN)/python release/audit.py

TORCH_BACKEND ?= cpu
lower-bounds: env  ## the suite on the oldest versions that pyproject.toml allows; LOWEST_PYTHON=3.10, TORCH_BACKEND=pypi
	$(BIN)/python release/lower_bounds.py --torch-backend $(TORCH_BACKEND) $(if $(LOWEST_PYTHON),--python $(LOWEST_PYTHON))

docker-check: ## build the image with buildah and run the quickstart in it
	docker/check.sh

clean:  ## remove the environment and caches; data and runs are kept
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
