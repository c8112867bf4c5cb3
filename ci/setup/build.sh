#!/usr/bin/env bash
# Configures and builds one preset (default cpu). Reuses an existing build folder and ccache.
set -euo pipefail
cd "$(dirname "$0")/../.."
preset=${1:-cpu}
shift || true
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset "$preset" > build-configure.log 2>&1 || { cat build-configure.log >&2; exit 1; }
rm -f build-configure.log
cmake --build --preset "$preset" "$@"
