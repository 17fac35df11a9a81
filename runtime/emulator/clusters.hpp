// The blocks of a cluster together: their barrier, and what one does to the shared memory of another, which must be
// over before that one returns. PTX ISA 9.7.13.3, barrier.cluster; 9.7.9.24, mapa.
#pragma once

#include "copy_arrivals.hpp"

namespace emu {
namespace {

struct ClusterBarrier {
  uint64_t phase = 0;            // completed
  unsigned living = 0, come = 0;  // threads that have not returned; those of them that have come to this phase
  std::vector<uint64_t> phases;  // that each thread has come to and not waited for; 0 is none
  Knowledge gathered;
  std::shared_ptr<Knowledge> completed;
};

ClusterBarrier cluster_barrier;

// The last that an agent did to the memory of another block.
struct Reach {
  uint32_t clock = 0;  // if it did anything
  unsigned thread = 0;
  int line = 0;
  const char* what = nullptr;
};

std::vector<std::vector<Reach>> reaches;  // by block and agent

void reset_cluster(unsigned living, unsigned places) {
  cluster_barrier = ClusterBarrier();
  cluster_barrier.living = living;
  cluster_barrier.phases.assign(places, 0);
  reaches.assign(launch->cluster, {});
}

void maybe_complete_cluster() {
  ClusterBarrier& barrier = cluster_barrier;
  if (barrier.come == 0 || barrier.come < barrier.living) return;
  ++barrier.phase;
  barrier.come = 0;
  barrier.completed = std::make_shared<Knowledge>(barrier.gathered);
}

}  // namespace

void leave_cluster(unsigned thread) {
  --cluster_barrier.living;
  if (cluster_barrier.phases[thread] > cluster_barrier.phase) --cluster_barrier.come;
  maybe_complete_cluster();
}

// Whether the thread, which waits for the others, may go on.
bool may_pass_cluster(unsigned thread) {
  become(thread);
  uint64_t& phase = cluster_barrier.phases[thread];
  if (phase == 0) {
    report("phase", thread, all_threads[thread].request->line,
           "barrier_cluster_wait without barrier_cluster_arrive before");
    return true;
  }
  if (phase > cluster_barrier.phase) return false;
  phase = 0;
  if (launch->checks) clocks.acquire(thread, cluster_barrier.completed);
  return true;
}

namespace {

// What lies in a block where this lies in that of the current thread.
void* there(const void* p, unsigned block) {
  return memory_of(block) + (static_cast<const unsigned char*>(p) - shared_base);
}

void reach(unsigned block, unsigned agent, uint32_t clock, const char* what, int line) {
  if (agent >= reaches[block].size()) reaches[block].resize(agent + 1);
  reaches[block][agent] = {clock, current, line, what};
}

bool in_cluster(int block, const char* what, int line) {
  if (block >= 0 && unsigned(block) < launch->cluster) return true;
  report("out of bounds", current, line, "%s names block %d of a cluster of %u", what, block, launch->cluster);
  return false;
}

// A block may return when all its threads have, so one of them must know that the others have let go of its memory.
bool known_in(unsigned block, unsigned agent, uint32_t clock) {
  for (unsigned t = 0; t < block_threads; ++t)
    if (clocks.knows(block * block_threads + t, agent, clock)) return true;
  return false;
}

void check_reaches() {
  if (!launch->checks) return;  // nobody kept what threads know of each other
  for (unsigned block = 0; block < launch->cluster; ++block)
    for (unsigned agent = 0; agent < reaches[block].size(); ++agent) {
      const Reach& last = reaches[block][agent];
      if (last.clock == 0 || known_in(block, agent, last.clock)) continue;
      report("left block", last.thread, last.line,
             "%s reaches into the shared memory of block %u of the cluster, which may have returned: no "
             "barrier_cluster or wait stands between that and its end",
             last.what, block);
    }
}

}  // namespace

int block_in_cluster() { return int(block_of(current)); }

void barrier_cluster_arrive(int line) {
  current_line = line;
  ClusterBarrier& barrier = cluster_barrier;
  if (barrier.phases[current] != 0)
    return report("phase", current, line,
                  "barrier_cluster_arrive a second time, with no barrier_cluster_wait between");
  if (launch->checks) clocks.release(current, barrier.gathered);
  barrier.phases[current] = barrier.phase + 1;
  ++barrier.come;
  maybe_complete_cluster();
}

void mbarrier_arrive_at(void* p, int block, int line) {
  current_line = line;
  if (!in_cluster(block, "mbarrier_arrive_at", line)) return;
  if (unsigned(block) != block_of(current))
    reach(unsigned(block), current, clocks.now(current), "mbarrier_arrive_at", line);
  arrive_at(there(p, unsigned(block)), 0, "mbarrier_arrive_at", line);
}

const void* cluster_read(const void* p, int block, unsigned bytes, int line) {
  if (!in_cluster(block, "load_cluster", line)) return zeros;
  const void* const from = there(p, unsigned(block));
  if (!launch->checks) return from;
  const Operation operation = unsigned(block) == block_of(current) ? LOAD_SHARED : LOAD_CLUSTER;
  log_access(operation, line, from, bytes, true);
  if (!within_shared(operation, current, p, bytes, line)) return zeros;
  report_finding(shadow.read(place_of(from), bytes, current, line), operation, current, line);
  if (unsigned(block) != block_of(current))
    reach(unsigned(block), current, clocks.now(current), "load_cluster", line);
  return from;
}

}  // namespace emu
