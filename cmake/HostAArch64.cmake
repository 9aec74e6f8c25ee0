# Every 64-bit Arm CPU has NEON.
set(EASYQUANT_HOST_FLAGS "")
# All of them multiply and add in one instruction, which the baseline of x86-64 does not have: contracted, sums would have other bits here
# than there, and those of a test others than those of what it tests.
add_compile_options(-ffp-contract=off)
