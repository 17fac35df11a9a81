// A product kept in f32 and rounded to f16 at its end, into an array that is there already.

!A = tensor<?x?xf16, #diagram.array<[m, k]>>
!B = tensor<?x?xf16, #diagram.array<[n, k]>>
!C = tensor<?x?xf16, #diagram.array<[m, n]>>

func.func @narrow_result(%A: !A, %B: !B, %C: !C) -> !C attributes {sizes = #diagram.sizes<m = 9, n = 11, k = 37>} {
  %D = diagram.contract %A, %B over [k] accumulate f32 into %C : !A, !B -> !C
  func.return %D : !C
}
