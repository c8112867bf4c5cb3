#!/usr/bin/env bash
# What ./test --long adds: the suite under sanitizers, then every fuzz target. Every lane runs, also
# behind one that failed.
set -euo pipefail
cd "$(dirname "$0")"
failed=0
times=()
for lane in sanitize fuzz; do
  start=$SECONDS
  outcome=ok
  ./$lane.sh || outcome=FAILED
  [ $outcome = ok ] || failed=1
  times+=("$(printf '%-12s %5d s  %s' $lane $((SECONDS - start)) $outcome)")
done
echo "== times of the long lanes"
printf '%s\n' "${times[@]}"
exit $failed
