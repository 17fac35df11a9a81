// A GPU thread as a fibre: a stack of its own, and a switch that saves only what the C calling
// convention asks a callee to keep. Where we have no such switch, the C library's is used: slow, sound.
#pragma once

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(TREADLE_UCONTEXT)
#define TREADLE_UCONTEXT
#endif
#ifdef TREADLE_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

#ifndef TREADLE_UCONTEXT
// Pushes the kept registers, leaves the stack pointer in *from, takes up the stack `to`.
extern "C" void treadle_switch(void** from, void* to) asm("treadle_switch");
#if defined(__x86_64__)
asm(R"(
.text
.globl treadle_switch
treadle_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#else
asm(R"(
.text
.globl treadle_switch
treadle_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#endif
#endif

class Context {
 public:
  // Will run `entry`, which must not return, on this stack.
  void start(char* stack, size_t size, void (*entry)()) {
#if defined(TREADLE_UCONTEXT)
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = size;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#elif defined(__x86_64__)
    void** top = reinterpret_cast<void**>(stack + size);
    top[-1] = nullptr;  // where `entry` would return to; it also aligns the stack as a call does
    top[-2] = reinterpret_cast<void*>(entry);
    pointer_ = top - 8;
#else
    void** top = reinterpret_cast<void**>(stack + size) - 20;
    top[11] = reinterpret_cast<void*>(entry);  // x30, the link register
    pointer_ = top;
#endif
  }

  // Leaves this context and takes up another one.
  void switch_to(Context& other) {
#if defined(TREADLE_UCONTEXT)
    swapcontext(&context_, &other.context_);
#else
    treadle_switch(&pointer_, other.pointer_);
#endif
  }

 private:
#if defined(TREADLE_UCONTEXT)
  ucontext_t context_;
#else
  void* pointer_ = nullptr;
#endif
};

// Stacks for the threads of a block, each above a page that nobody may touch.
class Stacks {
 public:
  static constexpr size_t SIZE = 128 * 1024;

  bool reserve(unsigned count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    stride_ = SIZE + page;
    length_ = count * stride_;
    void* memory =
        mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    base_ = static_cast<char*>(memory);
    for (unsigned i = 0; i < count; ++i) mprotect(base_ + i * stride_, page, PROT_NONE);
    return true;
  }
  char* operator[](unsigned i) const { return base_ + i * stride_ + (stride_ - SIZE); }
  void release() {
    if (base_) munmap(base_, length_);
    base_ = nullptr;
  }

 private:
  char* base_ = nullptr;
  size_t stride_ = 0, length_ = 0;
};

}  // namespace emu
