// How the accesses of lanes are put together to requests of a warp, and what these cost (traffic.hpp): in one
// translation unit only.
#pragma once

#include <algorithm>

#include "traffic.hpp"

namespace emu {
namespace {

constexpr unsigned BANKS = 32, BANK_BYTES = 4;
// A lane that has made this many accesses since the warp last met waits for the others, so that what is kept stays
// small.
constexpr unsigned PATIENCE = 4096;

// The distinct sectors of 32 bytes that the warp touches; `seen` has room for two a lane.
unsigned sectors_of(const WarpRequest& request, unsigned bytes, uint64_t* seen) {
  unsigned count = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(request.active >> lane & 1)) continue;
    const uint64_t first = request.address[lane] / SECTOR;
    const uint64_t last = (request.address[lane] + bytes - 1) / SECTOR;
    for (uint64_t sector = first; sector <= last; ++sector) {
      unsigned i = count;
      while (i > 0 && seen[i - 1] != sector) --i;
      if (i == 0) seen[count++] = sector;
    }
  }
  return count;
}

// Times that one bank must be read for these words: the largest number of distinct words in a bank.
class Wavefront {
 public:
  void add(uint64_t address, unsigned bytes) {
    const uint64_t first = address / BANK_BYTES, last = (address + bytes - 1) / BANK_BYTES;
    for (uint64_t word = first; word <= last; ++word) add_word(word);
  }
  unsigned passes() const { return most_; }

 private:
  void add_word(uint64_t word) {
    const unsigned bank = word % BANKS;
    for (unsigned i = 0; i < count_[bank]; ++i)
      if (words_[bank][i] == word) return;
    words_[bank][count_[bank]++] = word;
    if (count_[bank] > most_) most_ = count_[bank];
  }
  uint64_t words_[BANKS][32];
  uint8_t count_[BANKS] = {};
  unsigned most_ = 0;
};

// Passes beyond the fewest. Wide accesses go by halves (8 bytes) or quarters (16 bytes) of a warp.
unsigned conflicts_of(const WarpRequest& request, unsigned bytes) {
  const unsigned group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  unsigned extra = 0;
  for (unsigned first = 0; first < 32; first += group) {
    Wavefront wavefront;
    for (unsigned lane = first; lane < first + group; ++lane)
      if (request.active >> lane & 1) wavefront.add(request.address[lane], bytes);
    if (wavefront.passes() > 1) extra += wavefront.passes() - 1;
  }
  return extra;
}

}  // namespace

void Traffic::reset() {
  slots_.clear();
  for (auto& slots : slot_of_) slots.clear();
  for (unsigned& count : since_meeting_) count = 0;
}

Traffic::Slot& Traffic::slot_at(Operation operation, int line) {
  std::vector<int>& slots = slot_of_[operation];
  const size_t index = line < 0 ? 0 : size_t(line);
  if (index >= slots.size()) slots.resize(index + 1, -1);
  if (slots[index] < 0) {
    slots[index] = int(slots_.size());
    slots_.emplace_back();
    slots_.back().record = {operation, line, 0, 0, 0, 0, 0};
  }
  return slots_[slots[index]];
}

bool Traffic::access(Operation operation, int line, unsigned lane, const void* address, unsigned bytes, bool active) {
  Slot& slot = slot_at(operation, line);
  slot.bytes = bytes;
  const unsigned index = slot.made[lane]++;
  if (index >= slot.requests.size()) slot.requests.resize(index + 1);
  if (active) {
    slot.requests[index].active |= 1u << lane;
    slot.requests[index].address[lane] = reinterpret_cast<uint64_t>(address);
    slot.record.bytes += bytes;
  }
  return ++since_meeting_[lane] >= PATIENCE;
}

void Traffic::request(Operation operation, int line, uint64_t bytes, unsigned conflicts) {
  OperationRecord& record = slot_at(operation, line).record;
  ++record.requests;
  record.bytes += bytes;
  record.conflicts += conflicts;
}

void Traffic::copy(Operation operation, int line, uint64_t bytes, const std::vector<uint64_t>& sectors,
                   Together together) {
  Slot& slot = slot_at(operation, line);
  if (!(slot.together == together)) count_distinct(slot);
  slot.together = together;
  ++slot.record.requests;
  slot.record.bytes += bytes;
  slot.record.sectors += sectors.size();
  slot.touched.insert(slot.touched.end(), sectors.begin(), sectors.end());
}

void Traffic::count(Slot& slot, const WarpRequest& request) {
  if (!request.active) return;
  ++slot.record.requests;
  const int operation = slot.record.operation;
  if (operation == LOAD_GLOBAL || operation == STORE_GLOBAL || operation == COPY_ASYNC ||
      operation == ADD_GLOBAL) {
    uint64_t seen[64];
    const unsigned sectors = sectors_of(request, slot.bytes, seen);
    slot.record.sectors += sectors;
    slot.touched.insert(slot.touched.end(), seen, seen + sectors);
  } else {
    slot.record.conflicts += conflicts_of(request, slot.bytes);
  }
}

void Traffic::meet() {
  for (Slot& slot : slots_) {
    if (slot.requests.empty()) continue;
    for (const WarpRequest& request : slot.requests) count(slot, request);
    slot.requests.clear();
    for (unsigned& made : slot.made) made = 0;
  }
  for (unsigned& count : since_meeting_) count = 0;
}

void Traffic::count_distinct(Slot& slot) {
  std::sort(slot.touched.begin(), slot.touched.end());
  const auto end = std::unique(slot.touched.begin(), slot.touched.end());
  slot.record.distinct += uint64_t(end - slot.touched.begin());
  slot.touched.clear();
}

void Traffic::meet_block() {
  for (Slot& slot : slots_) count_distinct(slot);
}

}  // namespace emu
