// Ordinary CUDA C++ that the simulator runs after nvcc has compiled it. -DDEFECT=1 leaves something out of
// every kernel, and the simulator has to find that.
#include <cuda_fp16.h>
#include <mma.h>

#ifndef DEFECT
#define DEFECT 0
#endif

#if DEFECT
#define BARRIER()
#else
#define BARRIER() __syncthreads()
#endif

/// One sum a block: shared tree, then shuffles. Defect: no barrier in the tree.
extern "C" __global__ void reduction(const float *x, float *sums, int n) {
  __shared__ float partial[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  partial[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int half = 128; half >= 32; half /= 2) {
    if (t < half)
      partial[t] += partial[t + half];
    BARRIER();
  }
  float v = t < 32 ? partial[t] : 0;
  for (int offset = 16; offset; offset /= 2)
    v += __shfl_down_sync(0xffffffffu, v, offset);
  if (t == 0)
    sums[blockIdx.x] = v;
}

/// Tiles of 32 x 32 through shared memory. Padding keeps columns off one bank. Defect: a column too far.
template <int padding> __device__ void transposeTile(const float *in, float *out, int rows, int columns) {
  __shared__ float tile[32][32 + padding];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (x < columns + DEFECT && y + j < rows)
      tile[j][threadIdx.x] = in[(y + j) * columns + x];
  __syncthreads();
  int tx = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (tx < rows && blockIdx.x * 32 + j < columns + DEFECT)
      out[(blockIdx.x * 32 + j) * rows + tx] = tile[threadIdx.x][j];
}
extern "C" __global__ void transpose_plain(const float *in, float *out, int rows, int columns) {
  transposeTile<0>(in, out, rows, columns);
}
extern "C" __global__ void transpose_padded(const float *in, float *out, int rows, int columns) {
  transposeTile<1>(in, out, rows, columns);
}

/// One row a block. Defect: the sum is read before all have written it.
extern "C" __global__ void softmax(const float *x, float *y, int columns) {
  __shared__ float shared[8];
  const float *row = x + blockIdx.x * columns;
  int t = threadIdx.x, warp = t / 32;
  float most = -INFINITY;
  for (int i = t; i < columns; i += 256)
    most = fmaxf(most, row[i]);
  for (int o = 16; o; o /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
  if (t % 32 == 0)
    shared[warp] = most;
  __syncthreads();
  for (int w = 0; w < 8; ++w)
    most = fmaxf(most, shared[w]);
  __syncthreads();
  float sum = 0;
  for (int i = t; i < columns; i += 256)
    sum += expf(row[i] - most);
  for (int o = 16; o; o /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (t % 32 == 0)
    shared[warp] = sum;
  BARRIER();
  sum = 0;
  for (int w = 0; w < 8; ++w)
    sum += shared[w];
  for (int i = t; i < columns; i += 256)
    y[blockIdx.x * columns + i] = expf(row[i] - most) / sum;
}

/// Inclusive scan of a block by doubling. Defect: no barrier between reading and writing.
extern "C" __global__ void scan(const int *x, int *y) {
  __shared__ int values[256];
  int t = threadIdx.x;
  values[t] = x[t];
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    int v = t >= step ? values[t - step] : 0;
    BARRIER();
    values[t] += v;
    __syncthreads();
  }
  y[t] = values[t];
}

/// Counts of bytes. Defect: additions that are not atomic.
extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
#if DEFECT
    ++local[x[i]];
#else
    atomicAdd(&local[x[i]], 1u);
#endif
  }
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

/// c = a b, tiles of 16 x 16. Defect: the second barrier is missing.
extern "C" __global__ void tiled_gemm(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float ta[16][16], tb[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += 16) {
    ta[threadIdx.y][threadIdx.x] = row < m && k0 + threadIdx.x < k ? a[row * k + k0 + threadIdx.x] : 0;
    tb[threadIdx.y][threadIdx.x] = column < n && k0 + threadIdx.y < k ? b[(k0 + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i)
      sum = fmaf(ta[threadIdx.y][i], tb[i][threadIdx.x], sum);
    BARRIER();
  }
  if (row < m && column < n)
    c[row * n + column] = sum;
}

/// A warp a tile of 16 x 16, f16 with f32 sums. Defect: the leading dimension of b is one too many.
extern "C" __global__ void wmma_gemm(const half *a, const half *b, float *c, int n, int k) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, row_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  fill_fragment(fc, 0.0f);
  for (int i = 0; i < k; i += 16) {
    load_matrix_sync(fa, a + blockIdx.y * 16 * k + i, k);
    load_matrix_sync(fb, b + i * n + blockIdx.x * 16, n + 8 * DEFECT);
    mma_sync(fc, fa, fb, fc);
  }
  for (int i = 0; i < fc.num_elements; ++i)
    fc.x[i] *= 0.5f;
  store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, fc, n, mem_row_major);
}

/// c = a b^T of int8 with cp.async, ldmatrix and mma.sync, as a hand-written kernel has them: a block of
/// 4 warps makes 32 x 32, two stages of 64 bytes. Defect: the copies are not waited for.
extern "C" __global__ void mma_gemm(const signed char *a, const signed char *b, int *c, int n, int k) {
  __shared__ alignas(128) signed char stage[2][2][32][64 + 16];
  int t = threadIdx.x, lane = t % 32, warp = t / 32, wm = warp / 2 * 16, wn = warp % 2 * 16;
  auto copy = [&](int s, int k0) {
    int row = t / 4, column = t % 4 * 16;
    const signed char *from[2] = {a + (blockIdx.y * 32 + row) * k + k0 + column,
                                  b + (blockIdx.x * 32 + row) * k + k0 + column};
    for (int which = 0; which < 2; ++which) {
      unsigned to = __cvta_generic_to_shared(&stage[s][which][row][column]);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from[which]) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  int sums[2][4] = {};
  copy(0, 0);
  for (int k0 = 0, s = 0; k0 < k; k0 += 64, s ^= 1) {
    if (k0 + 64 < k) {
      copy(s ^ 1, k0 + 64);
#if !DEFECT
      asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    for (int kk = 0; kk < 64; kk += 32) {
      unsigned fa[4], fb[4];
      unsigned at = __cvta_generic_to_shared(&stage[s][0][wm + lane % 16][kk + lane / 16 * 16]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(at));
      at = __cvta_generic_to_shared(&stage[s][1][wn + lane % 8 + lane / 16 * 8][kk + lane / 8 % 2 * 16]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3]) : "r"(at));
      for (int j = 0; j < 2; ++j)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(sums[j][0]), "+r"(sums[j][1]), "+r"(sums[j][2]), "+r"(sums[j][3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * j]), "r"(fb[2 * j + 1]));
    }
    __syncthreads();
  }
  for (int j = 0; j < 2; ++j)
    for (int i = 0; i < 4; ++i) {
      int row = blockIdx.y * 32 + wm + lane / 4 + i / 2 * 8;
      int column = blockIdx.x * 32 + wn + j * 8 + lane % 4 * 2 + i % 2;
      c[row * n + column] = sums[j][i];
    }
}

/// y = w x of int8 by __dp4a, a warp a row. Defect: one word too many.
extern "C" __global__ void dp4a_gemv(const int *w, const int *x, int *y, int words) {
  const int *row = w + blockIdx.x * words;
  int sum = 0;
  for (int i = threadIdx.x; i < words + DEFECT; i += 32)
    sum = __dp4a(row[i], x[i], sum);
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x == 0)
    y[blockIdx.x] = sum;
}
