// Counts what memory traffic costs: sectors of global memory and bank conflicts of shared memory, per
// warp request and per line. Lanes run one after another, so a request is put together afterwards:
// between two points where the lanes of a warp meet, the k-th access that each lane makes on a line
// is the same instruction of the warp. How they are put together and counted is in requests.hpp.
#pragma once

#include <stdint.h>

#include <vector>

#include "emulator.h"

namespace emu {

constexpr unsigned SECTOR = 32;  // bytes of global memory that move together

// Read by the driver through ctypes: keep it in step with native.py.
struct OperationRecord {
  int32_t operation, line;
  uint64_t requests, bytes, sectors, conflicts, distinct;
};

// What tensor copies bring or take together, so that no sector need be asked for twice: the boxes of one tile complete on
// one barrier in one phase, or leave in one group of a thread.
struct Together {
  const void* barrier;
  uint64_t number;
  unsigned thread;
  bool operator==(const Together& other) const {
    return barrier == other.barrier && number == other.number && thread == other.thread;
  }
};

// One instruction of a warp: where its active lanes point.
struct WarpRequest {
  uint64_t address[32];
  uint32_t active = 0;
};

class Traffic {
 public:
  void reset();

  // One lane's access; an inactive one only keeps the lane in step. True if the lane should wait.
  bool access(Operation operation, int line, unsigned lane, const void* address, unsigned bytes, bool active);
  // One instruction of the whole warp that is counted as it executes.
  void request(Operation operation, int line, uint64_t bytes, unsigned conflicts);
  // One tensor copy: the bytes that lie within the array, and each sector that holds some of them, once.
  void copy(Operation operation, int line, uint64_t bytes, const std::vector<uint64_t>& sectors, Together together);
  // The lanes of the warp that ran have all stopped: count what they did.
  void meet();
  // The block has met, or ended: of the sectors that each operation asked for since, no fewer than the distinct
  // ones would have done.
  void meet_block();

  size_t operations() const { return slots_.size(); }
  const OperationRecord& record(size_t operation) const { return slots_[operation].record; }

 private:
  struct Slot {
    OperationRecord record;
    unsigned bytes = 0;
    unsigned made[32] = {};
    std::vector<WarpRequest> requests;
    std::vector<uint64_t> touched;
    Together together = {};
  };

  Slot& slot_at(Operation operation, int line);
  static void count(Slot& slot, const WarpRequest& request);
  static void count_distinct(Slot& slot);

  std::vector<Slot> slots_;
  std::vector<int> slot_of_[OPERATIONS];
  unsigned since_meeting_[32] = {};
};

}  // namespace emu
