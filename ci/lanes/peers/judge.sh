#!/usr/bin/env bash
# 'lockstep diverge' judges llama.cpp against the oracle: float files, an 8-bit file, and float
# files with planted mistakes of a converter. Runs in build-peers, called by peers.sh, which has
# fetched the package and built the harness. Usage: judge.sh ROOT LIBRARIES
set -euo pipefail
root=$1
libraries=$2
[ -x "$root/build/bin/lockstep-diverge" ] ||
  "$root/ci/setup/build.sh" cpu --target lockstep-diverge
oracle=$root/golden/oracle/public
model=$root/golden/tiny-qwen3_5
failed=0
prompts=() # --prompt NAME ...; none: all

figures() { # figures REPORT: prompts, equal tokens, forks, largest rms of the table of prompts
  awk '/^prompt +verdict/ { table = 1; next }
    /^(no )?forks$/ { table = 0 }
    table { prompts++; equal += $(NF-3); all += $(NF-2); forks += $(NF-1)
            if ($NF + 0 > rms) rms = $NF + 0 }
    END { printf "%2d prompts, %4d of %4d tokens before the first fork, %3d forks, rms %.3g",
                 prompts, equal, all, forks, rms }' "$1"
}

judge() { # judge NAME GGUF CACHE DECLARED VERDICTS...: starts a server on the file and judges it
  local name=$1 file=$2 cache=$3 declared=$4
  shift 4
  : > server.out
  harness/llama_server "$file" "$libraries" "$cache" > server.out 2> "$name.server.log" &
  local server=$! port=""
  for _ in $(seq 300); do
    port=$(sed -n 's/^port //p' server.out)
    [ -n "$port" ] && break
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
  done
  local verdict=ERROR
  if [ -n "$port" ]; then
    "$root/build/bin/lockstep-diverge" "oracle:$oracle" "http://127.0.0.1:$port" \
      --prompts "$oracle" --model "$model" --precision "$declared" --top 16 --local 0 \
      "${prompts[@]}" \
      --html "$name.html" > "$name.txt" 2> "$name.log" || true
    verdict=$(sed -n 's/^verdict: \([A-Z]*\).*/\1/p' "$name.txt")
  fi
  kill "$server" 2> /dev/null || true
  wait "$server" 2> /dev/null || true
  local expected
  for expected in "$@"; do
    if [ "$verdict" = "$expected" ]; then
      printf '%-20s %-7s %s\n' "$name" "$verdict" "$(figures "$name.txt")"
      return
    fi
  done
  echo "$name: $verdict, expected $*" >&2
  tail -n 5 "$name.txt" "$name.log" "$name.server.log" >&2 || true
  failed=1
}

for type in f32 f16 q8_0; do
  [ -f "gguf/model-$type.gguf" ] ||
    "$root/build/bin/lockstep-weights" convert --model "$model" --to "gguf-$type" --out gguf \
      > /dev/null
done
judge llama-f32 gguf/model-f32.gguf f32 fp32 SAME TIE
judge llama-f16 gguf/model-f16.gguf f16 f16 SAME TIE
judge llama-q8_0 gguf/model-q8_0.gguf f16 f16 DRIFT
sed -n '/^forks$/,/^operations/p' llama-q8_0.txt | sed '$d'
# Each fork costs a completion, and these fork at nearly every step: short prompts will do.
prompts=(--prompt chat-code --prompt chat-choice --prompt repeat)
for mistake in v-heads-not-tiled norm-without-one q-and-gate-swapped a-log-kept \
  layer-from-another; do
  /usr/bin/python3 "$root/ci/lanes/peers/plant_gguf.py" gguf/model-f32.gguf planted.gguf "$mistake"
  judge "$mistake" planted.gguf f32 fp32 DEFECT
done
exit $failed
