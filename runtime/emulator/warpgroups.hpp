// Products of a warpgroup, asynchronous: from its issue to the wait for its group a product owns the registers of
// its accumulator, which hold a NaN meanwhile, and may read its operands at any moment. PTX ISA 9.7.15, wgmma.
#pragma once

#include <algorithm>

#include "asynchronous.hpp"
#include "descriptors.hpp"

namespace emu {
namespace {

constexpr unsigned ROWS = 64, DEPTH_BYTES = 32;

struct Accumulator {
  int columns;
  uint32_t poison;
  uint32_t* at[WARPGROUP];      // the registers of each thread, floats or integers
  std::vector<uint32_t> value;  // their bits, [row][column]
  unsigned products;         // still to be executed
  uint64_t last_group;
};

struct InFlight {
  Product product;
  const void* registers[WARPGROUP];  // of a left operand in registers
  std::vector<unsigned char> issued;  // what they held
  size_t accumulator;
  uint64_t group;
  int line;
  bool executed;
};

// What a thread held, its local variables, at some moment: kernels with checks are compiled so that variables lie on
// the stack whenever another function runs.
class Registers {
 public:
  void note(unsigned thread) {
    from_ = all_threads[thread].context.stack_pointer();
    held_.clear();
    if (from_) held_.assign(from_, const_cast<const char*>(stacks[thread] + Stacks::SIZE));
  }
  bool are_as_noted(const void* at, size_t bytes) const {
    const char* const place = static_cast<const char*>(at);
    const bool known = from_ && place >= from_ && place + bytes <= from_ + held_.size();
    return !known || memcmp(held_.data() + (place - from_), place, bytes) == 0;
  }

 private:
  const char* from_ = nullptr;
  std::vector<char> held_;
};

struct Warpgroup {
  std::vector<InFlight> products;  // oldest first
  std::map<size_t, Accumulator> accumulators;
  size_t next_accumulator = 0;
  uint64_t groups = 0;  // closed
  uint64_t waited = 0;  // groups known to be complete
  bool fenced = false;
  std::vector<Registers> at_fence;  // of each thread
};

std::vector<Warpgroup> warpgroups;
std::vector<uint32_t> poisons;  // that registers were filled with: any other NaN is the kernel's own

unsigned products_agent(unsigned first) {
  return agents.of(
      text("a product of warpgroup %u%s", first % block_threads / WARPGROUP, of_block(block_of(first)).c_str()));
}

// The fragment of an accumulator: lane l of warp w holds d[n8][m8][n1] at row 16 w + 8 m8 + l / 4, column
// 8 n8 + 2 (l % 4) + n1. PTX ISA 9.7.15.5.1.1.
unsigned row_of(unsigned thread, unsigned i) { return thread / 32 * 16 + i / 2 % 2 * 8 + thread % 32 / 4; }
unsigned column_of(unsigned thread, unsigned i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

void poison(const Accumulator& accumulator) {
  for (uint32_t* at : accumulator.at) std::fill(at, at + accumulator.columns / 2, accumulator.poison);
}

// Whether a thread's register is one of an accumulator that a product still makes.
bool is_in_flight(unsigned thread, const uint32_t* at) {
  for (const auto& [id, known] : warpgroups[thread / WARPGROUP].accumulators) {
    const uint32_t* const mine = known.at[thread % WARPGROUP];
    if (mine <= at && at < mine + known.columns / 2) return true;
  }
  return false;
}

void check_untouched(const Accumulator& accumulator, unsigned first, int line) {
  for (unsigned t = 0; t < WARPGROUP; ++t)
    for (int i = 0; i < accumulator.columns / 2; ++i) {
      if (memcmp(accumulator.at[t] + i, &accumulator.poison, 4) == 0) continue;
      report("race", first + t, line,
             "register %d of an accumulator was written while a product into it was in flight", i);
      return;
    }
}

unsigned bytes_of(Element element) { return element == F16 || element == BF16 ? 2 : 1; }
bool is_integer(Element element) { return element == S8 || element == U8; }

float element_value(const unsigned char* at, Element element) {
  if (bytes_of(element) == 1) return eight_bit(*at, element);
  uint16_t bits;
  memcpy(&bits, at, 2);
  return element == F16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

// 64 or N rows of 16 or 32 elements, as floats.
void read_matrix(const unsigned char* memory, uint64_t descriptor, unsigned rows, bool transposed, Element element,
                 float* out) {
  const Matrix matrix(descriptor);
  const unsigned bytes = bytes_of(element), depth = DEPTH_BYTES / bytes;
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned k = 0; k < depth; ++k) {
      const uint32_t at = transposed ? matrix.chunk(k, row * bytes, true) + row * bytes % 16
                                     : matrix.chunk(row, k * bytes, false) + k * bytes % 16;
      out[row * depth + k] = at + bytes <= launch->shared_bytes ? element_value(memory + at, element) : 0.0f;
    }
}

void read_registers(const InFlight& work, float* out) {
  const unsigned bytes = bytes_of(work.product.element), pack = 4 / bytes, depth = DEPTH_BYTES / bytes;
  for (unsigned t = 0; t < WARPGROUP; ++t)
    for (unsigned i = 0; i < 4 * pack; ++i) {  // a[k8][m8][k1], or of 8 bits a[k16][m8][k1]
      const unsigned row = t / 32 * 16 + i / pack % 2 * 8 + t % 32 / 4;
      const unsigned k = i / (2 * pack) * 4 * pack + t % 4 * pack + i % pack;
      out[row * depth + k] =
          element_value(static_cast<const unsigned char*>(work.registers[t]) + bytes * i, work.product.element);
    }
}

void check_registers(const InFlight& work, unsigned first) {
  for (unsigned t = 0; t < WARPGROUP && work.product.a; ++t)
    if (memcmp(work.registers[t], work.issued.data() + 16 * t, 16) != 0)
      return report("race", first + t, work.line,
                    "a register of the left operand was written while the product was in flight");
}

__attribute__((optimize("O3"))) void multiply(const float* a, const float* b, unsigned depth, unsigned columns,
                                          float* d) {
  static float across[32][256];
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < depth; ++k) across[k][n] = b[n * depth + k];
  for (unsigned m = 0; m < ROWS; ++m) {
    double sum[256];
    for (unsigned n = 0; n < columns; ++n) sum[n] = double(d[m * columns + n]);
    for (unsigned k = 0; k < depth; ++k) {
      const float left = a[m * depth + k];
      for (unsigned n = 0; n < columns; ++n) sum[n] += double(left * across[k][n]);  // exact for narrow operands
    }
    for (unsigned n = 0; n < columns; ++n) d[m * columns + n] = float(sum[n]);
  }
}

bool are_finite(const float* numbers, size_t count) {
  bool found = true;
  for (size_t i = 0; i < count; ++i) found &= std::isfinite(numbers[i]);
  return found;
}

// The same of integers: sums of a step, below 2^24, are exact in floats; what they are added to wraps in 32 bits.
__attribute__((optimize("O3"))) void multiply_exactly(const float* a, const float* b, unsigned depth, unsigned columns,
                                                  uint32_t* d) {
  static float across[32][256];
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < depth; ++k) across[k][n] = b[n * depth + k];
  for (unsigned m = 0; m < ROWS; ++m) {
    float sum[256] = {};
    for (unsigned k = 0; k < depth; ++k) {
      const float left = a[m * depth + k];
      for (unsigned n = 0; n < columns; ++n) sum[n] += left * across[k][n];
    }
    for (unsigned n = 0; n < columns; ++n) d[m * columns + n] += uint32_t(int32_t(sum[n]));
  }
}

// The same of 8-bit floats: the products of a step, and what was there before, are aligned to the largest; 14 bits of each
// are added up, and as many of the sum are kept, the others cut off (arXiv 2412.19437, section 3.3.2; 2411.10958).
__attribute__((optimize("O3"))) void multiply_coarsely(const float* a, const float* b, unsigned depth, unsigned columns,
                                                   float* d) {
  constexpr int FRACTION = 13, OF_FLOAT = 23, BIAS = 127, LEAST = 2 * FRACTION;
  static float across[32][256];
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < depth; ++k) across[k][n] = b[n * depth + k];
  for (unsigned m = 0; m < ROWS; ++m) {
    float largest[256], scale[256], back[256];
    int32_t sum[256];
    for (unsigned n = 0; n < columns; ++n) largest[n] = std::fabs(d[m * columns + n]);
    for (unsigned k = 0; k < depth; ++k) {
      const float left = std::fabs(a[m * depth + k]);
      for (unsigned n = 0; n < columns; ++n) largest[n] = std::max(largest[n], left * std::fabs(across[k][n]));
    }
    for (unsigned n = 0; n < columns; ++n) {
      uint32_t bits;
      memcpy(&bits, &largest[n], 4);
      const int exponent = std::max(int(bits >> OF_FLOAT), LEAST);
      const uint32_t up = uint32_t(2 * BIAS + FRACTION - exponent) << OF_FLOAT;
      const uint32_t down = uint32_t(exponent - FRACTION) << OF_FLOAT;
      memcpy(&scale[n], &up, 4), memcpy(&back[n], &down, 4);
      sum[n] = int32_t(d[m * columns + n] * scale[n]);
    }
    for (unsigned k = 0; k < depth; ++k) {
      const float left = a[m * depth + k];
      for (unsigned n = 0; n < columns; ++n) sum[n] += int32_t(left * across[k][n] * scale[n]);
    }
    for (unsigned n = 0; n < columns; ++n) {
      const float total = float(sum[n]) * back[n];
      uint32_t bits;
      memcpy(&bits, &total, 4);
      bits &= ~((1u << (OF_FLOAT - FRACTION)) - 1);
      memcpy(&d[m * columns + n], &bits, 4);
    }
  }
}

void multiply_floats(const Product& product, const float* a, const float* b, unsigned depth,
                     std::vector<uint32_t>& bits) {
  static float sums[ROWS * 256];
  const unsigned columns = unsigned(product.columns), count = ROWS * columns;
  memcpy(sums, bits.data(), 4 * count);
  const bool coarse = bytes_of(product.element) == 1 && are_finite(a, ROWS * depth) &&
                      are_finite(b, columns * depth) && are_finite(sums, count);
  (coarse ? multiply_coarsely : multiply)(a, b, depth, columns, sums);
  memcpy(bits.data(), sums, 4 * count);
}

void execute_product(unsigned first, Warpgroup& group, InFlight& work) {
  static float a[ROWS * 32], b[256 * 32];
  const Product& product = work.product;
  const unsigned char* const memory = memory_of(block_of(first));
  check_registers(work, first);
  if (product.a)
    read_registers(work, a);
  else
    read_matrix(memory, product.a_matrix, ROWS, product.a_transposed, product.element, a);
  read_matrix(memory, product.b_matrix, unsigned(product.columns), product.b_transposed, product.right, b);
  Accumulator& accumulator = group.accumulators[work.accumulator];
  if (!product.accumulate) std::fill(accumulator.value.begin(), accumulator.value.end(), 0);
  const unsigned depth = DEPTH_BYTES / bytes_of(product.element), columns = unsigned(product.columns);
  if (is_integer(product.element))
    multiply_exactly(a, b, depth, columns, accumulator.value.data());
  else
    multiply_floats(product, a, b, depth, accumulator.value);
  --accumulator.products;
  work.executed = true;
}

void check_operand(uint64_t descriptor, unsigned rows, bool transposed, unsigned first, int line) {
  const Matrix matrix(descriptor);
  const unsigned agent = products_agent(first);
  const size_t base = block_of(first) * block_stride;
  const Access reader{agent, uint32_t(warpgroups[first / WARPGROUP].groups + 1), 0, line, false, true};
  if (matrix.base_offset != 0)
    return report("misaligned", first, line, "a matrix descriptor with a base offset is not supported");
  if (!matrix.begins_with_its_swizzle())
    return report("misaligned", first, line,
                  "a matrix descriptor begins at byte %u of shared memory, %u bytes into the %u after which its swizzle "
                  "begins anew: only a base offset would say so",
                  matrix.start, matrix.start % (8 * matrix.swizzle_bytes), 8 * matrix.swizzle_bytes);
  const unsigned outer = transposed ? 16 : rows, inner = transposed ? rows * 2 : DEPTH_BYTES;
  for (unsigned i = 0; i < outer; ++i)
    for (unsigned bytes = 0; bytes < inner; bytes += 16) {
      const uint32_t at = matrix.chunk(i, bytes, transposed);
      if (uint64_t(at) + 16 > launch->shared_bytes)
        return report("out of bounds", first, line,
                      "wgmma reads byte %u of shared memory, which has %llu", at,
                      (unsigned long long)launch->shared_bytes);
      const Shadow::Finding finding = shadow.read(base + at, 16, {first, true}, reader);
      if (finding.verdict != SOUND) return report_finding(finding, WGMMA, first, line);
      for (unsigned warp = 1; warp < 4; ++warp) {  // every warp must know that the tile is there
        const Shadow::Finding other = shadow.look(base + at, 16, {first + 32 * warp, true});
        if (other.verdict != SOUND) return report_finding(other, WGMMA, first + 32 * warp, line);
      }
    }
}

// Registers that a product reads must have been written before the fence.
void check_fenced(unsigned first, const Warpgroup& group, unsigned t, const void* at, size_t bytes, const char* what,
                  int line) {
  if (!launch->checks || group.at_fence.empty() || group.at_fence[t].are_as_noted(at, bytes)) return;
  report("missing fence", first + t, line, "a register of %s was written between wgmma_fence and the product", what);
}

size_t accumulator_of(unsigned first, Warpgroup& group, const Product& product, int line) {
  uint32_t* const mine = static_cast<uint32_t*>(product.d);
  for (auto& [id, known] : group.accumulators) {
    if (known.at[0] == mine && known.columns == product.columns) {
      check_untouched(known, first, line);
      return id;
    }
    if (mine < known.at[0] + known.columns / 2 && known.at[0] < mine + product.columns / 2)
      report("race", first, line, "the accumulator shares registers with another one that is in flight");
  }
  const size_t id = group.next_accumulator++;
  Accumulator& made = group.accumulators[id];
  made.columns = product.columns;
  made.poison = poison_of(line);
  if (std::find(poisons.begin(), poisons.end(), made.poison) == poisons.end()) poisons.push_back(made.poison);
  made.products = 0;
  made.value.assign(ROWS * unsigned(product.columns), 0);
  for (unsigned t = 0; t < WARPGROUP; ++t) {
    made.at[t] = static_cast<uint32_t*>(static_cast<const Product*>(all_threads[first + t].request->a)->d);
    if (product.accumulate)
      check_fenced(first, group, t, made.at[t], 2 * size_t(product.columns), "the accumulator", line);
    for (unsigned i = 0; i < unsigned(product.columns) / 2 && product.accumulate; ++i)
      made.value[row_of(t, i) * unsigned(product.columns) + column_of(t, i)] = made.at[t][i];
  }
  poison(made);
  return id;
}

void issue(unsigned first, int line) {
  Warpgroup& group = warpgroups[first / WARPGROUP];
  const Product& product = *static_cast<const Product*>(all_threads[first].request->a);
  for (unsigned t = 1; t < WARPGROUP; ++t) {
    const Product& other = *static_cast<const Product*>(all_threads[first + t].request->a);
    if (other.a_matrix == product.a_matrix && other.b_matrix == product.b_matrix &&
        other.accumulate == product.accumulate)
      continue;
    report("divergence", first + t, line, "the threads of a warpgroup give a product different descriptors");
    break;
  }
  if (!group.fenced)
    report("missing fence", first, line, "a group of products begins without wgmma_fence: registers that other "
                                         "instructions wrote may not be there");
  if (launch->checks) {
    if (!product.a) check_operand(product.a_matrix, ROWS, product.a_transposed, first, line);
    check_operand(product.b_matrix, unsigned(product.columns), product.b_transposed, first, line);
    traffic.request(WGMMA, line, 0, 0);
  }
  InFlight work = {product, {}, {}, accumulator_of(first, group, product, line), group.groups, line, false};
  for (unsigned t = 0; t < WARPGROUP && product.a; ++t) {
    work.registers[t] = static_cast<const Product*>(all_threads[first + t].request->a)->a;
    const unsigned char* held = static_cast<const unsigned char*>(work.registers[t]);
    check_fenced(first, group, t, held, 16, "the left operand", line);
    work.issued.insert(work.issued.end(), held, held + 16);
  }
  Accumulator& accumulator = group.accumulators[work.accumulator];
  ++accumulator.products;
  accumulator.last_group = group.groups;
  group.products.push_back(std::move(work));
}

void fence(unsigned first, Warpgroup& group) {
  group.fenced = true;
  if (!launch->checks) return;
  group.at_fence.resize(WARPGROUP);
  for (unsigned t = 0; t < WARPGROUP; ++t) group.at_fence[t].note(first + t);
}

void deliver_accumulators(unsigned first, Warpgroup& group, int line) {
  for (auto place = group.accumulators.begin(); place != group.accumulators.end();) {
    Accumulator& accumulator = place->second;
    if (accumulator.products != 0 || accumulator.last_group >= group.waited) {
      ++place;
      continue;
    }
    check_untouched(accumulator, first, line);
    for (unsigned t = 0; t < WARPGROUP; ++t)
      for (unsigned i = 0; i < unsigned(accumulator.columns) / 2; ++i)
        accumulator.at[t][i] = accumulator.value[row_of(t, i) * unsigned(accumulator.columns) + column_of(t, i)];
    place = group.accumulators.erase(place);
  }
}

void wait_for_products(unsigned first, unsigned pending, int line) {
  Warpgroup& group = warpgroups[first / WARPGROUP];
  if (group.groups < pending || group.groups - pending <= group.waited) return;
  group.waited = group.groups - pending;
  size_t done = 0;
  while (done < group.products.size() && group.products[done].group < group.waited) {
    InFlight& work = group.products[done++];
    if (!work.executed) execute_product(first, group, work);
    else check_registers(work, first);
  }
  group.products.erase(group.products.begin(), group.products.begin() + long(done));
  deliver_accumulators(first, group, line);
  const unsigned agent = products_agent(first);
  for (unsigned t = first; launch->checks && t < first + WARPGROUP; ++t)
    clocks.acquire(t, agent, uint32_t(group.waited));
}

}  // namespace

// Under a seed a product may be executed at any moment before the wait, in the order of their issue.
void execute_some() {
  if (launch->seed == 0) return;
  for (size_t i = 0; i < warpgroups.size(); ++i)
    for (InFlight& work : warpgroups[i].products) {
      if (work.executed) continue;
      if (random_bits() % 8 == 0) execute_product(unsigned(i) * WARPGROUP, warpgroups[i], work);
      break;
    }
}

// What all four warps do together once all have come.
void execute_warpgroup(unsigned first, const Request& request) {
  Warpgroup& group = warpgroups[first / WARPGROUP];
  switch (request.operation) {
    case WGMMA: return issue(first, request.line);
    case WGMMA_FENCE: return fence(first, group);
    case WGMMA_COMMIT: ++group.groups, group.fenced = false; return;
    default: return wait_for_products(first, unsigned(request.option), request.line);
  }
}

void check_left_over() {
  for (size_t i = 0; i < warpgroups.size(); ++i)
    if (!warpgroups[i].products.empty())
      report("missing wait", unsigned(i) * WARPGROUP, warpgroups[i].products[0].line,
             "the block ends while a product is in flight");
  if (!loads.empty()) report("missing wait", loads[0].thread, loads[0].line, "the block ends while a tensor copy is in flight");
  if (!arrivals.empty()) report("missing wait", arrivals[0].thread, arrivals[0].line, "the block ends while copies are in flight that an arrival follows");
  check_reaches();
  if (!stores.empty()) report("missing wait", stores[0].thread, stores[0].line, "the block ends while a tensor store is in flight");
}

}  // namespace emu
