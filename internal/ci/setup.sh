#!/usr/bin/env bash
# Installs what the tests need and is not there yet: a C compiler for the race
# detector. Under CI a missing part is a failure; on a laptop it is said.
set -euo pipefail
need=()
command -v gcc >/dev/null 2>&1 || command -v cc >/dev/null 2>&1 || need+=(gcc libc6-dev)
command -v python3 >/dev/null 2>&1 || need+=(python3)
if [ ${#need[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "setup: installing ${need[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
elif [ -n "${CI:-}" ]; then
  echo "setup: ${need[*]} missing, and no root with apt-get to install it" >&2
  exit 1
else
  echo "setup: SKIPPED ${need[*]}: install it for the race detector" >&2
fi
