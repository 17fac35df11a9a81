// primitive: copy_async; needs: shared_address
// Starts to copy 4, 8 or 16 bytes from global to shared memory; writes zeros where not valid.
// PTX ISA 9.7.9.25.3.1, cp.async.
template <int BYTES, class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global, bool valid AND_LINE) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
#ifndef TREADLE_EMULATOR
  const uint32_t target = shared_address(shared);
  const int read = valid ? BYTES : 0;
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target),
                 "l"(__cvta_generic_to_global(global)), "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(target),
                 "l"(__cvta_generic_to_global(global)), "r"(read), "n"(BYTES)
                 : "memory");
  }
#else
  emu::copy_async<BYTES>(shared, global, valid, line);
#endif
}

// primitive: copy_async_commit
// Closes this thread's group of copies. PTX ISA 9.7.9.25.3.2, cp.async.commit_group.
__device__ __forceinline__ void copy_async_commit() {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emu::copy_async_commit();
#endif
}

// primitive: copy_async_wait
// Waits until at most PENDING of this thread's newest groups are under way. The data is then seen by
// this thread; a barrier shows it to others. PTX ISA 9.7.9.25.3.3, cp.async.wait_group.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
  emu::copy_async_wait(PENDING);
#endif
}

// primitive: copy_async_arrive; needs: shared_address; from: sm_90
// One arrival at a barrier, once all that this thread has started to copy has come; it is one of those that the phase
// waits for. PTX ISA 9.7.13.15.14, cp.async.mbarrier.arrive.noinc.
__device__ __forceinline__ void copy_async_arrive(uint64_t* barrier AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
#else
  emu::copy_async_arrive(barrier, line);
#endif
}
