// Matrix descriptors: where the elements of an operand of wgmma lie in shared memory. PTX ISA 9.7.15.5.1,
// asynchronous warpgroup level matrix operations: shared memory matrix layout and matrix descriptor.
#pragma once

#include "tensor_copies.hpp"

namespace emu {
namespace {

struct Matrix {
  uint32_t start, leading, stride;  // bytes
  unsigned swizzle_bytes;           // 0, 32, 64 or 128
  unsigned base_offset;

  explicit Matrix(uint64_t descriptor)
      : start(uint32_t(descriptor & 0x3fff) << 4),
        leading(uint32_t(descriptor >> 16 & 0x3fff) << 4),
        stride(uint32_t(descriptor >> 32 & 0x3fff) << 4),
        swizzle_bytes((descriptor >> 62) == 0 ? 0 : 256u >> (descriptor >> 62)),
        base_offset(unsigned(descriptor >> 49 & 7)) {}

  // Whether it starts in the first row of an atom, as it must where the base offset is 0. PTX ISA 9.7.15.5.1.2.2.
  bool begins_with_its_swizzle() const {
    return swizzle_bytes == 0 || start % (8 * swizzle_bytes) < swizzle_bytes;
  }

  // The shared address of the 16 bytes that hold an element: `outer` counts along M or N, `bytes` along K where the
  // matrix is K-major; transposed, `bytes` counts along M or N and `outer` along K. Chunks of 16 bytes lie together;
  // a row of an atom has as many of them as the swizzle spans, an atom 8 rows.
  uint32_t chunk(unsigned outer, unsigned bytes, bool transposed) const {
    const unsigned span = swizzle_bytes == 0 ? 16 : swizzle_bytes;
    uint32_t at = start + outer % 8 * span + bytes % span / 16 * 16;
    if (swizzle_bytes == 0) {
      at += transposed ? outer / 8 * leading + bytes / 16 * stride : outer / 8 * stride + bytes / 16 * leading;
    } else if (transposed) {
      at += outer / 8 * stride + bytes / span * leading;
    } else {
      // Along K a swizzled matrix does not leave its atom: a step of 32 bytes is in the start address.
      at += outer / 8 * stride + bytes / span * span;
    }
    return swizzled_address(at, swizzle_bytes);
  }
};

}  // namespace
}  // namespace emu
