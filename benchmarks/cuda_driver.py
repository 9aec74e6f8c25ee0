# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NVIDIA's driver through ctypes: the part of the CUDA driver API that a benchmark needs. Nothing is to be installed for it."""

import ctypes

import numpy as np

LIBRARY = "libcuda.so.1"

# Numbers of CUdevice_attribute.
CLOCK_KHZ, MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 13, 16, 75, 76
MAX_DYNAMIC_SHARED_BYTES = 8  # of CUfunction_attribute
JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES = 5, 6  # of CUjit_option
CAPTURE_THREAD_LOCAL, NON_BLOCKING = 1, 1


OVERLAPPING_CAPABILITY, OVERLAP_VERSION = 90, 12030  # the least that let a launch begin before the one before it has ended


class CudaError(Exception):
    pass


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: whether the launch may begin before the one before it has ended, which its kernel then waits for."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("allowed", ctypes.c_int), ("rest", ctypes.c_int * 15)]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(LaunchAttribute)), ("attribute_count", ctypes.c_uint)]


class Driver:
    """The first GPU, in its primary context: the one that torch uses, too. All work is on one stream, in order."""

    def __init__(self, library=LIBRARY):
        try:
            self.library = ctypes.CDLL(str(library))
        except OSError as error:
            raise CudaError(f"no NVIDIA driver: {library} cannot be opened ({error}); install the driver, or check with --simt") from None
        self.call("cuInit", 0)
        device = self.out(ctypes.c_int, "cuDeviceGet", 0)
        self.device = device.value
        context = self.out(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", self.device)
        self.call("cuCtxPushCurrent_v2", context)
        self.stream = self.out(ctypes.c_void_p, "cuStreamCreate", NON_BLOCKING)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, self.device)
        self.name = name.value.decode()
        self.version = self.out(ctypes.c_int, "cuDriverGetVersion").value
        self.capability = 10 * self.attribute(CAPABILITY_MAJOR) + self.attribute(CAPABILITY_MINOR)
        # Kernels of older chips do not wait: set by who launches none of them.
        self.overlaps = False

    @property
    def can_overlap(self):
        return self.capability >= OVERLAPPING_CAPABILITY and self.version >= OVERLAP_VERSION

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(status, ctypes.byref(text))
            raise CudaError(f"{name}: {text.value.decode() if text.value else f'error {status}'}")

    def out(self, kind, name, *arguments):
        """The call's result, which it writes through its first parameter."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value

    def attribute(self, which):
        return self.out(ctypes.c_int, "cuDeviceGetAttribute", which, self.device).value

    # -------------------------------------------------------------------------------------------------------------- memory

    def allocate(self, count):
        return self.out(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(max(1, count))).value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address, array):
        array = np.ascontiguousarray(array)
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes), self.stream)
        self.synchronize()  # before numpy frees the array

    def download(self, address, count, dtype):
        array = np.empty(count, dtype)
        self.call("cuMemcpyDtoHAsync_v2", array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes), self.stream)
        self.synchronize()
        return array

    def copy(self, to, source, count):
        self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(count), self.stream)

    def fill(self, address, value, count):
        self.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(count), self.stream)

    def synchronize(self):
        self.call("cuStreamSynchronize", self.stream)

    def is_lost(self):
        """After some errors, such as an illegal address, the GPU does nothing more for this process."""
        try:
            self.synchronize()
            return False
        except CudaError:
            return True

    # ------------------------------------------------------------------------------------------------------------- kernels

    def load(self, image):
        """A module of machine code or of PTX. What the driver's assembler says of PTX is in the error."""
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log) - 1)
        try:
            # The image is copied by the driver; of PTX it reads up to the 0 that create_string_buffer appends.
            return self.out(ctypes.c_void_p, "cuModuleLoadDataEx", ctypes.create_string_buffer(image), 2, options, values)
        except CudaError as error:
            said = log.value.decode(errors="replace").strip()
            raise CudaError(f"{error}: {said}" if said else str(error)) from None

    def unload(self, module):
        self.call("cuModuleUnload", module)

    def function(self, module, name, shared_bytes):
        function = self.out(ctypes.c_void_p, "cuModuleGetFunction", module, name.encode())
        # With 0 bytes, too: a driver loads functions when they are first used, which is not to be while launches are captured.
        self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED_BYTES, shared_bytes)
        return function

    def launch(self, function, grid, threads, shared_bytes, values):
        """`values`: ctypes objects, in the order of the parameters."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        overlap = LaunchAttribute(6, 0, 1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        config = LaunchConfig((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(threads, 1, 1), shared_bytes, self.stream,
                              ctypes.pointer(overlap), int(self.overlaps))
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)

    # -------------------------------------------------------------------------------------------------------------- timing

    def capture(self, work):
        """What `work()` launches, as a graph to be launched again and again."""
        self.call("cuStreamBeginCapture_v2", self.stream, CAPTURE_THREAD_LOCAL)
        graph = ctypes.c_void_p()
        try:
            work()
        finally:
            self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        executable = self.out(ctypes.c_void_p, "cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
        self.call("cuGraphDestroy", graph)
        return executable

    def replay(self, graph):
        self.call("cuGraphLaunch", graph, self.stream)

    def destroy(self, graph):
        self.call("cuGraphExecDestroy", graph)

    def seconds(self, work):
        """Between the events before and after what `work()` puts on the stream."""
        begin, end = (self.out(ctypes.c_void_p, "cuEventCreate", 0) for _ in range(2))
        self.call("cuEventRecord", begin, self.stream)
        work()
        self.call("cuEventRecord", end, self.stream)
        self.call("cuEventSynchronize", end)
        milliseconds = self.out(ctypes.c_float, "cuEventElapsedTime", begin, end).value
        for event in (begin, end):
            self.call("cuEventDestroy_v2", event)
        return milliseconds / 1e3
