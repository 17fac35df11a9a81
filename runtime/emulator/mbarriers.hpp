// Barriers in shared memory: a phase completes when all expected threads have arrived and all expected bytes
// have been copied. PTX ISA 9.7.13.15, mbarrier.
#pragma once

#include <map>

#include "memory.hpp"

namespace emu {
namespace {

constexpr int64_t MOST_PENDING_BYTES = (1 << 20) - 1;  // PTX ISA 9.7.13.15, mbarrier: contents of the object, tx-count

struct Barrier {
  unsigned count = 0, missing = 0;  // arrivals of a phase; those still to come
  int64_t bytes = 0;                // still to be copied in this phase
  uint64_t phase = 0;               // completed phases
  unsigned agent = 0;               // of the copies that complete on it
  unsigned init_thread = 0;
  uint32_t init_clock = 0;
  Knowledge gathered, completed;
};

std::map<size_t, Barrier> barriers;  // by offset in shared memory
Knowledge init_fenced;               // threads that made their initialisations visible to the asynchronous proxy

std::string describe(size_t at) {
  return text("the barrier at byte %zu of shared memory%s", within_block(at),
              of_block(unsigned(at / block_stride)).c_str());
}

Barrier* barrier_at(const void* p, const char* what, int line) {
  const size_t at = place_of(p);
  const auto found = barriers.find(at);
  if (found != barriers.end()) {
    const Barrier& barrier = found->second;
    if (launch->checks && !clocks.knows(current, barrier.init_thread, barrier.init_clock))
      report("race", current, line, "%s uses %s, which %s initialised, with no barrier between", what,
             describe(at).c_str(), name_of_thread(barrier.init_thread).c_str());
    return &found->second;
  }
  report("uninitialised", current, line, "%s uses %s, which nobody has initialised", what, describe(at).c_str());
  return nullptr;
}

// Bytes that a phase is told to wait for, or that have come: a barrier counts only so far.
void count_bytes(Barrier& barrier, int64_t bytes, unsigned thread, const char* what, int line) {
  barrier.bytes += bytes;
  if (barrier.bytes > MOST_PENDING_BYTES || -barrier.bytes > MOST_PENDING_BYTES)
    report("phase", thread, line, "%s leaves a barrier %lld bytes to wait for; it counts to %lld", what,
           (long long)barrier.bytes, (long long)MOST_PENDING_BYTES);
}

bool phase_completed(const Barrier& barrier, unsigned parity) { return (barrier.phase & 1) != parity; }

void maybe_complete(Barrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.missing = barrier.count;
  Knowledge::raise(barrier.gathered.seen, barrier.agent, uint32_t(barrier.phase));
  barrier.completed.merge(barrier.gathered);
}

void pass(unsigned thread, const Barrier& barrier) {
  clocks.acquire(thread, barrier.completed);
}

}  // namespace

// Whether the thread, which waits for a phase, may go on.
bool may_pass(unsigned thread) {
  const Thread& waiter = all_threads[thread];
  const BarrierWait& wait = *static_cast<const BarrierWait*>(waiter.request->a);
  const auto found = barriers.find(place_of(wait.barrier));
  become(thread);
  if (found == barriers.end()) {
    barrier_at(wait.barrier, "mbarrier_wait", waiter.request->line);
    return true;
  }
  if (!phase_completed(found->second, wait.parity)) return false;
  if (launch->checks) {
    barrier_at(wait.barrier, "mbarrier_wait", waiter.request->line);
    pass(thread, found->second);
  }
  return true;
}

namespace {

void arrive_at(const void* p, unsigned bytes, const char* what, int line) {
  Barrier* barrier = barrier_at(p, what, line);
  if (!barrier) return;
  const size_t at = place_of(p);
  if (barrier->missing == 0)
    return report("phase", current, line,
                  "arrival %u of %u at %s: its phase still waits for bytes, and all arrivals have come",
                  barrier->count + 1, barrier->count, describe(at).c_str());
  if (launch->checks) clocks.release(current, barrier->gathered);
  count_bytes(*barrier, bytes, current, what, line);
  --barrier->missing;
  maybe_complete(*barrier);
}

}  // namespace

void mbarrier_init(void* p, unsigned count, int line) {
  current_line = line;
  const size_t at = place_of(p), mine = size_t(static_cast<unsigned char*>(p) - shared_base);
  if (mine % 8 != 0 || mine + 8 > launch->shared_bytes)
    return report("out of bounds", current, line, "%s is not 8 aligned bytes of shared memory",
                  describe(at).c_str());
  if (barriers.count(at)) return report("phase", current, line, "%s is initialised twice", describe(at).c_str());
  if (count == 0 || count > 0xfffff) return report("phase", current, line, "a barrier of %u arrivals", count);
  if (launch->checks) {
    may_write_shared(STORE_SHARED, p, 8, line, false);
    shadow.hold_barrier(at, 8, line);
  }
  Barrier& barrier = barriers[at];
  barrier.count = barrier.missing = count;
  barrier.agent = agents.of(text("a tensor copy that completes on the barrier at byte %zu%s", within_block(at),
                                 of_block(unsigned(at / block_stride)).c_str()));
  barrier.init_thread = current;
  barrier.init_clock = clocks.now(current);
}

void mbarrier_init_fence() {
  if (launch->checks) clocks.release(current, init_fenced);
}

void mbarrier_arrive(void* p, unsigned bytes, bool expects, int line) {
  current_line = line;
  arrive_at(p, bytes, expects ? "mbarrier_arrive_expect" : "mbarrier_arrive", line);
}

void fence_proxy_async() {
  if (launch->checks) clocks.fence(current);
}

}  // namespace emu
