#!/usr/bin/env bash
# What ./test --long adds: the suite under sanitizers, every fuzz target, another engine and another
# tokenizer as peers, soaks of the ranks and of the server. Every lane runs, also behind one that
# failed; a lane that cannot run here (exit 77) is listed as skipped.
set -euo pipefail
cd "$(dirname "$0")"
failed=0
times=()
for lane in seeds labels mutants sanitize fuzz peers peers_tokenizer soak serve; do
  start=$SECONDS
  outcome=ok
  status=0
  ./$lane.sh || status=$?
  case $status in
    0) ;;
    77) outcome=skipped ;;
    *)
      outcome=FAILED
      failed=1
      ;;
  esac
  times+=("$(printf '%-16s %5d s  %s' $lane $((SECONDS - start)) $outcome)")
done
echo "== times of the long lanes"
printf '%s\n' "${times[@]}"
exit $failed
