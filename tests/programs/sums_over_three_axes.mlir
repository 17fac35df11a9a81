// A sum over three axes of both factors, none of which lies right within another one in both.

!A = tensor<?x?x?x?xf16, #diagram.array<[a, m, b, k]>>
!B = tensor<?x?x?x?xf16, #diagram.array<[b, a, k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>

func.func @sums_over_three_axes(%A: !A, %B: !B) -> !C
    attributes {sizes = #diagram.sizes<a = 2, m = 36, b = 3, k = 20, n = 17>} {
  %C = diagram.contract %A, %B over [a, b, k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
