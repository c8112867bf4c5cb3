#!/usr/bin/env bash
# Formats every C++ file that the clang_format rule checks, in place.
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.h' '*.cu' '*.cuh' \
  ':!engine/text/unicode/unicode_data.cpp' | xargs -0 clang-format -i
