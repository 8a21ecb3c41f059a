#!/usr/bin/env bash
# bench-peers.sh [mooncake|nixl|bridge] [FLAGS of mrdn bench peers, mooncake, nixl or bridge]:
# installs what of the peers is missing, then runs the comparison in a network namespace of its own, where
# every TCP connection has one congestion control. Where something cannot be
# had it says so and goes on; under CI, or with --require, the run then fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
congestion=cubic
say() { echo "bench-peers: $*" >&2; }

if [ "${1:-}" = --inside ]; then
  # Inside the namespace: loopback, and the congestion control. The sysctl only
  # takes those that the host lists as allowed; a route may name any.
  shift
  ip link set lo up
  if ! echo "$congestion" 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control; then
    for to in 127.0.0.0/8 127.0.0.1; do
      ip route replace local "$to" dev lo table local proto kernel scope host src 127.0.0.1 congctl "$congestion"
    done
  fi
  exec "$@"
fi

what=peers
case "${1:-}" in mooncake | nixl | bridge) what=$1; shift ;; esac
packages=()
[ $what != peers ] || command -v redis-server >/dev/null 2>&1 || packages+=(redis-server)
libraries=$(ldconfig -p 2>/dev/null || true)
for pair in libibverbs.so.1:libibverbs1 libnuma.so.1:libnuma1 libcurl.so.4:libcurl4; do
  case $libraries in *"${pair%%:*}"*) ;; *) packages+=("${pair#*:}") ;; esac
done
command -v ip >/dev/null 2>&1 || packages+=(iproute2)
if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing ${packages[*]}"
    # RUNLEVEL=1 keeps invoke-rc.d from starting a server on its usual port.
    { apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >/dev/null ||
      say "${packages[*]} could not be installed"
  else
    say "${packages[*]} missing, and no root with apt-get to install it"
  fi
fi
python=$(internal/ci/python.sh peers) || { say "no Python packages: Mooncake and NIXL will be missing"; python=.tools/py/peers; }

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
CGO_ENABLED=0 ${GO:-go} build -trimpath -o "$bin/" ./cmd/mrdn ./cmd/meridian-ffi
run=("$bin/mrdn" bench $what --python "$python")

unshare=(unshare -n)
[ "$(id -u)" = 0 ] || unshare=(unshare -rn)
if "${unshare[@]}" "$0" --inside true 2>/dev/null; then
  "${unshare[@]}" "$0" --inside "${run[@]}" --namespace "$@"
else
  say "no network namespace (${unshare[*]} or $congestion refused): using the host's network with its own congestion control, which the report names"
  "${run[@]}" "$@"
fi
