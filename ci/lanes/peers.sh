#!/usr/bin/env bash
# llama.cpp reads our GGUF files and must give the oracle's tokens (gguf-f32, gguf-f16), fork where
# rounding to 8 bits is known to fork (gguf-q8_0), and draft as the oracle does (--mtp). Needs npm,
# Node 20 and the package registry; 85 MB. --speed [RUNS] compares speeds instead: both engines in
# turn, in one run, so that both meet the same neighbours. It judges nothing.
set -euo pipefail
speed_runs=0
case "${1:-}" in
  "") ;;
  --speed)
    speed_runs=${2:-3}
    case $speed_runs in
      "" | *[!0-9]* | 0*)
        echo "peers.sh: --speed $speed_runs: wants a number of runs from 1" >&2
        exit 2
        ;;
    esac
    ;;
  -h | --help)
    echo "usage: ci/lanes/peers.sh [--speed [RUNS]]"
    exit 0
    ;;
  *)
    echo "peers.sh: unknown option '$1'; see peers.sh --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/../.."
root=$PWD
if ! command -v npm > /dev/null ||
  ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
  echo "peers.sh: skipped: no npm with Node 20 here" >&2
  exit 77
fi
weights=$root/build/bin/lockstep-weights
[ -x "$weights" ] || ci/setup/build.sh cpu --target lockstep-weights

mkdir -p build-peers
cd build-peers
version=3.22.1
if [ ! -d node_modules/node-llama-cpp ]; then
  echo '{"private": true}' > package.json
  npm i --omit=optional --ignore-scripts --no-audit --no-fund \
    "node-llama-cpp@$version" "@node-llama-cpp/linux-x64@$version"
fi

if [ "$speed_runs" -gt 0 ]; then
  [ -x "$root/build/bin/lockstep-bench" ] || "$root/ci/setup/build.sh" cpu --target lockstep-bench
  "$weights" convert --model "$root/golden/tiny-qwen3_5" --to gguf-f16 --out gguf > /dev/null
  # The same weights in 16 bits for us too: then both read as many bytes a token.
  rm -rf bf16 speed
  "$weights" convert --model "$root/golden/tiny-qwen3_5" --to bf16 --out bf16 > /dev/null
  mkdir speed
  for ((run = 1; run <= speed_runs; ++run)); do
    node "$root/ci/lanes/peers/llama_speed.mjs" gguf/model-f16.gguf \
      "$root/golden/oracle/public.json" 2> speed/peer.log > "speed/peer-$run.json" || {
      tail -n 20 speed/peer.log >&2
      exit 1
    }
    "$root/build/bin/lockstep-bench" cpu --golden "$root/golden" --sections engine --runs 1 --json \
      > "speed/lockstep-$run.json"
    "$root/build/bin/lockstep-bench" cpu --golden "$root/golden" --model bf16 --sections engine \
      --runs 1 --json > "speed/lockstep16-$run.json"
  done
  exec node "$root/ci/lanes/peers/speed_table.mjs" speed
fi

failed=0
check() { # check TYPE JAVASCRIPT: converts, runs, and judges the report with an expression over r
  local type=$1 condition=$2 report
  "$weights" convert --model "$root/golden/tiny-qwen3_5" --to "gguf-$type" --out gguf > /dev/null
  report=$(node "$root/ci/lanes/peers/llama_greedy.mjs" "gguf/model-$type.gguf" \
    "$root/golden/oracle/public.json" 2> "$type.log" | tail -n 1) || {
    tail -n 20 "$type.log" >&2
    report='{}'
  }
  echo "gguf-$type $report"
  node -e "const r = $report; process.exit(($condition) ? 0 : 1)" 2> /dev/null || {
    echo "peers.sh: gguf-$type: not what is known of it" >&2
    failed=1
  }
}
check f32 'r.tokens === 1152 && r.matches === 1152'
check f16 'r.tokens === 1152 && r.matches === 1152'
# A check that cannot fail proves nothing: the 8-bit file must fork where it is known to. All three
# forks are near ties of the oracle (margins 0.015 to 0.051) and move with the size of a prompt's
# batches and with the attention's path, both of which round; they are known for batches of 64.
check q8_0 'r.forks["chat-tool"] === 61 && r.forks["code-short"] === 0 &&
  r.forks["code-3k"] === 52 && !("zh-short" in r.forks)'

# The MTP layer drafts through the library's C++ interface, which Node does not reach.
libraries=$(echo "$PWD"/node_modules/@node-llama-cpp/linux-x64/bins/*)
[ -d llama ] || git -c advice.detachedHead=false clone -q \
  node_modules/node-llama-cpp/llama/gitRelease.bundle llama
cmake -S "$root/ci/lanes/peers" -B harness -G Ninja -DCMAKE_BUILD_TYPE=Release \
  "-DLLAMA_SOURCE=$PWD/llama" "-DLLAMA_LIBRARIES=$libraries" > harness.log
cmake --build harness >> harness.log
check_drafts() { # check_drafts NAME FILE JAVASCRIPT
  local report
  report=$(harness/llama_mtp "$2" "$root/golden/oracle/public.json" "$libraries" 2> mtp.log) || {
    tail -n 20 mtp.log >&2
    report='{}'
  }
  echo "$1 $report"
  node -e "const r = $report; process.exit(($3) ? 0 : 1)" 2> /dev/null || {
    echo "peers.sh: $1: not what is known of it" >&2
    failed=1
  }
}
"$weights" convert --model "$root/golden/tiny-qwen3_5" --to gguf-f32 --mtp --out mtp > /dev/null
check_drafts gguf-f32-mtp mtp/model-f32.gguf \
  'r.layers === 1 && r.prompts === 12 && r.drafts === 2994 && r.equal === 2994'
# Planted: the norms of the embedding and of the hidden state change places.
node -e 'const fs = require("fs"); const bytes = fs.readFileSync("mtp/model-f32.gguf");
  const [e, h] = ["nextn.enorm", "nextn.hnorm"].map((name) => bytes.indexOf(name));
  bytes.write("nextn.hnorm", e); bytes.write("nextn.enorm", h);
  fs.writeFileSync("mtp/planted.gguf", bytes)'
check_drafts planted mtp/planted.gguf 'r.drafts === 2994 && r.equal < 2900'

# The same engine behind an endpoint, judged by 'lockstep diverge'.
"$root/ci/lanes/peers/judge.sh" "$root" "$libraries" || failed=1
exit $failed
