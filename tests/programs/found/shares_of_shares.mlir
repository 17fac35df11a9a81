// A softmax over one axis, then shares over the other: no group cuts an axis of the product, so that no kernel may hold
// all of it, though both axes are short.

!Q = tensor<70x64xf16, #diagram.array<[q, d]>>
!K = tensor<93x64xf16, #diagram.array<[x, d]>>
!V = tensor<93x64xf16, #diagram.array<[x, e]>>
!S = tensor<70x93xf32, #diagram.array<[q, x]>>
!n = tensor<70xf32, #diagram.array<[q]>>
!P = tensor<70x93xf16, #diagram.array<[q, x]>>
!A = tensor<70x64xf32, #diagram.array<[q, e]>>

func.func @f(%Q: !Q, %K: !K, %V: !V) -> !A {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %P = diagram.apply @softmax(%S) over [q] : (!S) -> !S
  %n = diagram.reduce add %P over [x] : !S -> !n
  %N = diagram.map (%p = %P : !S, %l = %n : !n) -> !S {
    %t = arith.divf %p, %l : f32
    diagram.yield %t : f32
  }
  %N16 = diagram.cast %N : !S -> !P
  %O = diagram.contract %N16, %V over [x] accumulate f32 : !P, !V -> !A
  func.return %O : !A
}
