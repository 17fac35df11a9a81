// Softmax, then a product: P = softmax(A) W without any scores to compute. Maximum, sum and product run in one
// stream, the last two repaired as the maximum moves.
//
//   treadle run examples/softmax_matmul.mlir --size row=7 --size x=5000

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!P = tensor<?x?xf16, #diagram.array<[row, x]>>
!W = tensor<?x?xf16, #diagram.array<[x, e]>>
!O = tensor<?x?xf32, #diagram.array<[row, e]>>

func.func @softmax_matmul(%A: !A, %W: !W) -> !O
    attributes {sizes = #diagram.sizes<row = 77, x = 333, e = 72>} {
  %P = diagram.apply @softmax(%A) over [x] : (!A) -> !A
  %P16 = diagram.cast %P : !A -> !P
  %O = diagram.contract %P16, %W over [x] accumulate f32 : !P, !W -> !O
  func.return %O : !O
}
