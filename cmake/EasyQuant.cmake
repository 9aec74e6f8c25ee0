# How every target of this project is built. A library or tool is one call of a function below.

find_program(EASYQUANT_CCACHE ccache)
if(EASYQUANT_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${EASYQUANT_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${EASYQUANT_CCACHE})
endif()

# Line tables are enough for a backtrace, and keep the build and the objects small.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -gline-tables-only -DNDEBUG")

add_library(easyquant_flags INTERFACE)
target_include_directories(easyquant_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
target_compile_options(easyquant_flags INTERFACE -Wall -Wextra -Werror -Wno-unused-parameter -fno-omit-frame-pointer)
target_compile_definitions(easyquant_flags INTERFACE FMT_HEADER_ONLY)
if(EASYQUANT_SANITIZER)
  target_compile_options(easyquant_flags INTERFACE -fsanitize=${EASYQUANT_SANITIZER} -fno-sanitize-recover=all)
  target_link_options(easyquant_flags INTERFACE -fsanitize=${EASYQUANT_SANITIZER})
endif()

# MLIR's and LLVM's headers are not ours to warn about; they are built without RTTI.
add_library(easyquant_mlir_flags INTERFACE)
target_link_libraries(easyquant_mlir_flags INTERFACE easyquant_flags)
if(EASYQUANT_BUILD_COMPILER)
  target_compile_options(easyquant_mlir_flags INTERFACE -fno-rtti)
  target_include_directories(easyquant_mlir_flags SYSTEM INTERFACE /usr/lib/llvm-22/include)
endif()

# easyquant_add_library(NAME sources... [LINK libs...] [DEPENDS targets...])
# A static library without MLIR.
function(easyquant_add_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC easyquant_flags ${ARG_LINK})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# easyquant_add_mlir_library(NAME sources... [LINK libs...] [DEPENDS tablegen targets...])
function(easyquant_add_mlir_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC easyquant_mlir_flags ${ARG_LINK} MLIR LLVM)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# easyquant_add_tool(NAME sources... LINK libs...)
function(easyquant_add_tool name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# easyquant_add_unittest(NAME sources... LINK libs...)
# A GoogleTest program; every one is run by scripts/test.sh through ctest.
function(easyquant_add_unittest name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/unittests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()
