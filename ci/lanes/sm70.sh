#!/usr/bin/env bash
# The CUDA 12.4 lane: fetches the private toolchains (1.3 GB, once), builds the portable probe
# with its
# kernels for sm_60 to sm_90 and PTX, and tests that one file as a buyer gets it.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
build=$root/build-sm70
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_PROBE_CUDA=ON
cmake --build "$build" --target lockstep-probe probe_test
ctest --test-dir "$build" --output-on-failure --no-tests=error -R '^probe_test\.'
