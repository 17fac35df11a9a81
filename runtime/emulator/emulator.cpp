// Runs the threads of a block as fibres, warp by warp, and watches what they do. One launch at a time
// in each compiled kernel: the driver holds a lock.
#include "emulator.h"

#include <time.h>

#include "asynchronous.hpp"
#include "collectives.hpp"
#include "knowledge.hpp"
#include "requests.hpp"
#include "shadow.hpp"
#include "switch.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

unsigned char* shared_base;
unsigned char zeros[64], sink[64];

std::vector<Thread> all_threads;
Clocks clocks;
Shadow shadow;
Regions regions;
Traffic traffic;
Agents agents;
std::vector<FaultRecord> faults;

namespace {

unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }

double started;  // when, in seconds of a steady clock

// Lets the four warps' collective happen if all their threads are at it.
bool resolve_warpgroup(unsigned warp, const Request& request) {
  const unsigned first = warp / WARPGROUP * WARPGROUP;
  if (first % block_threads + WARPGROUP > threads_of_block()) {
    report("missing lanes", warp, request.line, "a product needs a whole warpgroup, four warps");
    abandoned = true;
    return false;
  }
  for (unsigned t = first; t < first + WARPGROUP; ++t) {
    const Thread& thread = all_threads[t];
    if (thread.state != State::WAITING || !same_call(*thread.request, request)) return false;
  }
  if (!agree(first, first + WARPGROUP, request)) return false;
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
    const Operation waits_at = thread.request->operation;
    if ((waits_at == MBARRIER_WAIT && may_pass(t)) || (waits_at == BARRIER_CLUSTER && may_pass_cluster(t))) {
      if (launch->checks && t % 32 == 0) traffic.request(waits_at, thread.request->line, 0, 0);
      thread.state = State::READY, rested = true;
      continue;
    }
    if (!request) request = thread.request;
    together &= same_call(*thread.request, *request);
  }
  if (rested) return true;
  if (!request || !together || !agree(first, last, *request)) return false;
  switch (request->operation) {
    case BARRIER_BLOCK:
    case BARRIER_CLUSTER:
    case MBARRIER_WAIT: return false;
    case BARRIER_NAMED:
      if (missing_lanes(first, last, *request)) return false;
      return come_to_named(first, last, *request), true;
    case BARRIER_ARRIVE:
      if (missing_lanes(first, last, *request)) return false;
      arrive_at_named(first, last, *request);
      for (unsigned t = first; t < last; ++t) all_threads[t].state = State::READY;
      return true;
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
  for (unsigned t = first; t < last; ++t) {
    Thread& thread = all_threads[t];
    if (thread.state == State::WAITING) thread.state = State::READY;
    thread.long_gone = thread.state == State::EXITED;
  }
  return true;
}

double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// Lanes stop now and then even in a loop without meetings, so this is asked often enough.
void check_time() {
  if (launch->time_limit <= 0 || seconds_now() < started + launch->time_limit) return;
  record("timeout", int(current), current_line,
         text("still running after %.3g seconds", launch->time_limit).c_str());
  abandoned = true;
}

// Runs the lanes of a warp until each has stopped, and on for as long as they meet. True if any ran.
bool run_warp(unsigned first, unsigned last) {
  bool ran = false;
  become(first);
  do {
    const unsigned lanes = last - first;
    const unsigned turn = launch->seed ? random_bits() % lanes : 0;
    for (unsigned i = 0; i < lanes && !abandoned; ++i) {
      const unsigned t = first + (i + turn) % lanes;
      if (all_threads[t].state != State::READY) continue;
      become(t);
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

// The thread after the last of a warp.
unsigned end_of_warp(unsigned first) {
  const unsigned end = block_of(first) * block_threads + threads_of_block();
  return first + 32 < end ? first + 32 : end;
}

// All living threads of a block at one block barrier may pass. True if they did.
bool resolve_block(unsigned block) {
  const std::vector<Group> groups = waiting_groups(block);
  if (groups.size() != 1 || groups[0].request->operation != BARRIER_BLOCK) return false;
  clocks.join(groups[0].members);
  if (launch->cluster == 1) shadow.forget_old();
  traffic.meet_block();
  unsigned last_warp = ~0u;
  for (const unsigned t : groups[0].members) {
    all_threads[t].state = State::READY;
    if (launch->checks && t / 32 != last_warp) {
      check_all_lanes_came(t / 32 * 32, end_of_warp(t / 32 * 32), groups[0].request->line);
      traffic.request(BARRIER_BLOCK, groups[0].request->line, 0, 0);
    }
    last_warp = t / 32;
  }
  return true;
}

// When no thread can go on: data that is under way arrives, block barriers are passed. True if something happened.
bool resolve_cluster() {
  if (land_any()) return true;
  bool passed = false;
  for (unsigned block = 0; block < launch->cluster; ++block) passed |= resolve_block(block);
  if (passed) return true;
  std::vector<Group> groups;
  for (unsigned block = 0; block < launch->cluster; ++block)
    for (Group& group : waiting_groups(block)) groups.push_back(std::move(group));
  if (!groups.empty()) report_deadlock(groups);
  return false;
}

void thread_main() {
  launch->kernel(launch->arguments);
  leave_cluster(current);
  suspend(State::EXITED);
}

void start_threads() {
  for (unsigned t = 0; t < all_threads.size(); ++t) {
    Thread& thread = all_threads[t];
    const unsigned number = t % block_threads;
    thread.state = number < threads_of_block() ? State::READY : State::EXITED;
    if (thread.state == State::READY) thread.context.start(stacks[t], Stacks::SIZE, thread_main);
    thread.index = {number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y};
    thread.long_gone = false;
    thread.copies.clear();
    thread.groups = 0;
  }
}

// The blocks of a cluster run together; most clusters are one block.
void run_cluster(std::vector<unsigned>& warps) {
  const unsigned places = unsigned(all_threads.size());
  const size_t bytes = launch->cluster * block_stride;
  memset(cluster_base, 0xff, bytes);  // NaN in every floating point type
  clocks.reset(places);
  if (launch->checks) shadow.reset(bytes, &clocks);
  reset_asynchronous(launch->cluster * threads_of_block(), places);
  start_threads();
  while (!abandoned) {
    bool ran = false;
    for (size_t i = warps.size(); launch->seed && i > 1; --i)
      std::swap(warps[i - 1], warps[random_bits() % i]);
    for (const unsigned warp : warps) {
      if (!abandoned) ran |= run_warp(32 * warp, end_of_warp(32 * warp));
      ran |= land_some();
      execute_some();
    }
    if (!ran && !abandoned && !resolve_cluster()) break;
  }
  traffic.meet_block();
  if (!abandoned) check_left_over();
  if (!abandoned) check_named();
  if (!abandoned) check_registers_changed();
}

void run_grid() {
  std::vector<unsigned> warps;
  for (unsigned block = 0; block < launch->cluster; ++block)
    for (unsigned warp = 0; warp < (threads_of_block() + 31) / 32; ++warp)
      warps.push_back(block * block_threads / 32 + warp);
  all_threads = std::vector<Thread>(launch->cluster * block_threads);
  block_stride = (launch->shared_bytes / 1024 + 1) * 1024;
  std::vector<unsigned char> memory(launch->cluster * block_stride + 2048);
  const uint64_t start = reinterpret_cast<uint64_t>(memory.data());
  cluster_base = memory.data() + ((1024 - start % 1024) % 1024);
  const uint64_t blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
  current_block = ~uint64_t(0);  // so that the first is entered
  for (first_block = 0; first_block < blocks && !abandoned; first_block += launch->cluster) {
    become(0);
    run_cluster(warps);
    launch->blocks_done = first_block + launch->cluster;
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
  // Warpgroups of a cluster begin at multiples of their size, whatever the blocks have.
  block_threads = threads_of_block();
  if (launch->cluster > 1) block_threads = (block_threads + WARPGROUP - 1) / WARPGROUP * WARPGROUP;
  if (!stacks.reserve(launch->cluster * block_threads)) return 1;
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
  launch->operations = int32_t(traffic.operations());
  return 0;
}

TREADLE_EXPORT void treadle_fault(int index, emu::FaultRecord* record) {
  *record = emu::faults[size_t(index)];
}

TREADLE_EXPORT void treadle_operation(int index, emu::OperationRecord* record) {
  *record = emu::traffic.record(size_t(index));
}
