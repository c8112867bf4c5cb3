// lockstep-bench-ops: op benchmarks for kernel developers, one thread. `[linear]`, `[rows]` and
// the like choose; `-l` lists them.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
