//===- Npy.cpp - Arrays in numpy's .npy files -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Npy.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>

using namespace easyquant;
using namespace easyquant::simt;

Result<Array> simt::readNpy(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return makeError(ErrorCode::NotFound, "{}: cannot be opened", path);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto corrupt = [&](const char *what) {
    return makeError(ErrorCode::Corrupt, "{}: {}; expected a .npy file of numpy.save", path, what);
  };
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0)
    return corrupt("no .npy file");
  size_t lengthBytes = bytes[6] == 1 ? 2 : 4, begin = 8 + lengthBytes, length = 0;
  std::memcpy(&length, bytes.data() + 8, lengthBytes);
  if (bytes[6] < 1 || bytes[6] > 3 || length > bytes.size() - begin)
    return corrupt("its header does not end");
  std::string header = bytes.substr(begin, length);
  std::smatch descr, shape;
  static const std::regex descrPattern("'descr': *'([<|][a-z][0-9]+)'"),
      shapePattern("'shape': *\\(([0-9, ]*)\\)"), orderPattern("'fortran_order': *False");
  if (!std::regex_search(header, descr, descrPattern))
    return corrupt("its elements are no little-endian numbers");
  if (!std::regex_search(header, orderPattern))
    return corrupt("it is in Fortran order (save numpy.ascontiguousarray of it)");
  if (!std::regex_search(header, shape, shapePattern))
    return corrupt("its shape is not readable");
  Array array;
  array.descr = descr[1];
  uint64_t size = std::stoull(array.descr.substr(2));
  static const std::regex number("[0-9]+");
  std::string dims = shape[1];
  for (std::sregex_iterator i(dims.begin(), dims.end(), number), end; i != end; ++i) {
    if (i->str().size() > 15)
      return corrupt("its shape is too large");
    array.shape.push_back(std::stoull(i->str()));
    if (array.shape.back() && size > (1ull << 40) / array.shape.back())
      return corrupt("its shape is too large");
    size *= array.shape.back();
  }
  if (bytes.size() - begin - length != size)
    return corrupt("it has another number of bytes than its shape says");
  auto *data = reinterpret_cast<const std::byte *>(bytes.data() + begin + length);
  array.data.assign(data, data + size);
  return array;
}

Result<void> simt::writeNpy(const std::string &path, const Array &array) {
  std::string shape;
  for (uint64_t dim : array.shape)
    shape += fmt::format("{}, ", dim);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.descr, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  auto length = static_cast<uint16_t>(header.size());
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(reinterpret_cast<const char *>(&length), 2);
  file << header;
  file.write(reinterpret_cast<const char *>(array.data.data()), array.data.size());
  file.close();
  if (!file)
    return makeError(ErrorCode::IO, "{}: cannot be written", path);
  return {};
}
