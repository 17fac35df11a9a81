// What works beside the threads of a block, and the roles that they take. A translation unit of its own, so that two
// processors compile the runtime.
#include "asynchronous.hpp"

#include "deadlock.hpp"

namespace emu {

void reset_asynchronous(unsigned living, unsigned places) {
  agents.reset(places);
  barriers.clear();
  init_fenced = Knowledge();
  loads.clear();
  stores.clear();
  store_groups.clear();
  warpgroups = std::vector<Warpgroup>((places + WARPGROUP - 1) / WARPGROUP);
  reset_roles(living / launch->cluster);
  reset_cluster(living, places);
}

bool land_any() {
  if (loads.empty()) return false;
  land_one(launch->seed ? random_bits() % loads.size() : 0);
  return true;
}

}  // namespace emu
