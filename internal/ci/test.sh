#!/usr/bin/env bash
# vet, then every test with the race detector, shuffled order and the build tag
# invariants, then the demo as a user starts it, without the tag.
set -euo pipefail
cd "$(dirname "$0")/../.."
race=(-race)
if ! command -v gcc >/dev/null 2>&1 && ! command -v cc >/dev/null 2>&1; then
  [ -z "${CI:-}" ] || { echo "test: no C compiler for the race detector" >&2; exit 1; }
  echo "test: SKIPPED the race detector: no C compiler" >&2
  race=()
fi
go vet ./...
go vet -tags invariants ./...
# A goroutine that is left is named with the stacks of those who made it.
GODEBUG=tracebackancestors=5 go test "${race[@]}" -tags invariants -shuffle=on -timeout 15m ./...
out=$(mktemp)
trap 'rm -f "$out"' EXIT
CGO_ENABLED=0 go run ./cmd/mrdn demo --size small --json >"$out"
if command -v python3 >/dev/null 2>&1; then python3 -m json.tool <"$out" >/dev/null; fi
echo "test: mrdn demo --size small --json passed"
