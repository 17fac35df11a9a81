// What each thread knows of the work of the others: a vector clock a thread. Threads that learnt the same
// thing together share one row, which is copied before one of them learns more alone.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

namespace emu {

// Of every agent the last clock whose work is known. `bridged` is the part of it that a proxy fence has made
// visible to the asynchronous proxy as well (PTX ISA 8.6.1 and 9.7.13.4, fence.proxy.async).
struct Knowledge {
  std::vector<uint32_t> seen, bridged;

  void merge(const Knowledge& other) {
    merge(seen, other.seen);
    merge(bridged, other.bridged);
  }
  bool within(const Knowledge& other) const { return within(seen, other.seen) && within(bridged, other.bridged); }
  static bool within(const std::vector<uint32_t>& clocks, const std::vector<uint32_t>& others) {
    for (unsigned agent = 0; agent < clocks.size(); ++agent)
      if (clocks[agent] > at(others, agent)) return false;
    return true;
  }
  static void merge(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
    if (into.size() < from.size()) into.resize(from.size(), 0);
    for (size_t i = 0; i < from.size(); ++i)
      if (into[i] < from[i]) into[i] = from[i];
  }
  static uint32_t at(const std::vector<uint32_t>& clocks, unsigned agent) {
    return agent < clocks.size() ? clocks[agent] : 0;
  }
  static void raise(std::vector<uint32_t>& clocks, unsigned agent, uint32_t clock) {
    if (clocks.size() <= agent) clocks.resize(agent + 1, 0);
    if (clocks[agent] < clock) clocks[agent] = clock;
  }
};

// The agents are the threads of a block and, numbered after them, whatever works asynchronously: the
// copies that complete on one barrier, the products of one warpgroup.
class Clocks {
 public:
  void reset(unsigned threads) {
    threads_ = threads;
    clock_.assign(threads, 1);
    rows_.assign(threads, std::make_shared<Knowledge>());
    rows_[0]->seen.assign(threads, 0);
  }
  unsigned threads() const { return threads_; }
  uint32_t now(unsigned thread) const { return clock_[thread]; }
  bool knows(unsigned thread, unsigned other, uint32_t clock) const {
    return thread == other || clock <= Knowledge::at(rows_[thread]->seen, other);
  }
  bool bridged(unsigned thread, unsigned other, uint32_t clock) const {
    return clock <= Knowledge::at(rows_[thread]->bridged, other);
  }

  // These threads have met: each knows what any of them knew and did.
  void join(const std::vector<unsigned>& members) {
    auto together = std::make_shared<Knowledge>(*rows_[members[0]]);
    const Knowledge* merged = rows_[members[0]].get();
    for (const unsigned thread : members) {
      if (rows_[thread].get() != merged) together->merge(*rows_[thread]);
      merged = rows_[thread].get();
    }
    for (const unsigned thread : members) {
      Knowledge::raise(together->seen, thread, clock_[thread]++);
      rows_[thread] = together;
    }
  }
  // What a thread knows and did until now, for whoever will acquire it.
  void release(unsigned thread, Knowledge& into) {
    into.merge(*rows_[thread]);
    Knowledge::raise(into.seen, thread, clock_[thread]++);
  }
  void acquire(unsigned thread, const Knowledge& from) { own(thread).merge(from); }
  // The same of what many acquire, who then share it if they know no more.
  void acquire(unsigned thread, const std::shared_ptr<Knowledge>& from) {
    if (rows_[thread]->within(*from))
      rows_[thread] = from;
    else
      acquire(thread, *from);
  }
  void acquire(unsigned thread, unsigned agent, uint32_t clock) {
    if (!knows(thread, agent, clock)) Knowledge::raise(own(thread).seen, agent, clock);
  }
  // A proxy fence: all that the thread knows and did, the asynchronous proxy may now see.
  void fence(unsigned thread) {
    Knowledge& row = own(thread);
    Knowledge::raise(row.seen, thread, clock_[thread]++);
    Knowledge::merge(row.bridged, row.seen);
  }

 private:
  Knowledge& own(unsigned thread) {
    if (rows_[thread].use_count() > 1) rows_[thread] = std::make_shared<Knowledge>(*rows_[thread]);
    return *rows_[thread];
  }

  unsigned threads_ = 0;
  std::vector<uint32_t> clock_;
  std::vector<std::shared_ptr<Knowledge>> rows_;
};

}  // namespace emu
