// What the scheduler (emulator.cpp) asks of what works beside the threads (asynchronous.cpp): barriers in shared memory,
// clusters, tensor copies, products of warpgroups, roles; and who waits for whom.
#pragma once

#include "launch.hpp"

namespace emu {

constexpr unsigned WARPGROUP = 128;

// Threads that wait for the same, on the same line; those of one warp, at the same call.
struct Group {
  const Request* request;
  std::vector<unsigned> members;
};

// Before a cluster of blocks runs: its `living` threads stand at `places`.
void reset_asynchronous(unsigned living, unsigned places);

// Whether a thread that waits may go on: for a phase of a barrier; for its cluster.
bool may_pass(unsigned thread);
bool may_pass_cluster(unsigned thread);
void leave_cluster(unsigned thread);

// Lets data arrive that is under way: some, now and then; one piece, at the latest now. False if none did.
bool land_some();
bool land_any();

void execute_some();
void execute_warpgroup(unsigned first, const Request& request);

void come_to_named(unsigned first, unsigned last, const Request& request);
void arrive_at_named(unsigned first, unsigned last, const Request& request);
bool may_change_registers(unsigned first, const Request& request);
void change_registers(unsigned first, const Request& request);

// When all threads have returned: what nobody waited for.
void check_left_over();
void check_named();
void check_registers_changed();

std::vector<Group> waiting_groups(unsigned block);
void report_deadlock(const std::vector<Group>& groups);

}  // namespace emu
