//===- StoredRows.cpp - Rows of a weight as floats ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StoredRows.h"

#include "easyquant/Formats/DType.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

/// Stored rows of a transposed weight that are converted before they are scattered: 16 floats are a
/// cache line of the output.
static constexpr int64_t kTransposeRows = 16;

/// Rows of a K x N matrix in the file, as rows of its N x K transpose.
static Result<void> readTransposed(const StoredTensor &tensor, int64_t firstRow, int64_t rows,
                                   int64_t columns, std::span<float> out) {
  const int64_t elementBytes = tensor.type->blockBytes;
  const int64_t storedRow = tensor.shape[1] * elementBytes;
  std::vector<float> buffer(static_cast<size_t>(kTransposeRows * rows));
  for (int64_t k = 0; k < columns; k += kTransposeRows) {
    const int64_t count = std::min(kTransposeRows, columns - k);
    for (int64_t i = 0; i < count; ++i)
      if (Result<void> done =
              dequantize(tensor.type->type,
                         tensor.data.subspan((k + i) * storedRow + firstRow * elementBytes,
                                             rows * elementBytes),
                         std::span(buffer).subspan(i * rows, rows));
          !done)
        return done;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < count; ++i)
        out[row * columns + k + i] = buffer[i * rows + row];
  }
  return {};
}

/// Rows of one tensor in the order of the file.
static Result<void> readTensor(const StoredTensor &tensor, int64_t firstRow, int64_t rows,
                               int64_t columns, std::span<float> out) {
  const int64_t rowBytes = columns / tensor.type->blockElements * tensor.type->blockBytes;
  return dequantize(tensor.type->type, tensor.data.subspan(firstRow * rowBytes, rows * rowBytes),
                    out);
}

/// Part `stackPart` of the rows of each expert.
Result<void> StoredRows::readRowsOfStack(int64_t partRows, int64_t columns, int64_t firstRow,
                                         int64_t rows, std::span<float> out) const {
  for (int64_t done = 0; done < rows;) {
    const int64_t row = firstRow + done, expert = row / partRows, inPart = row % partRows;
    const int64_t count = std::min(rows - done, partRows - inPart);
    if (Result<void> read =
            readTensor(parts.front(), (expert * stackParts + stackPart) * partRows + inPart, count,
                       columns, out.subspan(done * columns, count * columns));
        !read)
      return read;
    done += count;
  }
  return {};
}

/// Every `stackParts`-th column of the K x N of each expert, or element of its vector.
Result<void> StoredRows::readStack(int64_t partRows, int64_t columns, int64_t firstRow,
                                   int64_t rows, std::span<float> out) const {
  const StoredTensor &stack = parts.front();
  const int64_t elementBytes = stack.type->blockBytes, wide = partRows * stackParts;
  const bool isVector = stack.shape.size() == 2;
  std::vector<float> every;
  for (int64_t done = 0; done < rows;) {
    const int64_t row = firstRow + done, inPart = row % partRows;
    const int64_t count = std::min(rows - done, partRows - inPart);
    const int64_t bytes = wide * (isVector ? 1 : columns) * elementBytes;
    StoredTensor expert = stack;
    expert.data = stack.data.subspan(row / partRows * bytes, bytes);
    expert.shape = {columns, wide};
    every.resize(static_cast<size_t>(count * stackParts * columns));
    const int64_t first = inPart * stackParts;
    auto read = isVector ? readTensor(expert, first, count * stackParts, 1, every)
                         : readTransposed(expert, first, count * stackParts, columns, every);
    if (!read)
      return read;
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(every.begin() + (i * stackParts + stackPart) * columns, columns,
                  out.begin() + (done + i) * columns);
    done += count;
  }
  return {};
}

Result<void> StoredRows::read(int64_t allRows, int64_t columns, int64_t firstRow, int64_t rows,
                              std::span<float> out) const {
  const StoredTensor &first = parts.front();
  if (stackParts != 0)
    return stacksRows ? readRowsOfStack(allRows / first.shape.front(), columns, firstRow, rows, out)
                      : readStack(allRows / first.shape.front(), columns, firstRow, rows, out);
  if (transposed)
    return readTransposed(first, firstRow, rows, columns, out);
  if (!order.isSame()) {
    for (int64_t row = 0; row < rows; ++row)
      if (Result<void> done = readTensor(first, order.stored(firstRow + row), 1, columns,
                                         out.subspan(row * columns, columns));
          !done)
        return done;
    return {};
  }
  const int64_t partRows = allRows / std::ssize(parts);
  for (int64_t done = 0; done < rows;) {
    const int64_t row = firstRow + done, inPart = row % partRows;
    const int64_t count = std::min(rows - done, partRows - inPart);
    if (Result<void> read = readTensor(parts[row / partRows], inPart, count, columns,
                                       out.subspan(done * columns, count * columns));
        !read)
      return read;
    done += count;
  }
  return {};
}

void StoredRows::release() const {
  for (const StoredTensor &part : parts)
    if (part.file)
      part.file->release(part.data);
}
