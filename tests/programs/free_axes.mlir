// Two axes that one operand alone has, a row of data along both of them, and one of each column: as one axis they are
// the rows of a product.

!X = tensor<?x3x16xf16, #diagram.array<[b, t, i]>>
!W = tensor<16x8xf16, #diagram.array<[i, o]>>
!n = tensor<?x3xi32, #diagram.array<[b, t]>>
!c = tensor<8xf32, #diagram.array<[o]>>
!Y = tensor<?x3x8xf32, #diagram.array<[b, t, o]>>
!m = tensor<?x3xf32, #diagram.array<[b, t]>>

func.func @free_axes(%X: !X, %W: !W, %n: !n, %c: !c) -> (!Y, !m) attributes {sizes = #diagram.sizes<b = 5>} {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  %Y = diagram.map (%p = %P : !Y, %a = %c : !c) -> !Y {
    %y = arith.addf %p, %a : f32
    diagram.yield %y : f32
  }
  %K = diagram.where %Y if "o < n[b, t]" with (n = %n : !n) : !Y
  %m = diagram.reduce max %K over [o] : !Y -> !m
  func.return %Y, %m : !Y, !m
}
