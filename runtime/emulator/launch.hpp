// A launch and its threads: what the checks, the collectives and the scheduler all look at. Both translation units of
// the runtime share it; one launch runs at a time.
#pragma once

#include <cstring>
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
  uint32_t cluster;   // blocks of a cluster, neighbours along x
  uint32_t resident;  // blocks that share a multiprocessor, by its launch bounds
  // Results:
  double seconds;
  uint64_t faults;
  int32_t faults_kept, operations;
  uint64_t blocks_done;  // read by another thread while the launch runs
};

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

inline void deliver(Copy& copy) {
  if (copy.valid)
    memcpy(copy.to, copy.from, copy.bytes);
  else
    memset(copy.to, 0, copy.bytes);
  copy.delivered = true;
}

struct Thread {
  Context context;
  State state;
  uint3 index;
  const Request* request;
  std::vector<Copy> copies;
  uint64_t groups;
  bool long_gone;  // it returned before its warp last met
};

inline Launch* launch;
inline Context scheduler;
inline Stacks stacks;
extern std::vector<Thread> all_threads;
inline unsigned current;        // the thread that runs
inline int current_line;        // where it was last seen
inline uint64_t current_block;  // its block's linear index
inline uint64_t first_block;    // of the cluster that runs
inline unsigned block_threads;  // places for the threads of a block: those of its cluster follow one another
inline unsigned char* cluster_base;  // the shared memories of a cluster's blocks, side by side
inline size_t block_stride;          // from one to the next
inline bool abandoned;          // the launch cannot go on
inline uint64_t random_state;

extern Clocks clocks;
extern Shadow shadow;
extern Regions regions;
extern Traffic traffic;
extern std::vector<FaultRecord> faults;
inline uint64_t fault_count;

inline uint64_t random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * 0x2545f4914f6cdd1dull >> 32;
}

inline unsigned block_of(unsigned thread) { return thread / block_threads; }
inline unsigned char* memory_of(unsigned block) { return cluster_base + block * block_stride; }
inline size_t place_of(const void* p) { return size_t(static_cast<const unsigned char*>(p) - cluster_base); }
inline size_t within_block(size_t place) { return place % block_stride; }

// What runs from now on is a thread's: it sees its block's index and shared memory.
inline void become(unsigned thread) {
  current = thread;
  const uint64_t block = first_block + block_of(thread);
  shared_base = memory_of(block_of(thread));
  if (block == current_block) return;
  current_block = block;
  blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
              unsigned(block / gridDim.x / gridDim.y)};
}

// Nothing where a block is alone; else which block of its cluster's.
std::string of_block(unsigned number);
std::string name_of_thread(unsigned thread);
std::string name_of_threads(const std::vector<unsigned>& list);

// Whether two lanes are at one instruction, as far as is known.
inline bool same_call(const Request& one, const Request& other) {
  return one.operation == other.operation && one.line == other.line && one.site == other.site;
}

inline void suspend(State state) {
  Thread& thread = all_threads[current];
  thread.state = state;
  thread.context.switch_to(scheduler);
}

void record(const char* kind, int thread, int line, const char* message);
// A fault of one thread's access; called on its fibre or, for a collective, on the scheduler's.
__attribute__((format(printf, 4, 5))) void report(const char* kind, unsigned thread, int line, const char* format, ...);

}  // namespace emu
