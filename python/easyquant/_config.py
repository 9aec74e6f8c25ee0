# Written by CMake.
TOOLS_DIR = "/work/src/build/bin"
