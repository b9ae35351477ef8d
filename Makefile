# The jobs and Airflow have separate environments: VENV and AIRFLOW. `make clean` removes everything that this file creates.
PYTHON ?= python3
VENV   := .venv
AIRFLOW := .airflow-venv
BIN    := $(VENV)/bin
REQ    := conf/requirements
LOG    ?= tests/fixtures/broker-log
PORT   ?= 8080
LAKE   ?= lake
PIP    := $(BIN)/pip --disable-pip-version-check --no-input -q
MVN    := mvn -q -B -ntp

unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, which reuse the compiled files of earlier ones

.DEFAULT_GOAL := help
.PHONY: help setup run example spark-sql airflow test test-all test-fast check format docs bench dist lock clean

help: ## print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1|/' | column -t -s '|'

setup: $(VENV)/.ready .jars/spark/.ready ## make the environment and fetch Spark's jars

run: setup ## run the main job on the bundled log of a real broker (LOG=folder LAKE=folder)
	@$(BIN)/offsetlake run --log $(LOG) --lake $(LAKE)

example: setup ## write an example log that commands may change, and read it into a lake: example/log and example/lake
	@rm -rf example
	@$(BIN)/python docs/example.py example/log
	@$(BIN)/offsetlake run --log example/log --lake example/lake --now 2026-01-31T15:00

spark-sql: setup ## open Spark's SQL shell on the tables and views of a lake (LAKE=folder)
	@$(BIN)/offsetlake views --lake $(LAKE) >lake.sql
	@$(BIN)/spark-sql --driver-class-path '.jars/spark/*' --properties-file conf/spark.conf \
	  --conf spark.sql.catalogImplementation=in-memory -i lake.sql

airflow: setup $(AIRFLOW)/.ready ## start a local Airflow with the DAGs on the bundled log (LOG=folder PORT=8080)
	@PORT=$(PORT) dags/local.sh "$(abspath $(LOG))"

TESTS := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder --durations=15

test: check .jars/broker/.ready $(AIRFLOW)/.ready dist ## lint, types and tests, with a real broker, a real Spark cluster and Airflow
	$(TESTS) -n 2 -m 'not long'

test-all: test ## `make test`, then the tests that take long: kills at every write, random logs, fuzzing, a browser
	$(TESTS) -n 4 -m long

test-fast: $(VENV)/.dev ## the tests of bytes, logs and rules that start nothing
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'not jvm and not broker and not slow and not long' \
	  tests/kafka tests/log tests/rules tests/util tests/lake

check: $(VENV)/.dev .jars/spark/.ready ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: setup ## generate docs/cli.md and docs/tables.md from the commands and the schemas
	$(BIN)/python docs/generate.py docs

bench: $(VENV)/.dev .jars/spark/.ready .jars/broker/.ready .jars/peer/.ready ## measure against the peers; results go to benchmarks/results.md
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/guarded.py

dist: $(VENV)/.dev ## build the wheel, and the same as the zip spark-submit wants, into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@cp dist/offsetlake-*.whl dist/offsetlake.zip

lock: $(VENV)/.dev ## lock the requirements of pyproject.toml anew
	$(BIN)/uv pip compile pyproject.toml --extra build --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o $(REQ)/runtime.txt
	$(BIN)/uv pip compile pyproject.toml --extra dev -c $(REQ)/runtime.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o $(REQ)/dev.txt
	$(BIN)/uv pip compile $(REQ)/airflow.in --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o $(REQ)/airflow.txt

clean: ## remove everything made here, lakes of your own excepted
	rm -rf $(VENV) $(AIRFLOW) .airflow .jars dist build lake lake.sql example

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(REQ)/runtime.txt | $(VENV)/bin/python
	@echo "installing the locked requirements into $(VENV) (about a minute)"
	@$(PIP) install --require-hashes -r $(REQ)/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m offsetlake.log.compiling
	@touch $@

$(VENV)/.dev: $(REQ)/dev.txt $(VENV)/.ready
	@echo "installing what tests and checks need"
	@$(PIP) install --require-hashes -r $(REQ)/dev.txt
	@touch $@

$(AIRFLOW)/.ready: $(REQ)/airflow.txt
	@echo "installing Airflow into $(AIRFLOW)"
	@$(PYTHON) -m venv $(AIRFLOW)
	@$(AIRFLOW)/bin/pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	@touch $@

.jars/spark/.ready: conf/jars/pom.xml
	@echo "fetching the Delta jars"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DincludeGroupIds=io.delta -DoutputDirectory=$(CURDIR)/.jars/spark
	@touch $@

.jars/broker/.ready: tests/support/broker/pom.xml
	@echo "fetching a Kafka broker for the tests"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.jars/broker
	@touch $@

.jars/peer/.ready: benchmarks/broker/pom.xml
	@echo "fetching the Kafka broker to compare with"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.jars/peer
	@touch $@
