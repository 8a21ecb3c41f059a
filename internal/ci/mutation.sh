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

# The tool itself is tried first: a change that no test can notice must live.
# (With its flag --test-cpu, for one, every run fails and so counts as killed.)
probe=$(mktemp -d)
trap 'rm -rf "$copy" "$probe"' EXIT
printf 'module probe\n\ngo 1.26\n' >"$probe/go.mod"
printf 'package probe\n\nfunc F(a int) int {\n\tif a > 3 {\n\t\treturn 1\n\t}\n\treturn 2\n}\n' >"$probe/f.go"
printf 'package probe\n\nimport "testing"\n\nfunc TestF(*testing.T) { F(1); F(7) }\n' >"$probe/f_test.go"
(cd "$probe" && "$tool" unleash --timeout-coefficient 200 .) >"$probe/out" 2>&1 || true
grep -q '^ *LIVED ' "$probe/out" || {
  echo "mutation: $tool reports a change that no test looks at as noticed: its figures mean nothing" >&2
  cat "$probe/out" >&2
  exit 1
}
diff=()
[ -z "${MUTATION_DIFF:-}" ] || diff=(--diff "$(git rev-parse "$MUTATION_DIFF")")
lived=0
for room in "${rooms[@]}"; do
  room=${room#./}
  name=${room//\//-}
  # The time limit of one run is a multiple of how long the coverage took. The
  # first run fills the test cache, so that this is well under a second and the
  # limit about a minute or two: a change that loops for ever costs no more.
  (cd "$copy" && go test -cover -coverprofile "$probe/cover" "./$room/..." >/dev/null)
  # Generated code and the generators are left out.
  (cd "$copy" && "$tool" unleash "${diff[@]}" --workers "${MUTATION_WORKERS:-1}" --timeout-coefficient 200 \
    -E 'internal/(blake3|gencodes)' -o "$out/$name.json" "./$room") | tee "$out/$name.txt" |
    grep -E '^ *(LIVED|TIMED OUT) |^Killed|^Test efficacy|^Mutator' | sed "s|^|$room: |" || true
  n=$(grep -c '^ *LIVED ' "$out/$name.txt" || true)
  lived=$((lived + n))
done
echo "mutation: $lived changes that no test noticed; all outcomes are in .run/mutation"
