#!/usr/bin/env bash
# regressions.sh [-build] [-only ID,ID] [-v] COMMIT: runs each test of regressions.txt
# on COMMIT, where the fault still is, and on this tree, and prints both results.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${GO:-go}" run ./internal/ci/regressions "$@"
