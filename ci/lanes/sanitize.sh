#!/usr/bin/env bash
# The CTest suite under AddressSanitizer and UndefinedBehaviorSanitizer (preset cpu-sanitize). The
# tidy rules read text and ran already.
set -euo pipefail
cd "$(dirname "$0")/../.."
ci/setup/build.sh cpu-sanitize
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir build-sanitize --output-on-failure --no-tests=error -LE tidy -j"$(nproc)"
