// What only some warps of a block do: named barriers, and registers that move between warpgroups.
// PTX ISA 9.7.13.1, bar; 9.7.19.5, setmaxnreg.
#pragma once

#include "warpgroups.hpp"

namespace emu {
namespace {

struct NamedBarrier {
  std::vector<unsigned> waiting;
  unsigned arrived = 0;
  unsigned threads = 0;  // that must come, as the first one says
  unsigned last = 0;     // thread that came
  int line = 0;
  Knowledge gathered;
};

constexpr unsigned NAMES = 16;  // of barriers of a block

std::vector<NamedBarrier> named;  // of all blocks of a cluster
// What warps have done with their registers.
struct Holding {
  unsigned registers = 0;  // a thread
  std::vector<int> changes;  // what they asked for: those of a warpgroup ask for the same; negative: to keep of more
  int line = 0;
};

std::vector<Holding> holdings;  // of each warp
std::vector<unsigned> registers_free;  // of each block's, by threads

void reset_roles(unsigned threads) {
  named.assign(launch->cluster * NAMES, {});
  const unsigned places = launch->cluster * block_threads;
  unsigned cap = 65536 / (threads * launch->resident) / 8 * 8;
  if (cap > 255) cap = 255 / 8 * 8;
  holdings.assign((places + 31) / 32, Holding{cap, {}, 0});
  registers_free.assign(launch->cluster, 0);
}

bool is_name(unsigned name, unsigned thread, int line) {
  if (0 < name && name < NAMES) return true;
  report("barrier", thread, line, "named barrier %u: names are 1 to %u, 0 is barrier_block's", name, NAMES - 1);
  abandoned = true;
  return false;
}

bool full(unsigned id, unsigned threads) {
  return named[id].waiting.size() + named[id].arrived >= threads;
}

void release_named(unsigned id) {
  NamedBarrier& barrier = named[id];
  if (launch->checks) {
    if (!barrier.waiting.empty()) clocks.join(barrier.waiting);
    for (const unsigned thread : barrier.waiting) clocks.acquire(thread, barrier.gathered);
  }
  for (const unsigned thread : barrier.waiting) all_threads[thread].state = State::READY;
  barrier = NamedBarrier();
}

// All that come to a barrier say the same number of threads, of whole warps.
void agree_on_threads(NamedBarrier& barrier, unsigned thread, unsigned threads, int line) {
  if (threads == 0 || threads % 32 != 0)
    report("barrier", thread, line, "%u threads are to come to a named barrier: it counts whole warps of 32", threads);
  if (barrier.threads && barrier.threads != threads)
    report("barrier", thread, line,
           "%u threads are to come to a named barrier, others there say %u", threads, barrier.threads);
  barrier.threads = threads;
  barrier.last = thread;
  barrier.line = line;
}

}  // namespace

// Who arrives hands something on: at the end of the block nobody is left to take it.
void check_named() {
  for (unsigned id = 0; id < named.size(); ++id)
    if (named[id].threads != 0)
      report("barrier", named[id].last, named[id].line,
             "%u threads came to named barrier %u, and nobody waits there any more when the block ends",
             named[id].arrived, id % NAMES);
}

// All warps of a warpgroup change their registers, or none does. PTX ISA 9.7.19.5.
void check_registers_changed() {
  for (unsigned warp = 0; warp < holdings.size(); ++warp) {
    const unsigned first = warp / 4 * 4;
    if (holdings[warp].changes == holdings[first].changes) continue;
    const unsigned guilty = holdings[warp].changes.size() > holdings[first].changes.size() ? warp : first;
    report("registers", 32 * guilty, holdings[guilty].line,
           "some warps of a warpgroup change their registers, and others do not or otherwise: all four must");
  }
}

// The lanes of a warp have come to a named barrier, and stay until enough threads have.
void come_to_named(unsigned first, unsigned last, const Request& request) {
  const unsigned name = unsigned(request.option) >> 16, threads = unsigned(request.option) & 0xffff;
  if (!is_name(name, first, request.line)) return;
  const unsigned id = block_of(current) * NAMES + name;
  NamedBarrier& barrier = named[id];
  agree_on_threads(barrier, first, threads, request.line);
  for (unsigned t = first; t < last; ++t) {
    if (all_threads[t].state != State::WAITING) continue;
    all_threads[t].state = State::MEETING;
    barrier.waiting.push_back(t);
  }
  if (full(id, threads)) release_named(id);
}

// Whether the warp's change of its registers can happen now: an increase waits until others have given up enough.
bool may_change_registers(unsigned first, const Request& request) {
  const unsigned wanted = unsigned(abs(request.option)), held = holdings[first / 32].registers;
  return request.option < 0 || wanted <= held || wanted - held <= registers_free[block_of(first)] / 32;
}

void change_registers(unsigned first, const Request& request) {
  Holding& holding = holdings[first / 32];
  const unsigned wanted = unsigned(abs(request.option)), held = holding.registers;
  const bool gives = request.option < 0;
  if (gives ? wanted > held : wanted < held)
    report("registers", first, request.line, "registers_%s<%u> of threads that have %u", gives ? "give" : "take", wanted, held);
  if (wanted % 8 != 0 || wanted < 24 || wanted > 256)
    report("registers", first, request.line, "%u registers a thread: a multiple of 8 from 24 to 256", wanted);
  unsigned& free = registers_free[block_of(first)];
  free = unsigned(int(free) + 32 * (int(held) - int(wanted)));
  holding.registers = wanted;
  holding.changes.push_back(request.option);
  holding.line = request.line;
}

// The lanes of a warp arrive at a named barrier, and go on.
void arrive_at_named(unsigned first, unsigned last, const Request& request) {
  const unsigned name = unsigned(request.option) >> 16, threads = unsigned(request.option) & 0xffff;
  if (!is_name(name, first, request.line)) return;
  const unsigned id = block_of(first) * NAMES + name;
  NamedBarrier& barrier = named[id];
  for (unsigned t = first; launch->checks && t < last; ++t) clocks.release(t, barrier.gathered);
  agree_on_threads(barrier, first, threads, request.line);
  barrier.arrived += last - first;
  if (!full(id, threads)) return;
  if (barrier.waiting.empty())
    report("barrier", first, request.line, "%u threads came to named barrier %u and none of them waits", threads, name);
  release_named(id);
}

}  // namespace emu
