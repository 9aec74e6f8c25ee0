//===- Printf.cpp - printf and assert of device code ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Printf.h"

#include "Execution.h"

using namespace easyquant;
using namespace easyquant::simt;

/// The host bytes behind a generic address of a lane; null: nothing is there.
static const std::byte *host(const Warp &w, unsigned lane, uint64_t address, uint64_t bytes) {
  if (address - kLocalWindow < kWindowBytes) {
    uint64_t offset = address - kLocalWindow - kFirstLocalAddress;
    return offset + bytes <= w.localStride ? w.local.data() + size_t(lane) * w.localStride + offset
                                           : nullptr;
  }
  if (address - kSharedWindow < kWindowBytes) {
    uint64_t offset = address - kSharedWindow - kFirstSharedAddress;
    return offset + bytes <= w.block.sharedBytes ? w.block.shared + offset : nullptr;
  }
  const Allocation *found = w.launch.memory.find(address);
  return found && found->contains(address, bytes) ? found->data + (address - found->address)
                                                  : nullptr;
}

static std::string text(const Warp &w, unsigned lane, uint64_t address) {
  std::string result;
  for (;; ++address) {
    const std::byte *at = host(w, lane, address, 1);
    if (!at || *at == std::byte{0} || result.size() > 1 << 16)
      return result;
    result += static_cast<char>(*at);
  }
}

static uint64_t argument(const Warp &w, const Instruction &i, unsigned lane, unsigned index) {
  const CallSite &site = w.launch.decoded.calls[i.extra];
  uint64_t value = 0;
  if (index >= site.arguments.size())
    return value;
  const ParameterPlace &p = site.arguments[index];
  std::memcpy(&value, w.frame->at(p, lane), std::min(p.bytes, 8u));
  return value;
}

void simt::printFormatted(Warp &w, const Instruction &i, Mask m) {
  forEachLane(m, [&](unsigned lane) {
    std::string format = text(w, lane, argument(w, i, lane, 0));
    uint64_t values = argument(w, i, lane, 1), offset = 0;
    std::string line;
    for (size_t k = 0; k < format.size(); ++k) {
      if (format[k] != '%' || k + 1 == format.size()) {
        line += format[k];
        continue;
      }
      if (format[k + 1] == '%') {
        line += format[k++];
        continue;
      }
      size_t end = format.find_first_of("diouxXcsfFeEgGaAp", k + 1);
      if (end == std::string::npos) {
        line += format.substr(k);
        break;
      }
      std::string spec = format.substr(k, end - k + 1);
      char kind = spec.back();
      bool isFloat = std::strchr("fFeEgGaA", kind), isText = kind == 's';
      bool isLong = isFloat || isText || kind == 'p' || spec.find('l') != std::string::npos;
      unsigned bytes = isLong ? 8 : 4;
      offset = (offset + bytes - 1) / bytes * bytes;
      uint64_t value = 0;
      if (const std::byte *at = host(w, lane, values + offset, bytes))
        std::memcpy(&value, at, bytes);
      offset += bytes;
      std::erase_if(spec, [](char c) { return c == 'l' || c == 'h' || c == 'z' || c == '*'; });
      char buffer[512];
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
#pragma clang diagnostic ignored "-Wformat-security"
      if (isFloat) {
        std::snprintf(buffer, sizeof(buffer), spec.c_str(), std::bit_cast<double>(value));
      } else if (isText) {
        std::snprintf(buffer, sizeof(buffer), spec.c_str(), text(w, lane, value).c_str());
      } else if (kind == 'p') {
        std::snprintf(buffer, sizeof(buffer), "%#llx", static_cast<unsigned long long>(value));
      } else if (isLong) {
        spec.insert(spec.size() - 1, "ll");
        std::snprintf(buffer, sizeof(buffer), spec.c_str(), static_cast<long long>(value));
      } else {
        std::snprintf(buffer, sizeof(buffer), spec.c_str(), static_cast<int>(value));
      }
#pragma clang diagnostic pop
      line += buffer;
      k = end;
    }
    std::fputs(line.c_str(), w.launch.options.output);
  });
}

void simt::failAssertion(Warp &w, const Instruction &i, Mask m) {
  unsigned lane = std::countr_zero(m);
  w.stop(Finding::Trap, i, m,
         fmt::format("fails the assertion '{}' of {}:{}", text(w, lane, argument(w, i, lane, 0)),
                     text(w, lane, argument(w, i, lane, 1)), argument(w, i, lane, 2)));
}
