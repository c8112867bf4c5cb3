#!/usr/bin/env bash
# Thousands of requests with random cancels against two ranks: pages conserved, memory flat, no
# descriptor left open, answers as from an unloaded server. SOAK_REQUESTS (default 2000) says how
# many.
set -euo pipefail
cd "$(dirname "$0")/../.."
ci/setup/build.sh cpu --target serve_rank_test
LOCKSTEP_SOAK_REQUESTS=${SOAK_REQUESTS:-2000} build/tests/serve_rank_test --gtest_filter='Soak.*'
