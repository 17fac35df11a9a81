// primitive: block_in_cluster; from: sm_90
// The number of this block in its cluster: the blocks of a cluster are neighbours along x.
// PTX ISA 10, %cluster_ctarank.
__device__ __forceinline__ int block_in_cluster() {
#ifndef TREADLE_EMULATOR
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
#else
  return emu::block_in_cluster();
#endif
}

// primitive: barrier_cluster_$VERB; from: sm_90
// each: VERB = arrive | SEMANTICS = release | WHAT = Counts as having come, and does not wait
// each: VERB = wait | SEMANTICS = acquire | WHAT = Until all threads of all blocks of the cluster have come or returned
// $WHAT. PTX ISA 9.7.13.3, barrier.cluster.$VERB.
__device__ __forceinline__ void barrier_cluster_$VERB(LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("barrier.cluster.$VERB.$SEMANTICS;" ::: "memory");
#else
  emu::barrier_cluster_$VERB(line);
#endif
}

// primitive: mbarrier_arrive_at; needs: shared_address; from: sm_90
// One arrival at the barrier at the same place of a block of the cluster, of what this thread has read and waited for.
// PTX ISA 9.7.9.24, mapa, and 9.7.13.15.13, mbarrier.arrive; .release.cluster, for what it wrote, is a MEMBAR of the GPU.
__device__ __forceinline__ void mbarrier_arrive_at(uint64_t* barrier, int block AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_address(barrier)), "r"(block)
      : "memory");
#else
  emu::mbarrier_arrive_at(barrier, block, line);
#endif
}

// primitive: load_cluster; needs: shared_address; from: sm_90
// Reads 2, 4, 8 or 16 bytes from the same place of a block of the cluster. PTX ISA 9.7.9.24, mapa, and 9.7.9.8,
// ld.shared::cluster.
template <class T>
__device__ __forceinline__ T load_cluster(const T* p, int block AND_LINE) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
#ifndef TREADLE_EMULATOR
  uint32_t there, bits[4];
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(block));
  if constexpr (sizeof(T) == 2) {
    uint16_t half;
    asm volatile("ld.shared::cluster.b16 %0, [%1];" : "=h"(half) : "r"(there) : "memory");
    bits[0] = half;
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(bits[0]) : "r"(there) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.shared::cluster.v2.b32 {%0, %1}, [%2];" : "=r"(bits[0]), "=r"(bits[1]) : "r"(there) : "memory");
  } else {
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                 : "r"(there)
                 : "memory");
  }
  T value;
  memcpy(&value, bits, sizeof(T));
  return value;
#else
  return emu::load_cluster(p, block, line);
#endif
}
