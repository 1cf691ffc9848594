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

# One thread: a second gains little on graphs of 16 nodes, and loses much where it has to wait for a busy core.
quickstart: export OMP_NUM_THREADS ?= 1
quickstart: env  ## train a graph transformer on real molecules, test it, write a report (at most 5 minutes)
	$(BIN)/graphbench fit --config quickstart --run $(RUN)
	$(BIN)/graphbench test --run $(RUN)

# A thread for each of the two processes, which else fight for the cores; neighbours stay together and share fixtures.
test: export OMP_NUM_THREADS ?= 1
# Else every process compiles the modules, and every run the tests, anew where the variable is set, as in many images.
test: export PYTHONDONTWRITEBYTECODE :=
test: env browser  ## the test suite
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist worksteal

test-plain: export OMP_NUM_THREADS ?= 1
test-plain: export GRAPHBENCH_KERNELS := torch
test-plain: env  ## layers, encodings and models without kernels, as where graphbench-kernels is not installed
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist worksteal tests/contracts/test_kernels.py tests/nn tests/encodings $(filter-out plugins/kernels/tests,$(wildcard plugins/*/tests))

TRITON ?= triton
test-triton: export PYTHONPATH := $(CURDIR)/build/triton
test-triton: env  ## the test suite beside Triton, whose kernels it interprets and compiles; TRITON="triton==3.6.*"
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target build/triton "$(TRITON)"
	$(MAKE) --no-print-directory test

test-slow: env  ## the long tests, and further cases of those of `make test` (hours)
	$(BIN)/python -m pytest -q -m slow

survive: export OMP_NUM_THREADS ?= 1
survive: env  ## kill hundreds of fits and continue them, then 10,000 hostile cases (hours); KILLS=2 TERMS=2 CASES=60 for a look
	$(BIN)/python tests/survive/campaign.py --kills $(or $(KILLS),20) --terms $(or $(TERMS),20) --cases $(or $(CASES),10000)

.PHONY: browser
browser: # shows the report in tests, and axe reads it; root in a container gets Debian's package; else tests are skipped
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { timeout 300 apt-get install -qq --yes --no-install-recommends chromium || \
	      { timeout 120 apt-get update -qq && timeout 300 apt-get install -qq --yes --no-install-recommends chromium; }; } \
	    >/dev/null 2>&1; } || echo "No Chromium here: the tests that show the report in it are skipped."
	@[ -f build/axe-core/package/axe.min.js ] || { command -v npm >/dev/null && mkdir -p build/axe-core && cd build/axe-core && \
	    timeout 60 npm pack --silent axe-core@4.14.1 && tar -xzf axe-core-4.14.1.tgz; } >/dev/null 2>&1 || \
	    echo "No axe here: the tests that let it read report and site are skipped."

env: $(STAMP)  ## the virtual environment with the project, its plug-ins and the tools

$(STAMP): $(PYPROJECTS)
	$(PYTHON) -m venv $(VENV) 2>/dev/null || $(MAKE) --no-print-directory virtualenv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "torch>=2.10"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs,zinc,images,mnist,tune,cluster,hub,explain,onnx]" $(PLUGINS:%=--editable ./%)
	touch $(STAMP)

.PHONY: virtualenv
virtualenv: # Debian's python3 has no venv without a further package
	rm -rf $(VENV)
	$(PYTHON) -m pip install --quiet --target $(VENV)-bootstrap virtualenv
	PYTHONPATH=$(VENV)-bootstrap $(PYTHON) -m virtualenv --quiet $(VENV)
	rm -rf $(VENV)-bootstrap

lint: env  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

picture:  ## docs/report.png, which README shows: the report of RUN=runs/quickstart-... in Chromium
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1200,1610 --screenshot=docs/report.png file://$(abspath $(RUN))/report.html

speed: env  ## one table of speed against baselines and against the limit; JSON=now.json keeps it for speed/compare.py, THREADS=2
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[speed]"
	$(BIN)/python speed/suite.py $(if $(JSON),--json $(JSON)) $(if $(THREADS),--threads $(THREADS))

docs: export OMP_NUM_THREADS ?= 1
docs: env  ## the site, with its notebooks executed: docs/_build/html/index.html
	NB_EXECUTE=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

gallery: docs  ## docs/tutorials/pictures, out of the notebooks that `docs` executed
	$(BIN)/python docs/_ext/gallery.py

release-check: env  ## build all wheels, install them into an empty environment, train there; FRESH=1 downloads the rest
	$(BIN)/python release/check.py $(if $(FRESH),--fresh)

dist: env  ## source distributions and wheels of core and plug-ins, in dist/
	for project in . $(PLUGINS); do $(BIN)/python -m build --outdir dist $$project || exit 1; done

resolve: env  ## does pip find versions for every Python the project claims? newest, pinned, oldest
	$(BIN)/python release/resolve.py

hashes: env  ## what the image installs, by versions and contents: docker/hashes.txt
	mkdir -p build && rm -f build/hashes.txt
	{ $(BIN)/python docker/requirements.py $(filter %.toml,$(PYPROJECTS)); echo hatchling; } | \
	    $(BIN)/python -m uv pip compile --quiet --native-tls --no-annotate --no-header --universal --python-version 3.11 \
	    --only-binary :all: --generate-hashes --constraint constraints.txt --output-file build/hashes.txt -
	sed ':start; /\\$$/ { N; s/ *\\\n */ /; b start }' build/hashes.txt > docker/hashes.txt # a package a line

audit: env  ## known vulnerabilities of the newest and of the oldest versions that pyproject.toml allows
	$(BIN)/python release/audit.py

TORCH_BACKEND ?= cpu
lower-bounds: env  ## the suite on the oldest versions of pyproject.toml; LOWEST_PYTHON=3.10, TORCH_BACKEND=pypi
	$(BIN)/python release/lower_bounds.py --torch-backend $(TORCH_BACKEND) $(if $(LOWEST_PYTHON),--python $(LOWEST_PYTHON))

docker-check: ## build the image with buildah and run the quickstart in it
	docker/check.sh

clean:  ## remove the environment and caches; data and runs stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
