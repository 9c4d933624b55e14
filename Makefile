# What a contributor types. `make help` lists it.
#
#   PYTHON=python3.12        the interpreter of the tools, 3.11 or newer
#   ENGINE_PYTHON=/path      the CPython 3.11 of the engine, if the installer shall not search
#   ARGS="--once"            arguments of the demo and of the bench

PYTHON ?= python3
ENGINE_PYTHON ?=
ARGS ?=
CASES ?= tests/cases/failures.yaml tests/cases/more.yaml
TORCH_WHEELS ?= $(shell $(TOOL)/python -c 'from glm53ctl.engine.build import TORCH_INDEX as i; print(i)')/torch/
UPGRADE ?=
NIX ?=
NIXPKGS_LIB ?=

TOOL := .venv/bin
# The stamps carry the path of the checkout: a virtual environment that was moved is broken.
TOOL_READY := .venv/ready$(subst /,-,$(CURDIR))
ENGINE_READY := .engine/ready$(subst /,-,$(CURDIR))
# Data as well, such as the chat template; not what Python and pip leave there.
OVERLAY_SOURCES := $(shell find overlay \( -name __pycache__ -o -name build -o -name '*.egg-info' \) -prune -o -type f -print)
# Python that finds the modules which several kinds of tests share, as pytest does.
TESTS := PYTHONPATH=tests $(TOOL)/python
PIP := $(TOOL)/python -m pip install -qq --disable-pip-version-check --no-input
COMPILE = $(TOOL)/uv pip compile --quiet --generate-hashes --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links $(UPGRADE)

.DELETE_ON_ERROR:
.PHONY: setup demo test lint types unit cases pair-smoke pair-table rdma plan-table bench bench-idle bench-weights generated page-shots lock clean help overlay-test api-contract exl3-parity nix wheels

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(TOOL_READY) $(ENGINE_READY) ## make the tools (.venv) and the CPU engine (.engine)
	@:

demo: setup ## serve a tiny model with two real ranks on this machine's CPU
	@$(TOOL)/glm53ctl demo $(ARGS)

test: lint types setup ## everything that CI runs: style, types, unit tests, engine tests
	@$(TOOL)/python -m tests.again tests/unit
	@$(MAKE) --no-print-directory overlay-test
	@$(TOOL)/python -m tests.again tests/engine

lint: $(TOOL_READY) ## style of the Python sources
	@$(TOOL)/ruff check --quiet .
	@$(TOOL)/ruff format --quiet --check .

types: $(TOOL_READY) ## types of the Python sources
	@$(TOOL)/mypy --no-error-summary

unit: $(TOOL_READY) ## the tests that need no engine
	@$(TOOL)/python -m pytest -q -m 'not engine' tests/unit

overlay-test: setup ## the overlay inside the engine's Python
	@.engine/bin/python tests/overlay/run.py $$($(TOOL)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') tests/overlay

api-contract: setup ## the API of a real pair against what clients of both recipes know (7 minutes)
	@$(TOOL)/python tests/engine/contract.py $(ARGS)

exl3-parity: setup ## EXL3 served by one and two ranks against its dense twin (5 minutes)
	@$(TOOL)/python tests/overlay/parity.py

# NIX=/path/of/nix, NIXPKGS_LIB=DIR (the folder of nix-community/nixpkgs.lib): see docs/nix.md.
nix: $(TOOL_READY) ## the flake: both machines evaluated, good and bad configurations
	@NIX='$(NIX)' NIXPKGS_LIB='$(NIXPKGS_LIB)' $(TOOL)/python -m pytest -q tests/nix

cases: $(TOOL_READY) ## recorded failures against the product's verdicts (CASES=FILE)
	@$(TOOL)/python -m tests.cases $(CASES)

pair-smoke: setup ## two systemd hosts with the real units, broken and healed (root, half an hour)
	@$(TESTS) -m tests.pair.smoke

pair-table: setup ## all faults on both sides in random rounds, what is missing of it: docs/reliability.md (root, hours)
	@$(TESTS) -m tests.pair.table $(ARGS)

rdma: $(TOOL_READY) ## two virtual machines with soft-RoCE: the fabric's facts against real verbs (QEMU)
	@$(TESTS) -m tests.rdma $(ARGS)

generated: $(TOOL_READY) ## write anew what is made from the sources (CONTRIBUTING.md lists it)
	@$(TOOL)/python -m glm53ctl.codes
	@$(TOOL)/python -m glm53ctl.config.knobs
	@$(TOOL)/python -m glm53ctl.exporter.page
	@$(TESTS) -m tests.pair.table --page
	@GLM53_UPDATE_GOLDEN=1 $(TOOL)/python -m pytest -q tests/unit/test_readme.py \
		tests/unit/plan/test_plan_golden.py \
		tests/nix/test_nix_rules.py::test_nix_knows_the_configuration_as_it_is

plan-table: $(TOOL_READY) ## what `plan` predicts against every published figure
	@$(TOOL)/python -m glm53ctl.budget.published

page-shots: $(TOOL)/playwright ## the page in a real Chromium: pictures, and checks of what it shows
	@$(TESTS) -m page.shots $(ARGS)

bench: setup ## what supervision costs: time to the first answer, as a ratio
	@$(TOOL)/python tests/bench/start.py $(ARGS)

bench-idle: $(TOOL_READY) ## what the daemons cost at rest: share of a core, memory (a minute)
	@$(TESTS) tests/bench/idle.py $(ARGS)

bench-weights: $(TOOL_READY) ## fetch, verify and sync against hf, sha256sum and rsync (ARGS="--gb 8")
	@$(TESTS) tests/bench/weights.py $(ARGS)

# Exact versions and digests of all that is installed, for every interpreter or for the one that
# is named. Versions stay as they are unless they must change; UPGRADE=--upgrade takes the newest.
# TORCH_WHEELS is a page or a folder with the CPU build of torch.
lock: $(TOOL_READY) $(TOOL)/uv ## compile lock/*.txt anew
	@$(COMPILE) lock/uv.in -o lock/uv.txt --universal --python-version 3.11
	@$(COMPILE) pyproject.toml -o lock/tool.txt --extra dev --universal --python-version 3.11
	@$(COMPILE) lock/page-shots.in -o lock/page-shots.txt -c lock/tool.txt --universal \
		--python-version 3.11
	@$(COMPILE) lock/engine-cpu.in -o lock/engine-cpu.txt --excludes lock/engine-cpu.exclude \
		--find-links $(TORCH_WHEELS) --only-binary :all: \
		--python-version 3.11 --python-platform x86_64-manylinux_2_35
	@$(COMPILE) lock/engine-cuda-aarch64.in -o lock/engine-cuda-aarch64.txt \
		-c lock/engine-cuda-aarch64.constraint --only-binary :all: \
		--python-version 3.12 --python-platform aarch64-manylinux_2_39
	@$(MAKE) --no-print-directory wheels

# What of the locks Nix installs: for each machine the one file of each package, by name and digest.
PYLOCK = $(TOOL)/uv pip compile --quiet --format pylock.toml --python-version
wheels: $(TOOL_READY) $(TOOL)/uv
	@$(PYLOCK) 3.12 lock/engine-cuda-aarch64.txt -o lock/pylock.toml --no-deps --only-binary :all: \
		--python-platform aarch64-manylinux_2_39
	@$(TOOL)/python nix/wheels.py aarch64 lock/pylock.toml lock/engine-cuda-aarch64.txt \
		> lock/engine-cuda-aarch64.wheels
	@$(PYLOCK) 3.11 lock/engine-cpu.txt -o lock/pylock.toml --no-deps --only-binary :all: \
		--find-links $(TORCH_WHEELS) --python-platform x86_64-manylinux_2_39
	@$(TOOL)/python nix/wheels.py x86_64 lock/pylock.toml lock/engine-cpu.txt 3.11 \
		> lock/engine-cpu-x86_64.wheels
	@for machine in aarch64 x86_64; do \
		$(PYLOCK) 3.12 pyproject.toml -o lock/pylock.toml -c lock/tool.txt \
			--python-platform $$machine-manylinux_2_39 && \
		$(TOOL)/python nix/wheels.py $$machine lock/pylock.toml lock/tool.txt \
			> lock/tool-$$machine.wheels || exit 1; \
	done
	@rm lock/pylock.toml
	@$(TOOL)/python nix/published.py lock/*.wheels

clean: ## remove the tools, the engine and what the demo and the tests left
	@[ ! -d .bed ] || $(TOOL)/python -m tests.pair.bed down
	@rm -rf .venv .engine .demo .bed .rdma .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +

$(TOOL_READY): lock/tool.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not a program. Install Python 3.11 or newer (Debian, Ubuntu: apt install python3 python3-venv)." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "The tools need Python 3.11 or newer and this is $$($(PYTHON) -V). Name another one: make PYTHON=python3.12 setup" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing. Install it (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@echo "tools: Python packages from lock/tool.txt"
	@[ -e $(TOOL_READY) ] || $(PYTHON) -m venv --clear .venv
	@$(PIP) --require-hashes -r lock/tool.txt
	@$(PIP) --no-deps --no-build-isolation --no-index -e .
	@touch $@

# The installer has a stamp of its own, which looks at contents; this one spares its start.
$(ENGINE_READY): lock/engine-cpu.txt $(OVERLAY_SOURCES) $(wildcard glm53ctl/engine/*.py) | $(TOOL_READY)
	@$(TOOL)/python -m glm53ctl.engine .engine $(ENGINE_PYTHON)
	@touch $@

$(TOOL)/playwright: lock/page-shots.txt | $(TOOL_READY)
	@$(PIP) --require-hashes -r lock/page-shots.txt
	@touch $@

$(TOOL)/uv: lock/uv.txt | $(TOOL_READY)
	@$(PIP) --require-hashes -r lock/uv.txt
	@touch $@
