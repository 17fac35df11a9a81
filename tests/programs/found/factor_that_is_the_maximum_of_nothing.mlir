// The maximum of a row without elements is -inf, however small they would be, and zero times that is no number.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @factor_that_is_the_maximum_of_nothing(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 13>} {
  %W = diagram.where %S if "x < q" : !S
  %T = diagram.map (%a = %W : !S) -> !S {
    %d = math.tanh %a : f32
    diagram.yield %d : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !s
  %M = diagram.map (%a = %W : !S, %b = %m : !s) -> !S {
    %d = arith.mulf %a, %b : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  func.return %s : !s
}
