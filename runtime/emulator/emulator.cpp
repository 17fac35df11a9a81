// Runs the threads of a block as fibres, warp by warp, and watches what they do. One launch at a time
// in each compiled kernel: the driver holds a lock.
#include "emulator.h"

#include <chrono>
#include <string>
#include <vector>

#include "faults.hpp"
#include "fibre.hpp"
#include "races.hpp"
#include "regions.hpp"
#include "tensor.hpp"
#include "traffic.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

// Read by the driver through ctypes: keep it in step with native.py.
struct Launch {
  void (*kernel)(void** arguments);
  void** arguments;
  uint32_t grid[3], block[3];
  uint64_t shared_bytes, seed;
  const Region* regions;
  int32_t region_count, checks;
  // Results:
  double seconds;
  uint64_t faults;
  int32_t faults_kept, operations;
};

unsigned char* shared_base;
unsigned char zeros[64], sink[64];

namespace {

enum class State { READY, RESTING, WAITING, EXITED };

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
unsigned current;         // the thread that runs
uint64_t current_block;   // its block's linear index
bool abandoned;           // the launch cannot go on
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

// ---- Faults

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

// ---- Global memory

std::string where(const Region& region, uint64_t address) {
  const uint64_t size = region.high - region.low;
  if (address < region.low)
    return text("%llu bytes before argument %d", (unsigned long long)(region.low - address),
                region.argument);
  return text("byte %llu of argument %d, which has %llu",
              (unsigned long long)(address - region.low), region.argument,
              (unsigned long long)size);
}

bool aligned(Operation operation, unsigned thread, uint64_t address, unsigned bytes, int line) {
  if (address % bytes == 0) return true;
  report("misaligned", thread, line,
         text("%s of %u bytes at an address that is %llu past a multiple of %u", name_of(operation),
              bytes, (unsigned long long)(address % bytes), bytes));
  return false;
}

const Region* global_region(Operation operation, uint64_t address, unsigned bytes, bool write,
                            int line) {
  const Region* region = regions.find(address, bytes, write);
  if (!region) {
    const Region* nearest = regions.nearest(address);
    report("out of bounds", current, line,
           text("%s of %u bytes at ", name_of(operation), bytes) +
               (nearest ? where(*nearest, address) : "an address, though the kernel has no arrays"));
    return nullptr;
  }
  if (write && !region->writable) {
    report("read-only", current, line,
           text("%s to argument %d, which is an input", name_of(operation), region->argument));
    return nullptr;
  }
  return aligned(operation, current, address, bytes, line) ? region : nullptr;
}

void report_stranger(uint64_t who, const Region& region, uint64_t address, bool write, int line) {
  const uint64_t block = owner_block(who);
  const std::string other =
      block == current_block
          ? text("thread %u, with no barrier between", owner_thread(who))
          : text("thread %u of block (%u, %u, %u)", owner_thread(who),
                 unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
                 unsigned(block / gridDim.x / gridDim.y));
  report("race", current, line,
         text("%s byte %llu of argument %d, which was written by ", write ? "writes" : "reads",
              (unsigned long long)(address - region.low), region.argument) +
             other);
}

void log_access(Operation operation, int line, const void* p, unsigned bytes, bool active) {
  const bool rest = traffic.access(operation, line, current % 32, p, bytes, active);
  if (rest || abandoned) suspend(State::RESTING);
}

bool may_read_global(Operation operation, const void* p, unsigned bytes, int line) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(operation, address, bytes, false, line);
  if (!region) return false;
  if (const uint64_t who =
          Regions::stranger(*region, address, bytes, current_block, current, clocks))
    report_stranger(who, *region, address, false, line);
  return true;
}

// ---- Shared memory

bool within_shared(Operation operation, unsigned thread, const void* p, unsigned bytes, int line) {
  const uint64_t at = reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(shared_base);
  if (at + bytes <= launch->shared_bytes && at + bytes >= bytes)
    return aligned(operation, thread, reinterpret_cast<uint64_t>(p), bytes, line);
  const int64_t offset = int64_t(at);
  report("out of bounds", thread, line,
         text("%s of %u bytes at ", name_of(operation), bytes) +
             (offset > -(1 << 24) && offset < (1 << 24)
                  ? text("byte %lld of shared memory, which has %llu", (long long)offset,
                         (unsigned long long)launch->shared_bytes)
                  : std::string("an address far outside dynamic shared memory")));
  return false;
}

void report_finding(const Shadow::Finding& finding, Operation operation, unsigned thread, int line) {
  const char* name = name_of(operation);
  const Access& other = finding.other;
  switch (finding.verdict) {
    case SOUND: return;
    case NEVER_WRITTEN:
      return report("uninitialised", thread, line,
                    text("%s reads byte %zu of shared memory, which nobody has written", name,
                         finding.byte));
    case STILL_PENDING: {
      bool committed = false;
      const Thread& copier = all_threads[other.thread];
      for (const Copy& copy : copier.copies) {
        const size_t at = static_cast<unsigned char*>(copy.to) - shared_base;
        if (at <= finding.byte && finding.byte < at + copy.bytes) committed = copy.group < copier.groups;
      }
      return report("race", thread, line,
                    text("%s at byte %zu of shared memory, where the copy_async of thread %u (line %d)"
                         " is still under way: it was %s",
                         name, finding.byte, other.thread, other.line,
                         committed ? "not waited for" : "never committed"));
    }
    case RACE:
      return report("race", thread, line,
                    text("%s at byte %zu of shared memory, which thread %u %s on line %d, with no "
                         "barrier between",
                         name, finding.byte, other.thread, finding.other_wrote ? "wrote" : "read",
                         other.line));
  }
}

bool may_read_shared(Operation operation, unsigned thread, const void* p, unsigned bytes, int line) {
  if (!within_shared(operation, thread, p, bytes, line)) return false;
  const size_t at = static_cast<const unsigned char*>(p) - shared_base;
  report_finding(shadow.read(at, bytes, thread, line), operation, thread, line);
  return true;
}

bool may_write_shared(Operation operation, void* p, unsigned bytes, int line, bool pending) {
  if (!within_shared(operation, current, p, bytes, line)) return false;
  const size_t at = static_cast<unsigned char*>(p) - shared_base;
  report_finding(shadow.write(at, bytes, current, line, pending), operation, current, line);
  return true;
}

// ---- Asynchronous copies

void deliver(Copy& copy) {
  if (copy.valid)
    memcpy(copy.to, copy.from, copy.bytes);
  else
    memset(copy.to, 0, copy.bytes);
  copy.delivered = true;
}

// Under a seed, data may arrive at any moment before the wait.
void deliver_some(Thread& thread) {
  if (launch->seed == 0) return;
  for (Copy& copy : thread.copies)
    if (!copy.delivered && random_bits() % 4 == 0) deliver(copy);
}

}  // namespace

const void* checked_global_read(const void* p, unsigned bytes, bool valid, int line) {
  log_access(LOAD_GLOBAL, line, p, bytes, valid);
  return valid && may_read_global(LOAD_GLOBAL, p, bytes, line) ? p : zeros;
}

void* checked_global_write(void* p, unsigned bytes, bool valid, int line) {
  log_access(STORE_GLOBAL, line, p, bytes, valid);
  if (!valid) return sink;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(STORE_GLOBAL, address, bytes, true, line);
  if (!region) return sink;
  if (const uint64_t who =
          Regions::stranger(*region, address, bytes, current_block, current, clocks))
    report_stranger(who, *region, address, true, line);
  Regions::claim(*region, address, bytes, owner(current_block, current, clocks.now(current)));
  return p;
}

const void* checked_shared_read(const void* p, unsigned bytes, int line) {
  log_access(LOAD_SHARED, line, p, bytes, true);
  return may_read_shared(LOAD_SHARED, current, p, bytes, line) ? p : zeros;
}

void* checked_shared_write(void* p, unsigned bytes, int line) {
  log_access(STORE_SHARED, line, p, bytes, true);
  return may_write_shared(STORE_SHARED, p, bytes, line, false) ? p : sink;
}

void start_copy(void* to, const void* from, unsigned bytes, bool valid, int line) {
  Thread& thread = all_threads[current];
  if (launch->checks) {
    log_access(COPY_ASYNC, line, from, bytes, valid);
    log_access(COPY_ASYNC_SHARED, line, to, bytes, true);
    if (valid && !may_read_global(COPY_ASYNC, from, bytes, line)) valid = false;
    if (!may_write_shared(COPY_ASYNC, to, bytes, line, true)) return;
  }
  thread.copies.push_back({to, from, bytes, valid, false, thread.groups, line});
  deliver_some(thread);
}

void copy_async_commit() { ++all_threads[current].groups; }

void copy_async_wait(int pending) {
  Thread& thread = all_threads[current];
  size_t kept = 0;
  for (Copy& copy : thread.copies) {
    if (copy.group + uint64_t(pending) >= thread.groups) {
      thread.copies[kept++] = copy;
      continue;
    }
    if (!copy.delivered) deliver(copy);
    if (launch->checks)
      shadow.arrived(static_cast<unsigned char*>(copy.to) - shared_base, copy.bytes, current,
                     copy.line);
  }
  thread.copies.resize(kept);
  deliver_some(thread);
}

void meet(const Request& request) {
  deliver_some(all_threads[current]);
  all_threads[current].request = &request;
  suspend(State::WAITING);
}

namespace {

// ---- Collectives of a warp: its lanes are the threads [first, last).

void shuffle(unsigned first, unsigned last) {
  uint32_t values[32] = {};
  for (unsigned t = first; t < last; ++t)
    if (all_threads[t].state == State::WAITING) memcpy(&values[t - first], all_threads[t].request->a, 4);
  for (unsigned t = first; t < last; ++t) {
    if (all_threads[t].state != State::WAITING) continue;
    const Request& request = *all_threads[t].request;
    const unsigned source = first + ((t - first) ^ (unsigned(request.option) & 31));
    if (source >= last || all_threads[source].state == State::EXITED)
      report("missing lanes", t, request.line,
             text("shuffle_xor reads from thread %u, which %s", source,
                  source >= last ? "does not exist" : "has returned"));
    memcpy(request.out, &values[source - first], 4);
  }
}

void load_matrix(unsigned first, const Request* const (&lanes)[32]) {
  const int option = lanes[0]->option;
  const unsigned used = 8 * unsigned(option < 0 ? -option : option);
  const int line = lanes[0]->line;
  const void* rows[32];
  unsigned conflicts = 0;
  for (unsigned lane = 0; lane < used; ++lane) {
    rows[lane] = lanes[lane]->a;
    if (launch->checks && !may_read_shared(LOAD_MATRIX, first + lane, rows[lane], 16, line))
      rows[lane] = zeros;
  }
  for (unsigned m = 0; launch->checks && m < used; m += 8) {
    Wavefront wavefront;
    for (unsigned lane = m; lane < m + 8; ++lane)
      wavefront.add(reinterpret_cast<uint64_t>(lanes[lane]->a), 16);
    conflicts += wavefront.passes() - 1;
  }
  load_matrices(lanes, rows);
  if (launch->checks) traffic.request(LOAD_MATRIX, line, used * 16, conflicts);
}

bool missing_lanes(unsigned first, unsigned last, const Request& request) {
  std::vector<unsigned> missing;
  for (unsigned t = first; t < first + 32; ++t)
    if (t >= last || all_threads[t].state == State::EXITED) missing.push_back(t);
  if (missing.empty()) return false;
  report("missing lanes", first, request.line,
         text("%s needs all 32 lanes of the warp, but %s returned or never existed",
              name_of(request.operation), threads(missing).c_str()));
  abandoned = true;
  return true;
}

void execute(unsigned first, unsigned last, const Request& request) {
  const Operation operation = request.operation;
  if (operation == BARRIER_WARP) {
    clocks.join_warp(first, last);
  } else if (operation == SHUFFLE_XOR) {
    shuffle(first, last);
  } else {
    if (missing_lanes(first, last, request)) return;
    const Request* lanes[32];
    for (unsigned i = 0; i < 32; ++i) lanes[i] = all_threads[first + i].request;
    if (operation == MMA)
      mma(lanes);
    else
      return load_matrix(first, lanes);
  }
  if (launch->checks) traffic.request(operation, request.line, 0, 0);
}

// Lets the warp's collective happen if all its living lanes are at it. True if lanes may run on.
bool resolve_warp(unsigned first, unsigned last) {
  const Request* request = nullptr;
  bool together = true, rested = false;
  for (unsigned t = first; t < last; ++t) {
    Thread& thread = all_threads[t];
    if (thread.state == State::RESTING) thread.state = State::READY, rested = true;
    if (thread.state != State::WAITING) continue;
    if (!request) request = thread.request;
    together &= thread.request->operation == request->operation && thread.request->line == request->line;
  }
  if (rested) return true;
  if (!request || !together || request->operation == BARRIER_BLOCK) return false;
  execute(first, last, *request);
  for (unsigned t = first; t < last; ++t)
    if (all_threads[t].state == State::WAITING) all_threads[t].state = State::READY;
  return true;
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
    if (abandoned || !resolve_warp(first, last)) return ran;
    ran = true;
  } while (launch->seed == 0 || random_bits() % 4 != 0);
  return true;
}

// ---- Blocks

struct Group {
  const Request* request;
  std::vector<unsigned> members;
};

std::vector<Group> waiting_groups() {
  std::vector<Group> groups;
  for (unsigned t = 0; t < all_threads.size(); ++t) {
    if (all_threads[t].state != State::WAITING) continue;
    const Request* request = all_threads[t].request;
    Group* mine = nullptr;
    for (Group& group : groups) {
      const bool same = group.request->operation == request->operation && group.request->line == request->line;
      const bool meets = request->operation == BARRIER_BLOCK || group.members[0] / 32 == t / 32;
      if (same && meets) mine = &group;
    }
    if (!mine) mine = &groups.emplace_back(Group{request, {}});
    mine->members.push_back(t);
  }
  return groups;
}

// The living threads that a group waits for: of its warp, or of the block.
std::vector<unsigned> awaited(const Group& group) {
  std::vector<unsigned> result;
  for (unsigned t = 0; t < all_threads.size(); ++t) {
    if (all_threads[t].state == State::EXITED) continue;
    if (group.request->operation != BARRIER_BLOCK && t / 32 != group.members[0] / 32) continue;
    bool member = false;
    for (const unsigned m : group.members) member |= m == t;
    if (!member) result.push_back(t);
  }
  return result;
}

void report_deadlock(const std::vector<Group>& groups) {
  bool divergent = false;
  std::string message;
  for (const Group& group : groups) {
    for (const Group& other : groups)
      for (const unsigned a : group.members)
        divergent |= &other != &group && other.members[0] / 32 == a / 32;
    if (!message.empty()) message += "; ";
    message += threads(group.members) +
               text(" wait%s at %s on line %d for ", group.members.size() == 1 ? "s" : "",
                    name_of(group.request->operation), group.request->line) +
               threads(awaited(group));
  }
  const Group& first = groups[0];
  record(divergent ? "divergence" : "deadlock", int(first.members[0]), first.request->line, message);
  abandoned = true;
}

// All living threads at one block barrier may pass. True if they did.
bool resolve_block() {
  const std::vector<Group> groups = waiting_groups();
  if (groups.empty()) return false;
  if (groups.size() > 1 || groups[0].request->operation != BARRIER_BLOCK) {
    report_deadlock(groups);
    return false;
  }
  clocks.join_block();
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
  start_threads();
  while (!abandoned) {
    bool ran = false;
    for (size_t i = warps.size(); launch->seed && i > 1; --i)
      std::swap(warps[i - 1], warps[random_bits() % i]);
    for (const unsigned warp : warps) {
      const unsigned first = 32 * warp, last = first + 32 < count ? first + 32 : count;
      if (!abandoned) ran |= run_warp(first, last);
    }
    if (!ran && !abandoned && !resolve_block()) return;
  }
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
  const auto start = std::chrono::steady_clock::now();
  run_grid();
  launch->seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
