#!/usr/bin/env bash
# The false-alarm rate, measured: ten thousand seeds through every op's derived bound, and 200
# variants of the whole engine (threads, chunk sizes, vector widths, TP, slots, drafts, KV types)
# that must all give the bits of a formula.
set -euo pipefail
cd "$(dirname "$0")/../.."
LOCKSTEP_OP_SEEDS=10000 build/tests/ops_seeds_test
LOCKSTEP_ENGINE_VARIANTS=200 build/tests/exact_test --gtest_filter='*GridOfVariants*'
