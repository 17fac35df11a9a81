// Who may see whose writes. Every thread has a clock that advances when it releases its work (at a
// barrier), and knows of every other thread the last clock whose work it has seen. Two accesses to
// one byte, one of them a write, race unless the later thread knows the clock of the earlier one.
// That does not depend on the order in which the emulator happened to run them.
// What is remembered of a byte, and how an access to it is judged, is in shadow.hpp.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

#include "clocks.hpp"

namespace emu {

// One access that some byte of shared memory remembers. Reads that nothing orders form a chain.
struct Access {
  uint32_t thread, clock, before;
  int32_t line;
  bool pending;  // an asynchronous copy that nobody has waited for
  bool async;    // made by the asynchronous proxy: a tensor copy or a product of a warpgroup
};

// The later, the graver. UNFENCED: ordered, but written through the generic proxy, and no proxy fence lies between.
// IN_BARRIER: where a barrier lies, which only its own instructions touch.
enum Verdict { SOUND, NEVER_WRITTEN, UNFENCED, STILL_PENDING, RACE, IN_BARRIER };

constexpr uint32_t A_BARRIER = ~0u;  // the thread of an access that made a barrier

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

  void reset(size_t bytes, const Clocks* clocks);

  Finding read(size_t at, unsigned bytes, unsigned thread, int line);
  Finding write(size_t at, unsigned bytes, unsigned thread, int line, bool pending = false);
  // An access that is judged by what the observer knows and remembered as `reader` or `writer`.
  Finding read(size_t at, unsigned bytes, Observer observer, const Access& reader);
  Finding write(size_t at, unsigned bytes, Observer observer, const Access& writer);
  // What a read would find, and nothing remembered.
  Finding look(size_t at, unsigned bytes, Observer observer) const;

  // After a block barrier every thread knows every access, so which one it was no longer matters. Done
  // when there are many, this keeps long kernels in bounds.
  void forget_old();
  // A barrier lies there from now on.
  void hold_barrier(size_t at, unsigned bytes, int line);
  // The copy that wrote these bytes has been waited for by its thread.
  void arrived(size_t at, unsigned bytes, unsigned thread, int line);
  // A tensor copy has landed: what it wrote is pending no more.
  void landed(size_t at, unsigned bytes, Access writer);

 private:
  struct Cell {
    uint32_t write = 0, reads = 0;  // indices of accesses; 0 is none
  };
  struct Interned;  // a hash table, which takes long to compile

  Finding judge_write(uint32_t index, Observer observer, bool reading) const;
  Finding judge_reads(uint32_t index, unsigned thread) const;
  uint32_t with_reader(uint32_t reads, unsigned thread, const Access& reader);
  size_t length_hint(uint32_t reads) const;
  uint32_t intern(const Access& access);

  const Clocks* clocks_ = nullptr;
  std::vector<Cell> cells_;
  std::vector<Access> accesses_;
  std::unique_ptr<Interned> interned_;
};

}  // namespace emu
