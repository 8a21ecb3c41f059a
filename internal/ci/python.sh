#!/usr/bin/env bash
# python.sh [--have] NAME: installs what requirements/NAME.txt pins into .tools/py/NAME,
# once for each content of that file, and prints the folder. Exit status 3: this
# host cannot (no python3 with pip, or no registry), and the reason is on stderr.
# With --have it installs nothing: status 0 where the packages are there.
set -euo pipefail
cd "$(dirname "$0")/../.."
have=
if [ "${1:-}" = --have ]; then have=yes; shift; fi
name=${1:?name of a file in internal/ci/requirements}
list=internal/ci/requirements/$name.txt
[ -f "$list" ] || { echo "python: no $list" >&2; exit 2; }
dir=$PWD/.tools/py/$name
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { echo "python: no python3" >&2; exit 3; }
want="$version $(sha256sum <"$list")"
if [ "$(cat "$dir/.installed" 2>/dev/null)" != "$want" ]; then
  [ -z "$have" ] || exit 1
  python3 -m pip --version >/dev/null 2>&1 || { echo "python: python3 has no pip (Debian: python3-pip)" >&2; exit 3; }
  mkdir -p .tools/py
  new=$(mktemp -d "$PWD/.tools/py/$name.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  echo "python: installing $name" >&2
  python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    --target "$new" -r "$list" >&2 || { echo "python: pip could not install $list" >&2; exit 3; }
  echo "$want" >"$new/.installed"
  rm -rf "$dir"
  mv "$new" "$dir"
fi
echo "$dir"
