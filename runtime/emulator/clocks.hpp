// What each thread knows of the work of the others: a vector clock a thread. Threads that learnt the same
// thing together share one row, which is copied before one of them learns more alone. How they learn is in knowledge.hpp.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

namespace emu {

// Of every agent the last clock whose work is known. `bridged` is the part of it that a proxy fence has made
// visible to the asynchronous proxy as well (PTX ISA 8.6.1 and 9.7.13.4, fence.proxy.async).
struct Knowledge {
  std::vector<uint32_t> seen, bridged;

  void merge(const Knowledge& other);
  bool within(const Knowledge& other) const;
  static uint32_t at(const std::vector<uint32_t>& clocks, unsigned agent) {
    return agent < clocks.size() ? clocks[agent] : 0;
  }
  static void raise(std::vector<uint32_t>& clocks, unsigned agent, uint32_t clock);
};

// The agents are the threads of a block and, numbered after them, whatever works asynchronously: the
// copies that complete on one barrier, the products of one warpgroup.
class Clocks {
 public:
  void reset(unsigned threads);
  unsigned threads() const { return threads_; }
  uint32_t now(unsigned thread) const { return clock_[thread]; }
  bool knows(unsigned thread, unsigned other, uint32_t clock) const {
    return thread == other || clock <= Knowledge::at(rows_[thread]->seen, other);
  }
  bool bridged(unsigned thread, unsigned other, uint32_t clock) const {
    return clock <= Knowledge::at(rows_[thread]->bridged, other);
  }

  // These threads have met: each knows what any of them knew and did.
  void join(const std::vector<unsigned>& members);
  // What a thread knows and did until now, for whoever will acquire it.
  void release(unsigned thread, Knowledge& into);
  void acquire(unsigned thread, const Knowledge& from);
  // The same of what many acquire, who then share it if they know no more.
  void acquire(unsigned thread, const std::shared_ptr<Knowledge>& from);
  void acquire(unsigned thread, unsigned agent, uint32_t clock);
  // A proxy fence: all that the thread knows and did, the asynchronous proxy may now see.
  void fence(unsigned thread);

 private:
  Knowledge& own(unsigned thread);

  unsigned threads_ = 0;
  std::vector<uint32_t> clock_;
  std::vector<std::shared_ptr<Knowledge>> rows_;
};

}  // namespace emu
