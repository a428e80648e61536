# Everything a user or a developer runs. Needs Python 3.11 or newer and Java 17 or newer; sets up the rest in .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
FLOORS := .venv-floors
PYSPARK_LEAVES_SOCKETS_OPEN := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

# How many damaged logs make fuzz reads; a tenth as many are opened to be written to.
FUZZ_CASES ?= 1000000
FUZZ_SEED ?= 1
FUZZ_WORKERS ?= 2

# How many processes share the default tests: a file is run by one of them, and tests/conftest.py puts the longest first.
TEST_WORKERS ?= 2
DEFAULT_TESTS := -m "not kafka and not storage and not bench and not fuzz and not install" -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

# How many SIGKILLs the kinds of jobs share, here and on Spark.
KILLS ?= 100

# How long streams run beside a broker.
SOAK_MINUTES ?= 20

# The fast loop: what starts Spark, or processes of its own, or takes long by its nature, is left to make test.
FAST_TESTS := -m "not spark and not processes and not long and not kafka and not storage and not bench and not fuzz and not install" \
	--ignore tests/spark --ignore tests/kafka --ignore tests/bench -n $(TEST_WORKERS) --dist loadfile

.PHONY: demo demo-s3 check test test-kafka test-storage test-soak test-floors test-install test-kills fuzz bench lint tables definitions clean

demo: $(READY)  ## Reads examples/data with Spark and prints what is in it.
	$(RUN) examples/demo.py

demo-s3: $(READY)  ## Starts an S3 server on this machine, puts examples/data into a bucket, and reads it there with Spark.
	$(RUN) examples/s3_demo.py

check: $(READY) lint  ## The fast loop: ruff, mypy, and the tests that need neither Spark nor processes of their own.
	$(RUN) -m pytest $(FAST_TESTS)

test: $(READY) lint  ## The default tests; offline but for the installation. Says which twelve took longest.
	$(RUN) -m pytest $(DEFAULT_TESTS) --durations=12

test-kafka: $(READY)  ## The tests against real brokers; fetches Kafka's jars from Maven Central. Needs Maven and a JDK.
	$(RUN) -m pytest -m "kafka and not soak" -n $(TEST_WORKERS) --dist loadfile

test-storage: $(READY)  ## The tests against servers of S3, Azure, Google Cloud Storage and HDFS; fetches these. Needs npm, Go, Maven and a JDK.
	$(RUN) -m pytest -m storage -n $(TEST_WORKERS) --dist loadfile

test-soak: $(READY)  ## Streams of a broker's live directory for SOAK_MINUTES; memory and open files stay. Needs Maven and a JDK.
	SOAK_MINUTES=$(SOAK_MINUTES) $(RUN) -m pytest -m soak -s

test-floors: $(FLOORS)/.ready  ## The default tests with the oldest versions of all that is installed.
	$(FLOORS)/bin/python -m pytest $(DEFAULT_TESTS) $(PYSPARK_LEAVES_SOCKETS_OPEN)

test-install: $(READY)  ## Installs a wheel into an empty environment, from the package index, and reads with all that starts Spark there.
	$(RUN) -m pytest -m install

test-kills: $(READY)  ## Kills exports, loads, copies and cleanings, on local processes and on Spark, and completes them; for some minutes.
	$(RUN) -m tests.jobs.kills --kills $(KILLS)

fuzz: $(READY)  ## Damages logs a million times, kills writers, fills disks; for hours. Saves what it finds in build/fuzz.
	$(RUN) -m pytest -m fuzz
	$(RUN) -m tests.fuzz.run --writing --cases $$(($(FUZZ_CASES) / 10)) --seed $(FUZZ_SEED) --workers $(FUZZ_WORKERS)
	$(RUN) -m tests.fuzz.run --cases $(FUZZ_CASES) --questions 1 --seed $(FUZZ_SEED) --workers $(FUZZ_WORKERS)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(READY)  ## The measurements that docs/performance.md quotes.
	$(RUN) -m tests.bench

tables: $(READY)  ## Makes the tables of options in docs/ from their declarations.
	$(RUN) -m tests.tables

definitions: $(READY)  ## Makes sparklog/system/definitions.json from Kafka's jars, which come from Maven Central. Needs Maven.
	$(RUN) -m tests.kafka.definitions

clean:
	rm -rf $(VENV) $(FLOORS) build sparklog.egg-info

$(READY): pyproject.toml conf/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --constraint conf/constraints.txt --editable '.[spark,test]'
	touch $(READY)

$(FLOORS)/.ready: pyproject.toml conf/floors.txt
	$(PYTHON) -m venv $(FLOORS)
	$(FLOORS)/bin/pip install --quiet --constraint conf/floors.txt --editable '.[spark,test]'
	touch $@
