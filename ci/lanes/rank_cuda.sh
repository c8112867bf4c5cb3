#!/usr/bin/env bash
# On a machine with a card: the engine's own tests, with the CUDA backend behind them. PROGRAM is
# build-cuda/tests/rank_test. Left out: what needs precision fp32, and what only reads files. Two
# ranks meet in one process and through the host; 'lockstep compare --tp 2' joins processes.
#
#   rank_cuda.sh PROGRAM [DEVICE]   DEVICE: cuda (the default), cuda:N, cuda@sm70
set -euo pipefail
program=${1:?usage: rank_cuda.sh PROGRAM [DEVICE]}
filter='Speculation.*:PrefixCache.*:Slots.*:CardRounds.*:*/Ranks.*'
LOCKSTEP_TEST_DEVICE=${2:-cuda} "$program" --gtest_brief=1 --gtest_filter="$filter"
