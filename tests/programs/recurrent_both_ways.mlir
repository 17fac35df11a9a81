// A simple network in both directions: of the same tokens, with a matrix for each, from the first token on and from the
// last one.

!X = tensor<?x?x12xf32, #diagram.array<[b, t, j]>>
!W = tensor<12x12xf32, #diagram.array<[i, j]>>
!h = tensor<?x12xf32, #diagram.array<[b, j]>>
!g = tensor<?x12xf32, #diagram.array<[b, i]>>

func.func @both_ways(%X: !X, %V: !W, %W: !W, %H: !h) -> (!X, !h, !h)
    attributes {sizes = #diagram.sizes<b = 3, t = 8>} {
  %last, %Y = diagram.recurrence over t (%h = %H : !h) each (%x = %X : !X, %v = %V : !W) -> (!h, !X) {
    %g = diagram.rename %h (j as i) : !h -> !g
    %p = diagram.contract %g, %v over [i] accumulate f32 : !g, !W -> !h
    %n = diagram.map (%a = %p : !h, %c = %x : !h) -> !h {
      %eighth = arith.constant 0.125 : f32
      %s = arith.mulf %a, %eighth : f32
      %u = arith.addf %s, %c : f32
      %r = math.tanh %u : f32
      diagram.yield %r : f32
    }
    diagram.yield %n, %n : !h, !h
  }
  %first, %Z = diagram.recurrence over t reverse (%h = %H : !h) each (%x = %X : !X, %w = %W : !W) -> (!h, !X) {
    %g = diagram.rename %h (j as i) : !h -> !g
    %p = diagram.contract %g, %w over [i] accumulate f32 : !g, !W -> !h
    %n = diagram.map (%a = %p : !h, %c = %x : !h) -> !h {
      %eighth = arith.constant 0.125 : f32
      %s = arith.mulf %a, %eighth : f32
      %u = arith.addf %s, %c : f32
      %r = math.tanh %u : f32
      diagram.yield %r : f32
    }
    diagram.yield %n, %n : !h, !h
  }
  %S = diagram.map (%y = %Y : !X, %z = %Z : !X) -> !X {
    %s = arith.addf %y, %z : f32
    diagram.yield %s : f32
  }
  func.return %S, %last, %first : !X, !h, !h
}
