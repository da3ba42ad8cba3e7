# The whole project by name. Needs Python 3.11 or 3.12 (with venv), pip, git and make; everything else goes into .venv/.
#   make setup   the environment: .venv/ from requirements.lock (a second call installs nothing)
#   make test    the tests
#   make book    runs every notebook at smoke scale and builds the pages: _build/html/index.html
#   make bench   speed of the hot paths on this machine, and against plain ways to do the same
#   make lint    style of the code
#   make clean   removes what was built; keeps .venv/ and .cache/ (finished stages)

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.PHONY: setup install bench-setup test book pages check lint bench clean

VENV := .venv
PY := $(VENV)/bin/python
SCALE ?= smoke
SOURCE := _build/source
COMPARED := encode step search bm25 simlm_step
export TOKENIZERS_PARALLELISM := false

setup:
	@cmp -s requirements.lock $(VENV)/installed.lock && $(PY) -c "import dr_lib" || $(MAKE) --no-print-directory install

# The interpreter: PYTHON where it is given, else the first of these names that is a 3.11 or 3.12 able to make environments.
install:
	@chosen=; for name in $(or $(PYTHON),python3 python3.12 python3.11); do \
	  if "$$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then \
	    chosen=$$name; break; fi; done; \
	if [ -z "$$chosen" ]; then \
	  echo "No usable interpreter among: $(or $(PYTHON),python3 python3.12 python3.11). Python 3.11 or 3.12 with venv is needed" \
	    "(Debian: apt install python3 python3-venv); name it with: make setup PYTHON=/path/to/python3" >&2; exit 1; fi; \
	if ! $(PY) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then \
	  echo "making $(VENV) with $$chosen"; "$$chosen" -m venv --clear $(VENV); fi
	$(PY) -m pip install --disable-pip-version-check --progress-bar off --quiet torch==2.13.0
	$(PY) -m pip install --disable-pip-version-check --progress-bar off --quiet --no-deps -r requirements.lock
	$(PY) -m pip install --disable-pip-version-check --progress-bar off --quiet --no-deps --no-build-isolation -e .
	$(PY) -m pip check --disable-pip-version-check
	@cp requirements.lock $(VENV)/installed.lock

test: setup
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2

# Sources and executed notebooks meet in _build/source; nothing is written into the checkout outside _build/ and .cache/.
book: setup
	rm -rf $(SOURCE)
	mkdir -p $(SOURCE)
	cp -R book/. $(SOURCE)
	rm -rf $(SOURCE)/weights $(SOURCE)/records
	cp _config.yml _toc.yml $(SOURCE)
	$(PY) -m dr_lib batch --scale $(SCALE) --to $(SOURCE)/notebooks
	$(MAKE) --no-print-directory pages

# Built anew each time: a page that is gone must not stay, nor a source listing that was rendered for other pages.
pages:
	rm -rf _build/html _build/.doctrees
	$(PY) -m dr_lib pages --to $(SOURCE)
	$(VENV)/bin/jupyter-book build -W -n --keep-going $(SOURCE) --path-output .
	$(MAKE) --no-print-directory check

check:
	$(PY) tests/book/check_pages.py _build/html

# What is compared with goes into a place of its own, which only the benchmarks look into.
bench-setup: setup
	@cmp -s requirements-bench.lock $(VENV)/bench/installed.lock || { \
	  rm -rf $(VENV)/bench; \
	  $(PY) -m pip install --disable-pip-version-check --progress-bar off --quiet --no-deps --target $(VENV)/bench \
	    -r requirements-bench.lock; \
	  cp requirements-bench.lock $(VENV)/bench/installed.lock; }

# The comparisons with a target leave their ratios in _build/speed.json; the table of them comes last.
bench: bench-setup
	rm -f _build/speed.json
	for name in $(COMPARED); do echo; echo "$$name"; $(PY) benchmarks/bench_$$name.py --save _build/speed.json; done
	for name in losses masks methods ngrams tokens; do echo; echo "$$name"; $(PY) benchmarks/bench_$$name.py; done
	$(PY) benchmarks/speed.py
	$(PY) benchmarks/speed_targets.py _build/speed.json

lint: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

# The conda twin of the lock: the same versions, faiss with GPU code from conda.
environment.yml: requirements.lock
	@{ echo "# The project for conda users. Made from requirements.lock by \`make environment.yml\`: same versions, faiss-gpu from conda."; \
	  echo "name: dense-retrieval-book"; \
	  echo "channels: [pytorch, nvidia, conda-forge]"; \
	  echo "dependencies:"; \
	  echo "  - python=3.12"; \
	  echo "  - pip"; \
	  sed -n 's/^faiss-cpu==/  - faiss-gpu=/p; s/^numpy==/  - numpy=/p' requirements.lock; \
	  echo "  - pip:"; \
	  sed -n '/^#/d; /^faiss-cpu==/d; s/^/      - /p' requirements.lock; } > $@

clean:
	rm -rf _build .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
