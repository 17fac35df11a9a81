// RUN: xdsl-opt -p 'diagram-expand-laws' %s | filecheck %s

// A law of the module itself stands before a standard one; it computes in f32, so bf16 is cast on both sides.

!x = tensor<?xf32, #diagram.array<[i]>>
!s = tensor<f32, #diagram.array<[]>>
!S = tensor<?x4x?xf32, #diagram.array<[k, h, q]>>
!B = tensor<?x?xbf16, #diagram.array<[q, k]>>

diagram.law @centre over [i] (%v : !x, %by : !s) -> !x {
  %largest = diagram.reduce max %v over [i] : !x -> !s
  %y = diagram.map (%a = %v : !x, %b = %largest : !s, %c = %by : !s) -> !x {
    %d = arith.subf %a, %b : f32
    %e = arith.mulf %d, %c : f32
    diagram.yield %e : f32
  }
  diagram.yield %y : !x
}

// CHECK-LABEL: func.func @standard
// CHECK:       %m = diagram.reduce max %S over [k] : tensor<?x4x?xf32, #diagram.array<[k, h, q]>> -> tensor<4x?xf32, #diagram.array<[h, q]>>
// CHECK-NEXT:  %e = diagram.map (%a = %S : {{.*}}, %b = %m : {{.*}}) -> tensor<?x4x?xf32, #diagram.array<[k, h, q]>> {
// CHECK-NEXT:    %shifted = arith.subf %a, %b : f32
// CHECK-NEXT:    %exp = math.exp %shifted : f32
// CHECK-NEXT:    diagram.yield %exp : f32
// CHECK:       %l = diagram.reduce add %e over [k]
// CHECK-NEXT:  %P = diagram.map (%a = %e : {{.*}}, %b = %l : {{.*}}) -> tensor<?x4x?xf32, #diagram.array<[k, h, q]>> {
// CHECK-NEXT:    %share = arith.divf %a, %b : f32
// CHECK:       func.return %P
func.func @standard(%S: !S) -> !S {
  %P = diagram.apply @softmax(%S) over [k] : (!S) -> !S
  func.return %P : !S
}

// CHECK-LABEL: func.func @own
// CHECK:       %B_f32 = diagram.cast %B : tensor<?x?xbf16, #diagram.array<[q, k]>> -> tensor<?x?xf32, #diagram.array<[q, k]>>
// CHECK-NEXT:  %largest = diagram.reduce max %B_f32 over [k] : {{.*}} -> tensor<?xf32, #diagram.array<[q]>>
// CHECK-NEXT:  %y = diagram.map (%a = %B_f32 : {{.*}}, %b = %largest : {{.*}}, %c = %by : tensor<f32, #diagram.array<[]>>) -> tensor<?x?xf32, #diagram.array<[q, k]>> {
// CHECK:       %C = diagram.cast %y : tensor<?x?xf32, #diagram.array<[q, k]>> -> tensor<?x?xbf16, #diagram.array<[q, k]>>
// CHECK-NEXT:  func.return %C
func.func @own(%B: !B, %by: !s) -> !B {
  %C = diagram.apply @centre(%B, %by) over [k] : (!B, !s) -> !B
  func.return %C : !B
}

// In a step of a recurrence the length of what is reduced is a number.
// CHECK-LABEL: func.func @in_a_step
// CHECK:       %S = diagram.recurrence over t
// CHECK-NEXT:    %n = diagram.fill 8 : i32 -> tensor<i32, #diagram.array<[]>>
// CHECK-NEXT:    %s = diagram.reduce add %x over [b]
// CHECK-NEXT:    %y = diagram.map (%a = %s : {{.*}}, %b = %n : tensor<i32, #diagram.array<[]>>)
// CHECK:         diagram.yield %y
!X = tensor<?x8xf32, #diagram.array<[t, b]>>
!b = tensor<8xf32, #diagram.array<[b]>>
func.func @in_a_step(%X: !X, %S0: !s) -> !s {
  %S = diagram.recurrence over t (%h = %S0 : !s) each (%x = %X : !X) -> (!s) {
    %y = diagram.apply @mean(%x) over [b] : (!b) -> !s
    diagram.yield %y : !s
  }
  func.return %S : !s
}
