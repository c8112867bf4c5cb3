#!/usr/bin/env bash
# Builds the libFuzzer programs (preset fuzz) and runs each for FUZZ_SECONDS (default 600) from its
# corpus. Inputs that crash, hang, leak or allocate far more than they hold stay in
# build-fuzz/fuzz/artifacts; add them to the corpus.
set -euo pipefail
case "${1:-}" in
  "") ;;
  -h | --help)
    echo "usage: [FUZZ_SECONDS=600] ci/lanes/fuzz.sh"
    exit 0
    ;;
  *)
    echo "fuzz.sh: unknown option '$1'; see fuzz.sh --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-600}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || {
  echo "fuzz.sh: FUZZ_SECONDS=$seconds is no number of seconds" >&2
  exit 2
}

ci/setup/build.sh fuzz --target lockstep_fuzzers
folder=build-fuzz/fuzz
mkdir -p "$folder/artifacts"
shopt -s nullglob
fuzzers=("$folder"/*_fuzz)
[ ${#fuzzers[@]} -gt 0 ] || {
  echo "fuzz.sh: no fuzz target in $folder: nothing was tried" >&2
  exit 1
}

failed=()
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  found=$folder/found/$name  # inputs with new coverage; kept from run to run
  mkdir -p "$found"
  start=$SECONDS
  outcome=ok
  "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 \
    -print_final_stats=1 -artifact_prefix="$folder/artifacts/$name-" \
    "$found" "$(cat "$folder/$name.corpus")" > "$folder/$name.log" 2>&1 || outcome=FAILED
  if [ $outcome = FAILED ]; then
    failed+=("$name")
    tail -n 40 "$folder/$name.log" >&2
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$name.log")
  printf '%-28s %5d s %12s inputs  %s\n' "$name" $((SECONDS - start)) "${runs:-?}" "$outcome"
done
[ ${#failed[@]} -eq 0 ] || {
  echo "fuzz.sh: failed: ${failed[*]}; inputs in $folder/artifacts" >&2
  exit 1
}
