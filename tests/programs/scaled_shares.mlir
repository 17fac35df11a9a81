// Shares of scores that are scaled by a number of the program: one that is above zero, whatever is given, passes the
// maximum, and the factor of the shares becomes part of the powers. The scale of %low is below zero, and stays.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!V = tensor<?x?xf32, #diagram.array<[x, e]>>
!l = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x?xf32, #diagram.array<[q, e]>>

func.func @scaled_shares(%S: !S, %V: !V, %given: f32) -> (!O, !l)
    attributes {sizes = #diagram.sizes<q = 9, x = 37, e = 6>} {
  %T = diagram.map (%s = %S : !S, %g = %given : f32) -> !S {
    %size = math.absf %g : f32
    %least = arith.constant 0.5 : f32
    %scale = arith.maximumf %size, %least : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %large = diagram.map (%p = %P : !S) -> !S {
    %most = arith.constant 256.0 : f32
    %y = arith.mulf %p, %most : f32
    diagram.yield %y : f32
  }
  %O = diagram.contract %large, %V over [x] accumulate f32 : !S, !V -> !O
  %N = diagram.map (%s = %S : !S, %g = %given : f32) -> !S {
    %size = math.absf %g : f32
    %least = arith.constant 0.5 : f32
    %above = arith.maximumf %size, %least : f32
    %scale = arith.negf %above : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %low = diagram.reduce max %N over [x] : !S -> !l
  func.return %O, %low : !O, !l
}
