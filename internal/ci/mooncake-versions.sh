#!/usr/bin/env bash
# mooncake-versions.sh [VERSION...]: runs the tests that have real parts of Mooncake with
# other releases of its wheel, and prints a line each. Each release is about 100 MB in
# .tools/py, so no other command runs this. Exit status 1: a test failed that has to pass.
set -uo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- 0.3.13 0.3.12.post1 0.3.12 0.3.11.post1 0.3.10.post2 0.3.9
python3 -m pip --version >/dev/null || exit 1
install() { # folder requirement
  [ -e "$1/.installed" ] && return
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-cache-dir --no-deps --only-binary :all: --target "$1" "$2" && touch "$1/.installed"
}
root=$PWD/.tools/py failed=0
# What has to pass. Engines before 0.3.12 acknowledge no write, those before 0.3.10 cannot
# be written to, and masters before 0.3.13 have other functions for clients: they are told
# apart, by a test that all have to pass.
read='TestARealEngineConnects|TestARealEngineAndWeFindEachOther|TestTwoRealEnginesFindEachOtherAndMoveBytes|TestARealEngineThatComesBack|TestTheEntryOfARealEngine|TestANameHasOneOwner'
blocks="$read|TestFiveThousandShortTransfersWithARealEngine|TestWeReadAndWriteARealEngines|TestMixedSizes|TestADaemonSharesBlocks|TestADaemonAndARealEngineFindEachOther"
acked="$blocks|TestAMessageReachesA|TestAMooncakeOnlyApplication|TestARealEngineReadsAndWrites|TestWeSpeakBothVersions|TestTwoRealEngines|TestABatchOfARealEngine|TestARealTarget|TestARestartedMetadataServer|TestAStorageNodeDrains|TestARealStoreClientKeepsObjects"
store="$acked|TestTheRealMasterAnswers|TestObjects|TestTenThousandObjects|TestAMasterThatRestarts|TestClientAndNodeFollowTheLeader|TestADaemonsBlocksInAStore|TestAnOperatorReadsObjects|TestContract"
for v in "$@"; do
  install "$root/mooncake-$v" "mooncake-transfer-engine-non-cuda==$v" || { echo "$v: not installed"; failed=1; continue; }
  lib=
  case $v in
  0.3.12* | 0.3.13) # programs of theirs need CUDA's run time
    install "$root/cudart" nvidia-cuda-runtime-cu12==12.8.90 || { failed=1; continue; }
    lib=$root/cudart/nvidia/cuda_runtime/lib ;;
  esac
  case $v in
  0.3.12*) set=$acked ;;
  0.3.13*) set=$store ;;
  0.3.9*) set=$read ;;
  *) set=$blocks ;;
  esac
  for part in "$set" TestAMasterOfAnotherRelease; do
    if MERIDIAN_TEST_MOONCAKE=$root/mooncake-$v LD_LIBRARY_PATH=$lib go test -trimpath -count=1 -v -run "$part" ./adapters/mooncake/... >"$root/mooncake-$v.log" 2>&1; then
      echo "$v: $(grep -c '^--- PASS' "$root/mooncake-$v.log") tests passed"
    else
      echo "$v: FAILED: $(grep -h '^--- FAIL' "$root/mooncake-$v.log" | cut -d' ' -f3 | tr '\n' ' ')"
      failed=1
    fi
    grep -h ': differs: ' "$root/mooncake-$v.log" | sed -E 's/^ +([A-Za-z]+): differs: ([^:]*).*/  \1 differs: \2/' | sort -u
  done
done
exit $failed
