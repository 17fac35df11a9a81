// Faults as they are kept, and what threads are called in them: in one translation unit only.
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "agents.hpp"

namespace emu {

const char* name_of(int operation) {
  static const char* const names[] = {
      "load_global",     "store_global", "load_shared", "store_shared", "copy_async", "copy_async",
      "load_matrix",     "mma",          "shuffle_xor", "shuffle", "barrier_warp", "barrier_block",
      "barrier_named",   "barrier_cluster_wait", "mbarrier_wait", "tensor_load", "tensor_store", "wgmma",
      "wgmma_fence",     "wgmma_commit", "wgmma_wait",  "store_matrix", "elect_one",
      "registers",       "load_cluster", "tensor_multicast", "barrier_named_arrive", "any_lane", "uniform",
      "add_global"};
  return names[operation];
}

std::string text(const char* format, ...) {
  char buffer[sizeof(FaultRecord::message)];
  va_list values;
  va_start(values, format);
  vsnprintf(buffer, sizeof(buffer), format, values);
  va_end(values);
  return buffer;
}

namespace {

// "3, 5-7": the threads of a sorted list.
std::string ranges(const std::vector<unsigned>& threads) {
  std::string result;
  for (size_t i = 0; i < threads.size();) {
    size_t j = i;
    while (j + 1 < threads.size() && threads[j + 1] == threads[j] + 1) ++j;
    if (!result.empty()) result += ", ";
    if (result.size() > 80) return result + "...";
    result += i == j ? text("%u", threads[i]) : text("%u-%u", threads[i], threads[j]);
    i = j + 1;
  }
  return result;
}

std::string threads(const std::vector<unsigned>& list) {
  return (list.size() == 1 ? "thread " : "threads ") + ranges(list);
}

}  // namespace

std::string of_block(unsigned number) { return launch->cluster < 2 ? "" : text(" of block %u of the cluster", number); }
std::string name_of_thread(unsigned thread) {
  if (launch->cluster < 2) return text("thread %u", thread);
  return text("thread %u", thread % block_threads) + of_block(block_of(thread));
}
std::string name_of_threads(const std::vector<unsigned>& list) {
  if (launch->cluster < 2) return threads(list);
  std::string result;
  for (size_t i = 0; i < list.size();) {
    std::vector<unsigned> together;
    const unsigned block = block_of(list[i]);
    for (; i < list.size() && block_of(list[i]) == block; ++i) together.push_back(list[i] % block_threads);
    result += (result.empty() ? "" : ", ") + threads(together) + of_block(block);
  }
  return result;
}

void Agents::reset(unsigned threads) {
  names_.clear();
  threads_ = threads;
}

unsigned Agents::of(const std::string& name) {
  unsigned i = 0;
  while (i < names_.size() && names_[i] != name) ++i;
  if (i == names_.size()) names_.push_back(name);
  return threads_ + i;
}

std::string Agents::name(unsigned agent) const {
  return agent < threads_ ? name_of_thread(agent) : names_[agent - threads_];
}

void record(const char* kind, int thread, int line, const char* message) {
  ++fault_count;
  for (const FaultRecord& known : faults)
    if (known.line == line && strcmp(known.kind, kind) == 0) return;
  if (faults.size() >= FAULTS_KEPT) return;
  FaultRecord fault = {};
  snprintf(fault.kind, sizeof(fault.kind), "%s", kind);
  snprintf(fault.message, sizeof(fault.message), "%s", message);
  const uint64_t block = thread < 0 ? current_block : first_block + block_of(unsigned(thread));
  fault.block[0] = unsigned(block % gridDim.x);
  fault.block[1] = unsigned(block / gridDim.x % gridDim.y);
  fault.block[2] = unsigned(block / gridDim.x / gridDim.y);
  fault.thread = thread < 0 ? thread : int(unsigned(thread) % block_threads);
  fault.line = line;
  faults.push_back(fault);
}

void report(const char* kind, unsigned thread, int line, const char* format, ...) {
  char message[sizeof(FaultRecord::message)];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof(message), format, values);
  va_end(values);
  record(kind, int(thread), line, message);
  if (fault_count >= FAULTS_BORNE) abandoned = true;
}

}  // namespace emu
