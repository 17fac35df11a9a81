// A matrix product: C = A B. Both operands lie transposed: the order of the axes in a
// type is the order in memory, and the product names its axes.
//
//   treadle run examples/matmul_tt.mlir --size m=1000 --size n=300 --size k=4096

!A = tensor<?x?xf16, #diagram.array<[k, m]>>
!B = tensor<?x?xf16, #diagram.array<[n, k]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
!C16 = tensor<?x?xf16, #diagram.array<[m, n]>>

func.func @matmul_tt(%A: !A, %B: !B) -> !C16
    attributes {sizes = #diagram.sizes<m = 200, n = 136, k = 333>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %C16 = diagram.cast %C : !C -> !C16
  func.return %C16 : !C16
}
