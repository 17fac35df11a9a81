// What went wrong, in words. One record for each kind and line; repetitions are counted. The words are in
// reports.hpp.
#pragma once

#include <stdint.h>

#include <string>

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

const char* name_of(int operation);
__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...);

}  // namespace emu
