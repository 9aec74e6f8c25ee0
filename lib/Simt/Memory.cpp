//===- Memory.cpp - Allocations and variables of a simulated device -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"

#include <algorithm>
#include <bit>
#include <new>

using namespace easyquant;
using namespace easyquant::simt;

/// Between two allocations, so that an access past the end of one meets no other.
static constexpr uint64_t kGuardBytes = 1 << 20;

Device::Device() : pimpl(std::make_unique<State>()) {}
Device::~Device() = default;
Device::Device(Device &&) noexcept = default;

Allocation *Device::State::find(uint64_t address) const {
  auto after = std::upper_bound(allocations.begin(), allocations.end(), address,
                                [](uint64_t value, const auto &a) { return value < a->address; });
  if (after == allocations.begin())
    return nullptr;
  Allocation *found = std::prev(after)->get();
  return address - found->address < found->size ? found : nullptr;
}

Allocation *Device::State::nearest(uint64_t address) const {
  Allocation *best = nullptr;
  uint64_t bestDistance = ~0ull;
  for (const auto &a : allocations) {
    uint64_t distance =
        address < a->address ? a->address - address : address - a->address - a->size;
    if (address >= a->address && address < a->address + a->size)
      distance = 0;
    if (distance < bestDistance)
      best = a.get(), bestDistance = distance;
  }
  return best;
}

Result<Allocation *> Device::State::allocate(uint64_t bytes, uint64_t align, std::string name) {
  constexpr uint64_t kAlign = 256;
  align = std::max(align, kAlign);
  auto result = std::make_unique<Allocation>();
  if (bytes > 1ull << 40)
    return makeError(ErrorCode::OutOfRange, "{}: cannot allocate {} bytes", name, bytes);
  result->storage.reset(new (std::nothrow) std::byte[bytes + kAlign]());
  if (!result->storage)
    return makeError(ErrorCode::OutOfRange, "{}: cannot allocate {} bytes", name, bytes);
  auto host = reinterpret_cast<uintptr_t>(result->storage.get());
  result->data = result->storage.get() + ((host + kAlign - 1) / kAlign * kAlign - host);
  result->address = (nextAddress + align - 1) / align * align;
  result->size = bytes;
  result->name = std::move(name);
  nextAddress = result->address + bytes + kGuardBytes;
  allocations.push_back(std::move(result));
  return allocations.back().get();
}

Result<uint64_t> Device::allocate(size_t bytes, std::string name) {
  auto result = pimpl->allocate(bytes, 256, name.empty() ? "buffer" : std::move(name));
  if (!result)
    return Unexpected(result.error());
  (*result)->written.assign((bytes + 63) / 64, 0);
  return (*result)->address;
}

Result<void> Device::free(uint64_t address) {
  auto found = std::find_if(pimpl->allocations.begin(), pimpl->allocations.end(),
                            [&](const auto &a) { return a->address == address; });
  if (found == pimpl->allocations.end())
    return makeError(ErrorCode::InvalidArgument, "{:#x} is the address of no allocation", address);
  pimpl->allocations.erase(found);
  return {};
}

/// visit(allocation, offset in it) for a range that is not empty.
template <typename Visit>
static Result<void> visitRange(const Device::State &state, uint64_t address, size_t bytes,
                               Visit &&visit) {
  Allocation *found = bytes ? state.find(address) : nullptr;
  if (bytes && (!found || !found->contains(address, bytes)))
    return makeError(ErrorCode::OutOfRange, "{} bytes at {:#x} do not lie in one allocation", bytes,
                     address);
  if (found)
    visit(*found, address - found->address);
  return {};
}

Result<void> Device::copyIn(uint64_t address, const void *host, size_t bytes) {
  return visitRange(*pimpl, address, bytes, [&](Allocation &found, uint64_t offset) {
    std::memcpy(found.data + offset, host, bytes);
    found.markWritten(offset, bytes);
  });
}

Result<void> Device::copyOut(void *host, uint64_t address, size_t bytes) const {
  return visitRange(*pimpl, address, bytes, [&](const Allocation &found, uint64_t offset) {
    std::memcpy(host, found.data + offset, bytes);
  });
}

Result<void> Device::fill(uint64_t address, uint8_t value, size_t bytes) {
  return visitRange(*pimpl, address, bytes, [&](Allocation &found, uint64_t offset) {
    std::memset(found.data + offset, value, bytes);
    found.markWritten(offset, bytes);
  });
}

Result<size_t> Device::uninitialisedBytes(uint64_t address, size_t bytes) const {
  size_t count = 0;
  auto done = visitRange(*pimpl, address, bytes, [&](const Allocation &found, uint64_t offset) {
    for (size_t i = 0; i < bytes; ++i)
      count += !found.isWritten(offset + i, 1);
  });
  return done.map([&] { return count; });
}

Result<std::pair<uint64_t, size_t>> Device::variable(const std::shared_ptr<const Module> &module,
                                                     std::string_view name) {
  auto image = pimpl->load(module);
  if (!image)
    return Unexpected(image.error());
  auto found = (*image)->variables.find(name);
  if (found == (*image)->variables.end())
    return makeError(ErrorCode::NotFound, "{}: no .global or .const variable '{}'",
                     module->syntax().name, name);
  return std::pair(found->second->address, static_cast<size_t>(found->second->size));
}

/// Writes the initializer of a variable to its memory.
static Result<void> initialise(const ModuleImage &image, const ast::Variable &variable,
                               Allocation &allocation) {
  const ast::Module &tree = image.module->syntax();
  unsigned width = sizeOf(variable.type);
  if (variable.initializer.size() > variable.elements * variable.vector)
    return makeError(ErrorCode::Corrupt, "{}:{}: '{}' has more initial values than elements",
                     tree.name, variable.line, variable.name);
  std::byte *data = allocation.data;
  for (const ast::InitialValue &value : variable.initializer) {
    uint64_t bits = value.bits;
    if (value.kind == ast::InitialValue::Symbol) {
      auto target = image.variables.find(value.symbol);
      if (target == image.variables.end() || width != 8)
        return makeError(ErrorCode::Unsupported,
                         "{}:{}: initial value '{}' of '{}': only 64-bit addresses of .global and "
                         ".const variables are simulated",
                         tree.name, variable.line, value.symbol, variable.name);
      bits = target->second->address + value.offset;
    } else if (value.kind == ast::InitialValue::Float64 && width == 4) {
      bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    } else if (value.kind == ast::InitialValue::Float32 && width == 8) {
      bits = std::bit_cast<uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
    }
    std::memcpy(data, &bits, std::min<size_t>(width, 8));
    data += width;
  }
  return {};
}

Result<ModuleImage *> Device::State::load(const std::shared_ptr<const Module> &module) {
  std::unique_ptr<ModuleImage> &slot = images[module.get()];
  if (slot)
    return slot.get();
  auto image = std::make_unique<ModuleImage>();
  image->module = module;
  auto isStored = [](const ast::Variable &v) {
    return v.space == Space::Global || v.space == Space::Const;
  };
  for (const ast::Variable &variable : module->syntax().variables) {
    if (!isStored(variable))
      continue;
    if (variable.isExtern)
      return makeError(ErrorCode::Unsupported,
                       "{}:{}: '{}' is extern; variables of other modules are not linked",
                       module->syntax().name, variable.line, variable.name);
    auto allocation = allocate(variable.bytes(), variable.alignment(), std::string(variable.name));
    if (!allocation)
      return Unexpected(allocation.error());
    image->variables[variable.name] = *allocation;
  }
  for (const ast::Variable &variable : module->syntax().variables)
    if (isStored(variable)) {
      Allocation &allocation = *image->variables[variable.name];
      if (auto done = initialise(*image, variable, allocation); !done)
        return Unexpected(done.error());
      allocation.readOnly = variable.space == Space::Const;
    }
  slot = std::move(image);
  return slot.get();
}
