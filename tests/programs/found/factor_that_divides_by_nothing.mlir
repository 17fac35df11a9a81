// A mean of nothing is no number, and a sum of nothing is zero: the mean does not move past it.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @factor_that_divides_by_nothing(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 13>} {
  %W = diagram.where %S if "x < q" : !S
  %one = diagram.map (%a = %W : !S) -> !S {
    %d = arith.constant 1.0 : f32
    diagram.yield %d : f32
  }
  %n = diagram.reduce add %one over [x] : !S -> !s
  %l = diagram.reduce add %W over [x] : !S -> !s
  %t = diagram.map (%a = %l : !s, %b = %n : !s) -> !s {
    %d = arith.divf %a, %b : f32
    %e = math.tanh %d : f32
    diagram.yield %e : f32
  }
  %M = diagram.map (%a = %W : !S, %b = %t : !s) -> !S {
    %d = arith.mulf %a, %b : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  func.return %s : !s
}
