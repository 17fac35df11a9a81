// What went wrong, in words. One record for each kind and line; repetitions are counted.
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

namespace emu {

// Read by the driver through ctypes: keep it in step with native.py.
struct FaultRecord {
  char kind[24];
  char message[488];
  uint32_t block[3];
  int32_t thread, line;
};

constexpr size_t FAULTS_KEPT = 32;
constexpr uint64_t FAULTS_BORNE = 1000;  // after so many the launch is abandoned

inline const char* name_of(int operation) {
  static const char* const names[] = {
      "load_global",     "store_global", "load_shared", "store_shared", "copy_async", "copy_async",
      "load_matrix",     "mma",          "shuffle_xor", "shuffle", "barrier_warp", "barrier_block",
      "barrier_named",   "barrier_cluster_wait", "mbarrier_wait", "tensor_load", "tensor_store", "wgmma",
      "wgmma_fence",     "wgmma_commit", "wgmma_wait",  "store_matrix", "elect_one",
      "registers"};
  return names[operation];
}

__attribute__((format(printf, 1, 2))) inline std::string text(const char* format, ...) {
  char buffer[488];
  va_list values;
  va_start(values, format);
  vsnprintf(buffer, sizeof(buffer), format, values);
  va_end(values);
  return buffer;
}

// "3, 5-7": the threads of a sorted list.
inline std::string ranges(const std::vector<unsigned>& threads) {
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

inline std::string threads(const std::vector<unsigned>& list) {
  return (list.size() == 1 ? "thread " : "threads ") + ranges(list);
}

}  // namespace emu
