// A scale does not move past a maximum where the map that it stands in lacks elements by an operand that it does not
// read.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @condition_that_a_maximum_does_not_read(%S: !S) -> (!s, !s) attributes {sizes = #diagram.sizes<q = 3, x = 11>} {
  %W = diagram.where %S if "x < 4" : !S
  %M = diagram.map (%a = %S : !S, %w = %W : !S) -> !S {
    %c = arith.constant 2.0 : f32
    %d = arith.mulf %a, %c : f32
    diagram.yield %d : f32
  }
  %m = diagram.reduce max %M over [x] : !S -> !s
  %n = diagram.reduce min %M over [x] : !S -> !s
  func.return %m, %n : !s, !s
}
