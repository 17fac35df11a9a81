// primitive: ${NAME}_approx
// each: NAME = exp2 | OP = ex2 | WHAT = 2^x in one instruction
// each: NAME = log2 | OP = lg2 | WHAT = log2 x in one instruction
// each: NAME = rcp | OP = rcp | WHAT = 1 / x in one instruction, to 1 ulp
// $WHAT; subnormals count as zero. PTX ISA 9.7.3, $OP.approx.ftz.
__device__ __forceinline__ float ${NAME}_approx(float x) {
#ifndef TREADLE_EMULATOR
  float y;
  asm("$OP.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return emu::${NAME}_approx(x);
#endif
}

// primitive: divide_together; needs: rcp_approx
// Each divisor becomes number / min(1, it), and one reciprocal serves them all, that of their product; each must be at
// least 2^-62, or 2^-30 of four. Where one is NaN one at least of the results is. Clipping costs nothing: it is a flag
// of what made the divisor (.sat, which makes 0 of NaN: then 0 and infinity meet in a product).
template <int N>
__device__ __forceinline__ void divide_together(float number, float (&divisors)[N]) {
  static_assert(N == 2 || N == 4, "two or four share a reciprocal");
  float products[N / 2];
  UNROLL for (int i = 0; i < N; ++i) divisors[i] = __saturatef(divisors[i]);
  UNROLL for (int i = 0; i < N / 2; ++i) products[i] = divisors[2 * i] * divisors[2 * i + 1];
  const float whole = number * rcp_approx(N == 4 ? products[0] * products[N / 2 - 1] : products[0]);
  UNROLL for (int i = 0; i < N / 2; ++i) {
    const float each = N == 4 ? whole * products[N / 2 - 1 - i] : whole;
    const float first = divisors[2 * i];
    divisors[2 * i] = each * divisors[2 * i + 1];
    divisors[2 * i + 1] = each * first;
  }
}

// primitive: divide_in_groups; needs: rcp_approx
// The quotients of a number and each divisor: of every N divisors one reciprocal serves all, that of their product.
// Whether that holds: not where a product is NaN, infinite or too large; then each needs its own, and no quotient is what
// the others make of it. Each divisor must be NaN or at least 2^-4, and the number between 2^-20 and 2^20: then nothing
// on the way is below the normal numbers.
template <int N, int M>
__device__ __forceinline__ bool divide_in_groups(float number, const float (&divisors)[M], float (&quotients)[M]) {
  static_assert((N == 2 || N == 4) && M % N == 0, "two or four share a reciprocal");
  float pairs[M / 2], sum = 0;
  UNROLL for (int i = 0; i < M / 2; ++i) pairs[i] = divisors[2 * i] * divisors[2 * i + 1];
  UNROLL for (int i = 0; i < M; i += N) {
    const float product = N == 4 ? pairs[i / 2] * pairs[i / 2 + 1] : pairs[i / 2];
    const float whole = number * rcp_approx(product);
    sum = i == 0 ? product : sum + product;
    UNROLL for (int j = i; j < i + N; j += 2) {
      const float each = N == 4 ? whole * pairs[i + 1 - j / 2] : whole;
      quotients[j] = each * divisors[j + 1];
      quotients[j + 1] = each * divisors[j];
    }
  }
  return sum <= 0x1p96f;
}

// primitive: reciprocal
// 1 / x, correctly rounded. PTX ISA 9.7.3, rcp.rn.
__device__ __forceinline__ float reciprocal(float x) {
#ifndef TREADLE_EMULATOR
  return __frcp_rn(x);
#else
  return 1.0f / x;
#endif
}

// primitive: divide
// x / y to 2 ulp over the full range, without the branch of the correctly rounded division. PTX ISA 9.7.3, div.full.
// Volatile, so that it stays where it stands: behind a branch, what is divided and quotients take registers together.
__device__ __forceinline__ float divide(float x, float y) {
#ifndef TREADLE_EMULATOR
  float quotient;
  asm volatile("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
#else
  return x / y;
#endif
}

// primitive: $NAME
// each: NAME = maximum | WHICH = larger | OTHER = fmaxf | OP = max | SIGN = >
// each: NAME = minimum | WHICH = smaller | OTHER = fminf | OP = min | SIGN = <
// The $WHICH of two; NaN if either is, unlike $OTHER. PTX ISA 9.7.3, $OP.NaN.
__device__ __forceinline__ float $NAME(float x, float y) {
#ifndef TREADLE_EMULATOR
  float z;
  asm("$OP.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
#else
  return x $SIGN y || x != x ? x : y;
#endif
}

// primitive: wrapped_$NAME
// each: NAME = sum | OP = +
// each: NAME = difference | OP = -
// each: NAME = product | OP = *
// x $OP y modulo 2^32: of signed integers C leaves it open, and compilers take it that none leaves its format.
__device__ __forceinline__ int32_t wrapped_$NAME(int32_t x, int32_t y) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) $OP static_cast<uint32_t>(y));
}

// primitive: quotient
// x / y, dropping the fraction; 0 where y is 0, and the lowest number where it is divided by -1.
__device__ __forceinline__ int32_t quotient(int32_t x, int32_t y) {
  if (y == -1) return static_cast<int32_t>(0u - static_cast<uint32_t>(x));
  return y == 0 ? 0 : x / y;
}

// primitive: remainder_of
// What x / y leaves, with the sign of x; 0 where y is 0.
__device__ __forceinline__ int32_t remainder_of(int32_t x, int32_t y) {
  return y == 0 || y == -1 ? 0 : x % y;
}

// primitive: floored_quotient; needs: quotient, remainder_of
// The whole number at or below x / y; 0 where y is 0, and the lowest number where it is divided by -1.
__device__ __forceinline__ int32_t floored_quotient(int32_t x, int32_t y) {
  const int32_t rest = remainder_of(x, y);
  return quotient(x, y) - (rest != 0 && (rest < 0) != (y < 0));
}

// primitive: floored_quotient_wide
// The same of 64 bits, where y is above 0.
__device__ __forceinline__ int64_t floored_quotient_wide(int64_t x, int64_t y) {
  return x / y - (x % y < 0);
}

// primitive: shifted_$NAME
// each: NAME = left | OP = << | TYPE = uint32_t | BEYOND = 0
// each: NAME = right | OP = >> | TYPE = int32_t | BEYOND = x >> 31
// each: NAME = right_unsigned | OP = >> | TYPE = uint32_t | BEYOND = 0
// x $OP y as a $TYPE; $BEYOND where y is below 0 or above 31, for which C leaves it open.
__device__ __forceinline__ int32_t shifted_$NAME(int32_t x, int32_t y) {
  return static_cast<uint32_t>(y) < 32u ? static_cast<int32_t>(static_cast<$TYPE>(x) $OP y) : $BEYOND;
}

// primitive: to_integer
// x without its fraction; the nearest int32_t where x is beyond, 0 where it is NaN. PTX ISA 9.7.9, cvt.rzi.
__device__ __forceinline__ int32_t to_integer(float x) {
#ifndef TREADLE_EMULATOR
  return __float2int_rz(x);
#else
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  return x < -2147483648.0f ? -2147483647 - 1 : static_cast<int32_t>(x);
#endif
}

// primitive: to_float
// An element as a float: exact for 16-bit types.
template <class T>
__device__ __forceinline__ float to_float(T x) {
  return static_cast<float>(x);
}

// primitive: from_float
// The element nearest to x, ties to even; an integer drops the fraction.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  return static_cast<T>(x);
}

// primitive: store_pair
// Rounds two floats into a pair of elements: one conversion for a 16-bit type. PTX ISA 9.7.9, cvt.rn.
template <class T>
__device__ __forceinline__ void store_pair(T (&pair)[2], float lo, float hi) {
  pair[0] = static_cast<T>(lo);
  pair[1] = static_cast<T>(hi);
}
#ifndef TREADLE_EMULATOR
__device__ __forceinline__ void store_pair(__half (&pair)[2], float lo, float hi) {
  const __half2 both = __floats2half2_rn(lo, hi);
  memcpy(pair, &both, sizeof(pair));
}
__device__ __forceinline__ void store_pair(__nv_bfloat16 (&pair)[2], float lo, float hi) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(lo, hi);
  memcpy(pair, &both, sizeof(pair));
}
#endif

// primitive: places_before
// How many places of a lane along an axis are before `end`, which is counted from the first of them. A digit of SIZE
// values moves the place by STRIDE; the slowest comes first, and no digit carries into another.
template <int SIZE, int STRIDE, int... FASTER>
__device__ constexpr int places_before(int end) {
  if constexpr (sizeof...(FASTER) == 0) {
    const int before = (end + STRIDE - 1) / STRIDE;
    return before < SIZE ? before : SIZE;
  } else {
    constexpr int EACH = places_before<FASTER...>(1 << 30);
    const int whole = end / STRIDE;
    const int before = whole * EACH + places_before<FASTER...>(end - whole * STRIDE);
    return before < SIZE * EACH ? before : SIZE * EACH;
  }
}

// primitive: bits_before; needs: places_before
// A bit for each place of a lane along an axis, the WORD-th 32 of them: set if the place is before `end`. Both count
// from the first place, DIGITS are those of `places_before`.
template <int WORD, int... DIGITS, class T>
__device__ __forceinline__ uint32_t bits_before(T end) {
  constexpr T FAR = 1 << 30;
  const int before = places_before<DIGITS...>(int(end < 0 ? 0 : end < FAR ? end : FAR)) - 32 * WORD;
  return before <= 0 ? 0u : before < 32 ? (1u << before) - 1u : ~0u;
}

// primitive: random_words
// The two words of a counter (x, y) under a key, x in the low half: Philox2x32 with seven rounds (J. K. Salmon et al.,
// SC 2011). Who asks for the same counter twice in one scope computes it once.
__device__ __forceinline__ uint64_t random_words(uint32_t key, uint32_t x, uint32_t y) {
  UNROLL for (int round = 0; round < 7; ++round) {
    const uint64_t product = uint64_t(0xD256D193u) * x;
    x = static_cast<uint32_t>(product >> 32) ^ key ^ y;
    y = static_cast<uint32_t>(product);
    key += 0x9E3779B9u;
  }
  return static_cast<uint64_t>(y) << 32 | x;
}

// primitive: random_word; needs: random_words
// The first word of a counter, as a number with a sign.
__device__ __forceinline__ int32_t random_word(int32_t key, int32_t x, int32_t y) {
  return static_cast<int32_t>(static_cast<uint32_t>(random_words(key, x, y)));
}

// primitive: random_bits; needs: random_words
// 16 random bits of a position. Four that differ by 8 in i, in j, or in both, within a block of 16 x 16, have the words
// of one counter, in which bit 3 is set: by an addition, of which a compiler sees that it is the one to 8 more, if any.
__device__ __forceinline__ int32_t random_bits(int32_t key, int32_t i, int32_t j) {
  const uint32_t x = i, y = j;
  const uint64_t words = random_words(key, x + (~x & 8), y + (~y & 8));
  const uint32_t word = static_cast<uint32_t>(x & 8 ? words >> 32 : words);
  return y & 8 ? word >> 16 : word & 0xFFFF;
}
