// A sum of products whose factor is absent in a row is a sum of nothing, which is zero and there: the factor stays.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @absent_factor_of_a_sum(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 13>} {
  %l = diagram.reduce add %S over [x] : !S -> !s
  %t = diagram.map (%a = %l : !s) -> !s {
    %d = math.tanh %a : f32
    diagram.yield %d : f32
  }
  %w = diagram.where %t if "q < 2" : !s
  %M = diagram.map (%a = %S : !S, %b = %w : !s) -> !S {
    %d = arith.mulf %a, %b : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  %o = diagram.map (%a = %s : !s) -> !s {
    %d = math.exp %a : f32
    diagram.yield %d : f32
  }
  func.return %o : !s
}
