// Whatever works asynchronously has a clock of its own, as a thread has: the copies that complete on a barrier
// (its clock is the barrier's phase), the products of a warpgroup and the stores of a thread (the group).
#pragma once

#include "launch.hpp"

namespace emu {

class Agents {
 public:
  void reset(unsigned threads) {
    names_.clear();
    known_.clear();
    threads_ = threads;
  }
  unsigned of(const std::string& name) {
    const auto [place, added] = known_.emplace(name, threads_ + unsigned(names_.size()));
    if (added) names_.push_back(name);
    return place->second;
  }
  std::string name(unsigned agent) const {
    if (agent < threads_) return name_of_thread(agent);
    return names_[agent - threads_];
  }

 private:
  unsigned threads_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, unsigned> known_;
};

inline Agents agents;

}  // namespace emu
