// What works beside the threads of a block, the roles that they take, and what is said of both. A translation unit of
// its own, so that two processors compile the runtime; they take as long.
#include "asynchronous.hpp"

#include "deadlock.hpp"
#include "reports.hpp"

namespace emu {

void reset_asynchronous(unsigned living, unsigned places) {
  agents.reset(places);
  barriers.clear();
  init_fenced = Knowledge();
  loads.clear();
  stores.clear();
  arrivals.clear();
  store_groups.assign(places, 0);
  poisons.clear();
  warpgroups = std::vector<Warpgroup>((places + WARPGROUP - 1) / WARPGROUP);
  reset_roles(living / launch->cluster);
  reset_cluster(living, places);
}

void tell_poison(uint32_t bits, const char* what) {
  const uint32_t poison = poison_of(int(bits & 0xffffu));
  if (!launch->checks || std::find(poisons.begin(), poisons.end(), poison) == poisons.end()) return;
  report("race", current, current_line,
         "what is %s was made of a register of an accumulator that was read while the product on line %u was in flight",
         what, bits & 0xffffu);
}

void tell_unfinished(const void* sum, uint32_t bits) {
  if (!launch->checks || !is_in_flight(current, static_cast<const uint32_t*>(sum))) return;
  report("race", current, current_line,
         "a register of an accumulator was read while the product on line %u into it was in flight", bits & 0xffffu);
}

void look_at_floats(const float* values, int count, int line) {
  for (int i = 0; i < count; ++i) {
    const uint32_t bits = same_bits<uint32_t>(values[i]);
    if (!is_poison(bits)) continue;
    current_line = line;
    return tell_poison(bits, "stored or exchanged");
  }
}

bool land_any() {
  const size_t under_way = loads.size() + arrivals.size();
  if (under_way == 0) return false;
  land_one(launch->seed ? random_bits() % under_way : 0);
  return true;
}

}  // namespace emu
