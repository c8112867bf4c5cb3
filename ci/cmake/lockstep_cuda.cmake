# CUDA sources are compiled by nvcc through custom commands: the private toolkit of ci/toolchain
# needs no compiler detection, and every source names the architectures of its family.
#
# LOCKSTEP_CUDA_ROOT names an unpacked toolkit (the folder with bin/nvcc); empty: CUDA 12.4, the
# last major version that builds for sm_70, fetched by ci/toolchain/fetch.sh.
set(LOCKSTEP_CUDA_ROOT "" CACHE PATH "CUDA toolkit; empty fetches CUDA 12.4")

if(LOCKSTEP_CUDA_ROOT)
  set(LOCKSTEP_NVCC ${LOCKSTEP_CUDA_ROOT}/bin/nvcc)
  set(LOCKSTEP_CUDA_INCLUDE ${LOCKSTEP_CUDA_ROOT}/include)
  set(LOCKSTEP_CUDA_LIB ${LOCKSTEP_CUDA_ROOT}/lib64)
else()
  execute_process(
    COMMAND ${CMAKE_SOURCE_DIR}/ci/toolchain/fetch.sh cuda
    OUTPUT_VARIABLE toolchain OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "ci/toolchain/fetch.sh cuda failed: see above")
  endif()
  set(LOCKSTEP_NVCC ${toolchain}/usr/lib/nvidia-cuda-toolkit/bin/nvcc)
  set(LOCKSTEP_CUDA_INCLUDE ${toolchain}/usr/include)
  set(LOCKSTEP_CUDA_LIB ${toolchain}/usr/lib/x86_64-linux-gnu)
  set(LOCKSTEP_CUDA_TOOLS ${toolchain}/usr/bin)
endif()

execute_process(COMMAND ${LOCKSTEP_NVCC} --version OUTPUT_VARIABLE nvcc_version)
string(REGEX MATCH "release ([0-9]+)" unused "${nvcc_version}")
set(LOCKSTEP_CUDA_MAJOR ${CMAKE_MATCH_1})
if(NOT LOCKSTEP_CUDA_MAJOR)
  message(FATAL_ERROR "${LOCKSTEP_NVCC} does not run: set LOCKSTEP_CUDA_ROOT")
endif()

# The runtime is linked in: a machine needs the driver and nothing else.
add_library(lockstep_cuda_runtime INTERFACE)
target_include_directories(lockstep_cuda_runtime SYSTEM INTERFACE ${LOCKSTEP_CUDA_INCLUDE})
target_link_libraries(lockstep_cuda_runtime INTERFACE
  ${LOCKSTEP_CUDA_LIB}/libcudart_static.a ${CMAKE_DL_LIBS} rt Threads::Threads)

# Families of kernels and what they are compiled for. PTX of the oldest target of a family runs on
# whatever comes after it. CUDA 13 starts at sm_75, which has the instructions of sm_70 too.
set(LOCKSTEP_CUDA_TARGETS_sm80 -gencode=arch=compute_80,code=compute_80
  -gencode=arch=compute_90,code=sm_90)
# Instructions of Hopper alone: such code runs on 9.0 and nowhere else.
set(LOCKSTEP_CUDA_TARGETS_sm90 -gencode=arch=compute_90a,code=sm_90a)
if(LOCKSTEP_CUDA_MAJOR LESS 13)
  set(LOCKSTEP_CUDA_TARGETS_sm70 -gencode=arch=compute_70,code=sm_70
    -gencode=arch=compute_70,code=compute_70)
else()
  set(LOCKSTEP_CUDA_TARGETS_sm70 -gencode=arch=compute_75,code=sm_75
    -gencode=arch=compute_75,code=compute_75)
endif()
set(LOCKSTEP_CUDA_TARGETS_generic ${LOCKSTEP_CUDA_TARGETS_sm70}
  -gencode=arch=compute_90,code=sm_90)

# A tree for one machine need not hold the code of other cards; the sm70 family runs on newer ones
# through its PTX.
set(LOCKSTEP_CUDA_CARD "" CACHE STRING "Kernels for cards of sm_80 or newer alone (90); empty: all")
if(LOCKSTEP_CUDA_CARD)
  set(LOCKSTEP_CUDA_TARGETS_sm80
    -gencode=arch=compute_${LOCKSTEP_CUDA_CARD},code=sm_${LOCKSTEP_CUDA_CARD})
  set(LOCKSTEP_CUDA_TARGETS_generic ${LOCKSTEP_CUDA_TARGETS_sm80})
  list(GET LOCKSTEP_CUDA_TARGETS_sm70 -1 LOCKSTEP_CUDA_TARGETS_sm70)
endif()

# lockstep_cuda_sources(TARGET family SOURCES ...): compiles CUDA sources of this folder for a
# family and adds the objects to TARGET.
function(lockstep_cuda_sources target family)
  cmake_parse_arguments(ARG "" "" "SOURCES;FLAGS" ${ARGN})
  foreach(source ${ARG_SOURCES})
    string(REPLACE "/" "_" name ${source})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${LOCKSTEP_CCACHE} ${LOCKSTEP_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3
              -lineinfo -Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra,-Werror --fmad=false
              --Werror=all-warnings ${LOCKSTEP_CUDA_TARGETS_${family}} ${ARG_FLAGS}
              -I${CMAKE_SOURCE_DIR} -MD -MF ${object}.d
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "nvcc ${family} ${source}"
      VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()
