#!/bin/sh
# Stands in for `lockstep-bench ops --json`; the file no-samples beside it takes the samples away,
# the file forgets one op of two.
samples='[2e-5, 1e-5, 3e-5]'
if [ -f "$(dirname "$0")/no-samples" ]; then samples='[]'; fi
folders='"linear", "attention"'
if [ -f "$(dirname "$0")/forgets" ]; then folders='"linear"'; fi
cat << JSON
{"device": "Fake V100", "multiprocessors": 80, "read_bytes_per_s": 8e11,
 "rows": [{"op": "linear nvfp4", "case": "half", "tokens": 1, "bytes": 8e6, "seconds": 2e-5,
           "folders": [$folders], "samples": $samples}]}
JSON
