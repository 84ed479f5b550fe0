# Thin: scripts/setup prepares .venv, the lines below run the tools in it.
#
#   STORES   what `make test` and `make bench` run against; every store but sqlite is a real server,
#            started for them on a private port. redlock, five Redis servers, is only measured
#   COVERAGE 1: the tests measure what they cover, and hold the floor where all are run
#   ARGS     more arguments for the demo, pytest or the benchmarks
#   QUICK    1: the benchmarks run for a moment, to see that all runs; no figures to quote
#   RESULTS  the folder that `make bench` writes its JSON and its plots to
#   PYTHON   the Python to make .venv with, 3.11 or newer

ALL_STORES := sqlite postgresql mariadb mysql redis etcd consul zookeeper
STORES ?= $(ALL_STORES)
ARGS ?=
COVERAGE ?=
TESTED ?=
QUICK ?=
RESULTS ?= bench-results/$(if $(filter-out 0,$(QUICK)),quick,$(shell date -u +%Y-%m-%dT%H%M%SZ))
RUN := .venv/bin/python
# Most tests wait for a server or a ttl, so more processes than cores are at work.
# A process that crashes ends the run: what replaced it would begin with the same test.
SIDE_BY_SIDE := -m pytest -n 6 --dist loadgroup --max-worker-restart 0
# A test that hangs where no signal reaches it, and so no timeout of pytest's, shows where and ends.
ENDS := -o faulthandler_timeout=1000 -o faulthandler_exit_on_timeout=true
# Their servers write to memory where it has room: a disk that stalls has clusters lose their leaders.
ROOM := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 6000000 { print "/dev/shm" }')
TESTS = $(if $(ROOM),TMPDIR=$${TMPDIR:-$(ROOM)} )$(RUN) $(if $(COVERAGE),-m coverage run )$(SIDE_BY_SIDE) $(ENDS)
empty :=
comma := ,

# What is measured by default is more than what is a store of the tests.
MEASURED = $(if $(filter file,$(origin STORES)),$(filter-out mysql,$(ALL_STORES)) redlock,$(STORES))

# Only all tests on all stores are held to the floor of coverage.
WHOLE := $(if $(strip $(ARGS) $(filter-out $(STORES),$(ALL_STORES))),,yes)
covered = $(if $(and $(COVERAGE),$(WHOLE)),$(RUN) scripts/check_coverage.py $(1))

export PYTHON
# Hundreds of processes import the package and its tests: compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo dashboard docs test test-all bench faults soak package lint type format clean

help:
	@echo 'make demo                  see the locks at work (SQLite; no server, no compiler)'
	@echo 'make dashboard             the Locks page over every store that is installed, with live traffic'
	@echo 'make test                  ruff, mypy, and every behaviour once, on: $(STORES)'
	@echo 'make test-all              the same with coverage, then what takes long: the cross product,'
	@echo '                           faults, storms, tests of the benchmarks and of the documentation'
	@echo 'make test-all COVERAGE=1   the same with coverage of all'
	@echo 'make test STORES=sqlite    the same without any server or Debian package'
	@echo 'make test ARGS="-k name"   arguments for pytest'
	@echo 'make bench                 measure, beside the bare statements and other libraries;'
	@echo '                           tables, and JSON and plots in bench-results/'
	@echo 'make bench QUICK=1         the same in three minutes: it shows that all runs; no figures to quote'
	@echo 'make bench ARGS="--only cycles,growth-waiters"'
	@echo 'make faults                break servers and clients under load, and judge the history'
	@echo 'make soak MINUTES=60       the same and the storms of kills for long, each its share of the minutes'
	@echo 'make docs                  build the site of the documentation in docs/_build/html'
	@echo 'make package               build what is published into dist/, and use it with each extra'
	@echo 'make lint | type | format  one tool alone'
	@echo 'make clean                 remove all that these commands made'

demo:
	@scripts/setup demo
	@$(RUN) manage.py migrate --verbosity 0
	@$(RUN) manage.py demo $(ARGS)

dashboard:
	@scripts/setup dashboard
	@$(RUN) -m testproject.dashboard $(ARGS)

docs:
	@scripts/setup docs
	$(RUN) -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo 'The site is in docs/_build/html'

test:
	@scripts/setup test $(STORES)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(if $(COVERAGE),$(RUN) -m coverage erase)
	DISTLOCK_TEST_STORES='$(STORES)' $(TESTS) --tier short $(ARGS)
	$(call covered,short)

# TESTED=1: `make test` was run just before, so only the long tier is left. What it covers is measured
# where COVERAGE=1 is given: it takes half as much time again.
test-all:
	$(if $(TESTED),,$(MAKE) test COVERAGE=1)
	DISTLOCK_TEST_STORES='$(STORES)' $(TESTS) --tier long $(ARGS)
	$(call covered,all)

bench:
	@scripts/setup bench $(MEASURED)
	results='$(RESULTS)' && \
	$(RUN) -m benchmarks --stores $(subst $(empty) $(empty),$(comma),$(strip $(MEASURED))) \
	$(if $(filter-out 0,$(QUICK)),--quick) --json "$$results/bench.json" --plots "$$results" $(ARGS)

# Each kind of fault on each backend and store, four of them at a time; `soak` adds the storms, shares
# the minutes out among all, and keeps what was seen. A file that is named is run, so what needs a
# store is named with it.
MINUTES ?= 60
PROOFS := tests/faults/test_proof.py tests/faults/test_proof_machines.py
STORMS := tests/faults/test_storm.py
ifneq ($(filter redis,$(STORES)),)
STORMS += tests/redis/test_storm.py tests/redis/test_redlock_storm.py
endif
ifneq ($(filter etcd,$(STORES)),)
PROOFS += tests/etcd/test_proof.py
STORMS += tests/etcd/test_faults.py::test_holders_and_waiters_killed_and_stopped
endif
faults:
	@scripts/setup test $(STORES)
	DISTLOCK_TEST_STORES='$(STORES)' $(RUN) $(SIDE_BY_SIDE) tests/faults/test_checker.py $(PROOFS) $(ARGS)

soak:
	@scripts/setup test $(STORES)
	rm -f proof.jsonl
	DISTLOCK_TEST_STORES='$(STORES)' DISTLOCK_PROOF_MINUTES='$(MINUTES)' \
	DISTLOCK_PROOF_REPORT=proof.jsonl $(RUN) $(SIDE_BY_SIDE) $(PROOFS) $(STORMS) $(ARGS)
	@echo 'What was seen is in proof.jsonl'

package:
	@scripts/setup package
	$(RUN) scripts/package.py $(ARGS)

lint:
	@scripts/setup tools
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

type:
	@scripts/setup tools
	$(RUN) -m mypy

format:
	@scripts/setup tools
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf .consul .mysql .venv .tox build dist *.egg-info .coverage .coverage.* htmlcov docs/_build
	rm -rf tests/browser/screenshots
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f testproject/*.sqlite3*
