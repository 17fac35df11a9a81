// A launch and its threads: what the checks, the collectives and the scheduler all look at. This is the
// inside of emulator.cpp, which is one translation unit; one launch runs at a time.
#pragma once

#include <string>
#include <vector>

#include "emulator.h"
#include "faults.hpp"
#include "fibre.hpp"
#include "races.hpp"
#include "regions.hpp"
#include "traffic.hpp"

namespace emu {

// Read by the driver through ctypes: keep it in step with native.py.
struct Launch {
  void (*kernel)(void** arguments);
  void** arguments;
  uint32_t grid[3], block[3];
  uint64_t shared_bytes, seed;
  double time_limit;  // seconds; 0 is none
  const Region* regions;
  int32_t region_count, checks;
  uint32_t cluster;  // blocks of a cluster, neighbours along x
  // Results:
  double seconds;
  uint64_t faults;
  int32_t faults_kept, operations;
  uint64_t blocks_done;  // read by another thread while the launch runs
};

namespace {

// MEETING: its warp has come to a named barrier, where other warps are awaited.
enum class State { READY, RESTING, WAITING, MEETING, EXITED };

struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  bool valid, delivered;
  uint64_t group;
  int line;
};

struct Thread {
  Context context;
  State state;
  uint3 index;
  const Request* request;
  std::vector<Copy> copies;
  uint64_t groups;
};

Launch* launch;
Context scheduler;
Stacks stacks;
std::vector<Thread> all_threads;
unsigned current;        // the thread that runs
int current_line;        // where it was last seen
uint64_t current_block;  // its block's linear index
uint64_t first_block;    // of the cluster that runs
unsigned block_threads;  // places for the threads of a block: those of its cluster follow one another
unsigned char* cluster_base;  // the shared memories of a cluster's blocks, side by side
size_t block_stride;          // from one to the next
bool abandoned;          // the launch cannot go on
uint64_t random_state;

Clocks clocks;
Shadow shadow;
Regions regions;
Traffic traffic;
std::vector<FaultRecord> faults;
uint64_t fault_count;

uint64_t random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * 0x2545f4914f6cdd1dull >> 32;
}

unsigned block_of(unsigned thread) { return thread / block_threads; }
unsigned char* memory_of(unsigned block) { return cluster_base + block * block_stride; }
size_t place_of(const void* p) { return size_t(static_cast<const unsigned char*>(p) - cluster_base); }
size_t within_block(size_t place) { return place % block_stride; }

// What runs from now on is a thread's: it sees its block's index and shared memory.
void become(unsigned thread) {
  current = thread;
  const uint64_t block = first_block + block_of(thread);
  shared_base = memory_of(block_of(thread));
  if (block == current_block) return;
  current_block = block;
  blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
              unsigned(block / gridDim.x / gridDim.y)};
}

// Nothing where a block is alone; else which block of its cluster's.
std::string of_block(unsigned number) { return launch->cluster < 2 ? "" : text(" of block %u of the cluster", number); }
std::string name_of_thread(unsigned thread) {
  if (launch->cluster < 2) return text("thread %u", thread);
  return text("thread %u", thread % block_threads) + of_block(block_of(thread));
}
std::string name_of_threads(const std::vector<unsigned>& list) {
  if (launch->cluster < 2) return threads(list);
  std::string result;
  for (size_t i = 0; i < list.size();) {
    std::vector<unsigned> together;
    const unsigned block = block_of(list[i]);
    for (; i < list.size() && block_of(list[i]) == block; ++i) together.push_back(list[i] % block_threads);
    result += (result.empty() ? "" : ", ") + threads(together) + of_block(block);
  }
  return result;
}

void suspend(State state) {
  Thread& thread = all_threads[current];
  thread.state = state;
  thread.context.switch_to(scheduler);
}

void record(const char* kind, int thread, int line, const std::string& message) {
  ++fault_count;
  for (const FaultRecord& known : faults)
    if (known.line == line && strcmp(known.kind, kind) == 0) return;
  if (faults.size() >= FAULTS_KEPT) return;
  FaultRecord fault = {};
  snprintf(fault.kind, sizeof(fault.kind), "%s", kind);
  snprintf(fault.message, sizeof(fault.message), "%s", message.c_str());
  const uint64_t block = thread < 0 ? current_block : first_block + block_of(unsigned(thread));
  fault.block[0] = unsigned(block % gridDim.x);
  fault.block[1] = unsigned(block / gridDim.x % gridDim.y);
  fault.block[2] = unsigned(block / gridDim.x / gridDim.y);
  fault.thread = thread < 0 ? thread : int(unsigned(thread) % block_threads);
  fault.line = line;
  faults.push_back(fault);
}

// A fault of one thread's access; called on its fibre or, for a collective, on the scheduler's.
void report(const char* kind, unsigned thread, int line, const std::string& message) {
  record(kind, int(thread), line, message);
  if (fault_count >= FAULTS_BORNE) abandoned = true;
}

}  // namespace
}  // namespace emu
