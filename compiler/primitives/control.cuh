// primitive: vec
// N elements from here on, as what moves at once; the address must allow it.
template <int N, class T>
__device__ __forceinline__ Vec<T, N>* vec(T* p) {
  return reinterpret_cast<Vec<T, N>*>(p);
}
template <int N, class T>
__device__ __forceinline__ const Vec<T, N>* vec(const T* p) {
  return reinterpret_cast<const Vec<T, N>*>(p);
}

// primitive: behind
// What lies so many strides behind an element: as many as an entry of an array says, which is none below zero.
template <class T>
__device__ __forceinline__ const T* behind(const T* p, int count, int64_t stride) {
  const uint64_t bytes = uint64_t(stride) * sizeof(T);
  return reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(p) + uint32_t(count) * bytes);
}

// primitive: slot_behind
// As `behind`, where something is added.
template <class T>
__device__ __forceinline__ T* slot_behind(T* p, int count, int64_t stride) {
  const uint64_t bytes = uint64_t(stride) * sizeof(T);
  return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(p) + uint32_t(count) * bytes);
}

// primitive: pack
// N elements of an array, as what moves at once.
template <int N, class T>
__device__ __forceinline__ Vec<T, N> pack(const T* elements) {
  Vec<T, N> together;
  UNROLL for (int i = 0; i < N; ++i) together.at[i] = elements[i];
  return together;
}

// primitive: unpack
// What moved at once, into N elements of an array.
template <class T, int N>
__device__ __forceinline__ void unpack(T* elements, const Vec<T, N>& together) {
  UNROLL for (int i = 0; i < N; ++i) elements[i] = together.at[i];
}

// primitive: width_of
// Elements that move at once where rows are aligned to so many bytes: at most MOST.
template <class T, int MOST>
__device__ constexpr int width_of(int aligned) {
  const int width = aligned < int(sizeof(T)) ? 1 : aligned / int(sizeof(T));
  return width < MOST ? width : MOST;
}

// primitive: swizzled
// Where an element of a tile lies: rows are PITCH elements apart, and the 16-byte chunks of a row, CHUNK
// elements each, change places by an XOR with the row, so that neighbouring rows use different banks.
template <int PITCH, int BITS, int SHIFT, int CHUNK>
__device__ __forceinline__ int swizzled(int row, int column) {
  const int chunk = column / CHUNK ^ (row >> SHIFT & ((1 << BITS) - 1));
  return row * PITCH + chunk * CHUNK + column % CHUNK;
}

// primitive: copy_async_or_now; needs: copy_async, load_global_if, store_shared
// Starts to copy a vector to shared memory where the hardware can, which is from 4 bytes on, else copies it;
// zeros where not valid.
template <class V>
__device__ __forceinline__ void copy_async_or_now(V* shared, const V* global, bool valid AND_LINE) {
  if constexpr (sizeof(V) >= 4) {
    copy_async<sizeof(V)>(shared, global, valid AND_THIS_LINE);
  } else {
    store_shared(shared, load_global_if(global, valid AND_THIS_LINE) AND_THIS_LINE);
  }
}

// primitive: unroll_by
// So many turns of the loop behind it are one stretch of code; a number that the variant of a kernel knows.
#ifndef TREADLE_EMULATOR
#define AS_PRAGMA(text) _Pragma(#text)
#define unroll_by(turns) AS_PRAGMA(unroll turns)
#else
#define unroll_by(turns)
#endif

// primitive: within
// A number as one from 0 to `most`, however far outside it lies.
__device__ __forceinline__ int within(int64_t number, int most) {
  return number < 0 ? 0 : number < most ? int(number) : most;
}

// primitive: stage_at
// The stage of a tile that begins so many bytes after its first.
template <class T>
__device__ __forceinline__ T* stage_at(T* tile, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(tile) + bytes);
}

// primitive: swizzled_down; needs: swizzled
// Where an element lies `down` rows, a multiple of STEP, below another: whole periods of the swizzle only add.
template <int PITCH, int BITS, int SHIFT, int CHUNK, int STEP>
__device__ __forceinline__ int swizzled_down(int row, int column, int down) {
  if constexpr (STEP % (1 << (BITS + SHIFT)) == 0) {
    return swizzled<PITCH, BITS, SHIFT, CHUNK>(row, column) + down * PITCH;
  } else {
    return swizzled<PITCH, BITS, SHIFT, CHUNK>(row + down, column);
  }
}

// primitive: kept
// A number that is there from here on: the compiler neither computes it anew in every turn of a loop nor, of one that a
// turn makes, what follows from it before the loop.
template <class T>
__device__ __forceinline__ T kept(T number) {
#ifndef TREADLE_EMULATOR
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(number));
  } else {
    asm volatile("" : "+r"(number));
  }
#endif
  return number;
}
