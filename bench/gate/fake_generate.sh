#!/bin/sh
# Stands in for lockstep-generate in tests: every job takes FOLDER/seconds, give or take
# FOLDER/noise percent that the number of the call alone decides.
set -eu
folder=${0%/*}
for argument in "$@"; do
  case "$argument" in
    --jobs=*) jobs=${argument#--jobs=} ;;
    --out=*) out=${argument#--out=} ;;
  esac
done
[ -f "$folder/fails" ] && { echo 'lockstep-generate: out of pages' >&2; exit 1; }
echo "$*" >> "$folder/calls"
read -r seconds < "$folder/seconds"
read -r noise < "$folder/noise"
mkdir -p "$out"
awk -v s="$seconds" -v noise="$noise" '
  FILENAME == ARGV[1] { n = FNR; next }
  {
    t = s * (1 + noise / 100 * ((n * n * 7919 + n * 104729) % 101 - 50) / 50)
    printf "{\"timing\": {\"prefill_tokens\": 9, \"prefill_s\": %.9f, \"decode_tokens\": 8, ", t
    printf "\"decode_s\": %.9f}, ", 2 * t
    printf "\"mtp\": {\"rounds\": 8, \"drafted\": 0, \"accepted\": 0}}\n"
  }' "$folder/calls" "$jobs" > "$out/results.jsonl"
