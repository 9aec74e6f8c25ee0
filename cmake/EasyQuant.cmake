# How every target of this project is built. A library or tool is one call of a function below.

# Precompiled headers are cached too: they may not hold times of files, and ccache must not ask for these. What a file
# depends on ccache reads from the compiler's list, so that it need not preprocess what it does not have.
find_program(EASYQUANT_CCACHE ccache)
if(EASYQUANT_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${EASYQUANT_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${EASYQUANT_CCACHE})
endif()

# What is written for one processor is in files that end in X86 or AArch64; CMakeLists.txt refuses other processors.
set(EASYQUANT_HOST X86)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(EASYQUANT_HOST AArch64)
endif()
include(Host${EASYQUANT_HOST})

# Line tables are enough for a backtrace, and keep the build and the objects small.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -gline-tables-only -DNDEBUG")
# For libraries whose loops take the time of compilations and tests. A build with sanitizers is run once, so that compiling it
# costs more than running it slowly.
set(EASYQUANT_LOOP_FLAGS -O3)
if(EASYQUANT_SANITIZER)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -gline-tables-only -DNDEBUG")
  set(EASYQUANT_LOOP_FLAGS "")
endif()

add_library(easyquant_flags INTERFACE)
target_include_directories(easyquant_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
target_compile_options(easyquant_flags INTERFACE -Wall -Wextra -Werror -Wno-unused-parameter -fno-omit-frame-pointer -fPIC)
target_compile_options(easyquant_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>)
if(EASYQUANT_SANITIZER)
  target_compile_options(easyquant_flags INTERFACE -fsanitize=${EASYQUANT_SANITIZER} -fno-sanitize-recover=all)
  target_link_options(easyquant_flags INTERFACE -fsanitize=${EASYQUANT_SANITIZER})
endif()

# MLIR's and LLVM's headers are not ours to warn about; they are built without RTTI.
add_library(easyquant_mlir_flags INTERFACE)
target_link_libraries(easyquant_mlir_flags INTERFACE easyquant_flags)
if(EASYQUANT_BUILD_COMPILER)
  target_compile_options(easyquant_mlir_flags INTERFACE -fno-rtti)
  target_include_directories(easyquant_mlir_flags SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
endif()

# Most of the work of compiling a file is parsing the headers of the standard library, GoogleTest and MLIR, so they are
# precompiled: once for the targets without MLIR, once for their tests, once for all that use MLIR.
function(easyquant_precompile_headers name flags)
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Holds what ${name} precompiles.\n")
  add_library(${name} STATIC ${source})
  target_link_libraries(${name} PRIVATE ${flags})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
set(standard <algorithm> <cmath> <filesystem> <functional> <map> <memory> <string> <vector>
  <fmt/core.h> <tl/expected.hpp>)
easyquant_precompile_headers(EasyQuantHeaders easyquant_flags ${standard} <nlohmann/json.hpp>)
if(TARGET GTest::gtest)
  easyquant_precompile_headers(EasyQuantTestHeaders easyquant_flags ${standard}
    <random> <nlohmann/json.hpp> <gtest/gtest.h>)
  target_link_libraries(EasyQuantTestHeaders PRIVATE GTest::gtest)
  target_compile_options(EasyQuantTestHeaders PRIVATE -O0)
  set_target_properties(EasyQuantTestHeaders PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
if(EASYQUANT_BUILD_COMPILER)
  easyquant_precompile_headers(EasyQuantMLIRHeaders easyquant_mlir_flags ${standard}
    <mlir/Dialect/Arith/IR/Arith.h>
    <mlir/Dialect/Func/IR/FuncOps.h>
    <mlir/Dialect/GPU/IR/GPUDialect.h>
    <mlir/Dialect/LLVMIR/LLVMDialect.h>
    <mlir/Dialect/LLVMIR/NVVMDialect.h>
    <mlir/Dialect/MLProgram/IR/MLProgram.h>
    <mlir/Dialect/Math/IR/Math.h>
    <mlir/Dialect/MemRef/IR/MemRef.h>
    <mlir/Dialect/SCF/IR/SCF.h>
    <mlir/Dialect/Vector/IR/VectorOps.h>
    <mlir/IR/BuiltinOps.h>
    <mlir/IR/ImplicitLocOpBuilder.h>
    <mlir/IR/SymbolTable.h>
    <mlir/IR/Threading.h>
    <mlir/Pass/Pass.h>
    <mlir/Pass/PassManager.h>
    <llvm/ADT/MapVector.h>
    <llvm/ADT/StringExtras.h>
    <llvm/ADT/TypeSwitch.h>
    <llvm/Support/FileSystem.h>
    <llvm/Support/FormatVariadic.h>
    <llvm/Support/JSON.h>
    <easyquant/Dialect/Equant/IR/Equant.h>)
  add_dependencies(EasyQuantMLIRHeaders EasyQuantLMIncGen EasyQuantEquantIncGen)
endif()

# easyquant_add_library(NAME sources... [LINK libs...] [DEPENDS targets...] [HEADERS headers...])
# A static library without MLIR. One whose compile options differ has precompiled headers of its own.
function(easyquant_add_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS;HEADERS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC easyquant_flags ${ARG_LINK})
  if(ARG_HEADERS)
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  else()
    target_precompile_headers(${name} REUSE_FROM EasyQuantHeaders)
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# easyquant_add_mlir_library(NAME sources... [LINK libs...] [DEPENDS tablegen targets...])
function(easyquant_add_mlir_library name)
  cmake_parse_arguments(ARG "" "" "LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC easyquant_mlir_flags ${ARG_LINK} MLIR LLVM)
  target_precompile_headers(${name} REUSE_FROM EasyQuantMLIRHeaders)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# easyquant_add_tool(NAME sources... LINK libs... [WITH_MLIR])
# A program; WITH_MLIR where it uses MLIR itself. Installed, it finds our libraries beside its folder, wherever that is, and
# those of the distribution where they were when it was built.
function(easyquant_add_tool name)
  cmake_parse_arguments(ARG "WITH_MLIR" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" INSTALL_RPATH_USE_LINK_PATH ON)
  if(ARG_WITH_MLIR)
    target_precompile_headers(${name} REUSE_FROM EasyQuantMLIRHeaders)
  else()
    target_precompile_headers(${name} REUSE_FROM EasyQuantHeaders)
  endif()
endfunction()

# easyquant_command_line(SOURCE)
# A file that reads a command line with CLI11, which is all templates: not optimized, it compiles in half the time.
function(easyquant_command_line source)
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# easyquant_test_options(TARGET)
# What is compiled for tests without MLIR: not optimized, since compiling would take longer than running.
function(easyquant_test_options target)
  target_link_libraries(${target} PRIVATE GTest::gtest)
  target_compile_options(${target} PRIVATE -O0)
  target_precompile_headers(${target} REUSE_FROM EasyQuantTestHeaders)
endfunction()

# easyquant_add_unittest(NAME sources... LINK libs... [WITH_MLIR])
# A GoogleTest program; every one is run by scripts/test.sh. WITH_MLIR where it uses MLIR itself.
function(easyquant_add_unittest name)
  cmake_parse_arguments(ARG "WITH_MLIR" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  if(ARG_WITH_MLIR)
    target_precompile_headers(${name} REUSE_FROM EasyQuantMLIRHeaders)
  else()
    easyquant_test_options(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/unittests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()
