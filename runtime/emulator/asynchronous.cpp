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
  store_groups.assign(places, 0);
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
