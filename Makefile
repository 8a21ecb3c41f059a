# Two commands do everything: `go run ./cmd/mrdn demo` and `make test`.
GO ?= go

.PHONY: test test-full need setup build bench bench-peers bench-mooncake bench-bridge bench-nixl regressions mutation lint generate clean

# Everything: sets up what the tests need, then runs them all.
test: need setup
	./internal/ci/test.sh

# What takes longer: whether the tests of old faults still compile where the faults
# were, the whole trace, longer fuzzing.
test-full: test
	./internal/ci/regressions.sh -build $(COMMIT)
	MERIDIAN_TEST_FULL=1 ./internal/ci/test-full.sh

# What cannot be installed from here: Linux, Go, CA certificates.
need:
	@./internal/ci/need.sh

setup:
	@./internal/ci/setup.sh

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...
	@# Only with CGO does meridian-ffi ask NVIDIA's driver for the GPUs; the others stay static.
	@if command -v cc >/dev/null 2>&1; then CGO_ENABLED=1 $(GO) build -trimpath -o bin/ ./cmd/meridian-ffi; \
	else echo "build: no C compiler: meridian-ffi cannot ask for GPUs"; fi

# The figures of README and docs/claims.md, and what fell since the committed
# ratios (a report, never a failure). Stop other work first.
bench:
	$(GO) test -run '^$$' -bench . -benchtime 1s ./wire/... ./blocks/... ./scheduler/... ./adapters/link/ ./agent/engine/
	$(GO) run ./cmd/mrdn bench load
	$(GO) run ./cmd/mrdn bench link --baseline bench/baseline.json --ratios .run/ratios.json

# Meridian beside Mooncake, NIXL, Redis and plain sockets: a quarter of an hour.
# FLAGS are those of `mrdn bench peers`, such as FLAGS="--full --out results".
bench-peers:
	./internal/ci/bench-peers.sh $(FLAGS)

# Meridian's transfer engine beside Mooncake's, each with itself and with the other:
# some minutes. FLAGS are those of `mrdn bench mooncake`, such as FLAGS="--json".
bench-mooncake:
	./internal/ci/bench-peers.sh mooncake $(FLAGS)

# Blocks that go from one fabric to another through a daemon, compared with both legs:
# some minutes. FLAGS are those of `mrdn bench bridge`, such as FLAGS="--json".
bench-bridge:
	./internal/ci/bench-peers.sh bridge $(FLAGS)

# Meridian's NIXL helper beside NIXL, over the same transports: two to three minutes. FLAGS
# are those of `mrdn bench nixl`, such as FLAGS="--json".
bench-nixl:
	./internal/ci/bench-peers.sh nixl $(FLAGS)

# Each fault that once was: its test fails on COMMIT and passes here. FLAGS are
# those of regressions.sh, such as FLAGS="-only 1,2 -v".
COMMIT ?= 12272bd
regressions:
	./internal/ci/regressions.sh $(FLAGS) $(COMMIT)

# One changed operator at a time in the core rooms, and which changes no test
# notices: about an hour. PKG="wire/link blocks" for fewer.
mutation:
	$(GO) run ./internal/ci/mutation $(FLAGS) $(PKG)

lint:
	./internal/ci/lint.sh

generate:
	$(GO) generate ./...

clean:
	rm -rf bin .tools .run
