// Whatever works asynchronously has a clock of its own, as a thread has: the copies that complete on a barrier
// (its clock is the barrier's phase), the products of a warpgroup and the stores of a thread (the group).
#pragma once

#include "launch.hpp"

namespace emu {

class Agents {
 public:
  void reset(unsigned threads);
  unsigned of(const std::string& name);
  std::string name(unsigned agent) const;

 private:
  unsigned threads_ = 0;
  std::vector<std::string> names_;  // few: they are looked through
};

extern Agents agents;

}  // namespace emu
