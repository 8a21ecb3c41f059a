#!/usr/bin/env bash
# What building and testing needs and nothing here can install, one clear line for
# each thing that is missing. `make test` runs it first.
set -euo pipefail
missing=0
miss() { echo "need: $*" >&2; missing=1; }
[ "$(uname -s)" = Linux ] || miss "Linux (this is $(uname -s)): memory files with seals, Unix sockets with credentials"
go=${GO:-go}
if ! command -v "$go" >/dev/null 2>&1; then
  miss "Go 1.26 or later: there is no $go in PATH (https://go.dev/dl)"
else
  version=$("$go" env GOVERSION 2>/dev/null || echo unknown)
  case $version in
    go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.2[0-5]*) miss "Go 1.26 or later: $go is $version" ;;
  esac
fi
certificates=no
for path in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/cert.pem; do
  [ -z "$path" ] || [ ! -s "$path" ] || certificates=yes
done
[ "$certificates" = yes ] || miss "CA certificates, to download Go modules (Debian: ca-certificates)"
case $(uname -m) in
  x86_64) grep -qw avx2 /proc/cpuinfo 2>/dev/null || echo "need: no AVX2 on this processor: the tests with a real llama-server cannot pass here" >&2 ;;
  *) echo "need: not x86-64 but $(uname -m): the packages of llama-server, Mooncake and NIXL cannot be installed, and their tests are skipped" >&2 ;;
esac
exit "$missing"
