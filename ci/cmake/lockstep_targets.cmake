# Helpers so that a module's CMakeLists.txt is a list of its files and nothing else.
# Include paths are the repository root alone: every include names its module.

# lockstep_library(NAME SOURCES ... LIBS ...): a static library called lockstep_NAME.
function(lockstep_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  target_include_directories(lockstep_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(lockstep_${name} PUBLIC ${ARG_LIBS})
endfunction()

# lockstep_app(NAME SOURCES ... LIBS ...): the program lockstep-NAME ("lockstep" for NAME front).
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
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_PROGRAMS ${program})
endfunction()

# Tells the sources that ask for them where the folders of this build are. Only those: a path in
# every command line would keep two checkouts from sharing one compiler cache. A source that begins
# to ask is seen at the next configuration.
function(lockstep_test_folders)
  foreach(source ${ARGN})
    file(STRINGS ${source} uses REGEX "LOCKSTEP_(GOLDEN|SOURCE|BIN)_DIR")
    if(uses)
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS
        "LOCKSTEP_GOLDEN_DIR=\"${CMAKE_SOURCE_DIR}/golden\";\
LOCKSTEP_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\";\
LOCKSTEP_BIN_DIR=\"${CMAKE_BINARY_DIR}/bin\"")
    endif()
  endforeach()
endfunction()

# lockstep_test(NAME SOURCES ... LIBS ... [LABELS ...] [TIMEOUT ...] [PROCESSORS n]): one GoogleTest
# program, one CTest entry a case. PROCESSORS 2 keeps CTest from running a case that starts an
# engine beside another one: two engines on two cores wait for each other's threads.
function(lockstep_test name)
  if(NOT LOCKSTEP_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS cpu)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  lockstep_test_folders(${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  if(name MATCHES "_cuda_test$")
    lockstep_op_test(${name} ${ARG_SOURCES})
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}."
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
      PROCESSORS ${ARG_PROCESSORS})
endfunction()

# Enters a test program OP_cuda_test into the list that `lockstep gate --policy gpu` goes through
# (docs/formats/op-tests.md); its ops are those whose CUDA headers its sources include.
function(lockstep_op_test name)
  set(ops)
  foreach(source ${ARGN})
    file(STRINGS ${source} includes REGEX "^#include \"engine/ops/[a-z_]+/cuda/")
    list(TRANSFORM includes REPLACE ".*engine/ops/([a-z_]+)/cuda/.*" "\\1")
    list(APPEND ops ${includes})
  endforeach()
  list(REMOVE_DUPLICATES ops)
  list(REMOVE_ITEM ops common)
  if(NOT ops)
    message(FATAL_ERROR "lockstep_test(${name}): no source includes engine/ops/OP/cuda/...")
  endif()
  list(JOIN ops "\", \"" joined)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_OP_TESTS
    "{\"program\": \"${name}\", \"ops\": [\"${joined}\"]}")
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_OP_TEST_PROGRAMS ${name})
endfunction()

# lockstep_fuzz(NAME_fuzz SOURCES ... LIBS ... CORPUS folder): SOURCES define
# LLVMFuzzerTestOneInput. Every build has a test that feeds it each file of the corpus; with
# LOCKSTEP_FUZZ the libFuzzer program fuzz/NAME_fuzz is built instead, which ci/lanes/fuzz.sh runs
# from the same corpus.
function(lockstep_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;LIBS" ${ARGN})
  get_filename_component(corpus ${ARG_CORPUS} ABSOLUTE)
  file(GLOB seeds ${corpus}/*)
  if(NOT name MATCHES "_fuzz$" OR NOT seeds)
    message(FATAL_ERROR
      "lockstep_fuzz(${name}): wants a name that ends in _fuzz and seeds in ${corpus}")
  endif()
  if(LOCKSTEP_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    file(WRITE ${CMAKE_BINARY_DIR}/fuzz/${name}.corpus "${corpus}\n")
    if(NOT TARGET lockstep_fuzzers)
      add_custom_target(lockstep_fuzzers)
    endif()
    add_dependencies(lockstep_fuzzers ${name})
  elseif(LOCKSTEP_TESTS)
    add_executable(${name}_replay ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/ci/fuzz/replay_main.cpp)
    target_link_libraries(${name}_replay PRIVATE ${ARG_LIBS} lockstep_base)
    set_target_properties(${name}_replay PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${name}.replays_its_corpus COMMAND ${name}_replay ${corpus})
    set_tests_properties(${name}.replays_its_corpus PROPERTIES LABELS cpu TIMEOUT 120)
  endif()
endfunction()
