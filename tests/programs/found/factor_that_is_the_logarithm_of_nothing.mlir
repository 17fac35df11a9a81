// A sum of powers is zero in a row without elements, and its logarithm -inf: no factor that moves past a sum.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @factor_that_is_the_logarithm_of_nothing(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 13>} {
  %W = diagram.where %S if "x < q" : !S
  %m = diagram.reduce max %W over [x] : !S -> !s
  %P = diagram.map (%a = %W : !S, %b = %m : !s) -> !S {
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %P over [x] : !S -> !s
  %M = diagram.map (%a = %W : !S, %b = %l : !s) -> !S {
    %d = math.log %b : f32
    %e = arith.mulf %a, %d : f32
    diagram.yield %e : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  func.return %s : !s
}
