#!/usr/bin/env bash
# What is too long for every run: fuzzing each target for a while, and the demo in its large size.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-30}
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
  pkg=$(dirname "$file")
  grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | sed 's/^func //' | while read -r target; do
    echo "fuzz $pkg $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "$pkg"
  done
done
go run ./cmd/mrdn demo --size large
