// What the lanes of a warp, the threads [first, last), do together once all have come.
#pragma once

#include "copies.hpp"
#include "tensor.hpp"

namespace emu {

void meet(const Request& request) {
  deliver_some(all_threads[current]);
  current_line = request.line;
  all_threads[current].request = &request;
  suspend(State::WAITING);
}

namespace {

void shuffle(unsigned first, unsigned last) {
  uint32_t values[32] = {};
  for (unsigned t = first; t < last; ++t)
    if (all_threads[t].state == State::WAITING) memcpy(&values[t - first], all_threads[t].request->a, 4);
  for (unsigned t = first; t < last; ++t) {
    if (all_threads[t].state != State::WAITING) continue;
    const Request& request = *all_threads[t].request;
    const unsigned source = first + ((t - first) ^ (unsigned(request.option) & 31));
    if (source >= last || all_threads[source].state == State::EXITED)
      report("missing lanes", t, request.line,
             text("shuffle_xor reads from thread %u, which %s", source,
                  source >= last ? "does not exist" : "has returned"));
    memcpy(request.out, &values[source - first], 4);
  }
}

void load_matrix(unsigned first, const Request* const (&lanes)[32]) {
  const int option = lanes[0]->option;
  const unsigned used = 8 * unsigned(option < 0 ? -option : option);
  const int line = lanes[0]->line;
  const void* rows[32];
  unsigned conflicts = 0;
  for (unsigned lane = 0; lane < used; ++lane) {
    rows[lane] = lanes[lane]->a;
    if (launch->checks && !may_read_shared(LOAD_MATRIX, first + lane, rows[lane], 16, line))
      rows[lane] = zeros;
  }
  for (unsigned m = 0; launch->checks && m < used; m += 8) {
    Wavefront wavefront;
    for (unsigned lane = m; lane < m + 8; ++lane)
      wavefront.add(reinterpret_cast<uint64_t>(lanes[lane]->a), 16);
    conflicts += wavefront.passes() - 1;
  }
  load_matrices(lanes, rows);
  if (launch->checks) traffic.request(LOAD_MATRIX, line, used * 16, conflicts);
}

bool missing_lanes(unsigned first, unsigned last, const Request& request) {
  std::vector<unsigned> missing;
  for (unsigned t = first; t < first + 32; ++t)
    if (t >= last || all_threads[t].state == State::EXITED) missing.push_back(t);
  if (missing.empty()) return false;
  report("missing lanes", first, request.line,
         text("%s needs all 32 lanes of the warp, but %s returned or never existed",
              name_of(request.operation), threads(missing).c_str()));
  abandoned = true;
  return true;
}

void execute(unsigned first, unsigned last, const Request& request) {
  const Operation operation = request.operation;
  if (operation == BARRIER_WARP) {
    clocks.join_warp(first, last);
  } else if (operation == SHUFFLE_XOR) {
    shuffle(first, last);
  } else {
    if (missing_lanes(first, last, request)) return;
    const Request* lanes[32];
    for (unsigned i = 0; i < 32; ++i) lanes[i] = all_threads[first + i].request;
    if (operation == MMA)
      mma(lanes);
    else
      return load_matrix(first, lanes);
  }
  if (launch->checks) traffic.request(operation, request.line, 0, 0);
}

}  // namespace
}  // namespace emu
