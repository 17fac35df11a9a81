// Arrivals at barriers that follow a thread's asynchronous copies. PTX ISA 9.7.13.15.14, cp.async.mbarrier.arrive.
#pragma once

#include "mbarriers.hpp"

namespace emu {
namespace {

// What a thread has started to copy since its arrival before, and where it arrives then.
struct CopyArrival {
  unsigned thread;
  void* barrier;
  int line;
  std::vector<Copy> copies;
};

std::vector<CopyArrival> arrivals;

// The copies come, if they have not yet, and their thread arrives.
void land_arrival(size_t index) {
  CopyArrival arrival = std::move(arrivals[index]);
  arrivals.erase(arrivals.begin() + long(index));
  const unsigned running = current;
  become(arrival.thread);
  for (Copy& copy : arrival.copies) {
    if (!copy.delivered) deliver(copy);
    if (launch->checks) shadow.arrived(place_of(copy.to), copy.bytes, arrival.thread, copy.line);
  }
  arrive_at(arrival.barrier, 0, "copy_async_arrive", arrival.line);
  become(running);
}

}  // namespace

// Copies that an arrival follows belong to it: no group of theirs is waited for.
void copy_async_arrive(void* barrier, int line) {
  current_line = line;
  if (!barrier_at(barrier, "copy_async_arrive", line)) return;
  Thread& thread = all_threads[current];
  arrivals.push_back({current, barrier, line, std::move(thread.copies)});
  thread.copies.clear();
}

}  // namespace emu
