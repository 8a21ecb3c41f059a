#!/usr/bin/env bash
# Installs what the tests need and is not there yet: a C compiler for the race
# detector, Redis and the libraries of the Mooncake and NIXL wheels, and the
# pinned Python packages: llama-server with a small model, the OpenAI client, the
# peers' engines. Under CI a missing part is a failure; on a laptop it is said.
set -euo pipefail
cd "$(dirname "$0")/../.."
miss() {
  if [ -n "${CI:-}" ]; then
    echo "setup: $1" >&2
    exit 1
  fi
  echo "setup: SKIPPED $1" >&2
}
need=()
command -v gcc >/dev/null 2>&1 || command -v cc >/dev/null 2>&1 || need+=(gcc libc6-dev)
command -v python3 >/dev/null 2>&1 || need+=(python3)
python3 -m pip --version >/dev/null 2>&1 || need+=(python3-pip)
command -v redis-server >/dev/null 2>&1 || need+=(redis-server)
libraries=$(ldconfig -p 2>/dev/null || true)
for pair in libibverbs.so.1:libibverbs1 libnuma.so.1:libnuma1 libcurl.so.4:libcurl4 libgomp.so.1:libgomp1; do
  case $libraries in *"${pair%%:*}"*) ;; *) need+=("${pair#*:}") ;; esac
done
if [ ${#need[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing ${need[*]}"
    apt-get update -qq
    # RUNLEVEL=1 keeps a package from starting its server on the usual port.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
  else
    miss "${need[*]}: there is no root with apt-get to install it"
  fi
fi
for name in llama openai peers; do
  internal/ci/python.sh "$name" >/dev/null || miss "the Python packages of internal/ci/requirements/$name.txt"
done
