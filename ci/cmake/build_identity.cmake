# Writes OUTPUT, a header that says which commit this build came from; leaves it alone when nothing
# changed. Run at build time (cmake -P), so that a commit between two builds is noticed.
execute_process(COMMAND git rev-parse HEAD WORKING_DIRECTORY ${SOURCE_DIR}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(dirty false)
if(failed)
  set(commit "")
else()
  execute_process(COMMAND git status --porcelain --untracked-files=no
                WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(NOT changes STREQUAL "")
    set(dirty true)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once

namespace lockstep {

inline constexpr const char* kBuildVersion = "@VERSION@";
inline constexpr const char* kBuildCommit = "@commit@";  // empty outside a git checkout
inline constexpr bool kBuildDirty = @dirty@;             // tracked files differ from the commit
inline constexpr const char* kBuildFlags = "@FLAGS@";    // of every host translation unit

}  // namespace lockstep
]] @ONLY)
