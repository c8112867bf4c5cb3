#!/usr/bin/env bash
# The server at length. Under AddressSanitizer and ThreadSanitizer: the tests of the proxy and of a
# rank's HTTP server, two real ranks, and the whole server among hostile clients and SANITIZED
# (default 20) requests that leave at random; what a sanitizer says of any program fails the test,
# and one planted finding must. Then, without: SERVE_REQUESTS (default 2000) requests at 1 to 4
# clients that leave at random, and 200 mixed ones against 'generate'.
set -euo pipefail
case "${1:-}" in
  "") ;;
  -h | --help)
    echo "usage: [SERVE_REQUESTS=2000] [SANITIZED=20] ci/lanes/serve.sh [address|thread]"
    exit 0
    ;;
  address | thread) ;;
  *)
    echo "serve.sh: unknown option '$1'; see serve.sh --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/../.."

# Whole reports, and an end at the first one that damages memory.
export ASAN_OPTIONS=abort_on_error=0:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=second_deadlock_stack=1:suppressions=$PWD/ci/lanes/serve.tsan

sanitized() { # PRESET FOLDER
  local tests=(serve_parts_test rank_http_test proxy_test serve_rank_test hostile_test)
  ci/setup/build.sh "$1" --target "${tests[@]}"
  for test in "${tests[@]}"; do
    echo "serve.sh: $1: $test"
    # Soak.* of serve_rank_test and hostile_test read these. Equality compares fifty long texts:
    # under a sanitizer 'generate' alone would take an hour, and finds there what Soak does.
    GTEST_FILTER='-*Equality*' LOCKSTEP_SOAK_REQUESTS=${SANITIZED:-20} \
      LOCKSTEP_SERVING_REQUESTS=${SANITIZED:-20} "$2/tests/$test"
  done
  # A finding that nobody could see would pass too.
  "$2/tests/proxy_test" --gtest_filter='*AFindingInARankIsReported' | grep -q 'PASSED.* 1 test'
}

case "${1:-}" in
  address) sanitized cpu-sanitize build-sanitize ;;
  thread) sanitized cpu-threads build-threads ;;
  "")
    sanitized cpu-sanitize build-sanitize
    sanitized cpu-threads build-threads
    ci/setup/build.sh cpu --target serving_test hostile_test
    LOCKSTEP_SERVING_REQUESTS=200 build/tests/serving_test --gtest_filter='Serving.TextEquals*'
    LOCKSTEP_SERVING_REQUESTS=${SERVE_REQUESTS:-2000} build/tests/hostile_test \
      --gtest_filter='Soak.*'
    ;;
esac
