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

// primitive: with_width
// Runs the body with the widest of the widths that `allowed` allows, and with whether the whole tile is
// known to be inside: both constants, so that a full, aligned tile meets no test.
template <int VALUE>
struct Constant {
  __device__ constexpr operator int() const { return VALUE; }
};
template <int WIDTH, int... NARROWER, class Body>
__device__ __forceinline__ void with_any_width(int64_t allowed, Body body) {
  if constexpr (sizeof...(NARROWER) == 0) {
    body(Constant<WIDTH>{}, Constant<0>{});
  } else if (allowed >= WIDTH) {
    body(Constant<WIDTH>{}, Constant<0>{});
  } else {
    with_any_width<NARROWER...>(allowed, body);
  }
}
template <int WIDTH, int... NARROWER, class Body>
__device__ __forceinline__ void with_width(int64_t allowed, bool inside, Body body) {
  if (inside && allowed >= WIDTH) {
    body(Constant<WIDTH>{}, Constant<1>{});
  } else {
    with_any_width<WIDTH, NARROWER...>(allowed, body);
  }
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
