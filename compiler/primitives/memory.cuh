// primitive: shared_memory
// The block's dynamic shared memory.
__device__ __forceinline__ unsigned char* shared_memory() {
#ifndef TREADLE_EMULATOR
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return shared_bytes;
#else
  return emu::shared_memory();
#endif
}

// primitive: word
#ifndef TREADLE_EMULATOR
// Word<T> is what one memory instruction moves for a T, whatever T is made of.
template <int BYTES> struct WordOf;
template <> struct WordOf<1> { using type = uint8_t; };
template <> struct WordOf<2> { using type = uint16_t; };
template <> struct WordOf<4> { using type = uint32_t; };
template <> struct WordOf<8> { using type = uint2; };
template <> struct WordOf<16> { using type = uint4; };
template <class T> using Word = typename WordOf<sizeof(T)>::type;

// By value: through a reference to memory the compiler would read byte by byte.
template <class To, class From>
__device__ __forceinline__ To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}
#endif

// primitive: load_global; needs: word
// One load from global memory. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_global(const T* p AND_LINE) {
#ifndef TREADLE_EMULATOR
  return same_bits<T>(*reinterpret_cast<const Word<T>*>(p));
#else
  return emu::load_global(p, line);
#endif
}

// primitive: load_global_if; needs: word
// One load from global memory where valid, zeros elsewhere. Every lane calls it. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_global_if(const T* p, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  if constexpr (sizeof(T) < 4) {
    // A whole register: of half of one the other half would be alive from the beginning of the kernel.
    uint32_t wide = 0;
    if (valid) wide = *reinterpret_cast<const Word<T>*>(p);
    asm("" : "+r"(wide));
    return same_bits<T>(static_cast<Word<T>>(wide));
  } else {
    Word<T> word{};
    if (valid) word = *reinterpret_cast<const Word<T>*>(p);
    return same_bits<T>(word);
  }
#else
  return emu::load_global_if(p, valid, line);
#endif
}

// primitive: store_word; needs: word
#ifndef TREADLE_EMULATOR
// One store of 1 to 16 bytes to global memory. As a structure the compiler sometimes stores each word of a vector
// by itself: then a warp asks for each sector as often as it has words of it. PTX ISA 9.7.9, st.
template <class W>
__device__ __forceinline__ void store_word(W* p, W word) {
  const size_t at = __cvta_generic_to_global(p);
  if constexpr (sizeof(W) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word.x), "r"(word.y), "r"(word.z),
                 "r"(word.w)
                 : "memory");
  } else if constexpr (sizeof(W) == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(word.x), "r"(word.y) : "memory");
  } else {
    *p = word;
  }
}
#endif

// primitive: store_global; needs: store_word
// One store to global memory. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_global(T* p, T value AND_LINE) {
#ifndef TREADLE_EMULATOR
  store_word(reinterpret_cast<Word<T>*>(p), same_bits<Word<T>>(value));
#else
  emu::store_global(p, value, line);
#endif
}

// primitive: store_global_if; needs: store_word
// One store to global memory where valid. Every lane calls it. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_global_if(T* p, T value, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (valid) store_word(reinterpret_cast<Word<T>*>(p), same_bits<Word<T>>(value));
#else
  emu::store_global_if(p, value, valid, line);
#endif
}

// primitive: add_words
#ifndef TREADLE_EMULATOR
// Vectors of floats are added by one instruction from sm_90 on. PTX ISA 9.7.13, red.
template <int N>
__device__ __forceinline__ void add_words(float* p, const Vec<float, N>& value) {
  const size_t at = __cvta_generic_to_global(p);
#if __CUDA_ARCH__ >= 900
  if constexpr (N == 4) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(value.at[0]),
                 "f"(value.at[1]), "f"(value.at[2]), "f"(value.at[3])
                 : "memory");
  } else if constexpr (N == 2) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(value.at[0]), "f"(value.at[1])
                 : "memory");
  } else
#endif
    UNROLL for (int i = 0; i < N; ++i)
      asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at + i * sizeof(float)), "f"(value.at[i]) : "memory");
}
template <int N>
__device__ __forceinline__ void add_words(int* p, const Vec<int, N>& value) {
  const size_t at = __cvta_generic_to_global(p);
  UNROLL for (int i = 0; i < N; ++i)
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(at + i * sizeof(int)), "r"(value.at[i]) : "memory");
}
#endif

// primitive: add_global_if; needs: add_words
// Adds each element, where valid, to one in global memory, whoever else adds there: in no order, and to what another
// launch left there. Floats below 2^-126 count as zeros. Every lane calls it. PTX ISA 9.7.13, red.
template <class T, int N>
__device__ __forceinline__ void add_global_if(Vec<T, N>* p, Vec<T, N> value, bool valid AND_LINE) {
#ifndef TREADLE_EMULATOR
  if (valid) add_words(reinterpret_cast<T*>(p), value);
#else
  emu::add_global_if(p, value, valid, line);
#endif
}

// primitive: load_shared; needs: word
// One load from shared memory. PTX ISA 9.7.9, ld.
template <class T>
__device__ __forceinline__ T load_shared(const T* p AND_LINE) {
#ifndef TREADLE_EMULATOR
  return same_bits<T>(*reinterpret_cast<const Word<T>*>(p));
#else
  return emu::load_shared(p, line);
#endif
}

// primitive: store_shared; needs: word
// One store to shared memory. PTX ISA 9.7.9, st.
template <class T>
__device__ __forceinline__ void store_shared(T* p, T value AND_LINE) {
#ifndef TREADLE_EMULATOR
  *reinterpret_cast<Word<T>*>(p) = same_bits<Word<T>>(value);
#else
  emu::store_shared(p, value, line);
#endif
}

// primitive: advance
// Moves a pointer into global memory by so many bytes. The addition stands where it is written: from a sum of steps the
// compiler would make products, and compute them in every turn of a loop. PTX ISA 9.7.1.1, add.
template <class T>
__device__ __forceinline__ void advance(const T*& p, int64_t bytes) {
#ifndef TREADLE_EMULATOR
  size_t address = __cvta_generic_to_global(p);
  asm("add.s64 %0, %0, %1;" : "+l"(address) : "l"(bytes));
  p = reinterpret_cast<const T*>(__cvta_global_to_generic(address));
#else
  p = reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(p) + bytes);
#endif
}
