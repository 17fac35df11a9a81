// What a product sums over has one element, and its tensor cores take eight at a time: the other seven of the operand
// that is computed, and written to shared memory, are zeros.

!A = tensor<1x64x?xf32, #diagram.array<[a, e, c]>>
!B = tensor<?x1xf32, #diagram.array<[c, a]>>
!s = tensor<64x1xf32, #diagram.array<[e, a]>>
!C = tensor<64x?xf32, #diagram.array<[e, c]>>

func.func @short_axis(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<c = 37>} {
  %s = diagram.reduce add %A over [c] : !A -> !s
  %C = diagram.contract %s, %B over [a] accumulate f32 as tf32 : !s, !B -> !C
  func.return %C : !C
}
