# What `cmake --install BUILD --prefix TREE` makes: a tree that runs on a machine without Debian's
# libraries. Included last, when all targets are known.
#
#   bin/                   all programs
#   tests/                 CUDA build: the op tests, the same with planted faults, op_tests.json
#   lib/                   the libraries that the programs need beyond glibc and libstdc++
#   share/lockstep/        sources.json, ungated-ops.txt, policy.json, waivers.json
#   share/lockstep/golden  component golden: the model and the oracle of the gate
get_property(programs GLOBAL PROPERTY LOCKSTEP_PROGRAMS)
get_property(op_tests GLOBAL PROPERTY LOCKSTEP_OP_TESTS)
get_property(op_test_programs GLOBAL PROPERTY LOCKSTEP_OP_TEST_PROGRAMS)

# Digests of the sources as they were built, and which ops a receipt covers: for machines without
# the sources, and for the engine at its start.
set(share ${CMAKE_BINARY_DIR}/share/lockstep)
add_custom_target(lockstep_share ALL
  COMMAND $<TARGET_FILE:lockstep-receipt> bake --source ${CMAKE_SOURCE_DIR} --out ${share}
  BYPRODUCTS ${share}/sources.json ${share}/ungated-ops.txt
  COMMENT "Digests of the sources and receipts"
  VERBATIM)
add_dependencies(lockstep_share lockstep-receipt)
install(FILES ${share}/sources.json ${share}/ungated-ops.txt ci/policy.json ci/waivers.json
  DESTINATION share/lockstep)
install(DIRECTORY golden/tiny-qwen3_5 golden/oracle DESTINATION share/lockstep/golden
  COMPONENT golden)

set(installed_tests)
if(LOCKSTEP_CUDA AND LOCKSTEP_TESTS)
  # Mutants as mutant.cuh numbers them, each with the op whose kernels ask for it.
  set(mutants)
  set(header ${CMAKE_SOURCE_DIR}/engine/ops/common/cuda/mutant.cuh)
  file(STRINGS ${header} lines REGEX "^  [a-z_0-9]+ = [1-9][0-9]?[0-9]?,")
  file(GLOB kernels engine/ops/*/cuda/*.cu engine/ops/*/cuda/*.cuh)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  foreach(line ${lines})
    string(REGEX MATCH "([a-z_0-9]+) = ([0-9]+)" unused "${line}")
    set(name ${CMAKE_MATCH_1})
    set(number ${CMAKE_MATCH_2})
    set(op)
    foreach(kernel ${kernels})
      file(STRINGS ${kernel} uses REGEX "Mutant::${name}[^a-z_0-9]" LIMIT_COUNT 1)
      if(uses)
        string(REGEX REPLACE ".*/ops/([a-z_0-9]+)/cuda/.*" "\\1" op ${kernel})
        set(holder ${kernel})
      endif()
    endforeach()
    if(op STREQUAL "common")
      # Ops share the header; the tests of one of them must find it.
      cmake_path(RELATIVE_PATH holder BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      foreach(kernel ${kernels})
        file(STRINGS ${kernel} uses REGEX "^#include \"${holder}\"" LIMIT_COUNT 1)
        if(uses AND NOT kernel MATCHES "/common/")
          string(REGEX REPLACE ".*/ops/([a-z_0-9]+)/cuda/.*" "\\1" op ${kernel})
        endif()
      endforeach()
    endif()
    if(NOT op)
      message(FATAL_ERROR "mutant.cuh: no kernel asks for ${name}")
    endif()
    list(APPEND mutants "{\"name\": \"${name}\", \"number\": ${number}, \"op\": \"${op}\"}")
  endforeach()
  list(JOIN op_tests ",\n    " op_tests)
  list(JOIN mutants ",\n    " mutants)
  get_property(samples GLOBAL PROPERTY LOCKSTEP_SANITIZER_SAMPLE)
  list(JOIN samples "\", \"" samples)
  set(list ${CMAKE_BINARY_DIR}/tests/op_tests.json)
  file(CONFIGURE OUTPUT ${list} CONTENT [[
{
  "format": "lockstep-op-tests",
  "format_version": 1,
  "programs": [
    @op_tests@
  ],
  "sanitizer_sample": ["@samples@"],
  "mutant_program": "ops_cuda_mutants_test",
  "mutants": [
    @mutants@
  ]
}
]] @ONLY)
  set(installed_tests ${op_test_programs} ops_cuda_mutants_test)
  set_target_properties(ops_cuda_mutants_test PROPERTIES EXCLUDE_FROM_ALL OFF)
  install(TARGETS ${installed_tests} RUNTIME DESTINATION tests)
  install(FILES ${list} DESTINATION tests)
endif()

# All that the tree holds: cmake --build BUILD --target lockstep_tree.
add_custom_target(lockstep_tree DEPENDS ${programs} ${installed_tests} lockstep_share)

set(LOCKSTEP_INSTALLED_PROGRAMS ${programs})
list(TRANSFORM LOCKSTEP_INSTALLED_PROGRAMS REPLACE "(.+)" "$<TARGET_FILE:\\1>")
install(CODE "set(programs \"${LOCKSTEP_INSTALLED_PROGRAMS}\")")
install(CODE [[
  # What every Linux of the last years has; a driver's library belongs to its machine.
  set(everywhere "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so" "^ld-linux" "^libcuda\\.so"
    "^libnvidia")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs}
    RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR missing
    PRE_EXCLUDE_REGEXES ${everywhere})
  if(missing)
    message(FATAL_ERROR "libraries not found: ${missing}")
  endif()
  foreach(library ${libraries})
    file(INSTALL ${library} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib FOLLOW_SYMLINK_CHAIN)
  endforeach()
]])
