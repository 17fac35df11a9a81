// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-promote-sums' | filecheck %s
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-promote-sums,hierarchy-choose-sizes' | filecheck %s --check-prefix SIZES
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-promote-sums,hierarchy-choose-sizes,hierarchy-expand-streams,convert-hierarchy-to-cuda,warp-specialization' | filecheck %s --check-prefix CUDA
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-promote-sums{every=0}' | filecheck %s --check-prefix OFF
// RUN: xdsl-opt %s -p 'set-machine{name=h100},hierarchy-promote-sums{axis=k kernel=coarse every=64}' | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt %s -p 'set-machine{name=l40s},hierarchy-promote-sums' | filecheck %s --check-prefix OLD
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=l40s},hierarchy-promote-sums{axis=k}' | filecheck %s --check-prefix NONE
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=h100},hierarchy-promote-sums{axis=k kernel=halves}' | filecheck %s --check-prefix HALVES
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=h100},hierarchy-promote-sums{axis=m}' | filecheck %s --check-prefix GROUP
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=h100},hierarchy-promote-sums{every=-1}' | filecheck %s --check-prefix NEGATIVE
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=h100},hierarchy-promote-sums{axis=k every=48}' | filecheck %s --check-prefix STEP
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=h100},hierarchy-promote-sums{kernel=other}' | filecheck %s --check-prefix KERNEL

!A = tensor<4096x4096xf8E4M3FN, #diagram.array<[m, k]>>
!B = tensor<4096x4096xf8E4M3FN, #diagram.array<[n, k]>>
!Ad = tensor<4096x4096xf8E4M3FN, #diagram.array<[m, k], level = device>>
!Bd = tensor<4096x4096xf8E4M3FN, #diagram.array<[n, k], level = device>>
!C = tensor<4096x4096xf32, #diagram.array<[m, n], level = register>>
!C16 = tensor<4096x4096xf16, #diagram.array<[m, n]>>
!Cr16 = tensor<4096x4096xf16, #diagram.array<[m, n], level = register>>

// Rounding to f16 loses less than tensor cores may.

// CHECK-LABEL: func.func @fine(
// CHECK-SAME:  derivation = [#hierarchy.step<"hierarchy-promote-sums", "%c of @fine along k", "associativity of the sum", "tensor cores keep 14 bits: of 4096 products at most 65 % of the largest partial sum is lost, 1.6 % where f32 adds up sums of 128; f16 rounds by 0.049 %">]
// CHECK:       %C = hierarchy.kernel @fine
// CHECK-SAME:  schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?], promote = [k = 128]>

// SIZES-LABEL: func.func @fine(
// SIZES:       schedule #hierarchy.schedule<group = [m = 128, n = 256], stream = [k = 128], warps = [m = 8], promote = [k = 128], turns = 1>

// CUDA-LABEL: cuda.kernel @fine_kernel_specialised
// CUDA:       consumers 2 {
// CUDA:       scf.for
// CUDA:         cuda.await
// CUDA:         cuda.await
// CUDA:         %c_new = cuda.promoted_product %a_now, %b_now into %c_so_far_1 over [k] promote 128 :
// CUDA-NEXT:    cuda.release
// CUDA-NEXT:    cuda.release
// CUDA-NEXT:    scf.yield %c_new
// CUDA-LABEL: cuda.kernel @fine_kernel_by_lanes
// CUDA:       %c_new = cuda.promoted_product %a_now, %b_now into %c_so_far_1 over [k] promote 128 :

// OFF-NOT: promote =
// OFF-NOT: #hierarchy.step
// OFF:     func.func @halves

// OLD-LABEL: func.func @fine(
// OLD-SAME:  "decline hierarchy-promote-sums", "@fine along k", "warpgroups promote sums", "the machine l40s is sm_89, which has none"
// OLD-NOT:   promote =

// NONE: sums along 'k' of @fine cannot be promoted: the machine l40s is sm_89, which has none
// HALVES: sums along 'k' of @halves cannot be promoted: nothing sums products of 8 bits along 'k' in f32
// GROUP: no kernel streams axis 'm': run streaming first, or name one that is streamed
// NEGATIVE: every=-1: sums are promoted after 1 product or more, or never (0)
// STEP: every=48: tensor cores add up 32 products in a step, so sums are promoted after a multiple of that
// KERNEL: there is no kernel @other

func.func @fine(%A: !A, %B: !B) -> !C16 {
  %C = hierarchy.kernel @fine (%a = %A : !A as !Ad, %b = %B : !B as !Bd) -> (!C16)
      schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
    %c = diagram.contract %a, %b over [k] accumulate f32 : !Ad, !Bd -> !C
    %c16 = diagram.cast %c : !C -> !Cr16
    hierarchy.yield %c16 : !Cr16
  }
  func.return %C : !C16
}

// Rounding to 8 bits hides what a sum of 512 loses.

!L = tensor<4096x512xf8E4M3FN, #diagram.array<[m, k]>>
!Ld = tensor<4096x512xf8E4M3FN, #diagram.array<[m, k], level = device>>
!E = tensor<4096x4096xf8E5M2, #diagram.array<[m, n]>>
!Er = tensor<4096x4096xf8E5M2, #diagram.array<[m, n], level = register>>

// CHECK-LABEL: func.func @coarse(
// CHECK-SAME:  "decline hierarchy-promote-sums", "@coarse along k", "what rounds more than a sum loses hides it", "tensor cores keep 14 bits: of 512 products at most 6.4 % of the largest partial sum is lost, 1.6 % where f32 adds up sums of 128; f8E5M2 rounds by 12 %"
// CHECK-NOT:   promote =

// ASKED-LABEL: func.func @coarse(
// ASKED:       schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?], promote = [k = 64]>

func.func @coarse(%A: !L, %B: tensor<4096x512xf8E4M3FN, #diagram.array<[n, k]>>) -> !E {
  %C = hierarchy.kernel @coarse (%a = %A : !L as !Ld, %b = %B : tensor<4096x512xf8E4M3FN, #diagram.array<[n, k]>> as tensor<4096x512xf8E4M3FN, #diagram.array<[n, k], level = device>>) -> (!E)
      schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
    %c = diagram.contract %a, %b over [k] accumulate f32 : !Ld, tensor<4096x512xf8E4M3FN, #diagram.array<[n, k], level = device>> -> !C
    %c8 = diagram.cast %c : !C -> !Er
    hierarchy.yield %c8 : !Er
  }
  func.return %C : !E
}

// Sums of 16-bit products lose nothing, and nothing is said.

!H = tensor<4096x4096xf16, #diagram.array<[m, k]>>
!G = tensor<4096x4096xf16, #diagram.array<[n, k]>>
!Hd = tensor<4096x4096xf16, #diagram.array<[m, k], level = device>>
!Gd = tensor<4096x4096xf16, #diagram.array<[n, k], level = device>>

// CHECK-LABEL: func.func @halves(
// CHECK-NOT:   #hierarchy.step
// CHECK:       stream = [k = ?]>

func.func @halves(%A: !H, %B: !G) -> !C16 {
  %C = hierarchy.kernel @halves (%a = %A : !H as !Hd, %b = %B : !G as !Gd) -> (!C16)
      schedule #hierarchy.schedule<group = [m = ?, n = ?], stream = [k = ?]> {
    %c = diagram.contract %a, %b over [k] accumulate f32 : !Hd, !Gd -> !C
    %c16 = diagram.cast %c : !C -> !Cr16
    hierarchy.yield %c16 : !Cr16
  }
  func.return %C : !C16
}
