// A matrix product that is kept transposed: C lies in memory as [n, m]. Nothing is transposed; the type says so.
//
//   treadle run examples/matmul_transposed.mlir --size m=1000 --size n=300 --size k=4096

!A = tensor<?x?xbf16, #diagram.array<[m, k]>>
!B = tensor<?x?xbf16, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[n, m]>>
!C16 = tensor<?x?xbf16, #diagram.array<[n, m]>>

func.func @matmul_transposed(%A: !A, %B: !B) -> !C16
    attributes {sizes = #diagram.sizes<m = 200, n = 136, k = 333>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %C16 = diagram.cast %C : !C -> !C16
  func.return %C16 : !C16
}
