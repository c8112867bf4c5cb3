# Language level, warnings and the numeric contract of every host translation unit.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# The installed tree is relocatable: it carries the libraries that a bare machine lacks. DT_RPATH,
# because it also serves what those libraries need themselves, and DT_RUNPATH does not.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
add_link_options(-Wl,--disable-new-dtags)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# -O2 and no -march: GCC 12 at -O3 with AVX-512 miscompiles integer dot products; vector code comes
# from Highway's run-time dispatch instead. Assertions stay on in release.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")

# Contraction off: an FMA happens only where the code asks for one, so that every instruction set
# gives the same bits.
add_compile_options(-ffp-contract=off -fno-fast-math -Wall -Wextra -Wpedantic -Wshadow -Werror)

# Instrumented code misleads the warnings that follow the flow of values: the other presets judge
# those.
if(LOCKSTEP_SANITIZE OR LOCKSTEP_THREAD_SANITIZE)
  add_compile_options(-fno-omit-frame-pointer -Wno-error)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()

if(LOCKSTEP_THREAD_SANITIZE)
  # GCC warns of std::atomic_thread_fence, which the sanitizer does not see.
  # At -O1, so that a lane that builds the engine once more for a few tests of it stays affordable.
  add_compile_options(-fsanitize=thread -Wno-tsan -O1)
  add_link_options(-fsanitize=thread)
endif()

if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang: use the preset 'fuzz'")
  endif()
  # Every library reports its coverage to libFuzzer.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(jpeg REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(png REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(seccomp REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(webp REQUIRED IMPORTED_TARGET libwebp)
pkg_check_modules(webpdemux REQUIRED IMPORTED_TARGET libwebpdemux)
if(LOCKSTEP_TESTS)
  pkg_check_modules(webpmux REQUIRED IMPORTED_TARGET libwebpmux)
endif()
find_package(Boost 1.74 REQUIRED COMPONENTS filesystem)
