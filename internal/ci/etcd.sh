#!/usr/bin/env bash
# Puts Debian's etcd server into .tools/etcd, once, and prints the folder: downloaded by
# apt-get and unpacked, which needs no root and starts no server. Exit status 3: this
# host cannot, and the reason is on stderr.
set -euo pipefail
cd "$(dirname "$0")/../.."
# The release that the tests have run with, in whichever build Debian has of it. Its
# packages are signed, and built for every x86-64 processor.
release=3.4.23-
dir=$PWD/.tools/etcd
if [ ! -x "$dir/usr/bin/etcd" ]; then
  for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null 2>&1 || { echo "etcd: no $tool (this is not Debian)" >&2; exit 3; }
  done
  mkdir -p .tools
  new=$(mktemp -d "$PWD/.tools/etcd.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  version=$(apt-cache madison etcd-server 2>/dev/null | awk '{print $3}' | grep -m1 "^$release" || true)
  [ -n "$version" ] || { echo "etcd: apt-get has no etcd-server $release (as root: apt-get update)" >&2; exit 3; }
  (cd "$new" && apt-get download -qq "etcd-server=$version") >&2 || { echo "etcd: no etcd-server $version" >&2; exit 3; }
  deb=$(find "$new" -name '*.deb')
  echo "etcd: unpacking $(basename "$deb")" >&2
  dpkg-deb -x "$deb" "$new/out"
  mv "$new/out" "$dir"
fi
echo "$dir"
