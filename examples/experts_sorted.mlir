// Products whose rows are sorted by the weights that they are multiplied with, as tokens by expert: rows from where those
// of the expert before end up to `ends[i]` meet the weights of expert i. Nothing is padded: a block of rows in which one
// expert ends and the next begins meets both, each with zeros in the place of the other's rows.
//
//   treadle run examples/experts_sorted.mlir --size t=1000

!X = tensor<?x128xf16, #diagram.array<[t, k]>>
!W = tensor<5x128x?xf16, #diagram.array<[i, k, n]>>
!ends = tensor<5xi32, #diagram.array<[i]>>
!P = tensor<5x?x?xf32, #diagram.array<[i, t, n]>>
!Y = tensor<?x?xf32, #diagram.array<[t, n]>>
!Z = tensor<?x?xf16, #diagram.array<[t, n]>>

func.func @experts_sorted(%X: !X, %W: !W, %ends: !ends {diagram.up_to = "t", diagram.ascending}) -> !Z
    attributes {sizes = #diagram.sizes<t = 333, n = 72>} {
  %P = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !P
  %begins = diagram.read %ends at "i - 1" padded : !ends -> !ends
  %Q = diagram.where %P if "begins[i] <= t and t < ends[i]" with (begins = %begins : !ends, ends = %ends : !ends) : !P
  %Y = diagram.reduce add %Q over [i] : !P -> !Y
  %Z = diagram.cast %Y : !Y -> !Z
  func.return %Z : !Z
}
