# Three helpers so that a module's CMakeLists.txt is a list of its files and nothing else.
# Include paths are the repository root alone: every include names its module.

# lockstep_library(NAME SOURCES ... LIBS ...): a static library called lockstep_NAME.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  target_include_directories(lockstep_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(lockstep_${name} PUBLIC ${ARG_LIBS})
endfunction()

# lockstep_app(NAME SOURCES ... LIBS ...): the program lockstep-NAME ("lockstep" itself for NAME front).
function(lockstep_app name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(name STREQUAL "front")
    set(program lockstep)
  else()
    set(program lockstep-${name})
  endif()
  add_executable(${program} ${ARG_SOURCES})
  target_link_libraries(${program} PRIVATE ${ARG_LIBS} CLI11::CLI11)
  install(TARGETS ${program} RUNTIME DESTINATION bin)
endfunction()

# lockstep_test(NAME SOURCES ... LIBS ... [LABELS ...]): one GoogleTest program, one CTest entry a case.
function(lockstep_test name)
  if(NOT LOCKSTEP_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS cpu)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    LOCKSTEP_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/golden"
    LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    LOCKSTEP_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}."
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
