# Everything here needs only Go and make; no C compiler unless a target says so.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  = -s -w -X main.version=$(VERSION)

# The race detector needs cgo. These packages hold the concurrent code; the tests
# left out run thousands of statements on one goroutine, where it has nothing to
# find and makes the pure-Go SQLite ten times slower. The tests of the first packages do
# not measure real time, so two run at once.
RACE_PKGS  ?= ./outbox/... ./relay
RACE_ALONE ?= ./relay/jetstream ./cmd/relay
RACE_SKIP  ?= RandomSteps|Plans|StaleStatistics|EachStep|Spoiled|SchemaNames|DeepBlocked|ManyBlocked|ProbeThatLies|TheLogStays|ALogBeside|AReaderThatStays
RACE        = CGO_ENABLED=1 $(GO) test -race -short -timeout 15m -skip '$(RACE_SKIP)'

SOAK_SEED     ?= 1
SOAK_DURATION ?= 1h

export CGO_ENABLED ?= 0

.PHONY: help build demo test test-short lint race soak bench bench-quick

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/relay, a static binary
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/relay ./cmd/relay

demo: ## run producer, relay, nats-server and consumer for a few seconds, then a summary
	$(GO) run ./integration/demo

# One package at a time: tests with real processes measure real time.
test: ## run every test, with real relay and nats-server processes
	$(GO) test -p 1 -timeout 12m ./...

test-short: ## run the tests that need less than a minute together
	$(GO) test -short -timeout 5m ./...

lint: ## check format, vet and staticcheck
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "gofmt -w these files:"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

race: ## run the concurrent packages under the race detector, where a C compiler exists
	@if command -v "$$($(GO) env CC)" >/dev/null 2>&1; then \
		$(RACE) -p 2 $(RACE_PKGS) && $(RACE) -p 1 $(RACE_ALONE); \
	else echo "race: skipped, no C compiler"; fi

soak: ## random faults for SOAK_DURATION from SOAK_SEED, then the checker
	SOAK_SEED=$(SOAK_SEED) SOAK_DURATION=$(SOAK_DURATION) $(GO) test -count=1 -v -timeout 0 -run 'TestSoak$$' ./integration

include packaging/packaging.mk

bench: ## measure against the targets and against peers, about half an hour; writes bin/bench.md
	@mkdir -p bin
	cd integration/bench && $(GO) run . -o ../../bin/bench.md

bench-quick: ## the same, smaller and once, under two minutes
	@mkdir -p bin
	cd integration/bench && $(GO) run . -quick -o ../../bin/bench.md
