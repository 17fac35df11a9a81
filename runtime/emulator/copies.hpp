// Asynchronous copies: begun, gathered into groups, waited for. Until its thread has waited, what a copy
// writes belongs to nobody, whenever the bytes arrive.
#pragma once

#include "memory.hpp"

namespace emu {
namespace {

// Under a seed, data may arrive at any moment before the wait.
void deliver_some(Thread& thread) {
  if (launch->seed == 0) return;
  for (Copy& copy : thread.copies)
    if (!copy.delivered && random_bits() % 4 == 0) deliver(copy);
}

}  // namespace

void start_copy(void* to, const void* from, unsigned bytes, bool valid, int line) {
  Thread& thread = all_threads[current];
  if (launch->checks) {
    log_access(COPY_ASYNC, line, from, bytes, valid);
    log_access(COPY_ASYNC_SHARED, line, to, bytes, true);
    if (valid && !may_read_global(COPY_ASYNC, from, bytes, line)) valid = false;
    if (!may_write_shared(COPY_ASYNC, to, bytes, line, true)) return;
  }
  thread.copies.push_back({to, from, bytes, valid, false, thread.groups, line});
  deliver_some(thread);
}

void take_no_part(unsigned bytes, bool asynchronous, int line) {
  if (!launch->checks) return;
  log_access(asynchronous ? COPY_ASYNC : LOAD_GLOBAL, line, nullptr, bytes, false);
  log_access(asynchronous ? COPY_ASYNC_SHARED : STORE_SHARED, line, nullptr, bytes, false);
}

void copy_async_commit() { ++all_threads[current].groups; }

void copy_async_wait(int pending) {
  Thread& thread = all_threads[current];
  size_t kept = 0;
  for (Copy& copy : thread.copies) {
    if (copy.group + uint64_t(pending) >= thread.groups) {
      thread.copies[kept++] = copy;
      continue;
    }
    if (!copy.delivered) deliver(copy);
    if (launch->checks)
      shadow.arrived(place_of(copy.to), copy.bytes, current,
                     copy.line);
  }
  thread.copies.resize(kept);
  deliver_some(thread);
}

}  // namespace emu
