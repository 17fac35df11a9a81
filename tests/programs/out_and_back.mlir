// What one kernel makes goes out through another, which reduces another axis, and comes back: they cannot be one.

!X = tensor<?x?xf32, #diagram.array<[i, x]>>
!i = tensor<?xf32, #diagram.array<[i]>>
!x = tensor<?xf32, #diagram.array<[x]>>
func.func @out_and_back(%X: !X) -> !i attributes {sizes = #diagram.sizes<i = 9, x = 23>} {
  %rows = diagram.reduce max %X over [x] : !X -> !i
  %Y = diagram.map (%a = %X : !X, %r = %rows : !i) -> !X {
    %y = arith.subf %a, %r : f32
    diagram.yield %y : f32
  }
  %columns = diagram.reduce max %Y over [i] : !X -> !x
  %sums = diagram.contract %Y, %columns over [x] accumulate f32 : !X, !x -> !i
  func.return %sums : !i
}
