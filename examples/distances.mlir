// Distances between all pairs of points, each the sum of the absolute differences of their coordinates: a block
// has rows and columns of pairs, as of a product.
//
//   treadle run examples/distances.mlir --size i=100 --size j=120 --size c=40

!X = tensor<?x?xf32, #diagram.array<[i, c]>>
!Y = tensor<?x?xf32, #diagram.array<[j, c]>>
!T = tensor<?x?x?xf32, #diagram.array<[i, j, c]>>
!D = tensor<?x?xf32, #diagram.array<[i, j]>>

func.func @distances(%X: !X, %Y: !Y) -> !D attributes {sizes = #diagram.sizes<i = 4096, j = 4096, c = 128>} {
  %T = diagram.map (%x = %X : !X, %y = %Y : !Y) -> !T {
    %difference = arith.subf %x, %y : f32
    %t = math.absf %difference : f32
    diagram.yield %t : f32
  }
  %D = diagram.reduce add %T over [c] : !T -> !D
  func.return %D : !D
}
