// A maximum of the elements that a condition leaves is no bound of the others, though they are computed alike: what
// counts of these while it is neutral is not nothing, and their powers are not at most 1.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @maximum_of_some_elements(%S: !S) -> (!s, !s) attributes {sizes = #diagram.sizes<q = 3, x = 3000>} {
  %W = diagram.where %S if "x > 2500" : !S
  %M = diagram.map (%a = %S : !S, %w = %W : !S) -> !S {
    %z = arith.subf %w, %w : f32
    %y = arith.addf %a, %z : f32
    diagram.yield %y : f32
  }
  %m = diagram.reduce max %M over [x] : !S -> !s
  %P = diagram.map (%a = %S : !S, %b = %m : !s) -> !S {
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %s = diagram.reduce add %P over [x] : !S -> !s
  func.return %m, %s : !s, !s
}
