// Bulk tensor copies between global and shared memory. PTX ISA 9.7.9.27.1, cp.async.bulk.tensor; the order of
// elements in shared memory under a swizzle is that of 5.5.7.
#pragma once

#include <algorithm>

#include "clusters.hpp"

namespace emu {
namespace {

struct TensorCopy {
  TensorMap map;
  unsigned char* shared;
  int at[5];
  Barrier* barrier;  // of a load
  uint64_t phase;    // in which the load began
  unsigned thread;
  uint64_t group;  // of a store
  uint64_t block_clock;
  int line;
  Access access;
};

std::vector<TensorCopy> loads, stores;
std::vector<uint64_t> store_groups;  // closed groups, by thread

unsigned box_bytes(const TensorMap& map) {
  unsigned bytes = map.element_bytes;
  for (unsigned i = 0; i < map.rank; ++i) bytes *= map.box[i];
  return bytes;
}

// Under a swizzle of 32, 64 or 128 bytes, bits 4.. of the address change by an exclusive or with bits 7.. .
uint32_t swizzled_address(uint32_t address, unsigned swizzle_bytes) {
  const uint32_t mask = swizzle_bytes == 0 ? 0 : swizzle_bytes / 16 - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

// 16 bytes of a box, or fewer: those that lie together on both sides and are all inside or all outside.
struct Chunk {
  uint32_t shared;  // from the beginning of the cluster's memory
  uint64_t address;
  unsigned bytes;
  bool inside;
};

std::vector<Chunk> chunks_of(const TensorCopy& copy) {
  const TensorMap& map = copy.map;
  const unsigned inner = map.box[0] * map.element_bytes, piece = map.element_bytes;
  unsigned rows = 1;
  for (unsigned i = 1; i < map.rank; ++i) rows *= map.box[i];
  const uint32_t base = uint32_t(place_of(copy.shared));
  std::vector<Chunk> chunks;
  for (unsigned row = 0; row < rows; ++row) {
    uint64_t address = map.address;
    bool inside = true;
    unsigned rest = row;
    for (unsigned i = 1; i < map.rank; ++i) {
      const int64_t index = int64_t(copy.at[i]) + rest % map.box[i];
      rest /= map.box[i];
      inside &= index >= 0 && uint64_t(index) < map.sizes[i];
      address += uint64_t(index) * map.strides[i - 1];
    }
    for (unsigned start = 0; start < inner;) {
      const int64_t element = copy.at[0] + int64_t(start / piece);
      const bool here = inside && element >= 0 && uint64_t(element) < map.sizes[0];
      unsigned bytes = 16 - start % 16;
      if (bytes > inner - start) bytes = inner - start;
      if (here && uint64_t(element) + bytes / piece > map.sizes[0])
        bytes = unsigned(map.sizes[0] - uint64_t(element)) * piece;
      if (!here && inside && element < 0 && int64_t(bytes / piece) > -element) bytes = unsigned(-element) * piece;
      const uint32_t shared = swizzled_address(base + row * inner + start, map.swizzle_bytes);
      chunks.push_back({shared, address + uint64_t(element * piece), bytes, here});
      start += bytes;
    }
  }
  return chunks;
}

// The sectors of global memory that a box touches, each once: those of what lies within the array.
std::vector<uint64_t> sectors_of(const std::vector<Chunk>& chunks) {
  std::vector<uint64_t> sectors;
  for (const Chunk& chunk : chunks) {
    if (!chunk.inside) continue;
    const uint64_t last = (chunk.address + chunk.bytes - 1) / SECTOR;
    for (uint64_t sector = chunk.address / SECTOR; sector <= last; ++sector)
      if (sectors.empty() || sectors.back() != sector) sectors.push_back(sector);
  }
  std::sort(sectors.begin(), sectors.end());
  sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
  return sectors;
}

bool sound_map(const char* what, const TensorMap& map, const void* shared, int rank, int line) {
  const uint32_t at = uint32_t(within_block(place_of(shared)));
  // A box is read as a tile from where a swizzle begins anew; a part of one, of fewer than 8 rows, lies anywhere.
  const bool is_part = box_bytes(map) < 8 * map.box[0] * map.element_bytes;
  const unsigned align = map.swizzle_bytes == 0 || is_part ? 128 : 8 * map.swizzle_bytes;
  std::string wrong;
  if (map.magic != TENSOR_MAP_MAGIC)
    wrong = "is given what is no tensor map";
  else if (map.rank != rank)
    wrong = text("gives %d coordinates to a tensor map of rank %d", rank, map.rank);
  else if (uint64_t(at) + box_bytes(map) > launch->shared_bytes)
    wrong = text("of %u bytes at byte %u of shared memory, which has %llu", box_bytes(map), at,
                 (unsigned long long)launch->shared_bytes);
  if (!wrong.empty()) return report("out of bounds", current, line, "%s %s", what, wrong.c_str()), abandoned = true, false;
  if (at % align != 0) {
    report("misaligned", current, line,
           "%s at byte %u of shared memory, which is no multiple of %u", what, at, align);
    return false;
  }
  return true;
}

void land(TensorCopy& copy) {
  for (const Chunk& chunk : chunks_of(copy)) {
    if (chunk.inside)
      memcpy(cluster_base + chunk.shared, reinterpret_cast<const void*>(chunk.address), chunk.bytes);
    else
      memset(cluster_base + chunk.shared, 0, chunk.bytes);
  }
  Barrier& barrier = *copy.barrier;
  if (barrier.phase != copy.phase)
    report("phase", copy.thread, copy.line,
           "tensor_load began in phase %llu of its barrier and completes in phase %llu: the bytes that the "
           "barrier expected are fewer than those that were copied",
           (unsigned long long)copy.phase, (unsigned long long)barrier.phase);
  if (launch->checks) {
    shadow.landed(place_of(copy.shared), box_bytes(copy.map), copy.access);
  }
  count_bytes(barrier, -int64_t(box_bytes(copy.map)), copy.thread, "tensor_load", copy.line);
  maybe_complete(barrier);
}

// Of all that is under way, tensor copies first.
void land_one(size_t index) {
  if (index >= loads.size()) return land_arrival(index - loads.size());
  TensorCopy copy = loads[index];
  loads.erase(loads.begin() + long(index));
  land(copy);
}

void write_out(const TensorCopy& copy) {
  for (const Chunk& chunk : chunks_of(copy))
    if (chunk.inside) memcpy(reinterpret_cast<void*>(chunk.address), cluster_base + chunk.shared, chunk.bytes);
}

// What a read of the part of a box finds that lies within the array: what is beyond may be anything, as it goes nowhere.
Shadow::Finding found_inside(const std::vector<Chunk>& chunks, Observer observer) {
  for (const Chunk& chunk : chunks) {
    if (!chunk.inside) continue;
    const Shadow::Finding finding = shadow.look(chunk.shared, chunk.bytes, observer);
    if (finding.verdict != SOUND) return finding;
  }
  return {};
}

unsigned store_agent(unsigned thread) { return agents.of(text("a tensor store of %s", name_of_thread(thread).c_str())); }

}  // namespace

// Data may arrive at any moment. True if some did, and who waits for it may go on.
bool land_some() {
  const size_t under_way = loads.size() + arrivals.size();
  if (launch->seed == 0 || under_way == 0 || random_bits() % 4 != 0) return false;
  land_one(random_bits() % under_way);
  return true;
}

namespace {

// One block's part of a load: the box and its bytes' completion at the same places of that block.
void start_load_into(unsigned block, void* shared, const TensorMap& map, void* p, const int* at, int rank, int line) {
  Barrier* barrier = barrier_at(there(p, block), "tensor_load", line);
  if (!barrier) return;
  unsigned char* const to = static_cast<unsigned char*>(there(shared, block));
  TensorCopy copy = {map, to, {}, barrier, barrier->phase, current, 0, 0, line, {}};
  memcpy(copy.at, at, sizeof(int) * size_t(rank));
  if (launch->checks) {
    if (barrier->init_clock > Knowledge::at(init_fenced.seen, barrier->init_thread) &&
        !clocks.bridged(current, barrier->init_thread, barrier->init_clock))
      report("missing fence", current, line,
             "the asynchronous proxy may not see that the barrier was initialised: fence between");
    copy.access = {barrier->agent, uint32_t(barrier->phase + 1), 0, line, true, true};
    report_finding(shadow.write(place_of(to), box_bytes(map), {current, true}, copy.access), TENSOR_LOAD, current,
                   line);
    if (block != block_of(current)) reach(block, barrier->agent, uint32_t(barrier->phase + 1), "tensor_load", line);
  }
  loads.push_back(copy);
}

// What a load reads of global memory, once for all blocks that it goes to; of these, `others` are not the own one.
void check_load(const TensorMap& map, const Barrier& barrier, const int* at, int rank, unsigned others, int line) {
  TensorCopy copy = {map, cluster_base, {}, nullptr, 0, current, 0, 0, line, {}};
  memcpy(copy.at, at, sizeof(int) * size_t(rank));
  uint64_t read = 0;
  const std::vector<Chunk> chunks = chunks_of(copy);
  for (const Chunk& chunk : chunks) {
    if (!chunk.inside) continue;
    read += chunk.bytes;
    may_read_global_bytes(TENSOR_LOAD, reinterpret_cast<const void*>(chunk.address), chunk.bytes, line);
  }
  traffic.copy(TENSOR_LOAD, line, read, sectors_of(chunks), {&barrier, barrier.phase, current});
  if (others) traffic.request(TENSOR_MULTICAST, line, read * others, 0);
}

}  // namespace

void start_tensor_load(void* shared, const TensorMap& map, void* p, const int* at, int rank, int line) {
  start_tensor_load(shared, map, p, at, rank, 1u << block_of(current), line);
}

void start_tensor_load(void* shared, const TensorMap& map, void* p, const int* at, int rank, unsigned blocks,
                       int line) {
  current_line = line;
  const Barrier* const barrier = barrier_at(p, "tensor_load", line);
  if (!barrier || !sound_map("tensor_load", map, shared, rank, line)) return;
  if (blocks == 0 || blocks >> launch->cluster != 0)
    return report("out of bounds", current, line,
                  "tensor_load to the blocks of the mask 0x%x, in a cluster of %u", blocks, launch->cluster);
  const unsigned others = unsigned(__builtin_popcount(blocks & ~(1u << block_of(current))));
  if (launch->checks) check_load(map, *barrier, at, rank, others, line);
  for (unsigned block = 0; block < launch->cluster; ++block)
    if (blocks >> block & 1) start_load_into(block, shared, map, p, at, rank, line);
  land_some();
}

void start_tensor_store(const TensorMap& map, const void* shared, const int* at, int rank, int line) {
  current_line = line;
  if (!sound_map("tensor_store", map, shared, rank, line)) return;
  TensorCopy copy = {map, static_cast<unsigned char*>(const_cast<void*>(shared)), {}, nullptr, 0, current,
                     store_groups[current], 0, line, {}};
  memcpy(copy.at, at, sizeof(int) * size_t(rank));
  uint64_t written = 0;
  if (launch->checks) {
    const unsigned agent = store_agent(current);
    const Access reader{agent, uint32_t(copy.group + 1), 0, line, false, true};
    const std::vector<Chunk> chunks = chunks_of(copy);
    Shadow::Finding finding = shadow.read(place_of(copy.shared), box_bytes(map), {current, true}, reader);
    if (finding.verdict == NEVER_WRITTEN) finding = found_inside(chunks, {current, true});
    report_finding(finding, TENSOR_STORE, current, line);
    for (const Chunk& chunk : chunks) {
      if (!chunk.inside) continue;
      written += chunk.bytes;
      may_write_global_bytes(TENSOR_STORE, reinterpret_cast<void*>(chunk.address), chunk.bytes, line);
    }
    traffic.copy(TENSOR_STORE, line, written, sectors_of(chunks), {nullptr, copy.group, current});
  }
  stores.push_back(copy);
}

void tensor_store_commit() { ++store_groups[current]; }

void tensor_store_wait(int pending, bool) {
  const uint64_t closed = store_groups[current];
  std::vector<TensorCopy> kept;
  uint64_t done = 0;
  for (TensorCopy& copy : stores) {
    if (copy.thread != current || copy.group + uint64_t(pending) >= closed) {
      kept.push_back(copy);
      continue;
    }
    write_out(copy);
    if (copy.group + 1 > done) done = copy.group + 1;
  }
  stores = std::move(kept);
  if (launch->checks && done) clocks.acquire(current, store_agent(current), uint32_t(done));
}

}  // namespace emu
