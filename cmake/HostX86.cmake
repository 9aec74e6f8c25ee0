# For loops that need the vectors of AVX2; what is compiled with these checks that the CPU has them.
set(EASYQUANT_HOST_FLAGS -march=x86-64-v3)
