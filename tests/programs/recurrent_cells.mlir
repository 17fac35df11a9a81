// A cell with two states that gates of its own open, as in an LSTM without products: a state that neither is a sum nor is
// bounded by one, and what it is normalised by; both are results in the end. What is fed is computed by a kernel before,
// and a kernel behind reads what comes out.

!X = tensor<?x?x?xf32, #diagram.array<[b, t, c]>>
!H = tensor<?x?xf32, #diagram.array<[b, c]>>
!w = tensor<?xf32, #diagram.array<[c]>>
!Y = tensor<?x?xf32, #diagram.array<[b, t]>>

func.func @cells(%X: !X, %Z: !X, %H0: !H, %bias: !w) -> (!X, !H, !H, !Y)
    attributes {sizes = #diagram.sizes<b = 3, t = 20, c = 40>} {
  %half = diagram.map (%x = %X : !X) -> !X {
    %c = arith.constant 0.5 : f32
    %y = arith.mulf %x, %c : f32
    diagram.yield %y : f32
  }
  %one = diagram.fill 1.0 : f32 -> !H
  %H, %N, %Y = diagram.recurrence over t (%h = %H0 : !H, %n = %one : !H)
      each (%x = %half : !X, %z = %Z : !X, %shift = %bias : !w) -> (!H, !H, !X) {
    %gate = diagram.map (%a = %z : !H, %s = %h : !H, %k = %shift : !w) -> !H {
      %unit = arith.constant 1.0 : f32
      %t = arith.addf %a, %s : f32
      %u = arith.addf %t, %k : f32
      %m = arith.negf %u : f32
      %e = math.exp %m : f32
      %d = arith.addf %unit, %e : f32
      %g = arith.divf %unit, %d : f32
      diagram.yield %g : f32
    }
    %next = diagram.map (%s = %h : !H, %g = %gate : !H, %a = %x : !H) -> !H {
      %unit = arith.constant 1.0 : f32
      %d = math.tanh %a : f32
      %shut = arith.subf %unit, %g : f32
      %old = arith.mulf %shut, %s : f32
      %new = arith.mulf %g, %d : f32
      %r = arith.addf %old, %new : f32
      diagram.yield %r : f32
    }
    %most = diagram.map (%m = %n : !H, %g = %gate : !H) -> !H {
      %c = arith.constant 0.75 : f32
      %p = arith.mulf %m, %c : f32
      %r = arith.maximumf %p, %g : f32
      diagram.yield %r : f32
    }
    %y = diagram.map (%r = %next : !H, %m = %most : !H, %s = %h : !H) -> !H {
      %d = arith.divf %r, %m : f32
      %q = arith.addf %d, %s : f32
      diagram.yield %q : f32
    }
    diagram.yield %next, %most, %y : !H, !H, !H
  }
  %sum = diagram.reduce add %Y over [c] : !X -> !Y
  func.return %Y, %H, %N, %sum : !X, !H, !H, !Y
}
