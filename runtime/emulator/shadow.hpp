// What each byte of shared memory remembers, and how an access to it is judged (races.hpp): in one translation unit
// only.
#pragma once

#include <unordered_map>
#include <utility>

#include "races.hpp"

#ifndef TREADLE_MANY_ACCESSES  // a test makes it small
#define TREADLE_MANY_ACCESSES (1 << 17)
#endif

namespace emu {
namespace {

constexpr size_t MANY = TREADLE_MANY_ACCESSES;
constexpr int READERS = -1;  // a key of with_reader's own, told apart by its line

}  // namespace

// The index of each access; of each key of with_reader, what that found.
struct Shadow::Interned {
  struct Hash {
    size_t operator()(const Access& key) const {
      uint64_t hash = key.thread;
      for (const uint64_t part : {uint64_t(key.clock), uint64_t(key.before), uint64_t(uint32_t(key.line)),
                                  uint64_t(key.pending) << 1 | uint64_t(key.async)})
        hash = (hash ^ part) * 0x9e3779b97f4a7c15ull ^ (hash >> 29);
      return hash;
    }
  };

  struct Equal {
    bool operator()(const Access& a, const Access& b) const {
      return a.thread == b.thread && a.clock == b.clock && a.before == b.before && a.line == b.line &&
             a.pending == b.pending && a.async == b.async;
    }
  };

  std::unordered_map<Access, uint32_t, Hash, Equal> indices;
};

uint32_t Shadow::intern(const Access& access) {
  const auto [place, added] = interned_->indices.emplace(access, uint32_t(accesses_.size()));
  if (added) accesses_.push_back(access);
  return place->second;
}

void Shadow::reset(size_t bytes, const Clocks* clocks) {
  clocks_ = clocks;
  cells_.assign(bytes, Cell());
  accesses_.assign(1, Access());
  interned_ = std::make_unique<Interned>();
}

Shadow::Finding Shadow::judge_write(uint32_t index, Observer observer, bool reading) const {
  Finding finding;
  finding.other = accesses_[index];
  finding.other_wrote = true;
  if (index == 0)
    finding.verdict = reading ? NEVER_WRITTEN : SOUND;
  else if (finding.other.thread == A_BARRIER)
    finding.verdict = IN_BARRIER;
  else if (finding.other.pending)
    finding.verdict = STILL_PENDING;
  else if (!clocks_->knows(observer.thread, finding.other.thread, finding.other.clock))
    finding.verdict = RACE;
  else if (observer.async && !finding.other.async &&
           !clocks_->bridged(observer.thread, finding.other.thread, finding.other.clock))
    finding.verdict = UNFENCED;
  return finding;
}

Shadow::Finding Shadow::judge_reads(uint32_t index, unsigned thread) const {
  Finding finding;
  for (; index != 0; index = accesses_[index].before) {
    finding.other = accesses_[index];
    if (!clocks_->knows(thread, finding.other.thread, finding.other.clock)) {
      finding.verdict = RACE;
      break;
    }
  }
  return finding;
}

size_t Shadow::length_hint(uint32_t reads) const {
  size_t length = 0;
  for (; reads != 0; reads = accesses_[reads].before) ++length;
  return length;
}

// The reads that a later write must still be ordered after: those this thread does not know, and
// its own. Whoever comes to know this read knows also what this thread knew.
uint32_t Shadow::with_reader(uint32_t reads, unsigned thread, const Access& reader) {
  const Access& last = accesses_[reads];
  if (reads != 0 && last.thread == reader.thread && last.clock == reader.clock) return reads;
  const Access key{reader.thread, reader.clock, reads, READERS, false, false};
  auto& indices = interned_->indices;
  if (const auto found = indices.find(key); found != indices.end()) return found->second;
  std::vector<Access> kept;
  for (uint32_t i = reads; i != 0; i = accesses_[i].before)
    if (!clocks_->knows(thread, accesses_[i].thread, accesses_[i].clock)) kept.push_back(accesses_[i]);
  uint32_t chain = 0;
  if (kept.size() == length_hint(reads)) {
    chain = reads;
  } else {
    for (size_t i = kept.size(); i-- > 0;) {
      kept[i].before = chain;
      chain = intern(kept[i]);
    }
  }
  const uint32_t result = intern({reader.thread, reader.clock, chain, reader.line, false, reader.async});
  indices.emplace(key, result);
  return result;
}

Shadow::Finding Shadow::read(size_t at, unsigned bytes, unsigned thread, int line) {
  return read(at, bytes, {thread}, {thread, clocks_->now(thread), 0, line, false, false});
}

Shadow::Finding Shadow::write(size_t at, unsigned bytes, unsigned thread, int line, bool pending) {
  return write(at, bytes, {thread}, {thread, clocks_->now(thread), 0, line, pending, false});
}

Shadow::Finding Shadow::read(size_t at, unsigned bytes, Observer observer, const Access& reader) {
  Finding finding;
  Cell seen{~0u, ~0u};
  uint32_t reads = 0;
  for (size_t i = at; i < at + bytes; ++i) {
    Cell& cell = cells_[i];
    if (cell.write != seen.write || cell.reads != seen.reads) {
      seen = cell;
      const Finding here = judge_write(cell.write, observer, true);
      if (here.verdict > finding.verdict) {
        finding = here;
        finding.byte = i;
      }
      reads = with_reader(cell.reads, observer.thread, reader);
    }
    cell.reads = reads;
  }
  return finding;
}

Shadow::Finding Shadow::write(size_t at, unsigned bytes, Observer observer, const Access& writer) {
  Finding finding;
  Cell seen{~0u, ~0u};
  const Cell after{intern(writer), 0};
  for (size_t i = at; i < at + bytes; ++i) {
    Cell& cell = cells_[i];
    if (finding.verdict == SOUND && (cell.write != seen.write || cell.reads != seen.reads)) {
      seen = cell;
      finding = judge_write(cell.write, observer, false);
      if (finding.verdict == SOUND) finding = judge_reads(cell.reads, observer.thread);
      finding.byte = i;
    }
    cell = after;
  }
  return finding;
}

Shadow::Finding Shadow::look(size_t at, unsigned bytes, Observer observer) const {
  Finding finding;
  for (size_t i = at; i < at + bytes && finding.verdict == SOUND; ++i) {
    if (i > at && cells_[i].write == cells_[i - 1].write) continue;
    finding = judge_write(cells_[i].write, observer, true);
    finding.byte = i;
  }
  return finding;
}

void Shadow::forget_old() {
  if (accesses_.size() < MANY) return;
  const std::vector<Access> old = std::move(accesses_);
  accesses_.assign(2, Access());  // none, and one at clock 0, which all know
  interned_->indices.clear();
  for (Cell& cell : cells_) {
    cell.reads = 0;
    if (cell.write == 0) continue;
    const bool keep = old[cell.write].pending || old[cell.write].thread == A_BARRIER;
    cell.write = keep ? intern(old[cell.write]) : 1;
  }
}

void Shadow::hold_barrier(size_t at, unsigned bytes, int line) {
  const Cell barrier{intern({A_BARRIER, 0, 0, line, false, false}), 0};
  for (size_t i = at; i < at + bytes; ++i) cells_[i] = barrier;
}

void Shadow::arrived(size_t at, unsigned bytes, unsigned thread, int line) {
  const uint32_t done = intern({thread, clocks_->now(thread), 0, line, false, false});
  for (size_t i = at; i < at + bytes; ++i) {
    const Access& access = accesses_[cells_[i].write];
    if (access.pending && access.thread == thread) cells_[i].write = done;
  }
}

void Shadow::landed(size_t at, unsigned bytes, Access writer) {
  const uint32_t before = intern(writer);
  writer.pending = false;
  const uint32_t after = intern(writer);
  for (size_t i = at; i < at + bytes; ++i)
    if (cells_[i].write == before) cells_[i].write = after;
}

}  // namespace emu
