// Every access to global and shared memory: is it sound, and does it race? Then what a kernel calls before it reads or
// writes: where it may, or where nothing is harmed.
#pragma once

#include "memory.hpp"

namespace emu {

// ---- Global memory

namespace {

std::string where(const Region& region, uint64_t address) {
  const uint64_t size = region.high - region.low;
  if (address < region.low)
    return text("%llu bytes before argument %d", (unsigned long long)(region.low - address),
                region.argument);
  return text("byte %llu of argument %d, which has %llu",
              (unsigned long long)(address - region.low), region.argument,
              (unsigned long long)size);
}

bool aligned(Operation operation, unsigned thread, uint64_t address, unsigned bytes, int line) {
  if (address % bytes == 0) return true;
  report("misaligned", thread, line,
         "%s of %u bytes at an address that is %llu past a multiple of %u", name_of(operation), bytes,
         (unsigned long long)(address % bytes), bytes);
  return false;
}

const Region* global_region(Operation operation, uint64_t address, unsigned bytes, bool write,
                            int line, bool any_alignment = false) {
  const Region* region = regions.find(address, bytes, write);
  if (!region) {
    const Region* nearest = regions.nearest(address);
    report("out of bounds", current, line,
           "%s of %u bytes at %s", name_of(operation), bytes,
           nearest ? where(*nearest, address).c_str() : "an address, though the kernel has no arrays");
    return nullptr;
  }
  if (write && !region->writable) {
    report("read-only", current, line,
           "%s to argument %d, which is an input", name_of(operation), region->argument);
    return nullptr;
  }
  return any_alignment || aligned(operation, current, address, bytes, line) ? region : nullptr;
}

// Whether the current thread is ordered after a write: one of its own cluster, or none. Nobody is after an addition.
bool known_owner(uint64_t who) {
  if (who == ADDED) return false;
  const uint64_t block = owner_block(who) - first_block;
  return block < launch->cluster &&
         clocks.knows(current, unsigned(block) * block_threads + owner_thread(who), owner_clock(who));
}

void report_stranger(uint64_t who, const Region& region, uint64_t address, bool write, int line) {
  const uint64_t block = owner_block(who);
  const std::string other =
      who == ADDED ? std::string("an addition that only the next launch sees")
      : block == current_block
          ? text("thread %u, with no barrier between", owner_thread(who))
          : text("thread %u of block (%u, %u, %u)", owner_thread(who),
                 unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
                 unsigned(block / gridDim.x / gridDim.y));
  report("race", current, line,
         "%s byte %llu of argument %d, which was written by %s", write ? "writes" : "reads",
         (unsigned long long)(address - region.low), region.argument, other.c_str());
}

}  // namespace

void log_access(Operation operation, int line, const void* p, unsigned bytes, bool active) {
  current_line = line;
  const bool rest = traffic.access(operation, line, current % 32, p, bytes, active);
  if (rest || abandoned) suspend(State::RESTING);
}

bool may_read_global(Operation operation, const void* p, unsigned bytes, int line) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(operation, address, bytes, false, line);
  if (!region) return false;
  if (const uint64_t who = Regions::stranger(*region, address, bytes, known_owner))
    report_stranger(who, *region, address, false, line);
  return true;
}

// The part of a tensor copy that lies together; the map has checked alignments.
void may_read_global_bytes(Operation operation, const void* p, unsigned bytes, int line) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(operation, address, bytes, false, line, true);
  if (!region) return;
  if (const uint64_t who = Regions::stranger(*region, address, bytes, known_owner))
    report_stranger(who, *region, address, false, line);
}

void may_write_global_bytes(Operation operation, void* p, unsigned bytes, int line) {
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(operation, address, bytes, true, line, true);
  if (!region) return;
  if (const uint64_t who = Regions::stranger(*region, address, bytes, known_owner))
    report_stranger(who, *region, address, true, line);
  Regions::claim(*region, address, bytes, owner(current_block, current % block_threads, clocks.now(current)));
}

// ---- Shared memory

bool within_shared(Operation operation, unsigned thread, const void* p, unsigned bytes, int line) {
  const uint64_t at = reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(shared_base);
  if (at + bytes <= launch->shared_bytes && at + bytes >= bytes)
    return aligned(operation, thread, reinterpret_cast<uint64_t>(p), bytes, line);
  const int64_t offset = int64_t(at);
  const bool near = offset > -(1 << 24) && offset < (1 << 24);
  report("out of bounds", thread, line,
         "%s of %u bytes at %s", name_of(operation), bytes,
         near ? text("byte %lld of shared memory, which has %llu", (long long)offset,
                     (unsigned long long)launch->shared_bytes).c_str()
              : "an address far outside dynamic shared memory");
  return false;
}

void report_finding(const Shadow::Finding& finding, Operation operation, unsigned thread, int line) {
  const char* name = name_of(operation);
  const Access& other = finding.other;
  const size_t byte = within_block(finding.byte);
  switch (finding.verdict) {
    case SOUND: return;
    case NEVER_WRITTEN:
      return report("uninitialised", thread, line,
                    "%s reads byte %zu of shared memory, which nobody has written", name, byte);
    case UNFENCED:
      return report("missing fence", thread, line,
                    "%s through the asynchronous proxy at byte %zu of shared memory, which %s wrote "
                    "through the generic one on line %d, with no fence_proxy_async between", name, byte,
                    name_of_thread(other.thread).c_str(), other.line);
    case STILL_PENDING: {
      if (other.thread >= all_threads.size())
        return report("race", thread, line,
                      "%s at byte %zu of shared memory, where %s (line %d) is still under way", name, byte,
                      agents.name(other.thread).c_str(), other.line);
      bool committed = true;  // or followed by an arrival
      const Thread& copier = all_threads[other.thread];
      for (const Copy& copy : copier.copies) {
        const size_t at = place_of(copy.to);
        if (at <= finding.byte && finding.byte < at + copy.bytes) committed = copy.group < copier.groups;
      }
      return report("race", thread, line,
                    "%s at byte %zu of shared memory, where the copy_async of %s (line %d)"
                    " is still under way: it was %s", name, byte, name_of_thread(other.thread).c_str(), other.line,
                    committed ? "not waited for" : "never committed");
    }
    case IN_BARRIER:
      return report("barrier", thread, line, "%s at byte %zu of shared memory, where a barrier lies (line %d)", name,
                    byte, other.line);
    case RACE:
      return report("race", thread, line,
                    "%s at byte %zu of shared memory, which %s %s on line %d, with no "
                    "barrier between", name, byte, agents.name(other.thread).c_str(),
                    finding.other_wrote ? "wrote" : "read", other.line);
  }
}

bool may_read_shared(Operation operation, unsigned thread, const void* p, unsigned bytes, int line) {
  if (!within_shared(operation, thread, p, bytes, line)) return false;
  const size_t at = place_of(p);
  report_finding(shadow.read(at, bytes, thread, line), operation, thread, line);
  return true;
}

bool may_write_shared(Operation operation, void* p, unsigned bytes, int line, bool pending) {
  if (!within_shared(operation, current, p, bytes, line)) return false;
  const size_t at = place_of(p);
  report_finding(shadow.write(at, bytes, current, line, pending), operation, current, line);
  return true;
}

// ---- What a kernel calls

const void* checked_global_read(const void* p, unsigned bytes, bool valid, int line) {
  log_access(LOAD_GLOBAL, line, p, bytes, valid);
  return valid && may_read_global(LOAD_GLOBAL, p, bytes, line) ? p : zeros;
}

void* checked_global_write(void* p, unsigned bytes, bool valid, int line) {
  log_access(STORE_GLOBAL, line, p, bytes, valid);
  if (!valid) return sink;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(STORE_GLOBAL, address, bytes, true, line);
  if (!region) return sink;
  if (const uint64_t who = Regions::stranger(*region, address, bytes, known_owner))
    report_stranger(who, *region, address, true, line);
  Regions::claim(*region, address, bytes, owner(current_block, current % block_threads, clocks.now(current)));
  return p;
}

void* checked_global_add(void* p, unsigned bytes, bool valid, int line) {
  log_access(ADD_GLOBAL, line, p, bytes, valid);
  if (!valid) return sink;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  const Region* region = global_region(ADD_GLOBAL, address, bytes, true, line);
  if (!region) return sink;
  const auto orders = [](uint64_t who) { return who == ADDED || known_owner(who); };
  if (const uint64_t who = Regions::stranger(*region, address, bytes, orders))
    report_stranger(who, *region, address, true, line);
  Regions::claim(*region, address, bytes, ADDED);
  return p;
}

const void* checked_shared_read(const void* p, unsigned bytes, bool valid, int line) {
  log_access(LOAD_SHARED, line, p, bytes, valid);
  return valid && may_read_shared(LOAD_SHARED, current, p, bytes, line) ? p : zeros;
}

void* checked_shared_write(void* p, unsigned bytes, bool valid, int line) {
  log_access(STORE_SHARED, line, p, bytes, valid);
  return valid && may_write_shared(STORE_SHARED, p, bytes, line, false) ? p : sink;
}

}  // namespace emu
