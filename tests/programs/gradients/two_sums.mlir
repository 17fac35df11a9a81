// Two sums of the same scores by different weights: only one of them is a result.

!A = tensor<?x?xf32, #diagram.array<[q, x]>>
!B = tensor<?x?xf32, #diagram.array<[q, x]>>
!V = tensor<?x?xf32, #diagram.array<[x, e]>>
!O = tensor<?x?xf32, #diagram.array<[q, e]>>

func.func @two_sums(%A: !A, %B: !B, %V: !V) -> (!O, !O) attributes {sizes = #diagram.sizes<q = 6, x = 9, e = 5>} {
  %S = diagram.apply @softmax(%A) over [x] : (!A) -> !A
  %T = diagram.apply @softmax(%B) over [x] : (!B) -> !B
  %O = diagram.contract %S, %V over [x] accumulate f32 : !A, !V -> !O
  %U = diagram.contract %T, %V over [x] accumulate f32 : !B, !V -> !O
  func.return %O, %U : !O, !O
}
