#!/usr/bin/env bash
# The web page in Chromium, against two ranks of the golden model: as on a desk and as on a phone;
# then the reports of gate, diverge and probe, which must keep the width of a phone.
# Ends with 77 when there is no Chromium or no node.
#
# usage: ci/lanes/page.sh [PROGRAMS [FOLDER]]: where the programs lie (build/bin), and where the
# screenshots go (build/page).
set -euo pipefail
cd "$(dirname "$0")/../.."
programs=$(cd "${1:-build/bin}" && pwd)
folder=${2:-build/page}
skip() {
  echo "page.sh: SKIPPED: $1"
  exit 77
}
command -v node > /dev/null || skip "no node on this machine"
chromium=${CHROMIUM:-$(command -v chromium chromium-browser google-chrome | head -n 1 || true)}
[ -n "$chromium" ] || skip "no Chromium on this machine (apt-get install chromium)"
mkdir -p "$folder"
echo "page.sh: node $(node --version), $("$chromium" --version 2> /dev/null)"
export LOCKSTEP_SERVE=$programs/lockstep-serve LOCKSTEP_GOLDEN_DIR=$PWD/golden
export LOCKSTEP_PROGRAMS=$programs
export CHROMIUM=$chromium LOCKSTEP_SCREENSHOTS=$folder
node --test engine/serve/tests/page/page.test.mjs
node --test validation/testing/reports.test.mjs
