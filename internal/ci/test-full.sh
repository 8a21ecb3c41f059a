#!/usr/bin/env bash
# What is too long for every run: tests that MERIDIAN_TEST_FULL makes longer, fuzzing each
# target for a while, and the demo in its large size.
set -euo pipefail
cd "$(dirname "$0")/../.."
grep -rl --include='*_test.go' MERIDIAN_TEST_FULL . | xargs -n1 dirname | sort -u | MERIDIAN_TEST_FULL=1 xargs go test -count=1 -timeout 60m
seconds=${FUZZ_SECONDS:-30}
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
  pkg=$(dirname "$file")
  grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | sed 's/^func //' | while read -r target; do
    echo "fuzz $pkg $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "$pkg"
  done
done
go run ./cmd/mrdn demo --size large
