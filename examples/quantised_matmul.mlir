// Per-token quantisation, then a product in f8: every row of X is divided by its largest magnitude, so that it fills
// f8E4M3FN, multiplied by weights that are stored in f8 with a scale for each column, and scaled back. The scale of a
// row is known only when the row has been read once; a second pass over it rounds and multiplies.
//
//   treadle run examples/quantised_matmul.mlir --size t=100 --size i=4096

!X = tensor<?x?xf32, #diagram.array<[t, i]>>
!X8 = tensor<?x?xf8E4M3FN, #diagram.array<[t, i]>>
!W8 = tensor<?x?xf8E4M3FN, #diagram.array<[o, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!c = tensor<?xf32, #diagram.array<[o]>>
!Y = tensor<?x?xf32, #diagram.array<[t, o]>>

func.func @quantised_matmul(%X: !X, %W: !W8, %w_scale: !c) -> !Y
    attributes {sizes = #diagram.sizes<t = 70, i = 300, o = 136>} {
  %magnitude = diagram.map (%x = %X : !X) -> !X {
    %size = math.absf %x : f32
    diagram.yield %size : f32
  }
  %largest = diagram.reduce max %magnitude over [i] : !X -> !r
  %scale = diagram.map (%a = %largest : !r) -> !r {
    %most = arith.constant 448.0 : f32
    %least = arith.constant 1.0e-6 : f32
    %safe = arith.maximumf %a, %least : f32
    %s = arith.divf %safe, %most : f32
    diagram.yield %s : f32
  }
  %small = diagram.map (%x = %X : !X, %s = %scale : !r) -> !X {
    %q = arith.divf %x, %s : f32
    diagram.yield %q : f32
  }
  %X8 = diagram.cast %small fixed : !X -> !X8
  %Z = diagram.contract %X8, %W over [i] accumulate f32 : !X8, !W8 -> !Y
  %Y = diagram.map (%z = %Z : !Y, %s = %scale : !r, %w = %w_scale : !c) -> !Y {
    %a = arith.mulf %z, %s : f32
    %y = arith.mulf %a, %w : f32
    diagram.yield %y : f32
  }
  func.return %Y : !Y
}
