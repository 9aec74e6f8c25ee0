# `pip wheel . -C cmake.define.EASYQUANT_PREBUILT=BUILD`: the wheel holds what lies in the build folder BUILD, where the extension must
# be one for the Python that pip runs in.
if(NOT EXISTS ${EASYQUANT_PREBUILT}/cmake_install.cmake)
  message(FATAL_ERROR "EASYQUANT_PREBUILT=${EASYQUANT_PREBUILT}: no build folder of EasyQuant; expected one that `cmake --build` "
    "has filled (scripts/setup.sh), by its absolute path")
endif()
install(CODE "
  execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${EASYQUANT_PREBUILT}\" --prefix \"\${CMAKE_INSTALL_PREFIX}\" --component wheel --strip
    COMMAND_ERROR_IS_FATAL ANY)
  if(NOT EXISTS \"\${CMAKE_INSTALL_PREFIX}/easyquant/runtime/_runtime.${SKBUILD_SOABI}.so\")
    message(FATAL_ERROR \"${EASYQUANT_PREBUILT}: holds no extension for this Python (${SKBUILD_SOABI}); build it with \"
      \"-DEASYQUANT_PYTHON=THIS_PYTHON, or start pip by the Python that it was built for\")
  endif()" COMPONENT wheel)
