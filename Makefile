# gpu-spot: `make demo` shows it, `make test` proves it; both install what they need into .venv first.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON  ?= python3
# Of two cores: tests wait for two fifths of their time, and what `make test` runs beside them takes a part.
WORKERS ?= 3
ARGS    ?=
# Of the libraries' and the machines' tests: which.
MARKS   ?= not soak

# PYTHONDONTWRITEBYTECODE may be set; hundreds of processes would compile the same modules each.
export PYTHONDONTWRITEBYTECODE :=

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What can be installed and used without the rest.
DISTRIBUTIONS := packages/pulumi-on-moto packages/spot-training packages/spot-work
UV     := uv==0.13.9
# A file stays on one worker, so that what its tests share is made once; tests/tiers.py: the longest goes first.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Of the providers' 3,800 modules a few are used: they are compiled with all else, the others are not, and
# neither are packages of which little is imported, or packages' tests.
empty  :=
space  := $(empty) $(empty)
USED   := $(subst $(space),|,$(sort $(shell grep -rhoE --include='*.py' '\baws\.[a-z0-9_]+\.' infra packages/pulumi-on-moto | cut -d. -f2)))
# The files with tests that replay a market; to import all others takes longer than some of these take.
MARKETS = $(shell grep -rlw traces --include='test_*.py' --exclude-dir={real,engine,cluster} tests)
CONTROLLERS := kueue karpenter keda
SCRIPTS := $(basename $(filter-out %/__init__.py research/fit/% research/parts/% research/simulation/% research/smoke/%,$(wildcard research/*/*.py tests/measured/*.py)))
BENCHES := $(subst _,-,$(notdir $(SCRIPTS)))
FITS := $(notdir $(basename $(filter-out %/__init__.py,$(sort $(wildcard research/fit/*.py)))))

# History (decision records, the changelog) keeps its words; generated pages follow their generators.
PROSE := README.md CONTRIBUTING.md $(filter-out $(addprefix docs/,changes.md options.md stack-file.md),$(wildcard docs/*.md docs/adr/*.md)) research/README.md $(wildcard packages/*/README.md packages/*/docs/*.md)

.PHONY: help setup prices demo aws-smoke check quick test pytest alone engine test-engine test-markets test-real test-cluster test-boot lint types format system-packages system-packages-real bench soak fit declared pictures site lock wheels clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv from requirements.lock (PYTHON=python3.13 chooses the interpreter)

# pip compiles bytecode on one core; --no-compile and one parallel pass over what is used saves a third of the time.
# Without bytecode (and PYTHONDONTWRITEBYTECODE may be set) a stack's program takes nine seconds in place of three.
$(STAMP): requirements.lock pyproject.toml $(DISTRIBUTIONS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "gpu-spot needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there)." \
	    "Choose another: make PYTHON=python3.13 …" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing requirements.lock into $(VENV) (some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . $(DISTRIBUTIONS:%=--editable %)
	@$(BIN)/python -m compileall -q -j 0 -x '/pulumi_(aws/(?!($(USED))/)|kubernetes/(?!helm/))[^/]+/|site-packages/(.*/tests|debugpy|mypy|mypyc|pip)/' \
	  $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	@touch $@

demo: setup ## deploy the dev stack into a local cloud and replay two days of spot market: out/demo/report.html
	@$(BIN)/gpu-spot demo $(ARGS)

aws-smoke: setup ## boot an instance on AWS with pulumi, and try what everything rests on (ARGS=--yes-spend-money)
	@$(BIN)/python -m research.smoke $(ARGS)

check: setup ## in half a minute: lint, types, and the quick tests of the tier pure
	@$(MAKE) --jobs 2 --output-sync quick lint types

quick: setup
	@HYPOTHESIS_PROFILE=quick $(PYTEST) --quick -m "not long and not soak" $(ARGS)

test: setup system-packages ## lint, types, and what needs Python and small packages of Debian's, but no replay of a market
	@$(MAKE) --jobs 2 pytest lint types alone

pytest: setup # all that pytest finds in tests; the others of `make test` run beside it
	@HYPOTHESIS_PROFILE=ci $(PYTEST) --durations 20 -m "not soak and not traces" $(ARGS)

alone: $(DISTRIBUTIONS:packages/%=alone-%) ## each library's own tests, where nothing else of the repository can be imported

alone-%: setup # it says all at its end: others write beside it
	@HYPOTHESIS_PROFILE=ci $(BIN)/python -I -S packages/alone.py $* --quiet -m "$(MARKS)" 2>&1 | (said=$$(cat); echo "$$said")

test-markets: setup ## the tests that replay a market: on real spot traces (GPU_SPOT_TRACES=…), else on the fitted model
	@HYPOTHESIS_PROFILE=ci $(PYTEST) --dist worksteal --durations 20 -m "traces and not soak" $(MARKETS) $(ARGS)

# Each test has a state and plugins of its own, so that the tests of a file may run at once; a year takes an hour.
test-engine: engine setup ## the sample stacks and the components under the pulumi on PATH, with stand-ins for AWS and Kubernetes
	@$(PYTEST) --dist worksteal -o faulthandler_timeout=7200 --durations 20 tests/engine $(ARGS)

engine: # before setup, which takes minutes
	@command -v pulumi >/dev/null || { echo "make test-engine needs pulumi on PATH: https://www.pulumi.com/docs/iac/download-install/" >&2; exit 2; }

test-real: setup system-packages-real ## what needs real frameworks, a broker, containers or the package index
	@$(PYTEST) --durations 20 -m "not soak" tests/real packages/test_stranger.py $(ARGS)
	@$(MAKE) --jobs 2 --output-sync real-spot-training real-spot-work

# Those of the broker mostly wait, those of the frameworks compute. A process of each test ends in a time of its own;
# those of `make soak` take half an hour.
real-%: setup system-packages-real # of a library
	@$(PYTEST) --dist worksteal -o faulthandler_timeout=3600 --durations 20 -m "$(MARKS)" -c packages/$*/pyproject.toml $(wildcard packages/$*/tests/frameworks packages/$*/tests/broker) $(ARGS)

# The plays of one process run at the same time; building is shown, and done once, of each controller by itself: where
# one cannot be built, its tests are skipped by its name.
test-cluster: setup ## entries' objects and Jobs on a real Kubernetes control plane: KUBECONFIG's empty cluster, or one built here (go, etcd)
	@test -n "$${KUBECONFIG:-}" || .ci/system-packages cluster
	@tests/cluster/control_plane/build "$${XDG_CACHE_HOME:-$$HOME/.cache}/gpu-spot/control-plane" $${KUBECONFIG:+crds} >/dev/null
	@test -n "$${KUBECONFIG:-}" || $(MAKE) $(CONTROLLERS:%=controller-%)
	@$(BIN)/python -m pytest --durations 5 -o faulthandler_timeout=600 -m "not soak" tests/cluster $(ARGS)

controller-%:
	@tests/cluster/control_plane/controllers "$${XDG_CACHE_HOME:-$$HOME/.cache}/gpu-spot/control-plane" $* >/dev/null \
	  || echo "no $*: its tests are skipped"

# Without a root file system (root and the network build it, once) the tests are skipped with that reason, or fail
# with GPU_SPOT_BOOT=required. A machine mostly waits.
test-boot: setup ## machines of this product, booted: systemd, cloud-init and Docker of Ubuntu 24.04, the stack on moto (root): out/boot.json
	@.ci/system-packages boot
	@tests/boot/root_fs build || echo "no machine is booted without it"
	@$(PYTEST) --dist worksteal --durations 10 -m "boot and $(MARKS)" tests/boot $(ARGS)

lint: setup ## ruff: rules and formatting; codespell and proselint: spelling, retired words and style of the docs
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --check . ; echo "run: make format" >&2; exit 1; }
	@$(BIN)/codespell
	@$(BIN)/proselint check --config docs/style/proselint.json $(PROSE)

types: setup ## mypy, strict
	@$(BIN)/mypy

format: setup ## apply ruff's fixes and formatting
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

system-packages: ## what some tests need from the system (installed when root on Debian, else named)
	@.ci/system-packages

system-packages-real: # the same, and what tests/real needs
	@.ci/system-packages real

bench: $(BENCHES:%=bench-%) ## every benchmark; one of them: make bench-NAME → out/bench/NAME.json

bench-%: setup
	@test -n "$(filter %/$(subst -,_,$*),$(SCRIPTS))" || { echo "no benchmark $*; there are: $(or $(BENCHES),none)" >&2; exit 2; }
	@mkdir -p out/bench
	@$(BIN)/python -m $(subst /,.,$(filter %/$(subst -,_,$*),$(SCRIPTS))) --out out/bench/$*.json $(ARGS)

soak: setup system-packages-real ## what make test has too little time for, and a RabbitMQ cluster's bad days at length (root): out/soak.json
	@mkdir -p out
	@HYPOTHESIS_PROFILE=ci $(PYTEST) --durations 20 -m soak $(ARGS)
	@$(MAKE) --jobs 2 --output-sync alone-spot-training alone-spot-work MARKS=soak
	@$(PYTEST) --durations 20 -m soak tests/real packages/test_stranger.py $(ARGS)
	@$(MAKE) real-spot-training MARKS=soak
	@$(MAKE) test-cluster ARGS="-m soak"
	@$(MAKE) test-boot MARKS=soak
	@$(BIN)/python -m packages.broker_plays.cluster_days > out/soak.json

fit: setup ## fit again what is shipped as fitted (GPU_SPOT_TRACES=…): an error where the two differ
	@for script in $(FITS); do $(BIN)/python -m research.fit.$$script; done

prices: setup ## read list prices of all regions from the AWS Price List into prices.json (pricing:GetProducts)
	@$(BIN)/python -m research.prices

declared: setup ## differences between the sample stacks' resources at a commit and here (ARGS=COMMIT, default HEAD)
	@$(BIN)/python tests/infra/compare.py $(ARGS)

pictures: setup ## draw docs/img/src/*.mmd with Mermaid (needs npx and a Chromium)
	@$(BIN)/python -m docs.site.pictures

site: setup ## the documentation as a site, strictly: out/site/html/index.html
	@$(BIN)/python -m docs.site $(ARGS)

# uv resolves for every platform and Python at once. It does not read pip's configuration, so pip's index is handed on;
# no address is written into the lock.
lock: setup ## resolve both pyproject.toml again into requirements.lock (ARGS=--upgrade moves the pins)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
	@index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || true)}; \
	$${index:+env UV_DEFAULT_INDEX="$$index"} env UV_CUSTOM_COMPILE_COMMAND="make lock" \
	  $(BIN)/uv pip compile pyproject.toml $(DISTRIBUTIONS:%=%/pyproject.toml) --group dev --universal --python-version 3.11 --generate-hashes \
	  --system-certs --quiet --output-file requirements.lock $(ARGS); \
	for real in packages/locks/*.in; do \
	  $${index:+env UV_DEFAULT_INDEX="$$index"} env UV_CUSTOM_COMPILE_COMMAND="make lock" \
	    $(BIN)/uv pip compile $$real --universal --python-version 3.11 --generate-hashes \
	    --system-certs --quiet --output-file $${real%.in}.txt $(ARGS); \
	done
	@echo "requirements.lock: $$(grep -c '^[a-z0-9].*==' requirements.lock) packages"

wheels: setup ## build the four distributions into dist, with their hashes and an SBOM of what builds them
	@rm -rf dist && mkdir dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist . $(DISTRIBUTIONS:%=./%)
	@sbom=$$($(BIN)/python -c "from packages.environments import environment; print(environment('wheels'))"); \
	  "$$sbom/cyclonedx-py" requirements --output-reproducible --of JSON -o dist/sbom.json requirements.lock
	@cd dist && sha256sum *.whl sbom.json > SHA256SUMS

clean: ## remove outputs and caches
	@rm -rf out build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv, too
	@rm -rf $(VENV)
