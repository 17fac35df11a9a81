// The 16-bit and 8-bit floating point types of CUDA as plain structs: conversions to 16 bits round to nearest, ties to
// even, and keep subnormals, infinities and NaN; arithmetic is done in float and rounded once, which
// for + - * / of these types is what the device's correctly rounded instructions give.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace emu {

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "same_bits needs equal sizes");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// What the registers of an accumulator hold while a product into it is in flight: a signalling NaN that tells the
// product's line. Arithmetic makes it quiet, and passes it on.
inline uint32_t poison_of(int line) { return 0x7f950000u | (uint32_t(line) & 0xffffu); }
inline bool is_poison(uint32_t bits) { return (bits & 0x7fbf0000u) == 0x7f950000u; }
void tell_poison(uint32_t bits, const char* what);
inline void look_for_poison(uint32_t bits, const char* what) {
  if (__builtin_expect(is_poison(bits), 0)) tell_poison(bits, what);
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | (rest << 13));
  // As a float the exponent field is 112 too small; a product by 2^112 repairs subnormals as well.
  const float magnitude = same_bits<float>(rest << 13) * 0x1p112f;
  return same_bits<float>(sign | same_bits<uint32_t>(magnitude));
}

inline uint16_t float_to_half(float x) {
  const uint32_t bits = same_bits<uint32_t>(x), sign = (bits >> 16) & 0x8000u;
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return look_for_poison(rest, "rounded"), uint16_t(0x7fff);  // NaN, as the device writes it
  if (rest >= 0x477ff000u) return uint16_t(sign | 0x7c00u);       // 65520 and above: infinity
  if (rest < 0x38800000u) {                                       // below 2^-14: subnormal
    const float shifted = same_bits<float>(rest) + 0.5f;          // rounds at 2^-24
    return uint16_t(sign | (same_bits<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
  return uint16_t(sign | ((rounded - (112u << 23)) >> 13));
}

inline float bfloat16_to_float(uint16_t x) { return same_bits<float>(uint32_t(x) << 16); }

inline uint16_t float_to_bfloat16(float x) {
  const uint32_t bits = same_bits<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return look_for_poison(bits, "rounded"), uint16_t(0x7fff);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// An 8-bit number, exactly; `infinities` where the largest exponent is kept for them and for NaN, else for one NaN.
inline float eight_bit_to_float(uint8_t x, int mantissa, int bias, bool infinities) {
  const uint32_t sign = uint32_t(x & 0x80u) << 24, rest = x & 0x7fu;
  if (rest == 0x7fu || (infinities && rest > 0x7cu)) return same_bits<float>(0x7fffffffu);
  if (infinities && rest == 0x7cu) return same_bits<float>(sign | 0x7f800000u);
  // As a float the exponent field is 127 - bias too small; a product repairs subnormals as well.
  const float magnitude = same_bits<float>(rest << (23 - mantissa)) * ldexpf(1.0f, 127 - bias);
  return same_bits<float>(sign | same_bits<uint32_t>(magnitude));
}

// To nearest, ties to even; what is beyond the largest number, whose bits are `most`, becomes it. PTX ISA 9.7.9,
// cvt.rn.satfinite.
inline uint8_t float_to_eight_bit(float x, int mantissa, int bias, uint8_t most) {
  const uint32_t bits = same_bits<uint32_t>(x), rest = bits & 0x7fffffffu;
  const uint8_t sign = uint8_t((bits >> 24) & 0x80u);
  if (rest > 0x7f800000u) return look_for_poison(rest, "rounded"), uint8_t(0x7f);
  if (rest >= same_bits<uint32_t>(eight_bit_to_float(most, mantissa, bias, false))) return uint8_t(sign | most);
  if (rest < uint32_t(127 + 1 - bias) << 23) {  // below the smallest normal number: rounds at the last subnormal bit
    const float unit = ldexpf(1.0f, 23 + 1 - bias - mantissa);
    const float shifted = same_bits<float>(rest) + unit;
    return uint8_t(sign | (same_bits<uint32_t>(shifted) - same_bits<uint32_t>(unit)));
  }
  const int dropped = 23 - mantissa;
  const uint32_t rounded = rest + (1u << (dropped - 1)) - 1 + ((rest >> dropped) & 1u);
  return uint8_t(sign | ((rounded - (uint32_t(127 - bias) << 23)) >> dropped));
}

// To the 10 mantissa bits of tf32: to nearest, ties away from zero.
inline float round_to_tf32(float x) {
  const uint32_t bits = same_bits<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return same_bits<float>((bits + 0x1000u) & ~0x1fffu);
}

}  // namespace emu

struct __half {
  uint16_t bits;
  __half() = default;
  __half(float x) : bits(emu::float_to_half(x)) {}
  __half(double x) : __half(float(x)) {}
  __half(int x) : __half(float(x)) {}
  operator float() const { return emu::half_to_float(bits); }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(emu::float_to_bfloat16(x)) {}
  __nv_bfloat16(double x) : __nv_bfloat16(float(x)) {}
  __nv_bfloat16(int x) : __nv_bfloat16(float(x)) {}
  operator float() const { return emu::bfloat16_to_float(bits); }
};

struct __nv_fp8_e4m3 {
  uint8_t __x;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float x) : __x(emu::float_to_eight_bit(x, 3, 7, 0x7e)) {}
  explicit __nv_fp8_e4m3(int x) : __nv_fp8_e4m3(float(x)) {}
  explicit operator float() const { return emu::eight_bit_to_float(__x, 3, 7, false); }
};

struct __nv_fp8_e5m2 {
  uint8_t __x;
  __nv_fp8_e5m2() = default;
  explicit __nv_fp8_e5m2(float x) : __x(emu::float_to_eight_bit(x, 2, 15, 0x7b)) {}
  explicit __nv_fp8_e5m2(int x) : __nv_fp8_e5m2(float(x)) {}
  explicit operator float() const { return emu::eight_bit_to_float(__x, 2, 15, true); }
};

typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;

#define TREADLE_ARITHMETIC(T)                                                    \
  inline T operator+(T a, T b) { return T(float(a) + float(b)); }                \
  inline T operator-(T a, T b) { return T(float(a) - float(b)); }                \
  inline T operator*(T a, T b) { return T(float(a) * float(b)); }                \
  inline T operator/(T a, T b) { return T(float(a) / float(b)); }                \
  inline T operator-(T a) { a.bits ^= 0x8000u; return a; }                       \
  inline T& operator+=(T& a, T b) { return a = a + b; }                          \
  inline T& operator-=(T& a, T b) { return a = a - b; }                          \
  inline T& operator*=(T& a, T b) { return a = a * b; }                          \
  inline T& operator/=(T& a, T b) { return a = a / b; }                          \
  inline bool operator==(T a, T b) { return float(a) == float(b); }              \
  inline bool operator!=(T a, T b) { return float(a) != float(b); }              \
  inline bool operator<(T a, T b) { return float(a) < float(b); }                \
  inline bool operator<=(T a, T b) { return float(a) <= float(b); }              \
  inline bool operator>(T a, T b) { return float(a) > float(b); }                \
  inline bool operator>=(T a, T b) { return float(a) >= float(b); }              \
  inline T __hadd(T a, T b) { return a + b; }                                    \
  inline T __hsub(T a, T b) { return a - b; }                                    \
  inline T __hmul(T a, T b) { return a * b; }                                    \
  inline T __hdiv(T a, T b) { return a / b; }                                    \
  inline T __hneg(T a) { return -a; }                                            \
  inline T __hmax(T a, T b) { return T(__builtin_fmaxf(float(a), float(b))); }   \
  inline T __hmin(T a, T b) { return T(__builtin_fminf(float(a), float(b))); }   \
  inline bool __hisnan(T a) { return float(a) != float(a); }
TREADLE_ARITHMETIC(__half)
TREADLE_ARITHMETIC(__nv_bfloat16)
#undef TREADLE_ARITHMETIC

inline float __half2float(__half x) { return float(x); }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
