#!/usr/bin/env bash
# Every mutant of the catalogue against the full gate; exit 1 when less than 95 % are killed.
set -euo pipefail
cd "$(dirname "$0")/../.."
build/bin/lockstep gate --full --out build/gate-full
