# Every 64-bit Arm CPU has NEON.
set(EASYQUANT_HOST_FLAGS "")
