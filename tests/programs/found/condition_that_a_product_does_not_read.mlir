// A late factor does not move past a sum where what stays behind would have elements that the product lacks.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @condition_that_a_product_does_not_read(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 11>} {
  %l = diagram.reduce add %S over [x] : !S -> !s
  %t = diagram.map (%a = %l : !s) -> !s {
    %d = math.tanh %a : f32
    diagram.yield %d : f32
  }
  %W = diagram.where %S if "x < 4" : !S
  %M = diagram.map (%a = %S : !S, %w = %W : !S, %b = %t : !s) -> !S {
    %d = arith.mulf %a, %b : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  func.return %s : !s
}
