#!/bin/sh
# Stands in for a GoogleTest program of CUDA ops. Copied under the program's name; two cases of a
# suite named after the program. What it does wrong is in files beside it:
#   fails        every case fails          skips       every case is skipped
#   crashes      ends with a signal        blind       no mutant makes it fail
#   survivors    numbers of mutants that it misses, one a line
#   never-empty  reports a case even when the filter leaves none
set -eu
here=$(dirname "$0")
suite=$(basename "$0")
filter='*'
report=
for argument in "$@"; do
  case "$argument" in
    --gtest_list_tests)
      printf '%s.\n  Bounds\n  Bits  # GetParam() = 1\n' "$suite"
      exit 0
      ;;
    --gtest_output=json:*) report=${argument#--gtest_output=json:} ;;
    --gtest_filter=*) filter=${argument#--gtest_filter=} ;;
  esac
done
printf '%s %s %s\n' "$suite" "${LOCKSTEP_KERNEL_MUTANT:-0}" "$filter" >> "$here/runs"
if [ -f "$here/crashes" ]; then kill -SEGV $$; fi
result=COMPLETED
if [ -f "$here/skips" ]; then result=SKIPPED; fi
failures='[]'
mutant=${LOCKSTEP_KERNEL_MUTANT:-0}
if [ "$mutant" != 0 ] && [ ! -f "$here/blind" ]; then
  if ! grep -qx "$mutant" "$here/survivors" 2>/dev/null; then failures=yes; fi
fi
if [ -f "$here/fails" ]; then failures=yes; fi
if [ "$failures" = yes ]; then failures='[{"failure": "kernel_test.cpp:7\nbound exceeded"}]'; fi
cases="{\"name\": \"Bounds\", \"status\": \"RUN\", \"result\": \"$result\","
cases="$cases \"failures\": $failures}"
if [ "$filter" = '-*' ] && [ ! -f "$here/never-empty" ]; then cases=; fi
if [ -n "$report" ]; then
  printf '{"testsuites": [{"name": "%s", "testsuite": [%s]}]}\n' "$suite" "$cases" > "$report"
fi
if [ "$failures" = '[]' ]; then exit 0; fi
exit 1
