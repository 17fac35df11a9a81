// Many matrix products at once: the batch axis b is weaved, that is, it stands in every array and no
// operation names it.
//
//   treadle run examples/batched_matmul.mlir --size b=7 --size m=65

!A = tensor<?x?x64xbf16, #diagram.array<[b, m, k]>>
!B = tensor<?x64x?xbf16, #diagram.array<[b, k, n]>>
!C = tensor<?x?x?xf32, #diagram.array<[b, m, n]>>

func.func @batched_matmul(%A: !A, %B: !B) -> !C
    attributes {sizes = #diagram.sizes<b = 6, m = 100, n = 72>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
