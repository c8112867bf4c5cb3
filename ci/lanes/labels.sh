#!/usr/bin/env bash
# The labels of 'lockstep diverge', on the golden model: LABELS (500) pairs of an honest engine and
# a prompt, and as many with a defect of 1 to 100 bounds. At least 99 % must be right.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
/usr/bin/python3 ci/lanes/labels/judge_engines.py build/bin golden "${LABELS:-500}" "$folder"
