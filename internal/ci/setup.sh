#!/usr/bin/env bash
# Installs what the tests need and is not there yet, after saying what and how
# much: Debian packages (as root only) for a C compiler, Redis, etcd and the libraries of
# the Mooncake and NIXL wheels; and without root, into .tools, the pinned Python
# packages (llama-server with a small model, the OpenAI client, the peers' engines,
# aiohttp for Mooncake's metadata server, numpy and mypy for the Python client) and etcd.
# It asks nothing. Under CI a missing part is a failure; elsewhere the tests that
# need it are skipped, and this says so.
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
command -v etcd >/dev/null 2>&1 || need+=(etcd-server)
libraries=$(ldconfig -p 2>/dev/null || true)
for pair in libibverbs.so.1:libibverbs1 libnuma.so.1:libnuma1 libcurl.so.4:libcurl4 libgomp.so.1:libgomp1; do
  case $libraries in *"${pair%%:*}"*) ;; *) need+=("${pair#*:}") ;; esac
done
# MB on disk, measured on Debian 12 with Python 3.11.
declare -A python=([llama]=200 [openai]=50 [peers]=460 [aiohttp]=10 [numpy]=75 [mypy]=70)
wanted=() total=0
for name in llama openai peers aiohttp numpy mypy; do
  internal/ci/python.sh --have "$name" >/dev/null 2>&1 && continue
  wanted+=("$name (${python[$name]} MB)")
  total=$((total + python[$name]))
done
as_root=
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && as_root=yes
if [ ${#need[@]} -gt 0 ] && [ -n "$as_root" ]; then
  echo "setup: will install Debian packages: ${need[*]} (at most about 350 MB)"
fi
if [ ! -x .tools/etcd/usr/bin/etcd ] && command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1; then
  echo "setup: will download Debian's etcd-server into .tools/etcd, without root: 8 MB, 24 MB unpacked"
fi
if [ ${#wanted[@]} -gt 0 ]; then
  echo "setup: will install Python packages into .tools, without root: ${wanted[*]}, $total MB in all"
fi
if [ ${#need[@]} -gt 0 ]; then
  if [ -n "$as_root" ]; then
    apt-get update -qq
    # RUNLEVEL=1 keeps a package from starting its server on the usual port.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
  else
    miss "Debian packages ${need[*]}: only root with apt-get installs them; tests that need them are skipped"
  fi
fi
internal/ci/etcd.sh >/dev/null || miss "etcd: tests with a real etcd are skipped"
for name in llama openai peers aiohttp numpy mypy; do
  internal/ci/python.sh "$name" >/dev/null || miss "Python packages of internal/ci/requirements/$name.txt: tests that need them are skipped"
done
