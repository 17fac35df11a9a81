// The arrays a kernel was given, and who wrote which of their elements.
#pragma once

#include <stdint.h>

#include "races.hpp"

namespace emu {

// Read by the driver through ctypes: keep it in step with native.py.
struct Region {
  uint64_t low, high;   // addresses: the first byte, and the one after the last
  uint64_t* owners;     // for a writable array: who wrote each granule last; 0 is nobody
  uint32_t granule;     // bytes
  int32_t argument;
  int32_t writable;
};

// A writer: its block, its thread, its clock. The clock is short; it saturates, and is then never known.
inline uint64_t owner(uint64_t block, unsigned thread, uint32_t clock) {
  const uint64_t short_clock = clock < 0x3fffff ? clock : 0x3fffff;
  return (block + 1) << 32 | uint64_t(thread) << 22 | short_clock;
}
// In the place of a writer: threads have added there, in any order.
constexpr uint64_t ADDED = ~uint64_t(0);

inline uint64_t owner_block(uint64_t owner) { return (owner >> 32) - 1; }
inline unsigned owner_thread(uint64_t owner) { return owner >> 22 & 0x3ff; }
inline uint32_t owner_clock(uint64_t owner) { return owner & 0x3fffff; }

class Regions {
 public:
  void reset(const Region* regions, int count) {
    regions_ = regions;
    count_ = count;
  }
  // The array that holds all these bytes; for a write, a writable one if there is one.
  const Region* find(uint64_t address, unsigned bytes, bool write) const {
    const Region* found = nullptr;
    for (int i = 0; i < count_; ++i) {
      const Region& region = regions_[i];
      if (address < region.low || address + bytes > region.high) continue;
      if (region.writable) return &region;
      found = &region;
      if (!write && count_ == 1) break;
    }
    return found;
  }
  const Region* nearest(uint64_t address) const {
    const Region* best = nullptr;
    uint64_t distance = UINT64_MAX;
    for (int i = 0; i < count_; ++i) {
      const uint64_t away = address < regions_[i].low ? regions_[i].low - address
                                                      : address - regions_[i].low;
      const uint64_t past = address >= regions_[i].high ? address - regions_[i].high : away;
      const uint64_t here = past < away ? past : away;
      if (here < distance) distance = here, best = &regions_[i];
    }
    return best;
  }
  // The writer of some byte of an access that is not known to it; 0 if there is none.
  template <class Known>
  static uint64_t stranger(const Region& region, uint64_t address, unsigned bytes, Known known) {
    if (!region.owners) return 0;
    for (uint64_t i = first(region, address); i <= last(region, address, bytes); ++i) {
      const uint64_t who = region.owners[i];
      if (who != 0 && !known(who)) return who;
    }
    return 0;
  }
  static void claim(const Region& region, uint64_t address, unsigned bytes, uint64_t who) {
    if (!region.owners) return;
    for (uint64_t i = first(region, address); i <= last(region, address, bytes); ++i)
      region.owners[i] = who;
  }

 private:
  static uint64_t first(const Region& region, uint64_t address) {
    return (address - region.low) / region.granule;
  }
  static uint64_t last(const Region& region, uint64_t address, unsigned bytes) {
    return (address - region.low + bytes - 1) / region.granule;
  }
  const Region* regions_ = nullptr;
  int count_ = 0;
};

}  // namespace emu
