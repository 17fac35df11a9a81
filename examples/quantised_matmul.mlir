// A product with row-wise scales: every row of X is divided by its largest magnitude, as a quantisation does,
// multiplied in f16, and scaled back. The scale follows its row through the product, so all is one pass.
//
//   treadle run examples/quantised_matmul.mlir --size t=100 --size i=4096

!X = tensor<?x?xf32, #diagram.array<[t, i]>>
!X16 = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<?x?xf16, #diagram.array<[i, o]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!Y = tensor<?x?xf32, #diagram.array<[t, o]>>

func.func @quantised_matmul(%X: !X, %W: !W) -> !Y
    attributes {sizes = #diagram.sizes<t = 70, i = 300, o = 136>} {
  %magnitude = diagram.map (%x = %X : !X) -> !X {
    %size = math.absf %x : f32
    diagram.yield %size : f32
  }
  %largest = diagram.reduce max %magnitude over [i] : !X -> !r
  %scale = diagram.map (%a = %largest : !r) -> !r {
    %least = arith.constant 1.0e-6 : f32
    %safe = arith.maximumf %a, %least : f32
    diagram.yield %safe : f32
  }
  %small = diagram.map (%x = %X : !X, %s = %scale : !r) -> !X {
    %q = arith.divf %x, %s : f32
    diagram.yield %q : f32
  }
  %small16 = diagram.cast %small : !X -> !X16
  %Z = diagram.contract %small16, %W over [i] accumulate f32 : !X16, !W -> !Y
  %Y = diagram.map (%z = %Z : !Y, %s = %scale : !r) -> !Y {
    %y = arith.mulf %z, %s : f32
    diagram.yield %y : f32
  }
  func.return %Y : !Y
}
