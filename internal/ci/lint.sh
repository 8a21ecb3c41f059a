#!/usr/bin/env bash
# golangci-lint, pinned, built once into .tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v2.15.0
bin=.tools/golangci-lint-$version
if [ ! -x "$bin" ]; then
  mkdir -p .tools
  GOBIN="$PWD/.tools" go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
  mv .tools/golangci-lint "$bin"
fi
"$bin" run --allow-parallel-runners ./...
