#!/usr/bin/env bash
# The slowest steps of the last builds in a build folder (default build), seconds of wall time. What
# ccache answered counts as fast: for a cold figure set CCACHE_RECACHE=1 and build a new folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
log=${1:-build}/.ninja_log
[ -r "$log" ] || {
  echo "build_times.sh: $log: no build there" >&2
  exit 1
}
awk '!/^#/ { seconds[$4] = ($2 - $1) / 1000 }
     END { for (step in seconds) printf "%8.1f  %s\n", seconds[step], step }' "$log" |
  sort -rn | awk '{ total += $1 } NR <= 25 { print } END { printf "%8.1f  total\n", total }'
