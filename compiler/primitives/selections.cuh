// primitive: append_kept; needs: barrier_block, shuffle, load_shared, store_shared
// Appends the numbers of those threads of a block that keep theirs to a list, in the order of the threads, and gives how
// many are on it then. All threads of the block meet once; counts are a place for a number of each warp, which must not
// be that of the call before.
template <int WARPS>
__device__ __forceinline__ int append_kept(int* list, int* counts, bool kept, int number, int before AND_LINE) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  int upto = kept;
  UNROLL for (int distance = 1; distance < 32; distance *= 2) {
    const int other = shuffle(upto, (lane - distance) & 31 AND_THIS_LINE);
    if (lane >= distance) upto += other;
  }
  if (lane == 31) store_shared(counts + warp, upto AND_THIS_LINE);
#ifndef TREADLE_EMULATOR
  barrier_block();
#else
  barrier_block(line);
#endif
  int place = before - 1, all = before;
  for (int other = 0; other < WARPS; ++other) {
    const int count = load_shared(counts + other AND_THIS_LINE);
    if (other < warp) place += count;
    all += count;
  }
  if (kept) store_shared(list + place + upto, number AND_THIS_LINE);
  return all;
}

// primitive: count_before; needs: load_shared
// How many numbers of an ascending list are less than another.
__device__ __forceinline__ int64_t count_before(const int* list, int64_t count, int64_t number AND_LINE) {
  int64_t low = 0;
  while (low < count) {
    const int64_t middle = (low + count) / 2;
    if (load_shared(list + middle AND_THIS_LINE) < number)
      low = middle + 1;
    else
      count = middle;
  }
  return low;
}
