// The largest of each row of which elements are equal in pairs: what counts for it goes to both.

!X = tensor<?xf32, #diagram.array<[i]>>
!Y = tensor<?x?xf32, #diagram.array<[i, j]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!Z = tensor<?xf32, #diagram.array<[j]>>

func.func @ties(%X: !X, %Z: !Z) -> !r attributes {sizes = #diagram.sizes<i = 9, j = 7>} {
  %Y = diagram.map (%x = %X : !X, %z = %Z : !Z) -> !Y {
    %zero = arith.constant 0.0 : f32
    %none = arith.mulf %z, %zero : f32
    %y = arith.addf %x, %none : f32
    diagram.yield %y : f32
  }
  %m = diagram.reduce max %Y over [j] : !Y -> !r
  func.return %m : !r
}
