#!/bin/sh
# Stands in for lockstep-generate in tests: copies outputs recorded under MODEL, or fails as
# MODEL/stderr
# and MODEL/exit say, or sleeps for MODEL/sleep seconds. Its command line goes to MODEL/arguments
# and its
# jobs to MODEL/jobs. The first of these folders that exists is copied, N counting the calls:
#   outputs-call-N, outputs-PRECISION-tpTP-grid-GRID, outputs-PRECISION-tpTP, outputs
# and for the fault that the gate plants itself (--fault gdn...) outputs-faulty.
# MODEL/no-backend is what it says to --backend cuda before it fails.
set -eu
all="$*"
precision=
tp=
grid=
fault=
backend=
while [ $# -gt 0 ]; do
  case "$1" in
    --model) model=$2 ;;
    --jobs) jobs=$2 ;;
    --out) out=$2 ;;
    --precision) precision=$2 ;;
    --tp) tp=$2 ;;
    --prefill-grid) grid=$2 ;;
    --fault) fault=$2 ;;
    --backend) backend=$2 ;;
  esac
  shift
done
if [ "$backend" = cuda ] && [ -f "$model/no-backend" ]; then
  cat "$model/no-backend" >&2
  exit 1
fi
printf '%s\n' "$all" >> "$model/arguments"
cp "$jobs" "$model/jobs"
call=$(wc -l < "$model/arguments")
if [ -f "$model/sleep" ]; then exec sleep "$(cat "$model/sleep")"; fi
case "$fault" in
  gdn*) folders=outputs-faulty ;;
  *)
    folders="outputs-call-$call outputs-$precision-tp$tp-grid-$grid"
    folders="$folders outputs-$precision-tp$tp outputs"
    ;;
esac
for folder in $folders; do
  if [ -d "$model/$folder" ]; then
    cp -r "$model/$folder/." "$out"
    break
  fi
done
if [ -f "$model/stderr" ]; then cat "$model/stderr" >&2; fi
if [ -f "$model/exit" ]; then exit "$(cat "$model/exit")"; fi
