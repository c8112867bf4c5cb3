#!/usr/bin/env bash
# The server at length: the proxy and the HTTP server of a rank under AddressSanitizer and
# ThreadSanitizer, then SERVE_REQUESTS (default 2000) requests at 1 to 4 clients that leave at
# random, and 200 mixed ones against 'generate'.
set -euo pipefail
case "${1:-}" in
  "") ;;
  -h | --help)
    echo "usage: [SERVE_REQUESTS=2000] ci/lanes/serve.sh"
    exit 0
    ;;
  *)
    echo "serve.sh: unknown option '$1'; see serve.sh --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/../.."
for preset in cpu-sanitize cpu-threads; do
  ci/setup/build.sh $preset --target proxy_test rank_http_test serve_parts_test
  folder=build-sanitize
  [ $preset = cpu-sanitize ] || folder=build-threads
  for test in proxy_test rank_http_test serve_parts_test; do $folder/tests/$test; done
done
ci/setup/build.sh cpu --target serving_test
LOCKSTEP_SERVING_REQUESTS=200 build/tests/serving_test --gtest_filter='Serving.TextEquals*'
LOCKSTEP_SERVING_REQUESTS=${SERVE_REQUESTS:-2000} build/tests/serving_test --gtest_filter='Soak.*'
