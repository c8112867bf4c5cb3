#!/usr/bin/env bash
# The CUDA 12.4 lane: fetches the private toolchains (1.3 GB, once), builds the portable probe
# with its kernels for sm_60 to sm_90 and PTX, and tests that one file as a buyer gets it. Then it
# compiles every kernel of the engine for sm_70 and judges registers, spills, shared memory and
# instructions against ci/sass/sm70.json.
#
#   sm70.sh                 everything
#   sm70.sh gate            only the gate of the engine's kernels
#   sm70.sh gate --update   writes the measured figures into the baseline, to be reviewed
#   sm70.sh plant           shows that the gate sees a kernel made worse
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
build=$root/build-sm70
# Sources for every card whose kernels the engine runs, under engine/.
shared=(comm/cuda/exchange_kernel ops/argmax/cuda/argmax ops/attention/cuda/merge
  ops/causal_conv/cuda/causal_conv_decode ops/causal_conv/cuda/causal_conv_prefill
  ops/embedding/cuda/embedding ops/gated_delta/cuda/chunk_prepare ops/gated_delta/cuda/chunk_scan
  ops/gated_delta/cuda/gated_delta_decode ops/gated_rmsnorm/cuda/gated_rmsnorm
  ops/gdn_gates/cuda/gdn_gates ops/hadamard/cuda/hadamard ops/kv_write/cuda/kv_write
  ops/linear/cuda/prepare ops/prepare_heads/cuda/prepare_heads ops/residual_add/cuda/residual_add
  ops/rmsnorm/cuda/rmsnorm ops/rope/cuda/rope ops/sample/cuda/choose ops/sample/cuda/draw
  ops/sample/cuda/scan ops/swiglu/cuda/swiglu ops/verify/cuda/verify)

# Compiles the sm_70 kernels and prints what cuobjdump says about them. Words after the first are
# flags of nvcc.
dump_kernels() {
  local output=$1 toolkit source object
  shift
  toolkit=$("$root/ci/toolchain/fetch.sh" cuda)
  local nvcc=$toolkit/usr/lib/nvidia-cuda-toolkit/bin/nvcc
  local objects=()
  mkdir -p "$build/sass"
  local sources=("$root"/engine/ops/*/cuda/*_sm70.cu)
  for source in "${shared[@]}"; do sources+=("$root/engine/$source.cu"); done
  for source in "${sources[@]}"; do
    object=$build/sass/$(basename "$source" .cu).cubin
    "$nvcc" -ccbin g++ -std=c++20 -O3 --fmad=false -arch=sm_70 -I"$root" "$@" \
      -cubin "$source" -o "$object"
    objects+=("$object")
  done
  for object in "${objects[@]}"; do
    "$toolkit/usr/bin/cuobjdump" -res-usage "$object"
    "$toolkit/usr/bin/cuobjdump" -sass "$object"
  done >"$output" 2>&1
}

gate() {
  cmake --build "$build" --target lockstep-sass-gate
  dump_kernels "$build/sass/dump.txt"
  "$build/bin/lockstep-sass-gate" "$build/sass/dump.txt" "$root/ci/sass/sm70.json" "$@"
}

# A kernel that converts its codes the slow way must not pass.
plant() {
  cmake --build "$build" --target lockstep-sass-gate
  dump_kernels "$build/sass/planted.txt" -DLOCKSTEP_PLANT_CONVERSION
  if "$build/bin/lockstep-sass-gate" "$build/sass/planted.txt" "$root/ci/sass/sm70.json"; then
    echo "sm70.sh: the gate passed a kernel with conversions in its inner loop" >&2
    return 1
  fi
}

configure() {
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_PROBE_CUDA=ON
}

case "${1:-}" in
gate)
  configure
  shift
  gate "$@"
  ;;
plant)
  configure
  plant
  ;;
"")
  configure
  gate
  plant
  cmake --build "$build" --target lockstep-probe probe_test
  ctest --test-dir "$build" --output-on-failure --no-tests=error -R '^probe_test\.'
  ;;
*)
  echo "usage: sm70.sh [gate [--update] | plant]" >&2
  exit 2
  ;;
esac
