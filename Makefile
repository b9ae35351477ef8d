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
INDEX  := UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/pip config list | sed -n "s/^global.index-url='\(.*\)'$$/\1/p")}}"
UV     := $(INDEX) $(BIN)/uv pip install -q --require-hashes
MVN    := MAVEN_OPTS="$${MAVEN_OPTS:--XX:+UseSerialGC -XX:TieredStopAtLevel=1}" mvn -q -B -ntp

unexport PYTHONDONTWRITEBYTECODE  # tests start many processes, which reuse the compiled files of earlier ones

.DEFAULT_GOAL := help
.PHONY: help setup run example spark-sql airflow test test-all test-fast check format docs bench dist dist-env release lock clean

help: ## print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1|/' | column -t -s '|'

setup: $(VENV)/.ready ## make the environment

run: setup ## run the main job on the bundled log of a real broker (LOG=folder LAKE=folder)
	@$(BIN)/offsetlake run --log $(LOG) --lake $(LAKE)

example: setup ## write an example log that commands may change, and read it into a lake: example/log and example/lake
	@rm -rf example
	@$(BIN)/offsetlake example example/log
	@$(BIN)/offsetlake run --log example/log --lake example/lake --now 2026-01-31T15:00

spark-sql: setup .jars/spark/.ready ## open Spark's SQL shell on the tables and views of a lake (LAKE=folder)
	@$(BIN)/offsetlake views --lake $(LAKE) >lake.sql
	@PYSPARK_PYTHON=$(BIN)/python $(BIN)/spark-sql --driver-class-path '.jars/spark/*' --properties-file conf/spark-sql.conf -i lake.sql

airflow: setup $(AIRFLOW)/.ready ## start a local Airflow with the DAGs on the bundled log (LOG=folder PORT=8080)
	@PORT=$(PORT) dags/local.sh "$(abspath $(LOG))"

TESTS := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 --durations=15

test: check .jars/spark/.ready .jars/broker/.ready .jars/peer/.ready .jars/zookeeper/.ready $(AIRFLOW)/.ready .s3-venv/.ready dist ## lint, types and tests, with a real broker, Spark and Airflow
	$(TESTS) -n 3 -m 'not long'

test-all: test .jars/kafka-4.0.0/.ready .jars/kafka-4.3.1/.ready .jars/kafka-4.4.0/.ready .jars/mirror/.ready .tools/versitygw .tools/kgo.test ## `make test`, then the tests that take long: kills at every kind of write, random logs, fuzzing, a browser
	$(TESTS) -n 4 -m long

test-fast: $(VENV)/.dev ## the tests of bytes, logs and rules that start nothing
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'not jvm and not broker and not slow and not long' \
	  tests/kafka tests/log tests/rules tests/util tests/lake

check: $(VENV)/.dev ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: setup ## generate docs/cli.md and docs/tables.md from the commands and the schemas
	$(BIN)/python docs/generate.py docs

bench: $(VENV)/.dev .jars/spark/.ready .jars/broker/.ready .jars/peer/.ready ## measure against the peers; results go to benchmarks/results/run.md
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/traffic.py
	$(BIN)/python benchmarks/guarded.py

BUILD_WHEEL := $(BIN)/python -m build --wheel --no-isolation --outdir dist .

dist: $(VENV)/.dev ## build the wheel, and the same as the zip spark-submit wants, into dist/
	@$(BUILD_WHEEL) >/dev/null
	@cp dist/offsetlake-*.whl dist/offsetlake.zip

# Spark itself is on the executors already: its jars are most of the size.
dist-env: dist ## pack an environment with the program and what it needs on executors: dist/env.tar.gz
	@rm -rf dist/env dist/env.tar.gz
	@$(PYTHON) -m venv dist/env
	@dist/env/bin/pip --disable-pip-version-check --no-input -q install --require-hashes -r $(REQ)/runtime.txt
	@dist/env/bin/pip --disable-pip-version-check --no-input -q install --no-deps dist/offsetlake-*.whl
	@dist/env/bin/python -m offsetlake.log.compiling
	@$(BIN)/venv-pack -q -p dist/env -o dist/env.tar.gz --exclude '*/pyspark/jars/*'
	@rm -rf dist/env

release: $(VENV)/.dev ## date the changelog, build the wheel and its SBOM into dist/, commit and tag the version of pyproject.toml
	@BIN="$(BIN)" BUILD_WHEEL="$(BUILD_WHEEL)" .ci/release

LOCK := $(INDEX) $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q

lock: $(BIN)/uv ## lock the requirements of pyproject.toml anew
	$(LOCK) pyproject.toml --extra all --extra build -o $(REQ)/runtime.txt
	$(LOCK) pyproject.toml --extra dev -c $(REQ)/runtime.txt -o $(REQ)/dev.txt
	$(LOCK) $(REQ)/airflow.in -o $(REQ)/airflow.txt
	$(LOCK) $(REQ)/s3-server.in -o $(REQ)/s3-server.txt
	$(LOCK) $(REQ)/uv.in -o $(REQ)/uv.txt

clean: ## remove everything made here, lakes of your own excepted
	rm -rf $(VENV) $(AIRFLOW) .airflow .s3-venv .tools .jars dist build lake lake.sql example

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# PySpark is a source archive of jars, which are compressed already: the wheel that is built from it stores them.
$(VENV)/.ready: $(REQ)/runtime.txt | $(BIN)/uv
	@echo "installing the locked requirements into $(VENV) (about a minute)"
	@$(UV) --python $(BIN)/python --config-setting=--build-option=--compression=stored -r $<
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m offsetlake.log.compiling
	@$(BIN)/python -m offsetlake.pipeline.class_archive
	@touch $@

# uv takes a fifth of pip's CPU time.
$(BIN)/uv: $(REQ)/uv.txt | $(BIN)/python
	@$(PIP) install --no-compile --require-hashes -r $<
	@touch $@

$(VENV)/.dev: $(REQ)/dev.txt $(VENV)/.ready $(BIN)/uv
	@echo "installing what tests and checks need"
	@$(UV) --python $(BIN)/python -r $<
	@touch $@

$(AIRFLOW)/.ready: $(REQ)/airflow.txt $(BIN)/uv
	@echo "installing Airflow into $(AIRFLOW)"
	@$(PYTHON) -m venv --without-pip $(AIRFLOW)
	@$(UV) --python $(AIRFLOW)/bin/python -r $<
	@touch $@

.jars/spark/.ready: conf/jars/pom.xml
	@echo "fetching the jars of Delta Lake and S3A"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.jars/spark" \
	  -DincludeGroupIds=io.delta,org.apache.hadoop,software.amazon.awssdk,software.amazon.eventstream,org.reactivestreams \
	  -DexcludeArtifactIds=hadoop-client-api,hadoop-client-runtime
	@touch $@

.jars/broker/.ready: tests/support/broker/pom.xml
	@echo "fetching a Kafka broker for the tests"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.jars/broker"
	@touch $@

.jars/zookeeper/.ready: tests/support/zookeeper/pom.xml
	@echo "fetching ZooKeeper for the tests"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.jars/zookeeper"
	@touch $@

.jars/mirror/.ready: tests/support/mirror/pom.xml
	@echo "fetching MirrorMaker 2 for the long tests"
	@$(MVN) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.jars/mirror"
	@touch $@

.s3-venv/.ready: $(REQ)/s3-server.txt $(BIN)/uv
	@echo "installing a server of S3 for the tests into .s3-venv"
	@$(PYTHON) -m venv --without-pip .s3-venv
	@$(UV) --python .s3-venv/bin/python -r $<
	@touch $@

# Stricter than moto, but it takes two minutes, and Go, to build.
.tools/versitygw:
	@if command -v go >/dev/null; then echo "building versitygw, a server of S3 for the tests"; mkdir -p .tools/go; \
	  GOBIN="$(CURDIR)/.tools" GOPATH="$(CURDIR)/.tools/go" GOCACHE="$(CURDIR)/.tools/go/cache" \
	  go install -modcacherw -ldflags="-s -w" github.com/versity/versitygw/cmd/versitygw@v1.8.0 2>/dev/null; rm -rf .tools/go; \
	fi

# Test suites of clients, which run against a node as well as against its brokers; go.sum pins their modules.
GO := $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go))

.tools/kgo.test: SUITE := github.com/twmb/franz-go/pkg/kgo
.tools/kafka-go.test: SUITE := github.com/segmentio/kafka-go
.tools/kgo.test .tools/kafka-go.test: tests/support/go/go.sum
	@if [ -n "$(GO)" ]; then echo "building the test suite of $(SUITE)"; mkdir -p .tools; \
	  GOPATH="$(CURDIR)/.tools/suites" GOCACHE="$(CURDIR)/.tools/suites/cache" GOFLAGS=-modcacherw \
	  $(GO) -C tests/support/go test -c -vet=off -ldflags="-s -w" -o "$(CURDIR)/$@" $(SUITE); rm -rf .tools/suites; fi

# 4.1 waits 5 ms with every commit on purpose: benchmarks compare with a later version.
.jars/peer/.ready: tests/support/broker/pom.xml
	@echo "fetching a second version of Kafka for the tests and the benchmarks"
	@$(MVN) -f $< -Dkafka.version=4.2.0 dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.jars/peer"
	@touch $@

# Most jars of a version are those of another one.
.jars/kafka-%/.ready: tests/support/broker/pom.xml | .jars/broker/.ready .jars/peer/.ready
	@echo "fetching a broker of Kafka $* for the long tests"
	@$(MVN) -f $< -Dkafka.version=$* dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(@D)"
	@for jar in .jars/broker/*.jar .jars/peer/*.jar; do \
	  ! cmp -s "$$jar" "$(@D)/$${jar##*/}" || ln -f "$$jar" "$(@D)/$${jar##*/}"; done
	@touch $@

.jars/oldest/.ready: tests/support/broker/pom.xml
	@echo "fetching a broker of Kafka 3.9 for benchmarks/share_clients.py --cluster 3.9.1 (56 MB)"
	@$(MVN) -f $< -Dkafka.version=3.9.1 dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/.jars/oldest"
	@touch $@
