# Two commands: `make run` to use it, `make test` to check it. Both set up what is missing.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
IMAGES ?= .run/demo/images
# Not every shell expands a tilde in an argument.
override IMAGES := $(patsubst ~/%,$(HOME)/%,$(IMAGES))
# A folder of one's own gets an index of its own, so that going back to the gallery costs nothing.
INDEX ?= .run/$(if $(DEMO),index,index-$(shell printf '%s' '$(abspath $(IMAGES))' | cksum | cut -d' ' -f1))
HOST ?= 127.0.0.1
DEMO := $(filter .run/demo/images,$(IMAGES))
PORT ?= 8080

# What the drawn gallery can be asked, for the page and the terminal.
EXAMPLES := ["an umbrella to the left of a clock", "a tv above an umbrella", "a guitar to the right of a laptop"]

# Passive waits: with active ones two libraries that bring their own threads spin against each other.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: help run test slow heads clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/installed ## index a folder (IMAGES=dir, default: a gallery drawn for you) and serve it
	@$(if $(DEMO),test -f .run/demo/photos.jsonl || $(BIN)/python -m benchmarks.scenes --out .run/demo,:)
	@$(BIN)/beside index "$(IMAGES)" --out "$(INDEX)"
	@$(if $(DEMO),BESIDE_EXAMPLES='$(EXAMPLES)') $(BIN)/beside serve "$(INDEX)" --host $(HOST) --port $(PORT)

test: $(VENV)/installed-dev ## every check: lint, types, import rules, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow"

slow: $(VENV)/installed-dev ## the tests that take minutes: builds killed with their workers, Ray, recognition
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/pytest -m slow

heads: $(VENV)/installed ## train the heads of the compact encoder again (needs the training photographs)
	$(BIN)/python -m benchmarks.train_compact

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spacy,heif]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	test -x /usr/bin/chromium || { apt-get update -qq && apt-get install -qq -y chromium; } >/dev/null
	touch $@

clean: ## remove everything that make has made
	rm -rf $(VENV) .run build *.egg-info .pytest_cache .mypy_cache .ruff_cache
