// Who may see whose writes. Every thread has a clock that advances when it releases its work (at a
// barrier), and knows of every other thread the last clock whose work it has seen. Two accesses to
// one byte, one of them a write, race unless the later thread knows the clock of the earlier one.
// That does not depend on the order in which the emulator happened to run them.
#pragma once

#include <stdint.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "clocks.hpp"

#ifndef TREADLE_MANY_ACCESSES  // a test makes it small
#define TREADLE_MANY_ACCESSES (1 << 17)
#endif

namespace emu {

// One access that some byte of shared memory remembers. Reads that nothing orders form a chain.
struct Access {
  uint32_t thread, clock, before;
  int32_t line;
  bool pending;  // an asynchronous copy that nobody has waited for
  bool async;    // made by the asynchronous proxy: a tensor copy or a product of a warpgroup
};

// The later, the graver. UNFENCED: ordered, but written through the generic proxy, and no proxy fence lies between.
enum Verdict { SOUND, NEVER_WRITTEN, UNFENCED, STILL_PENDING, RACE };

// Who looks: a thread, through the generic proxy or, for an operation that it issued, the asynchronous one.
struct Observer {
  unsigned thread;
  bool async = false;
};

// The accesses that each byte of shared memory remembers: its last write, and the reads since. The
// sets are interned, so that the bytes of a tile share them and a byte costs eight bytes here.
class Shadow {
 public:
  struct Finding {
    Verdict verdict = SOUND;
    Access other = {};
    bool other_wrote = false;
    size_t byte = 0;
  };

  void reset(size_t bytes, const Clocks* clocks) {
    clocks_ = clocks;
    cells_.assign(bytes, Cell());
    accesses_.assign(1, Access());
    interned_.clear();
  }

  Finding read(size_t at, unsigned bytes, unsigned thread, int line) {
    return read(at, bytes, {thread}, {thread, clocks_->now(thread), 0, line, false, false});
  }

  // A read that is judged by what the observer knows and remembered as `reader`.
  Finding read(size_t at, unsigned bytes, Observer observer, const Access& reader) {
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

  Finding write(size_t at, unsigned bytes, unsigned thread, int line, bool pending = false) {
    return write(at, bytes, {thread}, {thread, clocks_->now(thread), 0, line, pending, false});
  }

  // What a read would find, and nothing remembered.
  Finding look(size_t at, unsigned bytes, Observer observer) const {
    Finding finding;
    for (size_t i = at; i < at + bytes && finding.verdict == SOUND; ++i) {
      if (i > at && cells_[i].write == cells_[i - 1].write) continue;
      finding = judge_write(cells_[i].write, observer, true);
      finding.byte = i;
    }
    return finding;
  }

  // A write that is judged by what the observer knows and remembered as `writer`.
  Finding write(size_t at, unsigned bytes, Observer observer, const Access& writer) {
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

  // After a block barrier every thread knows every access, so which one it was no longer matters. Done
  // when there are many, this keeps long kernels in bounds.
  void forget_old() {
    if (accesses_.size() < MANY) return;
    const std::vector<Access> old = std::move(accesses_);
    accesses_.assign(2, Access());  // none, and one at clock 0, which all know
    interned_.clear();
    for (Cell& cell : cells_) {
      cell.reads = 0;
      if (cell.write != 0) cell.write = old[cell.write].pending ? intern(old[cell.write]) : 1;
    }
  }

  // The copy that wrote these bytes has been waited for by its thread.
  void arrived(size_t at, unsigned bytes, unsigned thread, int line) {
    const uint32_t done = intern({thread, clocks_->now(thread), 0, line, false, false});
    for (size_t i = at; i < at + bytes; ++i) {
      const Access& access = accesses_[cells_[i].write];
      if (access.pending && access.thread == thread) cells_[i].write = done;
    }
  }

  // A tensor copy has landed: what it wrote is pending no more.
  void landed(size_t at, unsigned bytes, Access writer) {
    const uint32_t before = intern(writer);
    writer.pending = false;
    const uint32_t after = intern(writer);
    for (size_t i = at; i < at + bytes; ++i)
      if (cells_[i].write == before) cells_[i].write = after;
  }

 private:
  struct Cell {
    uint32_t write = 0, reads = 0;  // indices of accesses; 0 is none
  };

  Finding judge_write(uint32_t index, Observer observer, bool reading) const {
    Finding finding;
    finding.other = accesses_[index];
    finding.other_wrote = true;
    if (index == 0)
      finding.verdict = reading ? NEVER_WRITTEN : SOUND;
    else if (finding.other.pending)
      finding.verdict = STILL_PENDING;
    else if (!clocks_->knows(observer.thread, finding.other.thread, finding.other.clock))
      finding.verdict = RACE;
    else if (observer.async && !finding.other.async &&
             !clocks_->bridged(observer.thread, finding.other.thread, finding.other.clock))
      finding.verdict = UNFENCED;
    return finding;
  }

  Finding judge_reads(uint32_t index, unsigned thread) const {
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

  // The reads that a later write must still be ordered after: those this thread does not know, and
  // its own. Whoever comes to know this read knows also what this thread knew.
  uint32_t with_reader(uint32_t reads, unsigned thread, const Access& reader) {
    const Access& last = accesses_[reads];
    if (reads != 0 && last.thread == reader.thread && last.clock == reader.clock) return reads;
    const Key key{reader.thread, reader.clock, reads, READERS, false, false};
    if (const auto found = interned_.find(key); found != interned_.end()) return found->second;
    std::vector<Access> kept;
    for (uint32_t i = reads; i != 0; i = accesses_[i].before)
      if (!clocks_->knows(thread, accesses_[i].thread, accesses_[i].clock))
        kept.push_back(accesses_[i]);
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
    interned_.emplace(key, result);
    return result;
  }

  size_t length_hint(uint32_t reads) const {
    size_t length = 0;
    for (; reads != 0; reads = accesses_[reads].before) ++length;
    return length;
  }

  static constexpr size_t MANY = TREADLE_MANY_ACCESSES;
  using Key = Access;
  static constexpr int READERS = -1;  // a key of with_reader's own, told apart by its line
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = key.thread;
      for (const uint64_t part : {uint64_t(key.clock), uint64_t(key.before), uint64_t(uint32_t(key.line)),
                                  uint64_t(key.pending) << 1 | uint64_t(key.async)})
        hash = (hash ^ part) * 0x9e3779b97f4a7c15ull ^ (hash >> 29);
      return hash;
    }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const {
      return a.thread == b.thread && a.clock == b.clock && a.before == b.before &&
             a.line == b.line && a.pending == b.pending && a.async == b.async;
    }
  };

  uint32_t intern(const Access& access) {
    const auto [place, added] = interned_.emplace(access, uint32_t(accesses_.size()));
    if (added) accesses_.push_back(access);
    return place->second;
  }

  const Clocks* clocks_ = nullptr;
  std::vector<Cell> cells_;
  std::vector<Access> accesses_;
  std::unordered_map<Key, uint32_t, Hash, Equal> interned_;
};

}  // namespace emu
