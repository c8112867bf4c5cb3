#!/bin/sh
# Stands in for lockstep-weights in tests: "shard" makes the folder of a model that exists; "verify"
# fails when MODEL/bad-shards exists, with its text, and for shards in a folder called corrupt.
set -eu
command=$1
while [ $# -gt 0 ]; do
  case "$1" in
    --model) model=$2 ;;
    --out) out=$2 ;;
    --shards) shards=$2 ;;
  esac
  shift
done
case "$command" in
  shard)
    [ -d "$model" ]
    mkdir -p "$out"
    ;;
  verify)
    [ -d "$shards" ]
    case "$shards" in */corrupt) exit 1 ;; esac
    if [ -f "$model/bad-shards" ]; then cat "$model/bad-shards" >&2; exit 1; fi
    ;;
esac
