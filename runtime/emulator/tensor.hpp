// The warp's matrix instructions, on the registers of its 32 lanes. Products are exact and are summed
// in double, then rounded once to float: at least as accurate as a tensor core, which truncates. Sums of integers are
// exact, and wrap in 32 bits (PTX ISA 9.7.14.5.14, mma, without .satfinite).
#pragma once

#include "emulator.h"

namespace emu {

inline float rounded_sum(double sum, float) { return float(sum); }
inline int32_t rounded_sum(double sum, int32_t) { return int32_t(uint32_t(int64_t(sum))); }

template <class T, int K, class Sum = float>
inline void multiply_accumulate(const Request* const (&lanes)[32], const T* const (&a)[32],
                                const T* const (&b)[32], int a_row(int, int), int a_column(int, int),
                                int b_row(int, int)) {
  double left[16][K], right[K][8];
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < K / 2; ++i) left[a_row(lane, i)][a_column(lane, i)] = double(float(a[lane][i]));
    for (int i = 0; i < K / 4; ++i) right[b_row(lane, i)][lane / 4] = double(float(b[lane][i]));
  }
  for (int lane = 0; lane < 32; ++lane) {
    Sum* d = static_cast<Sum*>(lanes[lane]->out);
    for (int i = 0; i < 4; ++i) {
      const int row = 8 * (i / 2) + lane / 4, column = 2 * (lane % 4) + i % 2;
      double sum = d[i];
      for (int k = 0; k < K; ++k) sum += left[row][k] * right[k][column];
      d[i] = rounded_sum(sum, d[i]);
    }
  }
}

// a[k8][m8][k1], b[k8][k1]
template <class T>
inline void mma_16_bit(const Request* const (&lanes)[32]) {
  const T *a[32], *b[32];
  for (int lane = 0; lane < 32; ++lane) {
    a[lane] = static_cast<const T*>(lanes[lane]->a);
    b[lane] = static_cast<const T*>(lanes[lane]->b);
  }
  multiply_accumulate<T, 16>(
      lanes, a, b, [](int lane, int i) { return 8 * (i / 2 % 2) + lane / 4; },
      [](int lane, int i) { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; },
      [](int lane, int i) { return 8 * (i / 2) + 2 * (lane % 4) + i % 2; });
}

// a[k4][m8], b[k4]
inline void mma_tf32(const Request* const (&lanes)[32]) {
  float rounded_a[32][4], rounded_b[32][2];
  const float *a[32], *b[32];
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i)
      rounded_a[lane][i] = round_to_tf32(static_cast<const float*>(lanes[lane]->a)[i]);
    for (int i = 0; i < 2; ++i)
      rounded_b[lane][i] = round_to_tf32(static_cast<const float*>(lanes[lane]->b)[i]);
    a[lane] = rounded_a[lane];
    b[lane] = rounded_b[lane];
  }
  multiply_accumulate<float, 8>(
      lanes, a, b, [](int lane, int i) { return 8 * (i % 2) + lane / 4; },
      [](int lane, int i) { return 4 * (i / 2) + lane % 4; },
      [](int lane, int i) { return 4 * i + lane % 4; });
}

// a[k16][m8][k1], b[k16][k1]
template <class Sum, class T>
inline void multiply_32(const Request* const (&lanes)[32], const T* const (&a)[32], const T* const (&b)[32]) {
  multiply_accumulate<T, 32, Sum>(
      lanes, a, b, [](int lane, int i) { return 8 * (i / 4 % 2) + lane / 4; },
      [](int lane, int i) { return 16 * (i / 8) + 4 * (lane % 4) + i % 4; },
      [](int lane, int i) { return 16 * (i / 4) + 4 * (lane % 4) + i % 4; });
}

template <class Sum>
inline void mma_8_bit(const Request* const (&lanes)[32]) {
  float wide_a[32][16], wide_b[32][8];
  const float *a[32], *b[32];
  const int left = lanes[0]->option % RIGHT_ELEMENT, right = lanes[0]->option / RIGHT_ELEMENT;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 16; ++i) wide_a[lane][i] = eight_bit(static_cast<const uint8_t*>(lanes[lane]->a)[i], left);
    for (int i = 0; i < 8; ++i) wide_b[lane][i] = eight_bit(static_cast<const uint8_t*>(lanes[lane]->b)[i], right);
    a[lane] = wide_a[lane];
    b[lane] = wide_b[lane];
  }
  multiply_32<Sum>(lanes, a, b);
}

inline void mma(const Request* const (&lanes)[32]) {
  switch (lanes[0]->option) {
    case F16: return mma_16_bit<__half>(lanes);
    case BF16: return mma_16_bit<__nv_bfloat16>(lanes);
    case TF32: return mma_tf32(lanes);
  }
  const int left = lanes[0]->option % RIGHT_ELEMENT;
  return left == S8 || left == U8 ? mma_8_bit<int32_t>(lanes) : mma_8_bit<float>(lanes);
}

// Row r of matrix m is where lane 8 m + r points; rows that may not be read are `safe` rows instead.
inline void load_matrices(const Request* const (&lanes)[32], const void* const (&rows)[32]) {
  const int option = lanes[0]->option, count = option < 0 ? -option : option;
  for (int m = 0; m < count; ++m) {
    uint16_t matrix[8][8];
    for (int row = 0; row < 8; ++row) memcpy(matrix[row], rows[8 * m + row], sizeof(matrix[row]));
    for (int lane = 0; lane < 32; ++lane) {
      uint16_t* pair = static_cast<uint16_t*>(lanes[lane]->out) + 2 * m;
      for (int i = 0; i < 2; ++i)
        pair[i] = option < 0 ? matrix[2 * (lane % 4) + i][lane / 4]
                             : matrix[lane / 4][2 * (lane % 4) + i];
    }
  }
}

}  // namespace emu
