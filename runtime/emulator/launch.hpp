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
  fault.block[0] = blockIdx.x, fault.block[1] = blockIdx.y, fault.block[2] = blockIdx.z;
  fault.thread = thread;
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
