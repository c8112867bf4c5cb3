#!/usr/bin/env bash
# On a machine with a card: the whole server with the CUDA backend behind it: text as 'generate'
# gives it, ranks that are killed or stopped, bits flipped in a rank, request logs, smoke. PROGRAM
# is serving_test of a CUDA build, beside the programs. It starts about eighty servers, four side by
# side.
#
#   serve_cuda.sh PROGRAM [FILTER]   FILTER: GoogleTest filter
set -euo pipefail
program=${1:?usage: serve_cuda.sh PROGRAM [FILTER]}
filter=${2:-*}
shards=4
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
pids=()
for ((shard = 0; shard < shards; ++shard)); do
  LOCKSTEP_TEST_DEVICE=cuda GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
    "$program" --gtest_filter="$filter" >"$logs/$shard" 2>&1 &
  pids+=($!)
done
failed=0
for ((shard = 0; shard < shards; ++shard)); do
  wait "${pids[$shard]}" || failed=1
  cat "$logs/$shard"
done
exit $failed
