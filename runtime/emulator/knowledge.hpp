// How threads learn of each other's work (clocks.hpp): in one translation unit only.
#pragma once

#include "clocks.hpp"

namespace emu {
namespace {

bool within(const std::vector<uint32_t>& clocks, const std::vector<uint32_t>& others) {
  for (unsigned agent = 0; agent < clocks.size(); ++agent)
    if (clocks[agent] > Knowledge::at(others, agent)) return false;
  return true;
}

void merge(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i)
    if (into[i] < from[i]) into[i] = from[i];
}

}  // namespace

void Knowledge::merge(const Knowledge& other) {
  emu::merge(seen, other.seen);
  emu::merge(bridged, other.bridged);
}

bool Knowledge::within(const Knowledge& other) const {
  return emu::within(seen, other.seen) && emu::within(bridged, other.bridged);
}

void Knowledge::raise(std::vector<uint32_t>& clocks, unsigned agent, uint32_t clock) {
  if (clocks.size() <= agent) clocks.resize(agent + 1, 0);
  if (clocks[agent] < clock) clocks[agent] = clock;
}

void Clocks::reset(unsigned threads) {
  threads_ = threads;
  clock_.assign(threads, 1);
  rows_.assign(threads, std::make_shared<Knowledge>());
  rows_[0]->seen.assign(threads, 0);
}

void Clocks::join(const std::vector<unsigned>& members) {
  auto together = std::make_shared<Knowledge>(*rows_[members[0]]);
  const Knowledge* merged = rows_[members[0]].get();
  for (const unsigned thread : members) {
    if (rows_[thread].get() != merged) together->merge(*rows_[thread]);
    merged = rows_[thread].get();
  }
  for (const unsigned thread : members) {
    Knowledge::raise(together->seen, thread, clock_[thread]++);
    rows_[thread] = together;
  }
}

void Clocks::release(unsigned thread, Knowledge& into) {
  into.merge(*rows_[thread]);
  Knowledge::raise(into.seen, thread, clock_[thread]++);
}

void Clocks::acquire(unsigned thread, const Knowledge& from) { own(thread).merge(from); }

void Clocks::acquire(unsigned thread, const std::shared_ptr<Knowledge>& from) {
  if (rows_[thread]->within(*from))
    rows_[thread] = from;
  else
    acquire(thread, *from);
}

void Clocks::acquire(unsigned thread, unsigned agent, uint32_t clock) {
  if (!knows(thread, agent, clock)) Knowledge::raise(own(thread).seen, agent, clock);
}

void Clocks::fence(unsigned thread) {
  Knowledge& row = own(thread);
  Knowledge::raise(row.seen, thread, clock_[thread]++);
  emu::merge(row.bridged, row.seen);
}

Knowledge& Clocks::own(unsigned thread) {
  if (rows_[thread].use_count() > 1) rows_[thread] = std::make_shared<Knowledge>(*rows_[thread]);
  return *rows_[thread];
}

}  // namespace emu
