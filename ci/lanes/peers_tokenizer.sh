#!/usr/bin/env bash
# Our tokenizer beside Hugging Face tokenizers (npm): 2,000 new texts must give the same ids and
# the same decoded text. --speed [RUNS] compares encode speeds instead, both in turn in one run; it
# fails only where the two give different ids. TEXTS_SEED chooses other texts. Needs npm, Node 20
# and the package registry; 65 MB.
set -euo pipefail
speed_runs=0
case "${1:-}" in
  "") ;;
  --speed)
    speed_runs=${2:-5}
    case $speed_runs in
      "" | *[!0-9]* | 0*)
        echo "peers_tokenizer.sh: --speed $speed_runs: wants a number of runs from 1" >&2
        exit 2
        ;;
    esac
    ;;
  -h | --help)
    echo "usage: [TEXTS_SEED=1] ci/lanes/peers_tokenizer.sh [--speed [RUNS]]"
    exit 0
    ;;
  *)
    echo "peers_tokenizer.sh: unknown option '$1'; see peers_tokenizer.sh --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/../.."
root=$PWD
model=$root/golden/tiny-qwen3_5
if ! command -v npm > /dev/null ||
  ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
  echo "peers_tokenizer.sh: skipped: no npm with Node 20 here" >&2
  exit 77
fi
mkdir -p build-peers/tokenizers
cd build-peers/tokenizers
if [ ! -d node_modules/tokenizers ]; then
  echo '{"private": true}' > package.json
  npm i --ignore-scripts --no-audit --no-fund tokenizers@0.23.2
fi

if [ "$speed_runs" -eq 0 ]; then
  program=$root/build/bin/lockstep-tokenize
  [ -x "$program" ] || "$root/ci/setup/build.sh" cpu --target lockstep-tokenize
  exec node "$root/ci/lanes/peers/tokenizer_check.mjs" "$model" \
    "$root/golden/tokenizer/tokenizer-cases.jsonl" "$program" "${TEXTS_SEED:-1}"
fi

"$root/ci/setup/build.sh" cpu --target text_encode_speed > build.log
# Two texts: the repository's own sources, and the recorded cases' strings (all of Unicode).
(cd "$root" && git ls-files -z '*.cpp' '*.h' '*.md' '*.sh' | xargs -0 cat) > source.txt
node -e 'const fs = require("fs"); const lines = fs.readFileSync(process.argv[1], "utf8");
  fs.writeFileSync("unicode.txt", lines.trimEnd().split("\n")
    .map((line) => JSON.parse(line).text).join("\n"))' \
  "$root/golden/tokenizer/tokenizer-cases.jsonl"
rm -f speed.jsonl
for ((run = 1; run <= speed_runs; ++run)); do
  for file in source unicode; do
    for chunk in 4096 1048576; do
      own=$("$root/build/bin/text_encode_speed" --model "$model" --file $file.txt \
        --chunk-bytes $chunk)
      peer=$(TOKENIZERS_PARALLELISM=false node "$root/ci/lanes/peers/tokenizer_speed.mjs" \
        "$model/tokenizer.json" $file.txt $chunk)
      echo "{\"file\":\"$file\",\"chunk\":$chunk,\"own\":$own,\"peer\":$peer}" >> speed.jsonl
    done
  done
done
exec node "$root/ci/lanes/peers/tokenizer_table.mjs" speed.jsonl
