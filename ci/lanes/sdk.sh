#!/usr/bin/env bash
# The official client packages of OpenAI and Anthropic (pinned in engine/rank/http/tests/sdk)
# against a rank alone and against the whole server. Ends with 77 when they cannot be installed
# here.
#
# usage: ci/lanes/sdk.sh [PROGRAMS [FOLDER]]: where lockstep-rank lies (build/bin), and where the
# packages go (build/sdk).
set -euo pipefail
cd "$(dirname "$0")/../.."
programs=${1:-build/bin}
folder=${2:-build/sdk}
skip() {
  echo "sdk.sh: SKIPPED: $1"
  exit 77
}
for program in node npm; do
  command -v $program > /dev/null || skip "no $program on this machine"
done
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 18 ] || skip "node $(node --version) is older than 18"

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cp engine/rank/http/tests/sdk/* "$folder"
if ! cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed"; then
  (cd "$folder" && timeout 300 npm ci --no-audit --no-fund > npm.log 2>&1) \
    || skip "npm cannot install the packages: $(tail -n 1 "$folder/npm.log")"
  cp "$folder/package-lock.json" "$folder/node_modules/.installed"
fi

version_of() { node -p "require('$folder/node_modules/$1/package.json').version"; }
echo "sdk.sh: node $(node --version), openai $(version_of openai)," \
  "@anthropic-ai/sdk $(version_of @anthropic-ai/sdk)"
export LOCKSTEP_GOLDEN_DIR=$PWD/golden
programs=$(cd "$programs" && pwd)
server=
trap '[ -z "$server" ] || kill $server 2> /dev/null || true' EXIT

# A rank alone, then two of them behind the proxy.
for command in "lockstep-rank serve --tp 1" "lockstep-serve --port 0"; do
  rm -f "$folder/listening"  # of the server before
  # shellcheck disable=SC2086  # words of a command
  "$programs"/$command --model "$LOCKSTEP_GOLDEN_DIR/tiny-qwen3_5" --threads 1 \
    > "$folder/listening" 2> "$folder/server.log" &
  server=$!
  until [ -s "$folder/listening" ]; do
    kill -0 $server 2> /dev/null || {
      cat "$folder/server.log" >&2
      exit 1
    }
    sleep 0.1
  done
  port=$(head -n 1 "$folder/listening" | sed -n 's/.*"port":\([0-9]*\).*/\1/p')
  echo "sdk.sh: against $command"
  export LOCKSTEP_URL=http://127.0.0.1:$port
  (cd "$folder" && node --test openai.test.mjs anthropic.test.mjs)
  kill $server
  wait $server || true
done
