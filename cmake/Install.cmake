# What `cmake --install` puts where. Components: `runtime`, what a program that runs models needs; `compiler`, the tools that make
# them, and what plugins are built with. The default is both. `wheel`, asked for by pip alone, is what the Python package
# has beside its modules.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/EasyQuant)
install(TARGETS easyquant_runtime EXPORT EasyQuantTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set_target_properties(easyquant_runtime PROPERTIES EXPORT_NAME runtime)
install(TARGETS easyquant-run easyquant-simt
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/include/easyquant/Runtime/easyquant.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/easyquant/Runtime COMPONENT runtime)
install(EXPORT EasyQuantTargets NAMESPACE EasyQuant:: DESTINATION ${package_dir} COMPONENT runtime)

# Paths in these files are relative to them, so that the folder may be moved.
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/EasyQuantConfig.cmake.in EasyQuantConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(EasyQuantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/EasyQuantConfig.cmake ${PROJECT_BINARY_DIR}/EasyQuantConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT runtime)
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_from_pc "${prefix_from_pc}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/easyquant-runtime.pc.in easyquant-runtime.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/easyquant-runtime.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)

if(EASYQUANT_BUILD_COMPILER)
  install(TARGETS easyquant-compile easyquant-opt easyquant-translate
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT compiler)
  # A plugin is compiled as easyquant-opt is, against the headers of the rooms in it, and linked to nothing of ours: easyquant-opt has
  # it. What it does not have are importers, and the C++ interface of the runtime, which is hidden.
  add_library(easyquant_plugin INTERFACE)
  set_target_properties(easyquant_plugin PROPERTIES EXPORT_NAME plugin)
  target_compile_features(easyquant_plugin INTERFACE cxx_std_20)
  target_compile_options(easyquant_plugin INTERFACE -fno-rtti)
  install(TARGETS easyquant_plugin EXPORT EasyQuantCompilerTargets COMPONENT compiler
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT EasyQuantCompilerTargets NAMESPACE EasyQuant:: DESTINATION ${package_dir} COMPONENT compiler)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/easyquant ${PROJECT_BINARY_DIR}/include/easyquant
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT compiler
    FILES_MATCHING PATTERN "*.h" PATTERN "*.td" PATTERN "*.inc"
    PATTERN "CMakeFiles" EXCLUDE PATTERN "Import" EXCLUDE PATTERN "Runtime" EXCLUDE)
endif()

if(TARGET _runtime)
  set(package easyquant)
  install(TARGETS _runtime LIBRARY DESTINATION ${package}/runtime COMPONENT wheel EXCLUDE_FROM_ALL)
  if(EASYQUANT_BUILD_COMPILER)
    install(FILES $<TARGET_PROPERTY:easyquant-options,EASYQUANT_FILE>
      DESTINATION ${package}/compiler COMPONENT wheel EXCLUDE_FROM_ALL)
    install(TARGETS easyquant-compile RUNTIME DESTINATION ${package}/bin COMPONENT wheel EXCLUDE_FROM_ALL)
  endif()
endif()
