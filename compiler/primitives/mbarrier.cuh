// primitive: mbarrier_init; needs: shared_address; from: sm_90
// A barrier in shared memory whose phases complete after so many arrivals. PTX ISA 9.7.13.15.9, mbarrier.init.
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, int arrivals AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
#else
  emu::mbarrier_init(barrier, unsigned(arrivals), line);
#endif
}

// primitive: mbarrier_init_fence; from: sm_90
// Makes this thread's initialisations visible to tensor copies. PTX ISA 9.7.13.4, fence.mbarrier_init.
__device__ __forceinline__ void mbarrier_init_fence() {
#ifndef TREADLE_EMULATOR
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  emu::mbarrier_init_fence();
#endif
}

// primitive: mbarrier_arrive; needs: shared_address; from: sm_90
// One arrival; it releases what this thread did before. PTX ISA 9.7.13.15.13, mbarrier.arrive.
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#else
  emu::mbarrier_arrive(barrier, 0, false, line);
#endif
}

// primitive: mbarrier_arrive_expect; needs: shared_address; from: sm_90
// One arrival, and so many bytes for the phase to wait for. PTX ISA 9.7.13.15.13, mbarrier.arrive.expect_tx.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* barrier, int bytes AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#else
  emu::mbarrier_arrive(barrier, unsigned(bytes), true, line);
#endif
}

// primitive: mbarrier_wait; needs: shared_address; from: sm_90
// Until the phase of this parity has completed; parity 1 of a new barrier has. It acquires what the arrivals released.
// PTX ISA 9.7.13.15.16, mbarrier.try_wait.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity AND_LINE) {
#ifndef TREADLE_EMULATOR
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n"
      "}" ::"r"(shared_address(barrier)), "r"(parity)
      : "memory");
#else
  emu::mbarrier_wait(barrier, parity, line);
#endif
}

// primitive: fence_proxy_async; from: sm_90
// What this thread knows to be written to shared memory, tensor copies and products may see.
// PTX ISA 9.7.13.4, fence.proxy.async.
__device__ __forceinline__ void fence_proxy_async() {
#ifndef TREADLE_EMULATOR
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  emu::fence_proxy_async();
#endif
}
