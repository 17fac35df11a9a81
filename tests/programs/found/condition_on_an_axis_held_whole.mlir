// How much of a stream a condition leaves depends on an axis that every group holds whole.

!X = tensor<40x?xf32, #diagram.array<[c, d]>>
!c = tensor<40xf32, #diagram.array<[c]>>
!r = tensor<f32, #diagram.array<[]>>
func.func @f(%X: !X, %w: !c) -> !r attributes {sizes = #diagram.sizes<d = 200>} {
  %W = diagram.where %X if "c - 4 <= d <= c + 3" : !X
  %m = diagram.reduce max %W over [d] : !X -> !c
  %r = diagram.contract %w, %m over [c] accumulate f32 : !c, !c -> !r
  func.return %r : !r
}
