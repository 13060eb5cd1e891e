# Everything happens in .venv, which is made when it is needed. PYTHON=… chooses its interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUDGET ?= 60s
CASES ?= 5000
JOBS ?= 1
# Of pytest: one more than there are CPUs, for some tests wait for processes that they started.
WORKERS := $(shell expr $$(nproc) + 1)
# Tests that run kernels in their own process or in children that inherit the environment.
GUARDED := tests/schedules tests/neocpu/frontend tests/neocpu/ir tests/neocpu/graph \
	tests/neocpu/planning tests/neocpu/lowering tests/neocpu/compilation tests/neocpu/runtime \
	$(wildcard tests/neocpu/verification/test_*.py tests/neocpu/test_*.py)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test everything test-guard test-arm fresh object-code mutations fuzz soak lint types format docs pages bench vendored runtime-wheel clean
# A recipe that fails leaves no half-made stamp behind.
.DELETE_ON_ERROR:

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

# The budget is for what no record tells of this CPU: where records ship, nothing is measured.
demo: $(VENV)/.bench ## compile, explain and run ResNet-50, and compare it with ONNX Runtime
	mkdir -p build
	$(BIN)/neocpu compile resnet50 -o build/resnet50.so --tune-budget $(BUDGET)
	$(BIN)/neocpu explain build/resnet50.so > build/resnet50.txt
	head -n 20 build/resnet50.txt
	@echo "(the whole plan is in build/resnet50.txt)"
	$(BIN)/neocpu run build/resnet50.so --repeat 50
	$(BIN)/neocpu bench build/resnet50.so --model resnet50 --vs onnxruntime

test: $(VENV)/.test ## run the tests but those of test-arm
	$(BIN)/pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal --ignore=tests/arm $(PYTEST)

everything: $(VENV)/.test ## run all that test leaves out, in turn (hours): fresh, fuzz, soak, mutations, test-guard and more; ends with a table
	OLD="$(OLD)" $(BIN)/python -m tests.everything

test-guard: $(VENV)/.test ## run the tests of kernels, operators and models between inaccessible pages
	NEOCPU_GUARD=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal $(GUARDED) $(PYTEST)

test-arm: build/arm/.ready ## compile for ARM and run what comes of it under qemu
	$(BIN)/pytest tests/arm $(PYTEST)

soak: $(VENV)/.test ## load, serve and attack thousands of times, and show that nothing grows
	NEOCPU_SOAK=full $(BIN)/pytest tests/neocpu/soak -s --timeout 3600 $(PYTEST)

mutations: $(VENV)/.test ## plant a hundred bugs in a copy, one at a time: the tests must catch each
	$(BIN)/python -m tests.mutations

object-code: $(VENV)/.test ## compare the machine code of all networks with that of another tree: OLD=/its/.venv/bin/neocpu
	$(BIN)/python -m tests.object_code $(OLD) $(BIN)/neocpu

fuzz: $(VENV)/.test ## compile CASES=5000 models that nobody wrote; SEED=0, JOBS=1; failures are kept in build/fuzz
	$(BIN)/python -m tests.fuzz --cases $(CASES) --seed $(or $(SEED),0) --jobs $(JOBS)

# An AArch64 system under build/arm; the script says what is in it.
build/arm/.ready: $(VENV)/.test tests/arm/sysroot.py tests/debian_packages.py
	$(BIN)/python -m tests.arm.sysroot

# A browser for tests of pages, where none is installed; the script says what is in it.
build/chromium/.ready: $(VENV)/.test tests/chromium.py tests/debian_packages.py
	$(BIN)/python -m tests.chromium

# Large packages that programs use beside neocpu; the script says where they lie.
build/neighbours/.ready: $(VENV)/.test tests/neighbours/neighbour_packages.py
	$(BIN)/python -m tests.neighbours.neighbour_packages

# With the system's own Python: nothing of this checkout is used, not even its .venv.
fresh: ## make demo and test, shuffled, on a new minimal Debian (as root; 25 minutes); SUITE=trixie WITH=torch TEST=no|tests/… SEED=N
	$(PYTHON) -B -m tests.fresh --suite "$(SUITE)" --with "$(WITH)" --test "$(TEST)" --seed "$(SEED)"

lint: $(VENV)/.test types ## check style, types and language
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest -q tests/test_language.py

# The type checker does not follow the mapping of root folders to neocpu.*, so it gets them by links
# where an installation has them.
types: $(VENV)/.test ## check types alone
	rm -rf build/types
	mkdir -p build/types/neocpu
	ln -s $(CURDIR)/neocpu/* $(CURDIR)/core $(CURDIR)/foundation $(CURDIR)/schedules $(CURDIR)/search $(CURDIR)/tuning_db build/types/neocpu
	ln -s $(CURDIR)/wheels build/types
	cd build/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml \
		--cache-dir $(CURDIR)/.mypy_cache -p neocpu -m wheels.runtime -m wheels.backend

format: $(VENV)/.test ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.test ## write docs/cli.md and docs/passes.md
	$(BIN)/python -m tests.neocpu.cli.help_page
	$(BIN)/python -m tests.neocpu.graph.rules.rules_page

pages: $(VENV)/.test ## write docs/pages (of which one is kept) and docs/page.png: minutes on a quiet machine
	$(BIN)/python -m tests.pages

bench: $(VENV)/.bench ## measure the paper's fifteen networks beside the other engines; writes docs/benchmarks.md
	$(BIN)/neocpu bench --suite paper --vs onnxruntime,openvino,ncnn --roofline -o docs/benchmarks.md

vendored: ## fetch anew the libraries that pages of reports carry, as wheels/vendored.py pins them
	$(PYTHON) -m wheels.vendored

runtime-wheel: $(VENV)/.test ## build dist/neocpu_runtime-*.whl, which runs compiled models; MACHINE=aarch64 or PLATFORM=musllinux_1_2_x86_64
	$(BIN)/python -m wheels.runtime $(or $(PLATFORM),$(MACHINE))

clean: ## remove what was built, the virtual environment included
	rm -rf $(VENV) build dist core/*.so *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "neocpu needs Python 3.11 or newer; choose it with make PYTHON=python3.x" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

# One stamp per set of extras: make demo needs no test tools.
$(VENV)/.bench: EXTRAS = bench
$(VENV)/.test: EXTRAS = bench,test,dev,quantize,serve,mlserver,ray
$(VENV)/.bench $(VENV)/.test: $(VENV)/.python pyproject.toml wheels/backend.py core/neocpu.h $(wildcard core/src/*)
	$(BIN)/pip install -q -e '.[$(EXTRAS)]'
# Converts models for ncnn. Its package asks for PyTorch, which the converter itself does not use.
	$(BIN)/pip install -q --no-deps pnnx==20261020
	touch $@
