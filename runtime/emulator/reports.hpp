// Faults as they are kept, and what threads are called in them.
#pragma once

#include "launch.hpp"

namespace emu {

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

void record(const char* kind, int thread, int line, const std::string& message) {
  ++fault_count;
  for (const FaultRecord& known : faults)
    if (known.line == line && strcmp(known.kind, kind) == 0) return;
  if (faults.size() >= FAULTS_KEPT) return;
  FaultRecord fault = {};
  snprintf(fault.kind, sizeof(fault.kind), "%s", kind);
  snprintf(fault.message, sizeof(fault.message), "%s", message.c_str());
  const uint64_t block = thread < 0 ? current_block : first_block + block_of(unsigned(thread));
  fault.block[0] = unsigned(block % gridDim.x);
  fault.block[1] = unsigned(block / gridDim.x % gridDim.y);
  fault.block[2] = unsigned(block / gridDim.x / gridDim.y);
  fault.thread = thread < 0 ? thread : int(unsigned(thread) % block_threads);
  fault.line = line;
  faults.push_back(fault);
}

void report(const char* kind, unsigned thread, int line, const std::string& message) {
  record(kind, int(thread), line, message);
  if (fault_count >= FAULTS_BORNE) abandoned = true;
}

}  // namespace emu
