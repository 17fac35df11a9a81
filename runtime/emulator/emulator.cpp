// Runs the threads of a block as fibres, warp by warp, and watches what they do. One launch at a time
// in each compiled kernel: the driver holds a lock.
#include "emulator.h"

#include <chrono>

#include "collectives.hpp"
#include "deadlock.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

unsigned char* shared_base;
unsigned char zeros[64], sink[64];

namespace {

double started;  // when, in seconds of a steady clock

// Lets the four warps' collective happen if all their threads are at it.
bool resolve_warpgroup(unsigned warp, const Request& request) {
  const unsigned first = warp / WARPGROUP * WARPGROUP;
  if (first + WARPGROUP > all_threads.size()) {
    report("missing lanes", warp, request.line, "a product needs a whole warpgroup, four warps");
    abandoned = true;
    return false;
  }
  for (unsigned t = first; t < first + WARPGROUP; ++t) {
    const Thread& thread = all_threads[t];
    if (thread.state != State::WAITING || thread.request->operation != request.operation ||
        thread.request->line != request.line)
      return false;
  }
  execute_warpgroup(first, request);
  for (unsigned t = first; t < first + WARPGROUP; ++t) all_threads[t].state = State::READY;
  return true;
}

// Lets the warp's collective happen if all its living lanes are at it. True if lanes may run on.
bool resolve_warp(unsigned first, unsigned last) {
  const Request* request = nullptr;
  bool together = true, rested = false;
  for (unsigned t = first; t < last; ++t) {
    Thread& thread = all_threads[t];
    if (thread.state == State::RESTING) thread.state = State::READY, rested = true;
    if (thread.state == State::MEETING) return rested;
    if (thread.state != State::WAITING) continue;
    if (thread.request->operation == MBARRIER_WAIT && may_pass(t)) {
      if (launch->checks && t % 32 == 0) traffic.request(MBARRIER_WAIT, thread.request->line, 0, 0);
      thread.state = State::READY, rested = true;
      continue;
    }
    if (!request) request = thread.request;
    together &= thread.request->operation == request->operation && thread.request->line == request->line;
  }
  if (rested) return true;
  if (!request || !together) return false;
  switch (request->operation) {
    case BARRIER_BLOCK:
    case MBARRIER_WAIT: return false;
    case BARRIER_NAMED: return come_to_named(first, last, *request), true;
    case WGMMA:
    case WGMMA_FENCE:
    case WGMMA_COMMIT:
    case WGMMA_WAIT: return resolve_warpgroup(first, *request);
    case REGISTERS:
      if (!may_change_registers(first, *request)) return false;
      break;
    default: break;
  }
  execute(first, last, *request);
  for (unsigned t = first; t < last; ++t)
    if (all_threads[t].state == State::WAITING) all_threads[t].state = State::READY;
  return true;
}

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Lanes stop now and then even in a loop without meetings, so this is asked often enough.
void check_time() {
  if (launch->time_limit <= 0 || seconds_now() < started + launch->time_limit) return;
  record("timeout", int(current), current_line,
         text("still running after %.3g seconds", launch->time_limit));
  abandoned = true;
}

// Runs the lanes of a warp until each has stopped, and on for as long as they meet. True if any ran.
bool run_warp(unsigned first, unsigned last) {
  bool ran = false;
  do {
    const unsigned lanes = last - first;
    const unsigned turn = launch->seed ? random_bits() % lanes : 0;
    for (unsigned i = 0; i < lanes && !abandoned; ++i) {
      const unsigned t = first + (i + turn) % lanes;
      if (all_threads[t].state != State::READY) continue;
      current = t;
      threadIdx = all_threads[t].index;
      scheduler.switch_to(all_threads[t].context);
      ran = true;
    }
    traffic.meet();
    check_time();
    if (abandoned || !resolve_warp(first, last)) return ran;
    ran = true;
  } while (launch->seed == 0 || random_bits() % 4 != 0);
  return true;
}

// All living threads at one block barrier may pass. True if they did.
bool resolve_block() {
  if (!loads.empty()) {  // at the latest now
    land_one(launch->seed ? random_bits() % loads.size() : 0);
    return true;
  }
  const std::vector<Group> groups = waiting_groups();
  if (groups.empty()) return false;
  if (groups.size() > 1 || groups[0].request->operation != BARRIER_BLOCK) {
    report_deadlock(groups);
    return false;
  }
  clocks.join(groups[0].members);
  shadow.forget_old();
  traffic.meet_block();
  unsigned last_warp = ~0u;
  for (const unsigned t : groups[0].members) {
    all_threads[t].state = State::READY;
    if (launch->checks && t / 32 != last_warp)
      traffic.request(BARRIER_BLOCK, groups[0].request->line, 0, 0);
    last_warp = t / 32;
  }
  return true;
}

void thread_main() {
  launch->kernel(launch->arguments);
  suspend(State::EXITED);
}

void start_threads() {
  for (unsigned t = 0; t < all_threads.size(); ++t) {
    Thread& thread = all_threads[t];
    thread.context.start(stacks[t], Stacks::SIZE, thread_main);
    thread.state = State::READY;
    thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    thread.copies.clear();
    thread.groups = 0;
  }
}

void run_block(std::vector<unsigned>& warps) {
  const unsigned count = unsigned(all_threads.size());
  memset(shared_base, 0xff, launch->shared_bytes);  // NaN in every floating point type
  clocks.reset(count);
  if (launch->checks) shadow.reset(launch->shared_bytes, &clocks);
  agents.reset(count);
  barriers.clear();
  init_fenced = Knowledge();
  loads.clear();
  stores.clear();
  store_groups.clear();
  warpgroups.assign((count + WARPGROUP - 1) / WARPGROUP, Warpgroup());
  reset_roles(count);
  start_threads();
  while (!abandoned) {
    bool ran = false;
    for (size_t i = warps.size(); launch->seed && i > 1; --i)
      std::swap(warps[i - 1], warps[random_bits() % i]);
    for (const unsigned warp : warps) {
      const unsigned first = 32 * warp, last = first + 32 < count ? first + 32 : count;
      if (!abandoned) ran |= run_warp(first, last);
      ran |= land_some();
      execute_some();
    }
    if (!ran && !abandoned && !resolve_block()) break;
  }
  traffic.meet_block();
  if (!abandoned) check_left_over();
}

void run_grid() {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  std::vector<unsigned> warps;
  for (unsigned warp = 0; warp < (count + 31) / 32; ++warp) warps.push_back(warp);
  all_threads = std::vector<Thread>(count);
  std::vector<unsigned char> memory(launch->shared_bytes + 2048);
  const uint64_t start = reinterpret_cast<uint64_t>(memory.data());
  shared_base = memory.data() + ((1024 - start % 1024) % 1024);
  const uint64_t blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
  for (current_block = 0; current_block < blocks && !abandoned; ++current_block) {
    blockIdx = {unsigned(current_block % gridDim.x), unsigned(current_block / gridDim.x % gridDim.y),
                unsigned(current_block / gridDim.x / gridDim.y)};
    run_block(warps);
    launch->blocks_done = current_block + 1;
  }
}

}  // namespace
}  // namespace emu

// Runs a launch; nonzero if there is no memory for its stacks.
TREADLE_EXPORT int treadle_launch(emu::Launch* requested) {
  using namespace emu;
  launch = requested;
  gridDim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
  blockDim = dim3(launch->block[0], launch->block[1], launch->block[2]);
  if (!stacks.reserve(blockDim.x * blockDim.y * blockDim.z)) return 1;
  regions.reset(launch->regions, launch->region_count);
  traffic.reset();
  faults.clear();
  fault_count = 0;
  abandoned = false;
  random_state = launch->seed * 0x9e3779b97f4a7c15ull + 1;
  started = seconds_now();
  run_grid();
  launch->seconds = seconds_now() - started;
  stacks.release();
  launch->faults = fault_count;
  launch->faults_kept = int32_t(faults.size());
  launch->operations = int32_t(traffic.records().size());
  return 0;
}

TREADLE_EXPORT void treadle_fault(int index, emu::FaultRecord* record) {
  *record = emu::faults[size_t(index)];
}

TREADLE_EXPORT void treadle_operation(int index, emu::OperationRecord* record) {
  *record = emu::traffic.records()[size_t(index)];
}
