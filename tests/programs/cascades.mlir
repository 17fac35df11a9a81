// Reductions in all directions: a softmin, a maximum of shifted values, a sum scaled by a running norm, a product.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>

func.func @cascades(%S: !S, %W: !S) -> (!r, !r, !r, !r) attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %least = diagram.reduce min %S over [x] : !S -> !r
  %E = diagram.map (%s = %S : !S, %r = %least : !r) -> !S {
    %d = arith.subf %r, %s : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %softmin = diagram.contract %E, %W over [x] accumulate f32 : !S, !S -> !r
  %total = diagram.reduce add %S over [x] : !S -> !r
  %shifted = diagram.map (%w = %W : !S, %t = %total : !r) -> !S {
    %half = arith.constant 0.5 : f32
    %a = arith.mulf %t, %half : f32
    %b = arith.subf %w, %a : f32
    diagram.yield %b : f32
  }
  %highest = diagram.reduce max %shifted over [x] : !S -> !r
  %power = diagram.contract %S, %S over [x] accumulate f32 : !S, !S -> !r
  %U = diagram.map (%w = %W : !S, %p = %power : !r) -> !S {
    %one = arith.constant 1.0 : f32
    %c = arith.addf %p, %one : f32
    %n = math.sqrt %c : f32
    %y = arith.divf %w, %n : f32
    diagram.yield %y : f32
  }
  %scaled = diagram.reduce add %U over [x] : !S -> !r
  %grown = diagram.map (%w = %W : !S) -> !S {  // so that products of many normal numbers stay in their range
    %c = arith.constant 1.875 : f32
    %g = arith.mulf %w, %c : f32
    diagram.yield %g : f32
  }
  %product = diagram.reduce mul %grown over [x] : !S -> !r
  func.return %softmin, %highest, %scaled, %product : !r, !r, !r, !r
}
