// A product of which the contracted axis is much longer than the others: the tiles of the result are too few to fill
// the machine, so the contracted axis is cut into parts, and a second kernel adds up what they give.
//
//   treadle run examples/split_k.mlir --size m=50

!A = tensor<?x4096xf16, #diagram.array<[m, k]>>
!B = tensor<4096x?xf16, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
!C16 = tensor<?x?xf16, #diagram.array<[m, n]>>

func.func @split_k(%A: !A, %B: !B) -> !C16 attributes {sizes = #diagram.sizes<m = 64, n = 72>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %C16 = diagram.cast %C : !C -> !C16
  func.return %C16 : !C16
}
