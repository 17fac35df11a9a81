// What the lanes of a warp, the threads [first, last), do together once all have come.
#pragma once

#include "accesses.hpp"
#include "asynchronous.hpp"
#include "copies.hpp"
#include "requests.hpp"
#include "tensor.hpp"

namespace emu {

void meet(const Request& request) {
  deliver_some(all_threads[current]);
  current_line = request.line;
  all_threads[current].request = &request;
  suspend(State::WAITING);
}

namespace {

void exchange(unsigned first, unsigned last) {
  uint32_t values[32] = {};
  for (unsigned t = first; t < last; ++t)
    if (all_threads[t].state == State::WAITING) memcpy(&values[t - first], all_threads[t].request->a, 4);
  for (unsigned t = first; t < last; ++t) {
    if (all_threads[t].state != State::WAITING) continue;
    const Request& request = *all_threads[t].request;
    const unsigned other = unsigned(request.option) & 31;
    const unsigned source = first + (request.operation == SHUFFLE ? other : (t - first) ^ other);
    if (source >= last || all_threads[source].state == State::EXITED)
      report("missing lanes", t, request.line,
             "%s reads from %s, which %s", name_of(request.operation), name_of_thread(source).c_str(),
             source >= last ? "does not exist" : "has returned");
    memcpy(request.out, &values[source - first], 4);
  }
}

void vote(const Request* const (&lanes)[32]) {
  uint32_t any = 0;
  for (const Request* lane : lanes) any |= *static_cast<const uint32_t*>(lane->a);
  for (const Request* lane : lanes) memcpy(lane->out, &any, sizeof(any));
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

void store_matrix(unsigned first, const Request* const (&lanes)[32]) {
  const int option = lanes[0]->option, count = option < 0 ? -option : option;
  unsigned conflicts = 0;
  for (int m = 0; m < count; ++m) {
    Wavefront wavefront;
    for (unsigned row = 0; row < 8; ++row) {
      unsigned char* to = static_cast<unsigned char*>(lanes[8 * m + int(row)]->out);
      become(first + 8 * unsigned(m) + row);
      wavefront.add(reinterpret_cast<uint64_t>(to), 16);
      if (launch->checks && !may_write_shared(STORE_MATRIX, to, 16, lanes[0]->line, false)) continue;
      for (unsigned column = 0; column < 8; ++column) {
        const unsigned i = option < 0 ? column : row, j = option < 0 ? row : column;
        memcpy(to + 2 * column, static_cast<const uint16_t*>(lanes[4 * i + j / 2]->a) + 2 * m + j % 2, 2);
      }
    }
    conflicts += wavefront.passes() - 1;
  }
  if (launch->checks) traffic.request(STORE_MATRIX, lanes[0]->line, unsigned(count) * 128, conflicts);
}

void elect(unsigned first, unsigned last) {
  const unsigned chosen = first + (launch->seed ? unsigned(random_bits()) % (last - first) : 0);
  for (unsigned t = first; t < last; ++t) *static_cast<int*>(all_threads[t].request->out) = t == chosen;
}

bool missing_lanes(unsigned first, unsigned last, const Request& request) {
  std::vector<unsigned> missing;
  for (unsigned t = first; t < first + 32; ++t)
    if (t >= last || all_threads[t].state == State::EXITED) missing.push_back(t);
  if (missing.empty()) return false;
  report("missing lanes", first, request.line,
         "%s needs all 32 lanes of the warp, but %s returned or never existed", name_of(request.operation),
         name_of_threads(missing).c_str());
  abandoned = true;
  return true;
}

// What an instruction of a whole warp is told must be told alike by its lanes; each gives a shuffle its own source.
bool takes_one_option(Operation operation) { return operation != SHUFFLE && operation != SHUFFLE_XOR; }

std::string told(const Request& request) {
  if (request.operation != BARRIER_NAMED && request.operation != BARRIER_ARRIVE) return text("%d", request.option);
  return text("barrier %d for %d threads", request.option >> 16, request.option & 0xffff);
}

unsigned first_at(unsigned t, const Request& request) {
  while (all_threads[t].request != &request) ++t;
  return t;
}

// Whether the lanes that wait in [first, last) are told the same.
bool agree(unsigned first, unsigned last, const Request& request) {
  if (!takes_one_option(request.operation)) return true;
  for (unsigned t = first; t < last; ++t) {
    const Thread& thread = all_threads[t];
    if (thread.state != State::WAITING || thread.request->option == request.option) continue;
    report("divergence", t, request.line, "%s is one instruction of all lanes: %s says %s, %s says %s",
           name_of(request.operation), name_of_thread(t).c_str(), told(*thread.request).c_str(),
           name_of_thread(first_at(first, request)).c_str(), told(request).c_str());
    abandoned = true;
    return false;
  }
  return true;
}

// A block barrier is one instruction of a warp, too: a lane that lives when the others may come must come.
void check_all_lanes_came(unsigned first, unsigned last, int line) {
  std::vector<unsigned> missing;
  for (unsigned t = first; t < last; ++t)
    if (all_threads[t].state == State::EXITED && !all_threads[t].long_gone) missing.push_back(t);
  if (missing.empty()) return;
  report("missing lanes", missing[0], line,
         "barrier_block needs all living lanes of a warp, but %s returned without it, and nothing says that this was "
         "before the others came",
         name_of_threads(missing).c_str());
}

void execute(unsigned first, unsigned last, const Request& request) {
  const Operation operation = request.operation;
  if (operation == BARRIER_WARP) {
    std::vector<unsigned> lanes;
    for (unsigned t = first; t < last; ++t) lanes.push_back(t);
    clocks.join(lanes);
  } else if (operation == SHUFFLE_XOR || operation == SHUFFLE) {
    exchange(first, last);
  } else {
    if (missing_lanes(first, last, request)) return;
    const Request* lanes[32];
    for (unsigned i = 0; i < 32; ++i) lanes[i] = all_threads[first + i].request;
    if (operation == MMA)
      mma(lanes);
    else if (operation == STORE_MATRIX)
      return store_matrix(first, lanes);
    else if (operation == VOTE)
      vote(lanes);
    else if (operation == UNIFORM)
      ;  // the lanes agree, or have been reported
    else if (operation == ELECT)
      elect(first, last);
    else if (operation == REGISTERS)
      change_registers(first, request);
    else
      return load_matrix(first, lanes);
  }
  if (launch->checks) traffic.request(operation, request.line, 0, 0);
}

}  // namespace
}  // namespace emu
