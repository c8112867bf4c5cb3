#!/usr/bin/env bash
# On a machine with a card: arms each kernel mutant in turn and wants the op tests to fail; without
# one armed they must pass. A race need not show in the results: what the tests miss is given to
# compute-sanitizer's racecheck. PROGRAM is build-cuda/tests/ops_cuda_mutants_test.
#
#   cuda_mutants.sh PROGRAM [FILTER]   FILTER: GoogleTest filter of the tests to run
set -euo pipefail
program=${1:?usage: cuda_mutants.sh PROGRAM [FILTER]}
filter=${2:-*}
header=$(cd "$(dirname "$0")/../.." && pwd)/engine/ops/common/cuda/mutant.cuh
run() {
  LOCKSTEP_KERNEL_MUTANT=$1 timeout 300 "$program" --gtest_brief=1 --gtest_fail_fast \
    --gtest_filter="$filter" 2>&1
}
if ! output=$(run 0); then
  echo "$output"
  echo "cuda_mutants.sh: the tests fail without a mutant" >&2
  exit 1
fi
races() {
  command -v compute-sanitizer >/dev/null &&
    ! LOCKSTEP_KERNEL_MUTANT=$1 timeout 300 compute-sanitizer --tool racecheck --error-exitcode 9 \
      "$program" --gtest_brief=1 --gtest_filter="$RACE_FILTER" >/dev/null 2>&1
}
RACE_FILTER="*ManyTiles*sm80_f16:*LinearPrefill*RunsGive*sm80_f16:*AMaximumThatGrows*"
RACE_FILTER+=":GatedDeltaCuda.RunsGive*:GdnGatesCuda.RoundsReplay*:*EveryNumberOfValueHeads*"
RACE_FILTER+=":*TwoValuesInTurn*"
survivors=0
while read -r name number; do
  if ! run "$number" >/dev/null; then
    echo "caught   $name"
  elif races "$number"; then
    echo "caught   $name (racecheck)"
  else
    echo "SURVIVED $name"
    survivors=$((survivors + 1))
  fi
done < <(sed -nE 's/^  ([a-z_0-9]+) = ([1-9][0-9]{0,2}),.*/\1 \2/p' "$header")
echo "$survivors survived"
[ "$survivors" -eq 0 ]
