// Who waits for whom, when nobody can go on.
#pragma once

#include "asynchronous.hpp"
#include "roles.hpp"

namespace emu {
namespace {

// A thread waits there for itself, whatever the others of its warp do.
bool waits_alone(Operation operation) { return operation == MBARRIER_WAIT || operation == BARRIER_CLUSTER; }

}  // namespace

// Of one block.
std::vector<Group> waiting_groups(unsigned block) {
  std::vector<Group> groups;
  for (unsigned t = block * block_threads; t < (block + 1) * block_threads; ++t) {
    if (all_threads[t].state != State::WAITING && all_threads[t].state != State::MEETING) continue;
    const Request* request = all_threads[t].request;
    Group* mine = nullptr;
    for (Group& group : groups) {
      const unsigned last = group.members.back();  // members of one warp follow one another
      const bool same = last / 32 == t / 32 ? same_call(*all_threads[last].request, *request)
                                            : group.request->operation == request->operation &&
                                                  group.request->line == request->line;
      const bool meets = request->operation == BARRIER_BLOCK || request->operation == BARRIER_NAMED ||
                         waits_alone(request->operation) || group.members[0] / 32 == t / 32;
      if (same && meets) mine = &group;
    }
    if (!mine) mine = &groups.emplace_back(Group{request, {}});
    mine->members.push_back(t);
  }
  return groups;
}

namespace {

// The living threads that a group waits for: of its warp, or of the block.
std::vector<unsigned> awaited(const Group& group) {
  std::vector<unsigned> result;
  for (unsigned t = 0; t < all_threads.size(); ++t) {
    if (all_threads[t].state == State::EXITED) continue;
    if (group.request->operation == BARRIER_CLUSTER) {
      if (cluster_barrier.phases[t] <= cluster_barrier.phase) result.push_back(t);
      continue;
    }
    if (group.request->operation != BARRIER_BLOCK && t / 32 != group.members[0] / 32) continue;
    if (block_of(t) != block_of(group.members[0])) continue;
    bool member = false;
    for (const unsigned m : group.members) member |= m == t;
    if (!member) result.push_back(t);
  }
  return result;
}

std::string waits_for(const Request& request) {
  const BarrierWait& wait = *static_cast<const BarrierWait*>(request.a);
  const size_t at = place_of(wait.barrier);
  const Barrier& barrier = barriers[at];
  return text(" on line %d for parity %u of %s, which is in phase %llu and misses %u arrivals of %u and %lld bytes",
              request.line, wait.parity, describe(at).c_str(), (unsigned long long)barrier.phase, barrier.missing,
              barrier.count, (long long)barrier.bytes);
}

}  // namespace

void report_deadlock(const std::vector<Group>& groups) {
  bool divergent = false;
  std::string message;
  for (const Group& group : groups) {
    for (const Group& other : groups)
      for (const unsigned a : group.members)
        divergent |= &other != &group && other.members[0] / 32 == a / 32 &&
                     !waits_alone(group.request->operation) && !waits_alone(other.request->operation);
    if (!message.empty()) message += "; ";
    message += name_of_threads(group.members) + (group.members.size() == 1 ? " waits" : " wait");
    if (group.request->operation == MBARRIER_WAIT) {
      message += waits_for(*group.request);
      continue;
    }
    message += text(" at %s on line %d for ", name_of(group.request->operation), group.request->line);
    message += name_of_threads(awaited(group));
  }
  const Group& first = groups[0];
  record(divergent ? "divergence" : "deadlock", int(first.members[0]), first.request->line, message.c_str());
  abandoned = true;
}

}  // namespace emu
