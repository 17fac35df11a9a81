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
  warpgroups = std::vector<Warpgroup>((places + WARPGROUP - 1) / WARPGROUP);
  reset_roles(living / launch->cluster);
  reset_cluster(living, places);
}

bool land_any() {
  const size_t under_way = loads.size() + arrivals.size();
  if (under_way == 0) return false;
  land_one(launch->seed ? random_bits() % under_way : 0);
  return true;
}

}  // namespace emu
