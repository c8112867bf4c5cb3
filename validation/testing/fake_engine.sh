#!/bin/sh
# Stands in for lockstep-generate in tests: copies the outputs recorded under MODEL/outputs, or fails
# as MODEL/stderr and MODEL/exit say, or sleeps for MODEL/sleep seconds. Its command line goes to
# MODEL/arguments and its jobs to MODEL/jobs.
set -eu
all="$*"
while [ $# -gt 0 ]; do
  case "$1" in
    --model) model=$2 ;;
    --jobs) jobs=$2 ;;
    --out) out=$2 ;;
  esac
  shift
done
printf '%s\n' "$all" > "$model/arguments"
cp "$jobs" "$model/jobs"
if [ -f "$model/sleep" ]; then exec sleep "$(cat "$model/sleep")"; fi
if [ -d "$model/outputs" ]; then cp -r "$model/outputs/." "$out"; fi
if [ -f "$model/stderr" ]; then cat "$model/stderr" >&2; fi
if [ -f "$model/exit" ]; then exit "$(cat "$model/exit")"; fi
