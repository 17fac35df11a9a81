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

  // Below what a suspended fibre keeps on its stack; null where the C library does not tell.
  const char* stack_pointer() const {
#ifdef TREADLE_UCONTEXT
    return nullptr;
#else
    return static_cast<const char*>(pointer_);
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
