// Linear attention with gates in both directions: from the last token on with a gate for each key channel, from the
// first one on with a matrix that all tokens share.

!K = tensor<?x?x8xf32, #diagram.array<[h, t, d]>>
!V = tensor<?x?x?xf32, #diagram.array<[h, t, e]>>
!W = tensor<8x8xf32, #diagram.array<[d, f]>>
!S = tensor<?x8x?xf32, #diagram.array<[h, d, e]>>
!k = tensor<?x8xf32, #diagram.array<[h, d]>>
!v = tensor<?x?xf32, #diagram.array<[h, e]>>
!f = tensor<?x8x?xf32, #diagram.array<[h, f, e]>>

func.func @gates_both_ways(%Q: !K, %K: !K, %V: !V, %G: !K, %W: !W) -> (!V, !S, !S)
    attributes {sizes = #diagram.sizes<h = 2, t = 11, e = 5>} {
  %none = diagram.fill 0.0 : f32 -> !S
  %R, %Y = diagram.recurrence over t reverse (%s = %none : !S)
      each (%q = %Q : !K, %k = %K : !K, %v = %V : !V, %g = %G : !K) -> (!S, !V) {
    %after = diagram.map (%a = %s : !S, %b = %k : !k, %c = %v : !v, %d = %g : !k) -> !S {
      %one = arith.constant 1.0 : f32
      %u = arith.mulf %d, %d : f32
      %w = arith.addf %u, %one : f32
      %x = arith.divf %a, %w : f32
      %y = arith.mulf %b, %c : f32
      %z = arith.addf %x, %y : f32
      diagram.yield %z : f32
    }
    %o = diagram.contract %q, %after over [d] accumulate f32 : !k, !S -> !v
    diagram.yield %after, %o : !S, !v
  }
  %S, %Z = diagram.recurrence over t (%s = %none : !S)
      each (%q = %Q : !K, %k = %K : !K, %v = %V : !V, %w = %W : !W) -> (!S, !V) {
    %r = diagram.rename %s (d as f) : !S -> !f
    %m = diagram.contract %w, %r over [f] accumulate f32 : !W, !f -> !S
    %after = diagram.map (%a = %s : !S, %b = %m : !S, %c = %k : !k, %d = %v : !v) -> !S {
      %eighth = arith.constant 0.125 : f32
      %u = arith.mulf %eighth, %b : f32
      %x = arith.subf %a, %u : f32
      %y = arith.mulf %c, %d : f32
      %z = arith.subf %y, %x : f32
      diagram.yield %z : f32
    }
    %o = diagram.contract %q, %after over [d] accumulate f32 : !k, !S -> !v
    diagram.yield %after, %o : !S, !v
  }
  %O = diagram.map (%y = %Y : !V, %z = %Z : !V) -> !V {
    %s = arith.addf %y, %z : f32
    diagram.yield %s : f32
  }
  func.return %O, %R, %S : !V, !S, !S
}
