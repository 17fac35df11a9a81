// primitive: tensor_map; from: sm_90
#ifndef TREADLE_EMULATOR
// What the driver encodes of a tensor in global memory: opaque. PTX ISA 5.5.8, tensor-map.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};
#endif

// primitive: tensor_map_prefetch; needs: tensor_map; from: sm_90
// Fetches a tensor map ahead of its first use. PTX ISA 9.7.9.16, prefetch.tensormap.
__device__ __forceinline__ void tensor_map_prefetch(const TensorMap& map) {
#ifndef TREADLE_EMULATOR
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  (void)map;
#endif
}

// primitive: tensor_load$SUFFIX; needs: tensor_map, shared_address; from: sm_90
// each: SUFFIX =  | DOTTED =  | M2 =  | M3 =  | M4 =  | M5 =  | GIVEN =  | PARAMETER =  | HOST =  |
//       WHERE = shared memory | ON = the barrier. One thread asks.
// each: SUFFIX = _multicast | DOTTED = .multicast::cluster | M2 = , %5 | M3 = , %6 | M4 = , %7 | M5 = , %8 |
//       GIVEN = , "h"(blocks) | PARAMETER = , uint16_t blocks | HOST = , blocks |
//       WHERE = the same place in the shared memory of each block whose bit is set |
//       ON = each's barrier. One thread asks.
// Starts to copy the box at these coordinates, innermost first, to $WHERE; what lies outside of the tensor
// becomes zeros. Its bytes complete on $ON PTX ISA 9.7.9.27.1.2, cp.async.bulk.tensor$DOTTED.
template <int RANK>
__device__ __forceinline__ void tensor_load$SUFFIX(void* shared, const TensorMap& map, uint64_t* barrier,
                                            const int (&at)[RANK]$PARAMETER AND_LINE) {
  static_assert(2 <= RANK && RANK <= 5);
#ifndef TREADLE_EMULATOR
  const uint32_t target = shared_address(shared), done = shared_address(barrier);
  if constexpr (RANK == 2) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes$DOTTED "
                 "[%0], [%1, {%3, %4}], [%2]$M2;" ::"r"(target), "l"(&map), "r"(done),
                 "r"(at[0]), "r"(at[1])$GIVEN
                 : "memory");
  } else if constexpr (RANK == 3) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes$DOTTED "
                 "[%0], [%1, {%3, %4, %5}], [%2]$M3;" ::"r"(target), "l"(&map), "r"(done),
                 "r"(at[0]), "r"(at[1]), "r"(at[2])$GIVEN
                 : "memory");
  } else if constexpr (RANK == 4) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes$DOTTED "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2]$M4;" ::"r"(target), "l"(&map), "r"(done),
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])$GIVEN
                 : "memory");
  } else if constexpr (RANK == 5) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes$DOTTED "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2]$M5;" ::"r"(target), "l"(&map), "r"(done),
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])$GIVEN
                 : "memory");
  }
#else
  emu::start_tensor_load(shared, map, barrier, at, RANK$HOST, line);
#endif
}

// primitive: tensor_load_before; needs: tensor_load; from: sm_90
// As tensor_load, of a box of ROWS rows of 128 bytes along coordinate AXIS, but rows from stop on become zeros, too: a
// box that reaches past it comes by boxes of 8 rows, and around stop by single ones; those behind it come from before
// the tensor. A swizzle follows the address, so it is that of the whole box. PTX ISA 9.7.9.27.1.2 and 5.5.7.
template <int ROWS, int AXIS, class T, int RANK>
__device__ __forceinline__ void tensor_load_before(T* shared, const TensorMap& map, const TensorMap& eight_rows,
                                                   const TensorMap& one_row, uint64_t* barrier,
                                                   const int (&at)[RANK], int64_t stop AND_LINE) {
  if (at[AXIS] + ROWS <= stop) return tensor_load(shared, map, barrier, at AND_THIS_LINE);
  int from[RANK];
  for (int i = 0; i < RANK; ++i) from[i] = at[i];
  UNROLL_1 for (int row = 0; row < ROWS;) {
    const int64_t left = stop - at[AXIS] - row;
    const bool is_alone = row % 8 != 0 || (0 < left && left < 8);
    from[AXIS] = left > 0 ? at[AXIS] + row : -8;
    tensor_load(&shared[row * 128 / sizeof(T)], is_alone ? one_row : eight_rows, barrier, from AND_THIS_LINE);
    row += is_alone ? 1 : 8;
  }
}

// primitive: tensor_load_within; needs: tensor_load; from: sm_90
// As tensor_load_before, but rows before begin become zeros, too: single rows come around both positions.
template <int ROWS, int AXIS, class T, int RANK>
__device__ __forceinline__ void tensor_load_within(T* shared, const TensorMap& map, const TensorMap& eight_rows,
                                                   const TensorMap& one_row, uint64_t* barrier,
                                                   const int (&at)[RANK], int64_t begin, int64_t stop AND_LINE) {
  if (begin <= at[AXIS] && at[AXIS] + ROWS <= stop) return tensor_load(shared, map, barrier, at AND_THIS_LINE);
  int from[RANK];
  for (int i = 0; i < RANK; ++i) from[i] = at[i];
  UNROLL_1 for (int row = 0; row < ROWS;) {
    const int64_t left = stop - at[AXIS] - row, early = begin - at[AXIS] - row;
    const bool is_alone = row % 8 != 0 || (0 < left && left < 8) || (0 < early && early < 8);
    from[AXIS] = left > 0 && early <= 0 ? at[AXIS] + row : -8;
    tensor_load(&shared[row * 128 / sizeof(T)], is_alone ? one_row : eight_rows, barrier, from AND_THIS_LINE);
    row += is_alone ? 1 : 8;
  }
}

// primitive: tensor_load_run; needs: tensor_load; from: sm_90
// As tensor_load, of a run of ROWS rows of 128 bytes along coordinate AXIS, but rows before begin or from end on, counted
// from its first, become zeros, too: a run that reaches past either comes by single rows, those that are not wanted from
// before the tensor. A swizzle follows the address, so it is that of the whole run. PTX ISA 9.7.9.27.1.2 and 5.5.7.
template <int ROWS, int AXIS, class T, int RANK>
__device__ __forceinline__ void tensor_load_run(T* shared, const TensorMap& map, const TensorMap& one_row,
                                                uint64_t* barrier, const int (&at)[RANK], int64_t begin,
                                                int64_t end AND_LINE) {
  if ((begin <= 0 && ROWS <= end) || ROWS <= begin || end <= 0)  // or none is wanted: the run lies outside
    return tensor_load(shared, map, barrier, at AND_THIS_LINE);
  int from[RANK];
  for (int i = 0; i < RANK; ++i) from[i] = at[i];
  UNROLL_1 for (int row = 0; row < ROWS; ++row) {
    from[AXIS] = begin <= row && row < end ? at[AXIS] + row : -1;
    tensor_load(&shared[row * 128 / sizeof(T)], one_row, barrier, from AND_THIS_LINE);
  }
}

// primitive: coordinate; from: sm_90
// A position along an axis of a tensor; what 32 bits do not hold lies before it, by more than any box reaches.
__device__ __forceinline__ int coordinate(int64_t at) {
  return at == int32_t(at) ? int32_t(at) : INT32_MIN;
}

// primitive: in_boxes; from: sm_90
// Where an element lies in a tile that is cut into boxes, one after another: of SPAN elements a row and ROWS rows, with
// the swizzle that spans a row. PTX ISA 5.5.7.
template <int SPAN, int ROWS, int BYTES>
__device__ __forceinline__ int in_boxes(int row, int column) {
  const int at = ((column / SPAN * ROWS + row) * SPAN + column % SPAN) * BYTES;
  return (at ^ (at >> 7 & (SPAN * BYTES / 16 - 1)) << 4) / BYTES;
}

// primitive: in_boxes_down; needs: in_boxes; from: sm_90
// Where an element lies `down` rows, a multiple of STEP, below another, and `along` columns, a multiple of SPAN, behind
// it: whole periods of the swizzle, and boxes, only add.
template <int SPAN, int ROWS, int BYTES, int STEP>
__device__ __forceinline__ int in_boxes_down(int row, int column, int down, int along) {
  if constexpr (STEP % 8 == 0 && ROWS % 8 == 0) {
    return in_boxes<SPAN, ROWS, BYTES>(row, column) + down * SPAN + along * ROWS;
  } else {
    return in_boxes<SPAN, ROWS, BYTES>(row + down, column + along);
  }
}

// primitive: tensor_store; needs: tensor_map, shared_address; from: sm_90
// Starts to copy a box from shared memory to these coordinates, innermost first; what lies outside of the tensor
// is not written. One thread asks, closes its group and waits. PTX ISA 9.7.9.27.1.2, cp.async.bulk.tensor.
template <int RANK>
__device__ __forceinline__ void tensor_store(const TensorMap& map, const void* shared, const int (&at)[RANK] AND_LINE) {
  static_assert(2 <= RANK && RANK <= 5);
#ifndef TREADLE_EMULATOR
  const uint32_t source = shared_address(shared);
  if constexpr (RANK == 2) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                 "r"(source), "r"(at[0]), "r"(at[1])
                 : "memory");
  } else if constexpr (RANK == 3) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(source), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
  } else if constexpr (RANK == 4) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                 "r"(source), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
  } else if constexpr (RANK == 5) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
                 "r"(source), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
  }
#else
  emu::start_tensor_store(map, shared, at, RANK, line);
#endif
}

// primitive: tensor_store_commit; from: sm_90
// Closes this thread's group of tensor stores. PTX ISA 9.7.9.27.2.1, cp.async.bulk.commit_group.
__device__ __forceinline__ void tensor_store_commit() {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  emu::tensor_store_commit();
#endif
}

// primitive: tensor_store_wait; from: sm_90
// Waits until at most PENDING of this thread's newest groups still read shared memory. PTX ISA 9.7.9.27.2.2,
// cp.async.bulk.wait_group.read.
template <int PENDING>
__device__ __forceinline__ void tensor_store_wait() {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
#else
  emu::tensor_store_wait(PENDING, true);
#endif
}
