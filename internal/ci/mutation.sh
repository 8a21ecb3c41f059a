#!/usr/bin/env bash
# mutation.sh [PACKAGE…]: changes one operator at a time in the core rooms and
# runs the room's tests on each change. A change that no test notices is
# printed as LIVED: read it, and write the test that it lacks, or note in
# docs/mutation.md why no test can tell. Hours for all rooms; name packages for
# fewer. It works on a copy of the committed tree and reports into .run/mutation.
#
#   MUTATION_DIFF=COMMIT   only what changed since COMMIT
#   MUTATION_WORKERS=N     how many changes are tried at once (default 1)
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v0.6.0
tool=$PWD/.tools/gremlins-$version
out=$PWD/.run/mutation
rooms=("$@")
[ ${#rooms[@]} -gt 0 ] || rooms=(wire blocks adapters/link agent/engine agent/client)
if [ ! -x "$tool" ]; then
  mkdir -p .tools
  echo "mutation: building gremlins $version (10 MB)" >&2
  GOBIN="$PWD/.tools" go install "github.com/go-gremlins/gremlins/cmd/gremlins@$version"
  mv .tools/gremlins "$tool"
fi
mkdir -p "$out"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git clone -q --no-hardlinks . "$copy"
diff=()
[ -z "${MUTATION_DIFF:-}" ] || diff=(--diff "$(git rev-parse "$MUTATION_DIFF")")
lived=0
for room in "${rooms[@]}"; do
  room=${room#./}
  name=${room//\//-}
  # The time limit of one run is a multiple of how long the coverage took,
  # which is near zero when the test cache answers: hence the large factor.
  # Generated code and the generators are left out.
  (cd "$copy" && "$tool" unleash "${diff[@]}" --workers "${MUTATION_WORKERS:-1}" --test-cpu 2 --timeout-coefficient 200 \
    -E 'internal/(blake3|gencodes)' -o "$out/$name.json" "./$room") | tee "$out/$name.txt" |
    grep -E '^ *(LIVED|TIMED OUT) |^Killed|^Test efficacy|^Mutator' | sed "s|^|$room: |" || true
  n=$(grep -c '^ *LIVED ' "$out/$name.txt" || true)
  lived=$((lived + n))
done
echo "mutation: $lived changes that no test noticed; all outcomes are in .run/mutation"
