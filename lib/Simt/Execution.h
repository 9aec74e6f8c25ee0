//===- Execution.h - Warps, blocks and their launch -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_EXECUTION_H
#define EASYQUANT_LIB_SIMT_EXECUTION_H

#include "Memory.h"

#include <bit>
#include <functional>

namespace easyquant::simt {

class Block;
class Launch;
class Checker;

/// Where block or thread `linear` is in a grid or a block of so many.
inline std::array<uint32_t, 3> placeIn(const std::array<uint32_t, 3> &dims, uint64_t linear) {
  return {static_cast<uint32_t>(linear % dims[0]),
          static_cast<uint32_t>(linear / dims[0] % dims[1]),
          static_cast<uint32_t>(linear / dims[0] / dims[1])};
}

/// Ends the launch; its finding is recorded already.
struct Stop {};

/// An activation of a function by some lanes of a warp.
struct Frame {
  Frame *caller = nullptr;
  const FunctionCode *function = nullptr;
  std::vector<std::byte> storage;
  std::byte *registers = nullptr;    ///< In storage, aligned to 64.
  std::vector<std::byte> parameters; ///< Lane after lane.
  std::vector<Mask> defined;         ///< Per register; for the checks only.
  Mask lanes = 0;                    ///< Lanes that have not returned.
  const CallSite *site = nullptr;
  uint32_t returnTo = 0;
  uint32_t depth = 0;
  uint32_t localBase = 0;

  /// Where a parameter or an argument of a lane is.
  std::byte *at(const ParameterPlace &p, size_t lane) {
    return p.inRegister ? registers + p.slot + lane * p.bytes
                        : parameters.data() + lane * function->parameterBytes + p.offset;
  }
};

/// Lanes of a warp that are at one place.
struct Group {
  enum State : uint8_t {
    Ready,
    AtBarrier,  ///< Waits for the block's barrier `barrier`.
    Converging, ///< Waits at a warp-wide instruction for the other lanes of `members`.
  };
  Frame *frame = nullptr;
  uint32_t pc = 0;
  Mask mask = 0;
  State state = Ready;
  uint8_t barrier = 0;
  Mask members = 0;
};

/// A copy that has been asked for and may arrive at any time.
struct PendingCopy {
  std::array<std::byte, 16> data;
  uint32_t destination; ///< Offset in the shared memory of the block.
  uint8_t bytes;
  uint8_t lane;
  uint32_t pc;
  uint32_t group; ///< Groups that the lane had committed before.
};

enum class AccessKind : uint8_t { Read, Write, Atomic };

/// Bits of Instruction::flags of loads, stores and atomics. Strong accesses (volatile, relaxed,
/// ...) do not race with each other, and order others where they acquire or release.
constexpr uint32_t kStrongAccess = 1u << 31, kAcquire = 1u << 30, kRelease = 1u << 29;

class Warp {
public:
  Warp(Block &block, unsigned index, Mask lanes);

  template <typename T> T *reg(Slot slot) const {
    return reinterpret_cast<T *>(bases[slot >> 31] + (slot & ~kConstantSlot));
  }
  Mask predicate(Slot slot) const { return *reg<Mask>(slot); }
  void setPredicate(Slot slot, Mask lanes, Mask value) {
    Mask &p = *reg<Mask>(slot);
    p = (p & ~lanes) | (value & lanes);
  }

  /// Runs until all groups wait or are gone, or for about `quantum` instructions.
  void run(uint64_t quantum);
  bool done() const { return alive == 0; }
  bool runnable() const;

  // -- control flow, for handlers
  void branch(uint32_t target, Mask taken);
  void splitTo(const std::array<uint32_t, kLanes> &targets, Mask mask);
  void call(const FunctionCode &callee, const CallSite &site, Mask mask);
  void returnFrom(Mask mask);
  void exit(Mask mask);
  /// For a warp-wide instruction of `members`: true if all of them that live are in `mask`.
  /// Otherwise the group waits at this instruction, and the handler returns at once.
  bool converge(const Instruction &i, Mask members, Mask mask);
  /// The same for an instruction that needs all 32 lanes, and ends the launch without them.
  bool convergeWhole(const Instruction &i, Mask mask);
  /// The current group waits at a barrier of the block.
  void waitAt(uint8_t barrier);
  void release(uint8_t barrier);
  /// Runs other warps before this one goes on; for polling loops.
  void yield() { yielded = true; }
  /// Picks the group that runs next: the deepest call, then the lowest address.
  bool reschedule();

  // -- memory
  /// Host addresses of what each lane of `mask` accesses: `bytes` at the register a + offset in
  /// i.space. Ends the launch at an access that memory does not have.
  void resolve(const Instruction &i, Mask mask, AccessKind kind, unsigned bytes,
               std::byte *(&pointers)[kLanes]) {
    uint64_t at[kLanes];
    addresses(i.a, i.wideAddress, i.offset, at);
    resolve(i, mask, kind, bytes, at, i.space, pointers);
  }
  /// The same at given addresses, which it fills in for lanes that do not take part.
  void resolve(const Instruction &i, Mask mask, AccessKind kind, unsigned bytes,
               uint64_t (&at)[kLanes], Space space, std::byte *(&pointers)[kLanes]);
  /// The address in a register, plus the offset.
  void addresses(Slot address, bool wide, int64_t offset, uint64_t (&out)[kLanes]) const;

  // -- asynchronous copies (cp.async)
  /// Copies `bytes` (up to 16 for each lane) to shared memory later: they are read now.
  void startCopies(const Instruction &i, Mask mask, const uint64_t (&destination)[kLanes],
                   std::byte *const (&source)[kLanes], const uint32_t (&sourceBytes)[kLanes],
                   unsigned bytes, std::vector<PendingCopy> &into);
  void finishCopy(const PendingCopy &copy);
  /// Takes copies that `which` picks out of those under way, in the order they were issued.
  template <typename Which, typename Visit> void takeCopies(Which &&which, Visit &&visit) {
    size_t kept = 0;
    for (const PendingCopy &copy : copies) {
      if (which(copy))
        visit(copy);
      else
        copies[kept++] = copy;
    }
    copies.resize(kept);
  }

  /// Thread number in the block of a lane.
  unsigned thread(unsigned lane) const { return index * kLanes + lane; }
  /// Records a finding of a lane.
  void report(Finding::Kind kind, const Instruction &i, unsigned lane, const std::string &what,
              uint64_t count = 1);
  [[noreturn]] void stop(Finding::Kind kind, const Instruction &i, Mask lanes,
                         const std::string &what);

  std::byte *bases[2]; ///< Registers of the frame, constants.
  uint32_t pc = 0, watch = ~0u;
  Mask mask = 0; ///< Lanes of the running group.
  Frame *frame = nullptr;
  Block &block;
  Launch &launch;
  const unsigned index;
  Mask alive;
  bool regroup = false, yielded = false;
  bool inverted = false; ///< Groups are picked from the other end, so that none starves.
  std::vector<Group> pending;
  std::vector<std::byte> local;    ///< Lane after lane, localStride each.
  std::vector<uint8_t> localState; ///< Per byte of `local`: kWritten. For the checks only.
  uint32_t localStride = 0;
  Mask carry = 0; ///< CC.CF

  // cp.async: copies under way, oldest first, and how many groups each lane has committed.
  std::vector<PendingCopy> copies;
  std::array<uint32_t, kLanes> groups{};

  // Happens-before; see Shadow.h.
  uint32_t clock = 1;
  std::vector<uint32_t> known; ///< Clocks of the block's warps that this one has learnt.
  std::array<uint32_t, kLanes>
      laneSync{};          ///< Clock of each lane's last warp-level synchronization.
  bool fenced = false;     ///< A fence was passed, so that atomics release what came before.
  Mask undefinedStore = 0; ///< Lanes whose stored value is undefined.

private:
  Frame *newFrame(const FunctionCode &function, Frame *caller, Mask lanes);
  void enter(Frame *frame);
  void initialiseSpecials(Frame &frame);
  void dropLanes(Frame *frame, Mask lanes);
  template <bool checked> void loop(uint64_t quantum);
  void growLocal(uint32_t bytes);
  bool unblock();
  std::vector<std::unique_ptr<Frame>> frames, spare;
};

/// A named barrier of a block.
struct Barrier {
  unsigned arrived = 0;               ///< Threads.
  unsigned expected = 0;              ///< 0: all threads that live.
  uint32_t pc = 0;                    ///< Where the first thread arrived.
  unsigned reduction = 0, voters = 0; ///< bar.red: threads with a true predicate, of how many.
  struct Receiver {
    Warp *warp;
    std::byte *registers;
    const Instruction *instruction;
    Mask lanes;
  };
  std::vector<Receiver> receivers; ///< Threads that get the result of the reduction.
  std::vector<uint32_t> clocks;
  std::vector<Warp *> warps;
};

/// Gives the threads at a barrier the result of its reduction. In BarrierOps.cpp.
void deliverReduction(const Barrier &barrier);

/// An mbarrier object's state, kept beside its 8 bytes in shared memory. Defined in MBarrier.cpp.
struct MBarrierTable;

class Block {
public:
  Block(Launch &launch, std::array<uint32_t, 3> id, uint32_t linear);
  ~Block();
  /// Runs for about `quantum` instructions a warp; true when all threads have exited.
  bool run(uint64_t quantum);
  unsigned aliveThreads() const;
  void arrive(Warp &warp, const Instruction &i, Mask mask, unsigned barrier, unsigned expected,
              bool waits, bool aligned);
  void checkBarriers(); ///< After threads exited.

  Launch &launch;
  const std::array<uint32_t, 3> id;
  const uint32_t linear;
  std::vector<std::byte> sharedStorage;
  std::byte *shared; ///< Aligned to 1024 bytes; address kFirstSharedAddress is its first byte.
  uint32_t sharedBytes;
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<Barrier, 16> barriers;
  std::unique_ptr<MBarrierTable> mbarriers;

  // For the checks.
  std::vector<uint8_t> sharedState; ///< Per byte; kWritten, kInFlight.
  std::unique_ptr<ShadowMemory> sharedShadow;
  std::vector<uint32_t> knownBlocks; ///< Blocks whose writes this one has acquired, sorted.

private:
  void complete(unsigned barrier);
};
constexpr uint8_t kWritten = 1, kInFlight = 2;

struct Counters {
  uint64_t issued = 0, lanes = 0, requests = 0, bytes = 0, sectors = 0, wavefronts = 0,
           conflicts = 0;
};

class Launch {
public:
  Launch(Device::State &memory, const DecodedKernel &decoded, const LaunchOptions &options,
         std::vector<std::byte> parameters);
  ~Launch();
  LaunchReport run();

  /// Records a finding; further ones of the same kind and instruction are counted.
  void report(Finding::Kind kind, uint32_t pc, const Block &block, unsigned thread,
              const std::string &what, uint64_t count = 1);
  std::string quote(uint32_t pc) const; ///< "line 12: st.global..."
  void count(const Instruction &i, Space space, Mask mask, unsigned bytes,
             const uint64_t (&addresses)[kLanes]);
  unsigned threadsOfBlock() const { return options.block[0] * options.block[1] * options.block[2]; }
  unsigned warpsOfBlock() const { return (threadsOfBlock() + kLanes - 1) / kLanes; }
  uint32_t pcOf(const Instruction &i) const {
    return static_cast<uint32_t>(&i - decoded.code.data());
  }
  Counters &counters(const Instruction &i) { return perInstruction[pcOf(i)]; }

  Device::State &memory;
  const DecodedKernel &decoded;
  const LaunchOptions &options;
  std::vector<std::byte> parameters;
  std::vector<Counters> perInstruction;
  std::unique_ptr<Checker> checker; ///< Null: no checks.
  Allocation *lastAllocation = nullptr;
  uint64_t executed = 0;
  uint64_t barriersCompleted = 0, divergentBranches = 0;
  uint64_t time = 0; ///< %clock
  uint32_t localBytesPerThread = 0;

private:
  Statistics statistics() const;
  std::vector<Finding> findings;
  std::map<std::pair<int, uint32_t>, size_t> findingIndex;
};

/// Calls `visit(lane)` for each lane of the mask.
template <typename Visit> inline void forEachLane(Mask mask, Visit &&visit) {
  for (; mask; mask &= mask - 1)
    visit(static_cast<unsigned>(std::countr_zero(mask)));
}

std::string describeLanes(const Warp &warp, Mask mask);

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_EXECUTION_H
