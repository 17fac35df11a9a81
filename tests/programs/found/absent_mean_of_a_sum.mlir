// A sum of products with the distance from a mean that is absent in a row is a sum of nothing, too, whatever moments it
// is made of.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @absent_mean_of_a_sum(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 13>} {
  %l = diagram.apply @mean(%S) over [x] : (!S) -> !s
  %w = diagram.where %l if "q < 2" : !s
  %M = diagram.map (%a = %S : !S, %b = %w : !s) -> !S {
    %d = arith.subf %a, %b : f32
    %e = arith.mulf %d, %a : f32
    diagram.yield %e : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  %o = diagram.map (%a = %s : !s) -> !s {
    %d = arith.constant 1.0 : f32
    %e = arith.addf %a, %d : f32
    diagram.yield %e : f32
  }
  func.return %o : !s
}
